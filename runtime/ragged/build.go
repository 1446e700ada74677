package ragged

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cache"
)

// build builds the module.
func (x *maker) build() {
	in := x.in
	x.out = &ir.Module{Constants: slices.Clone(in.Constants), Init: in.Init, Derived: in.Derived, Metadata: in.Metadata}
	x.out.Entry = &ir.Func{Name: in.Entry.Name, Body: &ir.Region{}}
	x.b = &ir.Builder{Module: x.out, Region: x.out.Entry.Body}
	x.makePools()
	x.makeInputs(x.out.Entry)
	x.ops(nil)
	if x.o.One {
		for _, v := range x.given.Body.Results {
			v = x.get(v)
			x.out.Entry.Body.Results, x.out.Entry.Outputs = append(x.out.Entry.Body.Results, v),
				append(x.out.Entry.Outputs, v.Type)
		}
		return
	}
	logits := x.given.Body.Results[0]
	if x.logits != nil {
		logits = x.logits
	} else if x.derived[logits] {
		x.b.Fail("the result follows from the position of the first row alone")
	}
	x.results(x.out.Entry, x.finish(x.get(logits)))
	x.copyEntry()
	if x.draft != nil {
		x.buildDraft()
	}
}

// ops builds the operations of the entry; where only is set, those that it lists.
func (x *maker) ops(only map[*ir.Op]bool) {
	for _, op := range x.given.Body.Ops {
		if only == nil || only[op] {
			x.op(op)
		}
	}
}

// results ends an entry with results.
func (x *maker) results(f *ir.Func, values ...*ir.Value) {
	f.Body.Results, f.Outputs = values, nil
	for _, v := range values {
		f.Outputs = append(f.Outputs, v.Type)
	}
}

// makePools makes the buffers of the new module.
func (x *maker) makePools() {
	for _, b := range x.in.Buffers {
		p := x.pools[b]
		if p == nil {
			continue
		}
		stored := p.stored.Type
		shape := slices.Clone(stored.Shape)
		if batch := shape[0]; !batch.IsConst(1) {
			x.b.Fail("buffer @%s has %s rows of a batch, want 1", b.Name, batch)
		}
		shape[0] = ir.Const(int64(x.o.Units[p.number]))
		if int(p.number) <= len(x.model.Rings) {
			shape[0], shape[1], shape[2] = shape[1], shape[0], ir.Const(int64(x.o.BlockRows))
		}
		p.buffer = x.out.NewBuffer(b.Name, ir.TensorType(stored.DType, shape...))
	}
}

// makeInputs makes the parameters of the entry.
func (x *maker) makeInputs(f *ir.Func) {
	most := int64(x.o.Rows)
	if x.drafts {
		most = int64(x.o.Sequences)
	}
	x.rows = &ir.Symbol{Name: "rows", Lo: 1, Hi: most}
	x.wanted = &ir.Symbol{Name: "wanted", Lo: 1, Hi: most}
	rows, sequences := x.count(), ir.Const(1)
	if x.o.Sequences > 1 {
		// A call brings tables of as many sequences as it may have: the host writes them for each call, and kernels
		// look through them.
		sequences = ir.Sym(&ir.Symbol{Name: "entries", Lo: 1, Hi: int64(x.o.Sequences)})
	}
	x.values[x.tokens] = f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), rows))
	x.tables.input = f.NewParam("input_pos", ir.TensorType(ir.I64, rows))
	x.values[x.positions] = x.tables.input
	full, rings := x.model.Columns(x.o)
	if len(x.model.Full)+len(rings) > 0 {
		x.tables.sequences = f.NewParam("sequences", ir.TensorType(ir.I32, rows))
	}
	if len(x.model.Full) > 0 {
		x.tables.full = f.NewParam("blocks", ir.TensorType(ir.I32, sequences, ir.Const(int64(full))))
	}
	for i, n := range rings {
		x.tables.rings = append(x.tables.rings, f.NewParam(fmt.Sprintf("ring%d", i), ir.TensorType(ir.I32, sequences,
			ir.Const(int64(n)))))
	}
	if x.drafts {
		x.draftInputs(f)
	} else if len(x.model.Slots) > 0 {
		x.tables.entries = f.NewParam("entries", ir.TensorType(ir.I32, sequences, ir.Const(3)))
		x.tables.writes = f.NewParam("writes", ir.TensorType(ir.I32, rows))
	}
	if x.drafts {
		x.wanted = x.rows
		return
	}
	name, wanted := "wanted", ir.Sym(x.wanted)
	if x.o.One {
		name, wanted = "last_row", ir.Const(1)
	}
	x.tables.wanted = f.NewParam(name, ir.TensorType(ir.I32, wanted))
	for _, v := range x.rest {
		x.values[v] = f.NewParam(v.Param, v.Type)
	}
}

// count returns the number of rows of a call of the entry.
func (x *maker) count() *ir.Expr {
	if x.drafts && x.model.Draft.Single {
		return ir.Const(1)
	}
	return ir.Sym(x.rows)
}

// along reports whether v has the rows of the call along an axis.
func (x *maker) along(v *ir.Value, axis int) bool {
	if x.drafts && x.model.Draft.Single {
		return v.Type.Shape[axis].IsConst(1)
	}
	return x.rowAxis(v) == axis && v.Type.Shape[axis].Equal(ir.Sym(x.rows))
}

// copyEntry makes the entry that copies units.
func (x *maker) copyEntry() {
	f := &ir.Func{Name: CopyEntry, Body: &ir.Region{}}
	b := &ir.Builder{Module: x.out, Region: f.Body}
	// A slot is never copied: a call reads one and writes another.
	for number := range cache.Pool(1 + len(x.model.Rings)) {
		var pairs *ir.Value
		for _, old := range x.in.Buffers {
			p := x.pools[old]
			if p == nil || p.number != number {
				continue
			}
			if pairs == nil {
				count := ir.Sym(&ir.Symbol{Name: fmt.Sprintf("pairs%d", number), Lo: 1, Hi: 1 << 20})
				pairs = f.NewParam(fmt.Sprintf("pool%d", number), ir.TensorType(ir.I32, count, ir.Const(2)))
			}
			b.BufferOp("unit_copy", p.buffer, &ir.AxisAttrs{Axis: 1}, pairs)
		}
	}
	if len(f.Params) > 0 {
		x.out.More = append(x.out.More, f)
	}
}

// get returns the counterpart of a value of the given program. Constants are their own counterparts.
func (x *maker) get(v *ir.Value) *ir.Value {
	if n := x.values[v]; n != nil {
		return n
	}
	if v.Def == nil && v.Param == "" && v.Region == nil {
		return v
	}
	if v.Param != "" {
		x.b.Fail("input %s is used for something else than sampling", v.Param)
	}
	x.b.Fail("a value that follows from the position of the first row is used in a way that is not known: %s",
		ir.Describe(x.in, v.Def))
	return nil
}

// op builds what stands for an operation.
func (x *maker) op(op *ir.Op) {
	fail := func(why string) { x.b.Fail("%s: %s", why, ir.Describe(x.in, op)) }
	if x.startOfRows(op) {
		return
	}
	switch op.Def.Name {
	case "if", "scan":
		fail("its regions may mix rows")
	case "rope":
		x.rope(op, fail)
	case "load":
		if p := x.pools[op.Buffer]; p != nil {
			x.values[op.Result()] = x.b.BufferOp("load", p.buffer, nil).Result()
			return
		}
		fail("a buffer that is neither a cache of attention nor recurrent state")
	case "buffer_slice_update", "buffer_ring_update":
		x.cacheWrite(op, fail)
	case "cached_attention":
		x.attention(op, fail)
	case "sdpa":
		x.past(op, fail)
	case "buffer_conv", "buffer_delta_rule":
		x.slots(op, fail)
	case "sample":
		switch {
		case x.o.One:
			x.same(op, fail)
		case x.logits != nil:
			fail("a second sampler")
		default:
			x.logits = op.Input("logits")
		}
	default:
		switch {
		case x.dropped(op):
		case op.Def.Effect != ir.Pure:
			fail("its effect on state is not known")
		case x.isLastRow(op):
			x.takeWanted(op, fail)
		default:
			x.same(op, fail)
		}
	}
}

// dropped reports whether an operation comes after the sampler, or is needed by the sampler alone.
func (x *maker) dropped(op *ir.Op) bool {
	if x.logits == nil {
		return false
	}
	uses := false
	op.EachArg(func(a *ir.Arg) {
		uses = uses || a.Kind == ir.ValueArg && x.values[a.Value] == nil && a.Value.Constant == nil &&
			(a.Value.Def != nil || a.Value.Param != "")
	})
	return uses
}

// startOfRows notes the position of the first row, the only thing of positions that programs of one sequence use, and
// what follows from it alone: take(input_pos, 0), item_int of that, sums and remainders, comparisons.
func (x *maker) startOfRows(op *ir.Op) bool {
	if op.Def.Effect != ir.Pure || len(op.Regions) > 0 || len(op.Results) != 1 || ropeOrAttention[op.Def.Name] {
		return false
	}
	if op.Def.Name == "take" && op.Input("x") == x.positions {
		if a, _ := op.Arg("index"); a.Kind == ir.IntArg && a.Int == 0 {
			x.derived[op.Result()] = true
			return true
		}
	}
	derived, alone := false, true
	op.EachArg(func(a *ir.Arg) {
		switch {
		case a.Kind != ir.ValueArg:
		case x.derived[a.Value]:
			derived = true
		case x.drafts && x.plain(a.Value): // of a mask
		case a.Value.Type.Kind == ir.IntKind || a.Value.Constant != nil && a.Value.Type.Rank() == 0:
		default:
			alone = false
		}
	})
	t := op.Result().Type
	if !derived || !alone || t.Kind == ir.TensorKind && t.Rank() > 0 && !x.drafts {
		return false
	}
	if s, ok := start(op.Result()); ok {
		x.starts[s] = true
	}
	x.derived[op.Result()] = true
	return true
}

// ropeOrAttention are the operations on rows that take the position of the first one.
var ropeOrAttention = map[string]bool{"rope": true, "cached_attention": true, "sdpa": true}

// start returns the symbol of the int that holds an element of a tensor.
func start(v *ir.Value) (*ir.Symbol, bool) {
	if v.Type.Kind != ir.IntKind || v.Def.Def.Name != "item_int" {
		return nil, false
	}
	return v.Type.Int.Symbol()
}

// canonical writes the position of the first row as one symbol and the number of rows as another.
func (x *maker) canonical(e *ir.Expr) *ir.Expr {
	count, _ := x.tokens.Type.Shape[1].Symbol()
	other, _ := x.positions.Type.Shape[0].Symbol()
	return e.Substitute(func(s *ir.Symbol) *ir.Expr {
		switch {
		case x.starts[s]:
			return ir.Sym(firstRow)
		case s == count || s == other || x.given != x.in.Entry && isHidden(x.given, s):
			return ir.Sym(rowCount)
		}
		return nil
	})
}

// firstRow and rowCount stand for the position of the first row and the number of rows.
var firstRow, rowCount = &ir.Symbol{Name: "p", Lo: 0, Hi: 1<<31 - 1}, &ir.Symbol{Name: "s", Lo: 1, Hi: 1<<31 - 1}

// isStart reports whether an argument is the position of the first row: an int, or the element of input_pos.
func (x *maker) isStart(a ir.Arg) bool {
	switch {
	case a.Kind != ir.ValueArg:
		return false
	case a.Value.Type.Kind == ir.IntKind:
		return x.canonical(a.Value.Type.Int).Equal(ir.Sym(firstRow))
	}
	return x.isFirst(a.Value)
}

// isFirst reports whether v is the first element of input_pos, perhaps cast to another integer dtype.
func (x *maker) isFirst(v *ir.Value) bool {
	for v.Def != nil && v.Def.Def.View == ir.CastView && v.Type.DType.IsInteger() {
		v = v.Def.Input("x")
	}
	return x.derived[v] && v.Def.Def.Name == "take"
}

// expression returns an int argument, written canonically.
func (x *maker) expression(a ir.Arg) *ir.Expr {
	switch {
	case a.Kind == ir.IntArg:
		return ir.Const(a.Int)
	case a.Kind == ir.ValueArg && a.Value.Type.Kind == ir.IntKind:
		return x.canonical(a.Value.Type.Int)
	}
	return ir.Sym(&ir.Symbol{})
}
