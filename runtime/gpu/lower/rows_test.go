package lower_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// attendRows is attention of rows of many sequences, times a gate.
const attendRows = `module {
  symbol R [1, 32]
  constant @weight : f32[64]
  buffer @k : bf16[2,9,4,64]
  buffer @v : bf16[2,9,4,64]
  entry forward(%q: f32[1,R,4,64], %kx: f32[1,R,2,64], %vx: f32[1,R,2,64], %gate: f32[1,R,256], %at: i64[R], %of: i32[R], %blocks: i32[3,3]) {
    %0 = rms_norm(x=%q, weight=@weight) {eps=1e-06} : f32[1,R,4,64]
    %1 = transpose(x=%0) {perm=[0, 2, 1, 3]} : f32[1,4,R,64]
    %2 = transpose(x=%kx) {perm=[0, 2, 1, 3]} : f32[1,2,R,64]
    %3 = transpose(x=%vx) {perm=[0, 2, 1, 3]} : f32[1,2,R,64]
    %4 = rope_rows(x=%1, positions=%at) {dims=32, base=10000.0, scale=0.5} : f32[1,4,R,64]
    %5 = rope_rows(x=%2, positions=%at) {dims=32, base=10000.0, scale=0.5} : f32[1,2,R,64]
    block_write @k(update=%5, positions=%at, sequences=%of, blocks=%blocks)
    block_write @v(update=%3, positions=%at, sequences=%of, blocks=%blocks)
    %6 = load @k() : bf16[2,9,4,64]
    %7 = load @v() : bf16[2,9,4,64]
    %8 = block_attention(q=%4, k=%6, v=%7, positions=%at, sequences=%of, blocks=%blocks) {scale=0.125, window=6} : f32[1,4,R,64]
    %9 = transpose(x=%8) {perm=[0, 2, 1, 3]} : f32[1,R,4,64]
    %10 = reshape(x=%9, shape=[1, -1, 256]) : f32[1,R,256]
    %11 = glu(gate=%gate, x=%10) {activation="sigmoid"} : f32[1,R,256]
    return RESULTS
  }
}
`

// TestRowsOverBlocks: rotations of rows share a table and take normalizations along, attention takes the gate along,
// and what comes out computes the same, the caches too.
func TestRowsOverBlocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		results string
		target  lower.Target
		want    []string
	}{
		"gate": {"%11: f32[1,R,256]", lower.Target{},
			[]string{"rope_row_angles", "rope_rows_write", "load", "load", "rows_attention"}},
		"gate refused": {"%11: f32[1,R,256]",
			lower.Target{Refuses: func(l kernels.Launch) bool { return strings.Contains(l.Key(), "ATT_GATED=1") }},
			[]string{"rope_row_angles", "rope_rows_write", "load", "load", "rows_attention", "glu"}},
		"read before": {"%8: f32[1,4,R,64], %11: f32[1,R,256]", lower.Target{},
			[]string{"rope_row_angles", "rope_rows_write", "load", "load", "rows_attention", "glu"}},
		"refused": {"%11: f32[1,R,256]", lower.Target{Refuses: func(l kernels.Launch) bool {
			return l.Kernel == "block_attention_part" || l.Kernel == "rope_row_angles"
		}}, []string{"rms_norm", "rope_rows", "rope_rows", "block_write", "block_write", "load", "load",
			"block_attention", "copy", "glu"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(strings.Replace(attendRows, "RESULTS", c.results, 1))
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(5, 1))
			floats := func(shape ...int) eval.Value {
				x, err := eval.NewTensor(ir.F32, shape...)
				require.NoError(t, err)
				for i := range x.F {
					x.F[i] = float32(r.NormFloat64())
				}
				return eval.Value{Tensor: x}
			}
			m.Constants[0].Data = ir.Float32s([]int64{64}, floats(64).Tensor.F...)
			c.target.Precision = eval.Mixed
			want, err := eval.NewMachine(m, eval.Mixed, nil)
			require.NoError(t, err)
			for _, rows := range []struct{ at, of []int64 }{
				{[]int64{0, 1, 2, 3, 4, 0, 1, -1}, []int64{0, 0, 0, 0, 0, 2, 2, 0}},
				{[]int64{5, 2, 0}, []int64{0, 2, 1}}, {[]int64{6, 7, 3}, []int64{0, 0, 2}},
			} {
				n := len(rows.at)
				in := []eval.Value{floats(1, n, 4, 64), floats(1, n, 2, 64), floats(1, n, 2, 64), floats(1, n, 256),
					{Tensor: eval.Ints(ir.I64, []int{n}, rows.at)},
					{Tensor: eval.Ints(ir.I32, []int{n}, rows.of)},
					{Tensor: eval.Ints(ir.I32, []int{3, 3}, []int64{3, 8, -1, 1, -1, -1, 0, -1, -1})}}
				lowered, err := lower.Run(m, shapes(in), &c.target, passes.Control{Verify: true})
				require.NoError(t, err)
				require.Equal(t, c.want, names(opsOf(lowered)))
				got, err := eval.NewMachine(lowered, eval.Mixed, nil)
				require.NoError(t, err)
				for i, b := range m.Buffers {
					got.SetBuffer(lowered.Buffers[i], want.Buffer(b).Clone())
				}
				expected, err := want.Run(in)
				require.NoError(t, err)
				out, err := got.Run(in)
				require.NoError(t, err)
				for i := range expected {
					require.InDeltaSlice(t, expected[i].Tensor.F, out[i].Tensor.F, 1e-3)
				}
				for i, b := range m.Buffers {
					require.InDeltaSlice(t, want.Buffer(b).F, got.Buffer(lowered.Buffers[i]).F, 1e-2)
				}
			}
		})
	}
}

// TestOnlyRowOverBlocks: rotation, writes and attention of a few rows of a call are one operation, where the device has
// a kernel for it.
func TestOnlyRowOverBlocks(t *testing.T) {
	t.Parallel()
	together := []string{"rope_row_angles", "rows_attention_step"}
	apart := []string{"rope_row_angles", "rope_rows_write", "load", "load", "rows_attention"}
	cuda := kernels.Machine{Target: kernels.CUDA}
	for name, c := range map[string]struct {
		rows    int
		results string
		target  lower.Target
		want    []string
	}{
		"one":     {1, "%11: f32[1,R,256]", lower.Target{Machine: cuda}, together},
		"two":     {2, "%11: f32[1,R,256]", lower.Target{Machine: cuda}, together},
		"eight":   {8, "%11: f32[1,R,256]", lower.Target{Machine: cuda}, together},
		"nine":    {9, "%11: f32[1,R,256]", lower.Target{Machine: cuda}, apart},
		"metal":   {1, "%11: f32[1,R,256]", lower.Target{Machine: kernels.Machine{Target: kernels.Metal}}, apart},
		"refused": {1, "%11: f32[1,R,256]", lower.Target{Machine: cuda, Refuses: refuses("attention_step")}, apart},
		"queries are read, too": {1, "%4: f32[1,4,R,64], %11: f32[1,R,256]", lower.Target{Machine: cuda},
			apart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(strings.Replace(attendRows, "RESULTS", c.results, 1))
			require.NoError(t, err)
			m.Constants[0].Data = ir.Float32s([]int64{64}, make([]float32, 64)...)
			c.target.Precision = eval.Mixed
			made, err := lower.Run(m, plan.Shapes(m, c.rows), &c.target, passes.Control{Verify: true})
			require.NoError(t, err)
			require.Equal(t, c.want, names(opsOf(made)))
		})
	}
}

// TestRowsByTiles: rows that may be many of one sequence go by tiles where products may be of bfloat16.
func TestRowsByTiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows   int
		target lower.Target
		want   bool
	}{
		"mixed":    {16, lower.Target{Precision: eval.Mixed}, true},
		"few rows": {15, lower.Target{Precision: eval.Mixed}, false},
		"exact":    {20, lower.Target{Precision: eval.Mixed, Exact: true}, false},
		"fp32":     {20, lower.Target{Precision: eval.FP32}, false},
		"refused":  {20, lower.Target{Precision: eval.Mixed, Refuses: refuses("attention_chunk")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(strings.Replace(attendRows, "RESULTS", "%11: f32[1,R,256]", 1))
			require.NoError(t, err)
			made, err := lower.Run(m, plan.Shapes(m, c.rows), &c.target, passes.Control{Verify: true})
			require.NoError(t, err)
			text := strings.Join(opsOf(made), "\n")
			require.Contains(t, text, "= rows_attention(")
			require.Equal(t, c.want, strings.Contains(text, "tiles=true"), text)
		})
	}
}

// TestAttentionInOneKernel: attention of up to 128 rows over blocks is one kernel, where the device has it and may use
// it.
func TestAttentionInOneKernel(t *testing.T) {
	t.Parallel()
	a := kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 16, Columns: 4, Cache: kernels.BF16}, D: 64, Heads: 4,
		KVHeads: 2, Scale: 1}
	refuse := func(texts ...string) func(kernels.Launch) bool {
		return func(l kernels.Launch) bool {
			return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(l.Key(), text) })
		}
	}
	for name, c := range map[string]struct {
		target   kernels.Target
		rows     int
		refuses  []string
		last, ok bool
	}{
		"few rows":      {kernels.CUDA, 8, nil, true, true},
		"more rows":     {kernels.CUDA, 129, nil, false, true},
		"Metal":         {kernels.Metal, 8, nil, false, true},
		"refused":       {kernels.CUDA, 8, []string{"BLOCK_LAST=1"}, false, true},
		"all, refused":  {kernels.CUDA, 8, []string{"block_attention_part"}, false, false},
		"merge refused": {kernels.CUDA, 129, []string{"block_attention_merge"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			target := &lower.Target{Machine: kernels.Machine{Target: c.target}, Refuses: refuse(c.refuses...)}
			got, ok := target.BlockAttention(a, c.rows)
			require.Equal(t, c.last, got.Last)
			require.Equal(t, c.ok, ok)
		})
	}
}
