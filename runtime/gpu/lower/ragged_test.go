package lower_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/ragged"
)

// raggedCall is a call of many sequences: of each row its position and sequence, negative where it has none; of each
// sequence its first row, its number of rows and the slot of its state; of each row the slot that its state goes to;
// and the wanted rows.
type raggedCall struct{ positions, sequences, entries, writes, wanted []int64 }

// raggedCalls are calls that want as many rows as they have, in any order, or fewer.
var raggedCalls = []raggedCall{
	{[]int64{0, 1, 2, 0, 1}, []int64{0, 0, 0, 1, 1}, []int64{0, 3, -1, 3, 2, -1}, []int64{-1, -1, 0, -1, 1},
		[]int64{4, 2, 0, 1, 3}},
	{[]int64{3}, []int64{0}, []int64{0, 1, 0, 0, 0, 0}, []int64{2}, []int64{0}},
	{[]int64{2, 4}, []int64{1, 0}, []int64{1, 1, 2, 0, 1, 1}, []int64{1, 2}, []int64{1, 0}},
	{[]int64{-1, 3, -1}, []int64{0, 1, 0}, []int64{0, 0, 0, 1, 1, 1}, []int64{-1, 3, -1}, []int64{1, 0, 1}},
	{[]int64{5}, []int64{0}, []int64{0, 0, 0, 0, 1, 2}, []int64{-1}, []int64{-1}},
	{[]int64{0}, []int64{1}, []int64{0, 1, -1, 0, 0, 0}, []int64{0}, []int64{0}},
	{[]int64{-1}, []int64{0}, make([]int64, 6), []int64{-1}, []int64{0}},
	{[]int64{1, 2, 3}, []int64{1, 1, 1}, []int64{0, 3, 0, 0, 0, 0}, []int64{-1, -1, 0}, []int64{2}},
}

// TestRaggedLoweredAgree is TestLoweredAgree for calls of many sequences with few rows.
func TestRaggedLoweredAgree(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etc-qwen35moe-chat-sample", "etc-gemma4-chat-sample"} {
		choose := func(*ragged.Model) (ragged.Options, error) {
			return ragged.Options{BlockRows: 4, Rows: 8, Sequences: 2, Units: cache.Demand{64, 64, 64}}, nil
		}
		m, _, err := fuse.Ragged(fusetest.Load(t, name), ragged.Options{}, choose, passes.Control{})
		require.NoError(t, err)
		fused, err := fuse.Fuse(m)
		require.NoError(t, err)
		constants := eval.NewConstants()
		for _, precision := range []eval.Precision{eval.FP32, eval.Mixed} {
			want := raggedAnswers(t, m, precision, constants)
			for device, machine := range machines {
				if testing.Short() && (machine.TransferLeast != 1 || precision != eval.Mixed) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, device, precision), func(t *testing.T) {
					agree(t, want, fused, machine, precision, constants)
				})
			}
		}
	}
}

// raggedAnswers runs a module for calls of many sequences.
func raggedAnswers(t *testing.T, m *ir.Module, precision eval.Precision, constants *eval.Constants) (all []answer) {
	t.Helper()
	machine, err := eval.NewMachine(m, precision, constants)
	require.NoError(t, err)
	for _, call := range raggedCalls {
		a := answer{in: call.inputs(t, m)}
		a.out, err = machine.Run(a.in)
		require.NoError(t, err)
		for _, b := range m.Buffers {
			a.buffers = append(a.buffers, machine.Buffer(b).Clone())
		}
		all = append(all, a)
	}
	return all
}

// inputs are the inputs of a program for a call. Each sequence has blocks of its own.
func (c *raggedCall) inputs(t *testing.T, m *ir.Module) (in []eval.Value) {
	t.Helper()
	rows := len(c.positions)
	for _, p := range m.Entry.Params {
		var v *eval.Tensor
		switch {
		case p.Param == "tokens":
			v = eval.Ints(ir.I64, []int{1, rows}, make([]int64, rows))
			for i, at := range c.positions {
				v.I[i] = 7 + 5*max(at, 0) + 3*c.sequences[i]
			}
		case p.Param == "input_pos":
			v = eval.Ints(ir.I64, []int{rows}, c.positions)
		case p.Param == "sequences":
			v = eval.Ints(ir.I32, []int{rows}, c.sequences)
		case p.Param == "entries":
			v = eval.Ints(ir.I32, []int{2, 3}, c.entries)
		case p.Param == "writes":
			v = eval.Ints(ir.I32, []int{rows}, c.writes)
		case p.Param == "wanted":
			v = eval.Ints(ir.I32, []int{len(c.wanted)}, c.wanted)
		case p.Param == "blocks" || strings.HasPrefix(p.Param, "ring"):
			columns, _ := p.Type.Shape[1].Const()
			v = eval.Ints(ir.I32, []int{2, int(columns)}, make([]int64, 2*columns))
			for i := range v.I {
				v.I[i] = (int64(i)%columns*2 + int64(i)/columns) % 64
			}
		default:
			require.Fail(t, "input "+p.Param)
		}
		in = append(in, eval.Value{Tensor: v})
	}
	return in
}

// TestRowsTakenLate: a call that wants as many rows as it has takes them behind the last layer, whose rotations and
// writes are then one operation; one that wants fewer computes queries for these alone.
func TestRowsTakenLate(t *testing.T) {
	t.Parallel()
	m, err := ir.Parse(strings.NewReplacer("positions=%at, sequences=%of, blocks=%blocks) {",
		"positions=%p, sequences=%s, blocks=%blocks) {", "%8 = block", `%q4 = take(x=%4, index=%wanted) {axis=2} : f32[1,4,W,64]
    %p = take(x=%at, index=%wanted) : i64[W]
    %s = take(x=%of, index=%wanted) : i32[W]
    %g = take(x=%gate, index=%wanted) {axis=1} : f32[1,W,256]
    %8 = block`, "q=%4,", "q=%q4,", "gate=%gate", "gate=%g", ": f32[1,4,R,64]\n    %9", ": f32[1,4,W,64]\n    %9",
		"f32[1,R,4,64]\n    %10", "f32[1,W,4,64]\n    %10", "[1, -1, 256]) : f32[1,R,256]",
		"[1, -1, 256]) : f32[1,W,256]",
		`"sigmoid"} : f32[1,R,256]`, `"sigmoid"} : f32[1,W,256]
    %12 = rms_norm(x=%11) {eps=1e-06} : f32[1,W,256]`, "RESULTS", "%12: f32[1,W,256]", "symbol R [1, 32]",
		"symbol R [1, 32]\n  symbol W [1, 32]",
		"%blocks: i32[3,3]", "%blocks: i32[3,3], %wanted: i32[W]").Replace(attendRows))
	require.NoError(t, err)
	m.Constants[0].Data = ir.Float32s([]int64{64}, make([]float32, 64)...)
	late := []string{"rope_row_angles", "rope_rows_write", "load", "load", "rows_attention", "rms_norm"}
	early := slices.Concat(late[:1], []string{"rope_heads", "rope_heads", "block_write", "block_write"}, late[2:])
	for name, c := range map[string]struct {
		rows, wanted int
		want         []string
		takes        int
	}{"fewer": {3, 2, early, 4}, "more": {1, 2, early, 4}, "as many": {3, 3, late, 1}, "one": {1, 1, late, 1}} {
		t.Run(name, func(t *testing.T) {
			shapes := [][]int{{1, c.rows, 4, 64}, {1, c.rows, 2, 64}, {1, c.rows, 2, 64}, {1, c.rows, 256}, {c.rows},
				{c.rows}, {3, 3}, {c.wanted}}
			made, err := lower.Run(m, shapes, &lower.Target{Precision: eval.Mixed}, passes.Control{Verify: true})
			require.NoError(t, err)
			lines := opsOf(made)
			require.Equal(t, c.want, names(lines))
			require.Equal(t, c.takes, strings.Count(strings.Join(lines, "\n"), "= take("))
		})
	}
}
