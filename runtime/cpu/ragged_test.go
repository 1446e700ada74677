package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// raggedOps is a program of the operations on blocks and slots, for rows of some sequences. Caches of dtype u32 are in
// codes of 8 bits; their keys are not rotated, so that all engines round the same numbers.
func raggedOps(window int, dtype string, channelFirst bool) string {
	state, keys, values, written, floats := "8,4,24", 16, 32, "2", dtype
	if dtype == "u32" {
		keys, values, written, floats = ir.Q8Words(16), ir.Q8Words(32), "0", "bf16"
	}
	if channelFirst {
		state = "8,24,4"
	}
	return fmt.Sprintf(`module {
  symbol r [1, 64]
  symbol w [1, 64]
  constant @taps : f32[24,4,1]
  buffer @k : %[2]s[2,200,8,%[5]d]
  buffer @v : %[2]s[2,200,8,%[6]d]
  buffer @conv : %[8]s[%[3]s]
  buffer @delta : %[8]s[8,4,6,16]
  entry forward(%%positions: i64[r], %%sequences: i32[r], %%blocks: i32[4,100], %%entries: i32[4,3], %%writes: i32[r], %%wanted: i32[w], %%q: f32[1,r,4,16], %%kv: f32[1,2,r,48], %%x: f32[1,r,24], %%dq: f32[1,r,2,16], %%dv: f32[1,r,4,6], %%g: f32[1,r,4]) {
    %%0 = slice(x=%%kv, axis=3, start=0, stop=16) : f32[1,2,r,16]
    %%1 = slice(x=%%kv, axis=3, start=16, stop=48) : f32[1,2,r,32]
    %%2 = rope_rows(x=%%0, positions=%%positions) {dims=12, base=10000.0} : f32[1,2,r,16]
    block_write @k(update=%%%[7]s, positions=%%positions, sequences=%%sequences, blocks=%%blocks)
    block_write @v(update=%%1, positions=%%positions, sequences=%%sequences, blocks=%%blocks)
    %%3 = load @k() : %[2]s[2,200,8,%[5]d]
    %%4 = load @v() : %[2]s[2,200,8,%[6]d]
    %%5 = transpose(x=%%q) {perm=[0, 2, 1, 3]} : f32[1,4,r,16]
    %%6 = block_attention(q=%%5, k=%%3, v=%%4, positions=%%positions, sequences=%%sequences, blocks=%%blocks) {scale=0.25, window=%[1]d} : f32[1,4,r,32]
    %%11 = block_attention(q=%%5, k=%%3, v=%%4, positions=%%positions, sequences=%%sequences, blocks=%%blocks) {scale=0.25, window=%[1]d, first=3} : f32[1,4,r,32]
    %%7 = slot_conv @conv(x=%%x, w=@taps, entries=%%entries, writes=%%writes) {activation="silu", channel_first=%[4]t} : f32[1,r,24]
    %%8 = slot_delta_rule @delta(q=%%dq, k=%%dq, v=%%dv, g=%%g, beta=%%g, entries=%%entries, writes=%%writes) : f32[1,r,4,6]
    %%9 = take(x=%%7, index=%%wanted) {axis=1} : f32[1,w,24]
    %%10 = take(x=%%positions, index=%%wanted) : i64[w]
    return %%6: f32[1,4,r,32], %%8: f32[1,r,4,6], %%9: f32[1,w,24], %%10: i64[w], %%11: f32[1,4,r,32]
  }
  entry copy(%%pairs: i32[p,2]) {
    unit_copy @k(pairs=%%pairs) {axis=1}
    unit_copy @delta(pairs=%%pairs)
    return
  }
}
`, window, dtype, state, channelFirst, keys, values, written, floats)
}

// TestRaggedKernels: the operations on blocks and slots give what the reference kernels give, in calls of single rows
// of sequences with long caches, of chunks and of both, and leave the same state, rounded after every row.
func TestRaggedKernels(t *testing.T) {
	for name, c := range map[string]struct {
		window    int
		dtype     string
		first     bool
		precision eval.Precision
	}{
		"f32":               {0, "f32", false, eval.FP32},
		"window":            {21, "f32", true, eval.FP32},
		"bf16":              {0, "bf16", true, eval.Mixed},
		"codes":             {0, "u32", true, eval.Mixed},
		"codes of a window": {21, "u32", false, eval.FP32},
	} {
		t.Run(name, func(t *testing.T) {
			text := raggedOps(c.window, c.dtype, c.first)
			text = "module {\n  symbol p [1, 64]\n" + text[len("module {\n"):]
			m, err := ir.Parse(text)
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(5, 6))
			m.Constants[0].Data = ir.Bytes(ir.F32, []int64{24, 4, 1}, randomTensor(r, 24, 4, 1).Encode())
			o := engine.Options{Precision: c.precision, Warn: func(text string) { t.Error(text) }, Threads: 3}
			x, err := engine.Compile(Engine{}, m, o)
			require.NoError(t, err)
			defer x.Close()
			y, err := engine.Compile(reference.Engine{}, m, o)
			require.NoError(t, err)
			got, err := x.NewInstance()
			require.NoError(t, err)
			want, err := y.NewInstance()
			require.NoError(t, err)
			var content []engine.State
			for _, b := range m.Buffers {
				dims, _ := b.Type.Static()
				if b.Type.DType == ir.U32 {
					content = append(content, engine.State{Buffer: b.Name, Tensor: randomCodes(r, ints(dims)...)})
					continue
				}
				content = append(content, engine.State{Buffer: b.Name, Tensor: eval.ConvertState(randomTensor(r,
					ints(dims)...), b.Type.DType, eval.Strict)})
			}
			require.NoError(t, got.(engine.Stateful).Restore(content))
			require.NoError(t, want.(engine.Stateful).Restore(content))
			for _, rows := range [][]int{{1}, {1, 1, 1, 1}, {40}, {3, 1, 0, 22}, {2, 2, 17}} {
				in := raggedInputs(r, rows)
				a, err := want.Run(t.Context(), in)
				require.NoError(t, err)
				b, err := got.Run(t.Context(), in)
				require.NoError(t, err)
				for i := range a {
					requireNearTensors(t, a[i].Tensor, b[i].Tensor, fmt.Sprintf("%v, output %d", rows, i))
				}
				pairs := eval.Value{Tensor: eval.Ints(ir.I32, []int{3, 2}, []int64{0, 1, -1, 5, 1, 2})}
				_, err = want.(engine.Entries).Call(t.Context(), "copy", []eval.Value{pairs})
				require.NoError(t, err)
				_, err = got.(engine.Entries).Call(t.Context(), "copy", []eval.Value{pairs})
				require.NoError(t, err)
				before, err := want.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				after, err := got.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				for i := range before {
					requireNearTensors(t, before[i].Tensor, after[i].Tensor, fmt.Sprintf("%v, buffer @%s", rows,
						before[i].Buffer))
				}
			}
		})
	}
}

func ints(dims []int64) (out []int) {
	for _, d := range dims {
		out = append(out, int(d))
	}
	return out
}

// randomCodes are rows of codes of 8 bits, with scales of 1/64.
func randomCodes(r *rand.Rand, shape ...int) *eval.Tensor {
	last := shape[len(shape)-1]
	n := last
	for _, d := range shape[:len(shape)-1] {
		n *= d
	}
	v := make([]int64, n)
	for i := range v {
		if v[i] = int64(r.Uint32()); i%last >= ir.Q8Width(last)/4 {
			v[i] = 0x3c803c80
		}
	}
	return eval.Ints(ir.U32, shape, v)
}

func randomTensor(r *rand.Rand, shape ...int) *eval.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64()) / 2
	}
	return eval.Floats(ir.F32, shape, v)
}

// raggedInputs are those of a call in which sequence i has rows[i] rows, and one row belongs to none.
func raggedInputs(r *rand.Rand, rows []int) []eval.Value {
	var positions, owners, writes []int64
	entries, blocks := make([]int64, 12), slices.Repeat([]int64{-1}, 400)
	slots, ids := r.Perm(8), r.Perm(200)
	for i, n := range rows {
		entries[3*i], entries[3*i+1], entries[3*i+2] = int64(len(positions)), int64(n), int64(slots[i])
		start := []int{650, 700, 3, 0}[i]
		if start == 0 {
			entries[3*i+2] = -1
		}
		for p := 0; p < (start+n+7)/8; p++ { // sequences may share what they only read
			blocks[100*i+p] = int64(ids[(97*i+p)%200])
		}
		for j := range n {
			positions, owners = append(positions, int64(start+j)), append(owners, int64(i))
			to := int64(-1)
			if j == n-1 {
				to = int64(slots[i])
			} else if j == 1 && i == 3 {
				to = int64(slots[6])
			}
			writes = append(writes, to)
		}
	}
	positions, owners, writes = append(positions, -1), append(owners, 0), append(writes, -1)
	n := len(positions)
	wanted := []int64{int64(n - 1), 0, int64(n / 2)}
	values := []*eval.Tensor{eval.Ints(ir.I64, []int{n}, positions), eval.Ints(ir.I32, []int{n}, owners),
		eval.Ints(ir.I32, []int{4, 100}, blocks),
		eval.Ints(ir.I32, []int{4, 3}, entries), eval.Ints(ir.I32, []int{n}, writes), eval.Ints(ir.I32, []int{3},
			wanted),
		randomTensor(r, 1, n, 4, 16), randomTensor(r, 1, 2, n, 48), randomTensor(r, 1, n, 24), randomTensor(r, 1, n,
			2, 16),
		randomTensor(r, 1, n, 4, 6), randomTensor(r, 1, n, 4)}
	var out []eval.Value
	for _, v := range values {
		out = append(out, eval.Value{Tensor: v})
	}
	return out
}

func requireNearTensors(t *testing.T, want, got *eval.Tensor, what string) {
	t.Helper()
	require.Equal(t, want.Shape, got.Shape, what)
	require.Equal(t, want.I, got.I, what)
	for i, v := range want.F {
		require.InDelta(t, v, got.F[i], 2e-4+0.01*float64(max(v, -v))*lastBit(want.DType), "%s, element %d", what, i)
	}
}

// lastBit is 1 where a buffer's elements are rounded, so that an error of the last bit shows.
func lastBit(d ir.DType) float64 {
	if d == ir.BF16 {
		return 1
	}
	return 0
}

// TestSlotCuts: see enginetest.Cuts.
func TestSlotCuts(t *testing.T) { enginetest.Cuts(t, Engine{}) }
