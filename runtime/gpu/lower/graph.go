package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// graph is the entry while the passes run. All passes share it, since it knows at any time who reads a value and how it
// lies in memory.
//
// A pass sees the operations in the order in which it found them. When the pass ends, the operations that it made are
// put in their places, and those that nothing reads any more are removed.
type graph struct {
	*Target
	m *ir.Module
	// readers has the operations that read a value, once for each operand; nil stands for a result of the entry.
	// Constants have no list, since no pass needs it.
	readers map[*ir.Value][]*ir.Op
	layouts map[*ir.Value]Layout
	// before has the operations that the pass has made, by the operation that they are put before.
	before map[*ir.Op][]*ir.Op
	dead   map[*ir.Op]bool
	// prepared are the operations that bring rows into the form for tiled products.
	prepared []*ir.Op
	// places are the operations' positions in the entry, as the pass found it.
	places map[*ir.Op]int
	// touched are the operations that the pass has made or whose operands it has changed.
	touched []*ir.Op
	// changed says that the pass has made or removed an operation.
	changed bool
}

// newGraph returns the graph of a module's entry, without operations whose results nothing reads.
func newGraph(m *ir.Module, t *Target) *graph {
	body := m.Entry.Body
	n := len(body.Ops)
	g := &graph{Target: t, m: m, readers: make(map[*ir.Value][]*ir.Op, n), layouts: make(map[*ir.Value]Layout, n),
		places: make(map[*ir.Op]int, n), before: map[*ir.Op][]*ir.Op{}, dead: map[*ir.Op]bool{}}
	g.number()
	for _, op := range body.Ops {
		g.read(op)
	}
	for _, v := range body.Results {
		g.readers[v] = append(g.readers[v], nil)
	}
	for _, op := range slices.Backward(body.Ops) {
		if !op.Writes() && !g.isRead(op) {
			g.drop(op)
		}
	}
	return g
}

// row wraps f as the function of a pass.
func row(f func(g *graph)) func(*ir.Module, *graph) error {
	return func(_ *ir.Module, g *graph) error {
		if err := ir.Build(func() { f(g) }); err != nil {
			return err
		}
		if g.changed {
			g.arrange()
		}
		return nil
	}
}

// each wraps f as the function of a pass that calls it for every operation with one of these names, in the order of the
// entry.
func each(f func(g *graph, op *ir.Op), names ...string) func(*ir.Module, *graph) error {
	return row(func(g *graph) { g.each(func(op *ir.Op) { f(g, op) }, names...) })
}

// each calls f for the operations with these names in order (for all operations without names). It skips those that f
// has made or removed meanwhile.
func (g *graph) each(f func(op *ir.Op), names ...string) {
	for _, op := range g.m.Entry.Body.Ops {
		if (len(names) == 0 || slices.Contains(names, op.Def.Name)) && !g.dead[op] {
			f(op)
		}
	}
}

// arrange puts the operations that a pass has made into the entry, and takes out those that it has removed.
func (g *graph) arrange() {
	body := g.m.Entry.Body
	ops := make([]*ir.Op, 0, len(body.Ops)+len(g.before))
	var add func(op *ir.Op)
	add = func(op *ir.Op) {
		for _, n := range g.before[op] {
			add(n)
		}
		if !g.dead[op] {
			ops = append(ops, op)
		}
	}
	for _, op := range body.Ops {
		add(op)
	}
	body.Ops, g.changed = ops, false
	clear(g.before)
	g.number()
	if slices.ContainsFunc(g.touched, g.isEarly) {
		g.settle()
		g.number()
	}
	g.touched = g.touched[:0]
}

// number notes the positions of the operations. Removed ones keep their old number; nothing reads it.
func (g *graph) number() {
	for i, op := range g.m.Entry.Body.Ops {
		g.places[op] = i
	}
}

// isEarly reports whether op stands before an operation that defines one of its operands.
func (g *graph) isEarly(op *ir.Op) bool {
	at, early := g.places[op], false
	if !g.dead[op] {
		eachUse(op, func(v **ir.Value) {
			if def := (*v).Def; def != nil && !early {
				early = g.places[def] > at
			}
		})
	}
	return early
}

// draft returns a builder whose operations are not in the entry yet. [graph.insert] puts them there, once the device
// has confirmed that it has kernels for them.
func (g *graph) draft() *ir.Builder { return &ir.Builder{Module: g.m, Region: &ir.Region{}} }

// insert puts the operations of a draft before another one.
func (g *graph) insert(draft *ir.Builder, before *ir.Op) {
	for _, n := range draft.Region.Ops {
		g.add(n, before)
	}
}

func (g *graph) add(n, before *ir.Op) {
	g.changed = true
	g.before[before] = append(g.before[before], n)
	g.touched = append(g.touched, n)
	g.read(n)
}

func (g *graph) read(op *ir.Op) {
	if op.Def.Name == "prepare" {
		g.prepared = append(g.prepared, op)
	}
	eachUse(op, func(v **ir.Value) {
		if !isConstant(*v) {
			g.readers[*v] = append(g.readers[*v], op)
		}
	})
}

// put replaces op by the operations of a draft. The results of the last one replace op's.
func (g *graph) put(draft *ir.Builder, op *ir.Op) {
	ops := draft.Region.Ops
	g.insert(draft, op)
	for i, n := range ops[len(ops)-1].Results {
		g.stand(op, op.Results[i], n)
	}
	g.drop(op)
}

// replace replaces op by what build makes. build returns the values that replace op's results, or nil for results that
// nothing reads.
func (g *graph) replace(op *ir.Op, build func(b *ir.Builder) []*ir.Value) {
	for i, n := range build(g.builder(op)) {
		if n != nil {
			g.stand(op, op.Results[i], n)
		}
	}
	g.drop(op)
}

// builder returns a builder that puts operations before another one.
func (g *graph) builder(before *ir.Op) *ir.Builder {
	return &ir.Builder{Module: g.m, Insert: func(n *ir.Op) { g.add(n, before) }}
}

// stand makes every reader of old read v instead, reshaped to the type of old. The reshape, if needed, is put before
// op.
func (g *graph) stand(op *ir.Op, old, v *ir.Value) { g.use(old, like(g.builder(op), v, old.Type)) }

// use makes every reader of v read n instead.
func (g *graph) use(v, n *ir.Value) {
	readers := g.readers[v]
	for _, op := range readers {
		if op == nil {
			for i, r := range g.m.Entry.Body.Results {
				if r == v {
					g.m.Entry.Body.Results[i] = n
				}
			}
			continue
		}
		eachUse(op, func(used **ir.Value) {
			if *used == v {
				*used = n
			}
		})
	}
	delete(g.readers, v)
	if !isConstant(n) {
		g.readers[n] = append(g.readers[n], readers...)
	}
	for _, op := range readers {
		if op != nil {
			g.touched = append(g.touched, op)
			g.forget(op)
		}
	}
	g.changed = true
	g.unread(v)
}

// forget drops the layouts of op's results and of all values whose layouts follow from them.
func (g *graph) forget(op *ir.Op) {
	if !op.Def.IsView() && order[op.Def.Name] == nil {
		return
	}
	for _, v := range op.Results {
		delete(g.layouts, v)
		for _, o := range g.readers[v] {
			if o != nil {
				g.forget(o)
			}
		}
	}
}

// unread removes the operation that defines v if nothing needs it.
func (g *graph) unread(v *ir.Value) {
	if v.Def != nil && !v.Def.Writes() && !g.isRead(v.Def) {
		g.drop(v.Def)
	}
}

// drop removes an operation, and then those whose results nothing reads any more.
func (g *graph) drop(op *ir.Op) {
	if g.dead[op] {
		return
	}
	g.dead[op], g.changed = true, true
	eachUse(op, func(v **ir.Value) {
		readers := g.readers[*v]
		if i := slices.Index(readers, op); i >= 0 {
			g.readers[*v] = slices.Delete(readers, i, i+1)
		}
		g.unread(*v)
	})
}

// isRead reports whether anything reads a result of op.
func (g *graph) isRead(op *ir.Op) bool {
	return slices.ContainsFunc(op.Results, func(v *ir.Value) bool { return len(g.readers[v]) > 0 })
}

// only reports whether v, and the values that lead to it through views, have no reader but the one that asks. Then the
// operation that computes v can be merged into that reader.
func (g *graph) only(v *ir.Value) bool {
	for v != nil {
		if len(g.readers[v]) != 1 {
			return false
		}
		if v.Def == nil || !v.Def.Def.IsView() {
			return true
		}
		v = v.Def.Input("x")
	}
	return false
}

// firstRead returns the position of the first operation that reads v or a view of v.
func (g *graph) firstRead(v *ir.Value) int {
	first := len(g.m.Entry.Body.Ops)
	for _, op := range g.readers[v] {
		if op == nil {
			continue
		}
		if op.Def.IsView() {
			first = min(first, g.firstRead(op.Result()))
		} else if at, ok := g.places[op]; ok {
			first = min(first, at)
		}
	}
	return first
}

// works reports whether one of the operations at positions first to last-1 reads or writes a buffer.
func (g *graph) works(first, last int, on *ir.Buffer) bool {
	return slices.ContainsFunc(g.m.Entry.Body.Ops[first:max(first, last)],
		func(op *ir.Op) bool { return worksOn(op, on) })
}

// written reports whether one of the operations at positions first to last-1 writes a buffer.
func (g *graph) written(first, last int, b *ir.Buffer) bool {
	return slices.ContainsFunc(g.m.Entry.Body.Ops[first:max(first, last)], func(op *ir.Op) bool {
		return op.Def.Effect != ir.Reads && worksOn(op, b)
	})
}

// worksOn reports whether op, or an operation in its regions, reads or writes a buffer.
func worksOn(op *ir.Op, on *ir.Buffer) bool {
	if on != nil && (op.Buffer == on || op.Second == on) {
		return true
	}
	found := false
	for _, r := range op.Regions {
		r.Walk(func(o *ir.Op) { found = found || worksOn(o, on) })
	}
	return found
}

// eachUse calls f with a pointer to every value that op and its regions use.
func eachUse(op *ir.Op, f func(v **ir.Value)) {
	for _, args := range op.Args {
		for i := range args {
			if args[i].Kind == ir.ValueArg {
				f(&args[i].Value)
			}
		}
	}
	for _, n := range op.Regions {
		ir.EachUse(n, func(v **ir.Value, _ *ir.Op) { f(v) })
	}
}
