package speculate

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// Method is the name of the method that drafts tokens.
const Method = "draft"

// Kind is the kind of a draft.
type Kind string

const (
	// None stands for no draft.
	None Kind = ""
	// MultiToken is a head for multi-token prediction, which has a cache of its own with an entry for every position.
	MultiToken Kind = "mtp"
	// Assistant reads the caches of forward and has none.
	Assistant Kind = "assistant"
)

// KindOf recognises a draft by what a method takes and gives:
//
//	draft(tokens i64[1,S], input_pos i64[S], hidden f32[1,S,H], caches…) → logits f32[1,V], hidden f32[1,S,H]
//
// It is an assistant where it takes caches, which have the names of forward's buffers.
func KindOf(f *ir.Func) Kind {
	is := func(list []ir.Type, i int, d ir.DType, rank int) bool {
		return i < len(list) && list[i].Kind == ir.TensorKind && list[i].DType == d && list[i].Rank() == rank
	}
	var params []ir.Type
	for _, p := range f.Params {
		params = append(params, p.Type)
	}
	if f.Name != Method || !is(params, 0, ir.I64, 2) || !is(params, 1, ir.I64, 1) || !is(params, 2, ir.F32, 3) ||
		len(f.Outputs) != 2 || !is(f.Outputs, 0, ir.F32, 2) || !is(f.Outputs, 1, ir.F32, 3) {
		return None
	}
	if len(params) == 3 {
		return MultiToken
	}
	floats := func(t ir.Type) bool { return t.Kind == ir.TensorKind && t.DType.IsFloat() && t.Rank() == 4 }
	if !slices.ContainsFunc(params[3:], func(t ir.Type) bool { return !floats(t) }) {
		return Assistant
	}
	return None
}
