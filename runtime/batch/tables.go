package batch

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/schedule"
)

// tables returns the inputs of a ragged program (ragged.Make) for a call. Padding rows belong to no sequence.
func (x *raggedExecutor) tables(call *schedule.Call, wanted int) []eval.Value {
	n, w := x.rowsFor(len(call.Tokens)), bucket(wanted, x.options.Rows)
	if x.fixed > 0 {
		n, w = x.fixed, x.fixed
	}
	return x.tablesOf(x.module.Entry, call, n, w)
}

// runsAnyRows reports whether the engine is an [engine.AnyRows].
func runsAnyRows(e engine.Engine) bool {
	a, ok := e.(engine.AnyRows)
	return ok && a.RunsAnyRows()
}

// rowsFor returns the number of rows that a call of n rows is padded to. It is a bucket, but on an engine that plans a
// size in less time than the rows of a prompt take (engine.AnyRows) one of up to 16 sizes between two powers of two.
func (x *raggedExecutor) rowsFor(n int) int {
	size := bucket(n, x.options.Rows)
	if !x.anyRows || size <= fewRows {
		return size
	}
	step := max(8, 1<<bits.Len(uint(n-1))/32)
	return min((n+step-1)/step*step, x.options.Rows)
}

// tableInputs are the tables of calls, written anew for every call.
type tableInputs struct {
	of map[tableKey]*eval.Tensor
	// turn is 0, 1 or 2. There are three tables of each kind because the engine may need three at a time: those that a
	// call was begun with ahead, those that the same call is made with now, which the engine compares with the former,
	// and those of the call after it.
	turn int
}

// tableKey identifies a table: the parameter, the number of sequences, and the turn.
type tableKey struct {
	param     string
	sequences int
	turn      int
}

// get returns a table. It holds what a call before has written.
func (in *tableInputs) get(param string, sequences, columns int) *eval.Tensor {
	key := tableKey{param, sequences, in.turn}
	t := in.of[key]
	if t == nil {
		if t = eval.Ints(ir.I32, []int{sequences, columns}, make([]int64, sequences*columns)); in.of == nil {
			in.of = map[tableKey]*eval.Tensor{}
		}
		in.of[key] = t
	}
	return t
}

// fewRows is the largest number of rows for which all engines use buckets.
const fewRows = 32

// tablesOf makes the inputs of entry f for a call, one for each parameter: tokens, positions, and tables of
// sequences, blocks and slots. They are filled up to n rows, w of which give logits or tokens. A parameter that the
// call does not determine, such as a draft's hidden states, gets a nil tensor.
func (x *raggedExecutor) tablesOf(f *ir.Func, call *schedule.Call, n, w int) []eval.Value {
	tokens, positions := make([]int64, n), slices.Repeat([]int64{-1}, n)
	owners, writes := make([]int64, n), slices.Repeat([]int64{-1}, n)
	rows := make([]int64, 0, w)
	for i, t := range call.Tokens {
		tokens[i] = int64(t)
	}
	for s, e := range call.Entries {
		for i := range e.Rows {
			positions[e.First+i], owners[e.First+i] = int64(e.Start+i), int64(s)
		}
		for _, state := range e.Writes {
			writes[e.First+state.Pos-e.Start-1] = int64(state.Slot)
		}
		for i := e.Rows - e.Wanted; i < e.Rows; i++ {
			rows = append(rows, int64(e.First+i))
		}
	}
	rows = append(rows, make([]int64, w-len(rows))...)
	x.inputs.turn = (x.inputs.turn + 1) % 3
	var out []eval.Value
	for _, p := range f.Params {
		var t *eval.Tensor
		switch p.Param {
		case "tokens":
			t = eval.Ints(ir.I64, []int{1, n}, tokens)
		case "input_pos":
			t = eval.Ints(ir.I64, []int{n}, positions)
		case "sequences":
			t = eval.Ints(ir.I32, []int{n}, owners)
		case "writes":
			t = eval.Ints(ir.I32, []int{n}, writes)
		case "wanted":
			t = eval.Ints(ir.I32, []int{w}, rows)
		default:
			if p.Param == "entries" || p.Param == "blocks" || strings.HasPrefix(p.Param, "ring") {
				t = x.table(p, call, x.entriesFor(n))
			}
		}
		out = append(out, eval.Value{Tensor: t})
	}
	return out
}

// entriesFor returns the number of sequences in the tables of a call of n rows, padding included. It is a power of two,
// so that there are few sizes, and at most the executor's number of sequences.
func (x *raggedExecutor) entriesFor(n int) int {
	return min(1<<bits.Len(uint(n-1)), x.options.Sequences)
}

// table returns a table with a row for each of so many sequences: entries, blocks or ring0, ring1, …
func (x *raggedExecutor) table(p *ir.Value, call *schedule.Call, sequences int) *eval.Tensor {
	dim, _ := p.Type.Shape[1].Const()
	columns := int(dim)
	t := x.inputs.get(p.Param, sequences, columns)
	for s := range t.Shape[0] {
		row := t.I[s*columns : (s+1)*columns]
		if s >= len(call.Entries) {
			if p.Param == "entries" {
				clear(row)
			}
			continue // no row belongs to that sequence
		}
		e := &call.Entries[s]
		switch p.Param {
		case "entries":
			row[0], row[1], row[2] = int64(e.First), int64(e.Rows), int64(e.Reads)
		case "blocks":
			fill(row, 0, e.Blocks)
		default:
			i, _ := strconv.Atoi(strings.TrimPrefix(p.Param, "ring"))
			fill(row, e.Rings[i].First, e.Rings[i].Blocks)
		}
	}
	return t
}

// fill writes blocks into a row of a table, the first one at index first, wrapping around. All other entries say that
// there is no block.
func fill(row []int64, first int, blocks []int32) {
	for i := range row {
		row[i] = -1
	}
	for i, id := range blocks {
		row[(first+i)%len(row)] = int64(id)
	}
}
