package builder

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/huggingface"
)

func decoder() Decoder {
	return Decoder{DType: ir.BF16, Vocabulary: 7, Depth: 3, Limits: Limits{Chunk: 4},
		Tokens: huggingface.Tokens{BOS: huggingface.NoToken}}
}

// TestWindowMask compares the mask and the slots of a ring with a ring that is written position by
// position, for every call that windows and chunks allow.
func TestWindowMask(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {5, 3}, {5, 5}, {8, 4}} {
		window, chunk := size[0], size[1]
		t.Run(fmt.Sprintf("window %d, chunk %d", window, chunk), func(t *testing.T) {
			m, err := Build(decoder(), Options{MaxSeqLen: 64, MaxPrefillChunk: chunk, NoSampler: true},
				func(g *Graph) *ir.Value {
					r := g.newRing(window)
					ints := []*ir.Value{r.start, r.stop, r.fit, r.rest}
					for i, v := range ints {
						ints[i] = g.Value("full", &ir.DTypeAttrs{ScalarType: ir.I32}, []int64{1, int64(r.slots)}, v)
					}
					mask := g.Cast(r.mask, ir.I32)
					return g.Value("concatenate", nil, append(ints, mask))
				})
			require.NoError(t, err)
			machine, err := eval.NewMachine(m, eval.FP32, nil)
			require.NoError(t, err)
			slots := window + chunk - 1
			for tokens := 1; tokens <= chunk; tokens++ {
				holds := make([]int, slots) // position + 1 by slot; 0 is empty
				for start := 0; start <= 3*slots; start++ {
					now := append([]int(nil), holds...)
					for p := start; p < start+tokens; p++ {
						now[p%slots] = p + 1
					}
					in := func(shape ...int) eval.Value {
						v := make([]int64, tokens)
						v[0] = int64(start)
						return eval.Value{Tensor: eval.Ints(ir.I64, shape, v)}
					}
					out, err := machine.Run([]eval.Value{in(1, tokens), in(tokens)})
					require.NoError(t, err)
					have := out[0].Tensor.I
					first := start % slots
					fit := min(tokens, slots-first)
					require.EqualValues(t, []int64{int64(first), int64(first + fit), int64(fit), int64(tokens - fit)},
						[]int64{have[0], have[slots], have[2*slots], have[3*slots]})
					for i := range tokens {
						for j, held := range now {
							back := start + i - (held - 1)
							sees := int64(0)
							if held > 0 && back >= 0 && back < window {
								sees = 1
							}
							require.Equal(t, sees, have[(4+i)*slots+j], "position %d, slot %d of %v", start+i, j, now)
						}
					}
					holds[start%slots] = start + 1 // one by one, so that every start occurs
				}
			}
		})
	}
}

func TestBuildErrors(t *testing.T) {
	heads := func(g *Graph) *ir.Value {
		return g.Reshape(g.Cast(g.Tokens, ir.BF16), 1, 1, -1, 1)
	}
	tests := []struct {
		name    string
		options Options
		forward func(*Graph) *ir.Value
		err     string
	}{
		{"option", Options{MaxSeqLen: -3}, heads,
			"max_seq_len: expected 2 to 1073741824, which positions in 32 bits allow, found -3"},
		{"buffer", Options{MaxSeqLen: 1 << 30}, func(g *Graph) *ir.Value {
			g.Buffer("cache", ir.BF16, 1, 4, g.Options.MaxSeqLen, 1<<20)
			return heads(g)
		}, "max_seq_len 1073741824 makes the buffer cache 9007199254740992 bytes large, expected at most 4294967296; choose a smaller max_seq_len"},
		{"two windows", Options{}, func(g *Graph) *ir.Value {
			x := heads(g)
			g.AttendWindow("a", x, x, x, 1, 8)
			return g.AttendWindow("b", x, x, x, 1, 9)
		}, "b: expected the window of the other sliding layers, 8, found 9"},
		{"types", Options{}, func(g *Graph) *ir.Value {
			return g.Linear(g.Cast(g.Tokens, ir.BF16),
				Weight{Name: "w", Data: ir.Float32s([]int64{2, 9}, make([]float32, 18)...)})
		}, "linear"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Build(decoder(), test.options, test.forward)
			require.ErrorContains(t, err, test.err)
		})
	}
}
