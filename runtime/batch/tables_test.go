package batch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/schedule"
)

// TestTablesFitTheCall: tables have a power of two of sequences, at least one for each row of the call and no more than
// the executor has, and what an earlier call wrote into them does not show.
func TestTablesFitTheCall(t *testing.T) {
	t.Parallel()
	x := &raggedExecutor{options: ragged.Options{Rows: 64, Sequences: 12}}
	entries := &ir.Symbol{Name: "entries", Lo: 1, Hi: 12}
	f := &ir.Func{}
	f.NewParam("entries", ir.TensorType(ir.I32, ir.Sym(entries), ir.Const(3)))
	f.NewParam("blocks", ir.TensorType(ir.I32, ir.Sym(entries), ir.Const(4)))
	for rows, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 6: 8, 8: 8, 9: 12, 64: 12} {
		call := &schedule.Call{Tokens: make([]int32, rows)}
		for i := range min(rows, 12) {
			call.Entries = append(call.Entries, schedule.Entry{First: i, Rows: 1, Reads: int32(i), Blocks: []int32{7}})
		}
		for _, entries := range [][]schedule.Entry{call.Entries, call.Entries[:1]} {
			call.Entries = entries
			in := x.tablesOf(f, call, rows, 1)
			require.Equal(t, []int{want, 3}, in[0].Tensor.Shape, "%d rows", rows)
			require.Equal(t, []int{want, 4}, in[1].Tensor.Shape, "%d rows", rows)
			used := 0
			for at := 0; at < len(in[0].Tensor.I); at += 3 {
				if in[0].Tensor.I[at+1] > 0 {
					used++
				}
			}
			require.Equal(t, len(entries), used, "%d rows", rows)
			require.Equal(t, []int64{7, -1, -1, -1}, in[1].Tensor.I[:4])
		}
	}
}
