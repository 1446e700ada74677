package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// reference is the token that the graph's sample chooses.
func reference(t *testing.T, logits []float32, temperature float32, topK int64, topP float32, seed int64) int {
	t.Helper()
	def := ir.LookupOp("sample")
	operand := func(tensor *eval.Tensor) []eval.Value { return []eval.Value{{Tensor: tensor}} }
	values := map[string][]eval.Value{
		"logits":      operand(eval.Floats(ir.F32, []int{1, len(logits)}, logits)),
		"temperature": operand(eval.Floats(ir.F32, nil, []float32{temperature})),
		"top_k":       operand(eval.Ints(ir.I64, nil, []int64{topK})),
		"top_p":       operand(eval.Floats(ir.F32, nil, []float32{topP})),
		"seed":        operand(eval.Ints(ir.I64, nil, []int64{seed})),
	}
	c := &eval.Call{Op: &ir.Op{Def: def, Attrs: def.NewAttrs(), Args: make([][]ir.Arg, len(def.Operands)),
		Results: []*ir.Value{{Type: ir.Type{DType: ir.I64}}}}}
	for _, o := range def.Operands {
		c.Args = append(c.Args, values[o.Name])
	}
	out, err := eval.Run(c)
	require.NoError(t, err)
	return int(out[0].Tensor.I[0])
}

func TestSample(t *testing.T) {
	t.Parallel()
	flat := make([]float32, 1500)
	peaked := seeded(4).floats(2200)
	for i := range peaked {
		peaked[i] *= 4
	}
	holes := seeded(5).floats(97)
	for i := range holes {
		if i%3 != 0 {
			holes[i] = float32(math.Inf(-1))
		}
	}
	for name, c := range map[string]struct {
		logits []float32
		runs   []struct {
			temperature float32
			topK        int64
			topP        float32
		}
	}{
		"peaked": {peaked, []struct {
			temperature float32
			topK        int64
			topP        float32
		}{{0, 20, 0.9}, {-1, 0, 1}, {1, 0, 1}, {0.7, 20, 1}, {1.3, 20, 0.8}, {0.5, 0, 0.9}, {30, 0, 0.9}, {9, 700, 1},
			{30, 1500, 0.5}, {1, 1, 1}, {1, 5, 0}, {0.01, 9000, 0.5}, {30, 65, 0.3}, {30, 60, 0.2}, {1, 0, 0.97}}},
		"flat": {flat, []struct {
			temperature float32
			topK        int64
			topP        float32
		}{{1, 3, 1}, {1, 3, 0.5}, {2, 0, 0.3}, {0, 0, 1}}},
		"holes": {holes, []struct {
			temperature float32
			topK        int64
			topP        float32
		}{{1, 60, 1}, {1, 5, 0.7}, {1, 0, 1}, {3, 0, 0.99}, {0, 0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kernels.Sample{Vocab: len(c.logits), Filters: true}
			for i, r := range c.runs {
				seed := int64(i) - 2
				want := reference(t, c.logits, r.temperature, r.topK, r.topP, seed)
				d := kernels.Draw{Logits: c.logits, Temperature: r.temperature, TopK: r.topK, TopP: r.topP, Seed: seed,
					Key: numeric.Key(uint64(int32(seed)))}
				require.Equal(t, want, s.Reference(d), "%+v", r)
				kerneltest.Check(t, s.Case(d))
			}
		})
	}
}

// TestSampleKinds: the sampler that takes a temperature only, and the argmax.
func TestSampleKinds(t *testing.T) {
	t.Parallel()
	logits := seeded(3).floats(2100)
	for i := range logits {
		logits[i] = float32(int(logits[i] * 2)) // many that are equal
	}
	logits[3] = float32(math.NaN())
	for i, s := range []kernels.Sample{{Vocab: len(logits), Greedy: true}, {Vocab: len(logits)}} {
		for _, temperature := range []float32{0, 1.5} {
			kerneltest.Check(t, s.Case(kernels.Draw{Logits: logits, Temperature: temperature, TopP: 1,
				Key: [2]uint32{7, uint32(i)}}))
		}
	}
	_, _, _, err := kernels.Sample{Vocab: 0}.Launches()
	require.EqualError(t, err, "sampling of 0 logits (greedy false, filters false), want 1 to 2^19, and no filters where it is greedy")
}
