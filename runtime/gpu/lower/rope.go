package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
)

// rope replaces rotations by ones that read a table of angles, which all layers share. It merges the norm of heads
// before them.
func rope(g *graph) {
	tables := map[angles]*ir.Value{}
	g.each(func(op *ir.Op) {
		if g.rotates(op) {
			g.rope(op, tables)
		}
	}, "rope", "rope_rows")
}

// rotates reports whether the kernels of angles and rotations can compute a rope.
func (g *graph) rotates(op *ir.Op) bool {
	attrs := ir.Attrs[ir.RopeAttrs](op)
	l, ok := g.floats(op.Input("x"))
	at := positionOf(op)
	if !ok || attrs.Dims <= 0 || attrs.Dims%2 != 0 ||
		op.Def.Name == "rope" && at.Kind == ir.ValueArg && at.Value.Type.Kind != ir.IntKind || !known(at) {
		return false
	}
	h, ok := HeadsOf(l.View)
	if !ok || attrs.Dims > h.Width {
		return false
	}
	if freqs := op.Input("freqs"); freqs != nil && !isVector(freqs, attrs.Dims/2) {
		return false
	}
	table, err := kernels.RopeAngles{Dims: attrs.Dims, Scale: attrs.Scale}.Launch(h.Tokens)
	if op.Def.Name == "rope_rows" {
		table, err = kernels.RowAngles{Dims: attrs.Dims, Scale: attrs.Scale}.Launch(h.Tokens)
	}
	return g.Allowed(table, err) &&
		g.Allowed(kernels.Rope{D: h.Width, Dims: attrs.Dims, Traditional: attrs.Traditional, QHeads: h.Heads,
			Q: h.Strides}.Launch(h.Tokens))
}

// positionOf returns the operand with the positions of a rotation's rows: the position of the first row, or one for
// each.
func positionOf(op *ir.Op) ir.Arg {
	if op.Def.Name == "rope_rows" {
		return ir.Use(op.Input("positions"))
	}
	offset, _ := op.Arg("offset")
	return offset
}

// angles identifies a table of angles.
type angles struct {
	position ir.Arg
	freqs    *ir.Value
	attrs    ir.RopeAnglesAttrs
}

// rope replaces one rotation. tables has the tables that exist already.
func (g *graph) rope(op *ir.Op, tables map[angles]*ir.Value) {
	attrs, x := ir.Attrs[ir.RopeAttrs](op), op.Input("x")
	l, _ := g.Layout(x)
	norm := g.headNorm(x)
	of := angles{positionOf(op), op.Input("freqs"),
		ir.RopeAnglesAttrs{Tokens: l.Shape[2], Dims: attrs.Dims, Base: attrs.Base, Scale: attrs.Scale}}
	for {
		b, table := g.draft(), tables[of]
		if table == nil {
			name := "rope_angles"
			if op.Def.Name == "rope_rows" {
				name = "rope_row_angles"
			}
			table = b.Value(name, &of.attrs, of.position, of.freqs)
		}
		heads, weight := norm.input(b, x)
		a := &ir.RopeHeadsAttrs{Traditional: attrs.Traditional}
		if norm != nil {
			a.Norm, a.Eps = true, norm.eps
		}
		if n := b.Op("rope_heads", a, heads, table, weight); norm == nil || g.ropeHeads(n) {
			tables[of] = table
			g.put(b, op)
			return
		}
		norm = nil // a self-test has refused the kernel with the norm
	}
}

func (g *graph) ropeHeads(op *ir.Op) bool {
	r, tokens, ok := RopeHeads(op, g.views)
	return ok && g.Allowed(r.Launch(tokens))
}

// ropeWrites merges the rotation of queries and keys and both cache writes into one operation, where attention reads
// what they write.
func ropeWrites(g *graph) {
	var inPlace map[*ir.Op]bool
	g.each(func(op *ir.Op) {
		if inPlace == nil {
			inPlace = plan.InPlaceLoads(g.m.Entry.Body)
		}
		k, v := cacheOf(op.Input("k"), inPlace), cacheOf(op.Input("v"), inPlace)
		if q := g.from(op.Input("q"), "rope_heads"); q != nil && k != nil && v != nil {
			if w := g.writesOf(q, k, v); w != nil {
				w.replace(g)
			}
		}
	}, "cached_attention", "block_attention")
}

// cacheOf returns the load of the buffer whose content a value is, or nil.
func cacheOf(v *ir.Value, inPlace map[*ir.Op]bool) *ir.Op {
	for v.Def != nil && v.Def.Def.Name == "astype" {
		v = v.Def.Input("x")
	}
	if v.Def == nil || v.Def.Def.Name != "load" || !inPlace[v.Def] || v.Type.Rank() != 4 {
		return nil
	}
	return v.Def
}

// writes are the operations that rope_write replaces.
type writes struct {
	q, k       *ir.Op // rope_heads
	v          *ir.Value
	vNorm      *normOfHeads
	keys       *ir.Op // the writes
	values     *ir.Op
	where      [][]ir.Arg // the operands of the writes that say where rows go
	attributes ir.RopeWriteAttrs
	draft      *ir.Builder // the operations that replace them
}

// writesOf finds the rotations and writes behind the queries q and the loads k and v of both caches.
func (g *graph) writesOf(q, k, v *ir.Op) *writes {
	w := &writes{q: q, keys: g.lastWrite(k), values: g.lastWrite(v)}
	if w.keys == nil || w.values == nil || k.Buffer == v.Buffer {
		return nil
	}
	if w.keys.Def != w.values.Def {
		return nil
	}
	names := []string{"start"}
	switch w.keys.Def.Name {
	case "buffer_slice_update":
		names = append(names, "stop")
	case "block_write":
		names = []string{"positions", "sequences", "blocks"}
	}
	for _, name := range names {
		at := w.keys.Operand(name)
		if !slices.Equal(at, w.values.Operand(name)) {
			return nil
		}
		w.where = append(w.where, slices.Clone(at))
	}
	// The later write moves up to the first one, so no operation between them may use its buffer.
	if first, last := w.inOrder(g); g.works(g.places[first]+1, g.places[last], last.Buffer) {
		return nil
	}
	u := w.keys.Input("update")
	if w.k = g.from(u, "rope_heads"); w.k == nil || w.k == q || !g.only(u) ||
		!slices.EqualFunc(u.Type.Shape, w.k.Result().Type.Shape, (*ir.Expr).Equal) {
		return nil
	}
	w.v = w.values.Input("update")
	if _, ok := g.floats(w.v); !ok {
		return nil
	}
	if w.vNorm = g.headNorm(w.v); w.vNorm != nil && w.vNorm.norm.Input("weight") != nil {
		return nil
	}
	if w.draft = g.draft(); !w.attributesOf() || !g.writes(w.build(w.draft)) {
		return nil
	}
	return w
}

// attributesOf sets the attributes of the merged operation. It returns false where queries and keys are rotated
// differently, or their norms have different eps.
func (w *writes) attributesOf() bool {
	q, k := ir.Attrs[ir.RopeHeadsAttrs](w.q), ir.Attrs[ir.RopeHeadsAttrs](w.k)
	if w.q.Input("angles") != w.k.Input("angles") || q.Traditional != k.Traditional {
		return false
	}
	w.attributes = ir.RopeWriteAttrs{Traditional: q.Traditional, QNorm: q.Norm, KNorm: k.Norm, VNorm: w.vNorm != nil}
	var all []float32
	if q.Norm {
		all = append(all, q.Eps)
	}
	if k.Norm {
		all = append(all, k.Eps)
	}
	if w.vNorm != nil {
		all = append(all, w.vNorm.eps)
	}
	if len(all) > 0 {
		w.attributes.Eps = all[0]
	}
	return len(slices.Compact(all)) <= 1
}

func (w *writes) build(b *ir.Builder) *ir.Op {
	v, _ := w.vNorm.input(b, w.v)
	name, attrs, where := "rope_write", w.attributes, w.where
	switch {
	case w.keys.Def.Name == "block_write":
		name = "rope_rows_write"
	case len(where) == 1:
		where = append(where, nil) // without stop
	}
	args := [][]ir.Arg{{ir.Use(w.q.Input("x"))}, {ir.Use(w.k.Input("x"))}, {ir.Use(v)}, {ir.Use(w.q.Input("angles"))}}
	args = append(append(args, where...), slices.Clone(w.q.Operand("weight")), slices.Clone(w.k.Operand("weight")))
	op := &ir.Op{Def: ir.LookupOp(name), Attrs: &attrs, Buffer: w.keys.Buffer, Second: w.values.Buffer, Args: args}
	return b.Append(op)
}

// inOrder returns the two writes in the order of the entry.
func (w *writes) inOrder(g *graph) (first, last *ir.Op) {
	if g.places[w.keys] > g.places[w.values] {
		return w.values, w.keys
	}
	return w.keys, w.values
}

// replace puts the operation where the first write was, or behind it as soon as its operands are computed.
func (w *writes) replace(g *graph) {
	first, last := w.inOrder(g)
	g.insert(w.draft, first)
	ops := w.draft.Region.Ops
	g.stand(first, w.q.Result(), ops[len(ops)-1].Result())
	g.drop(first)
	g.drop(last)
}

// writes reports whether the device has a kernel for this rope_write.
func (g *graph) writes(op *ir.Op) bool {
	keys, ok := CacheType(op.Buffer, g.Precision)
	values, ok2 := CacheType(op.Second, g.Precision)
	if !ok || !ok2 || keys != values || !op.Buffer.Type.Equal(op.Second.Type) {
		return false
	}
	if op.Def.Name == "rope_rows_write" {
		r, rows, ok := RopeRowsWrite(op, g.views, keys)
		return ok && g.Allowed(r.Launch(rows))
	}
	r, tokens, ok := RopeWrite(op, g.views, keys)
	return ok && tokens <= r.Slots && g.Allowed(r.Launch(tokens))
}

// lastWrite returns the write that a load of the buffer [1, H, slots, D] sees: of rows [1, H, T, D] along axis 2, or of
// rows to blocks. It returns nil where there is none.
func (g *graph) lastWrite(load *ir.Op) *ir.Op {
	ops := g.m.Entry.Body.Ops
	for i := g.places[load] - 1; i >= 0; i-- {
		op := ops[i]
		if op.Def.Effect == ir.Reads || !worksOn(op, load.Buffer) {
			continue
		}
		if g.dead[op] || !g.cacheWrite(op) {
			return nil
		}
		return op
	}
	return nil
}

// cacheWrite reports whether op writes rows of heads to a cache.
func (g *graph) cacheWrite(op *ir.Op) bool {
	var axis int
	switch op.Def.Name {
	case "block_write":
		return g.blockWrite(op)
	case "buffer_ring_update":
		axis = ir.Attrs[ir.AxisAttrs](op).Axis
	case "buffer_slice_update":
		a, _ := op.Arg("axis")
		if axis = int(a.Int); a.Kind != ir.IntArg || ir.Attrs[ir.StepAttrs](op).Step != 1 {
			return false
		}
		if stop, _ := op.Arg("stop"); !known(stop) {
			return false
		}
	default:
		return false
	}
	start, _ := op.Arg("start")
	u, ok := g.floats(op.Input("update"))
	if !ok || axis != 2 && axis != -2 || !known(start) {
		return false
	}
	h, ok := HeadsOf(u.View)
	s, known := op.Buffer.Type.Static()
	return ok && known && len(s) == 4 && s[0] == 1 && int(s[1]) == h.Heads &&
		int(s[3]) == h.Width && h.Tokens <= int(s[2])
}
