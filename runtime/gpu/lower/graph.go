package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// graph is the entry while a row changes it. Who reads a value is known at any time.
type graph struct {
	*Target
	m *ir.Module
	// readers are the operations that read a value, as often as they do; nil stands for the results of the entry.
	readers map[*ir.Value][]*ir.Op
	// before are operations that the row has made, by that before which they stand.
	before map[*ir.Op][]*ir.Op
	dead   map[*ir.Op]bool
	// prepared are the operations that bring rows into the form that tiled products take.
	prepared []*ir.Op
	// places are the operations' numbers in the entry as it was.
	places map[*ir.Op]int
}

// change lets f change the entry, then puts the operations in order. What nothing reads any more is gone.
func (t *Target) change(m *ir.Module, f func(g *graph)) error {
	g := &graph{Target: t, m: m, readers: map[*ir.Value][]*ir.Op{}, before: map[*ir.Op][]*ir.Op{},
		dead: map[*ir.Op]bool{}, places: map[*ir.Op]int{}}
	body := m.Entry.Body
	for i, op := range body.Ops {
		g.places[op] = i
		g.read(op)
	}
	for _, v := range body.Results {
		g.readers[v] = append(g.readers[v], nil)
	}
	if err := ir.Build(func() { f(g) }); err != nil {
		return err
	}
	var ops []*ir.Op
	for _, op := range body.Ops {
		ops = append(append(ops, g.before[op]...), op)
	}
	body.Ops = slices.DeleteFunc(ops, func(op *ir.Op) bool { return g.dead[op] })
	settle(body)
	clear(t.layouts)
	return nil
}

// ops calls f for the operations in order, but for those that f has made or that are gone.
func (g *graph) ops(f func(op *ir.Op)) {
	for _, op := range g.m.Entry.Body.Ops {
		if !g.dead[op] {
			f(op)
		}
	}
}

func (g *graph) read(op *ir.Op) {
	if op.Def.Name == "prepare" {
		g.prepared = append(g.prepared, op)
	}
	uses(op, func(v *ir.Value) { g.readers[v] = append(g.readers[v], op) })
}

// replace puts what build makes in the place of op. build gives the values that stand for op's results, or nil for
// those that nothing reads.
func (g *graph) replace(op *ir.Op, build func(b *ir.Builder) []*ir.Value) {
	b := &ir.Builder{Module: g.m, Insert: func(n *ir.Op) {
		g.before[op] = append(g.before[op], n)
		g.read(n)
	}}
	for i, n := range build(b) {
		if n != nil {
			g.use(op.Results[i], n)
		}
	}
	g.drop(op)
	clear(g.layouts)
}

// use makes all that reads v read n.
func (g *graph) use(v, n *ir.Value) {
	for _, op := range g.readers[v] {
		if op == nil {
			for i, r := range g.m.Entry.Body.Results {
				if r == v {
					g.m.Entry.Body.Results[i] = n
				}
			}
			continue
		}
		op.EachArg(func(a *ir.Arg) {
			if a.Kind == ir.ValueArg && a.Value == v {
				a.Value = n
			}
		})
	}
	g.readers[n] = append(g.readers[n], g.readers[v]...)
	delete(g.readers, v)
	clear(g.layouts)
	g.unread(v)
}

// unread drops the operation that gives v if nothing needs it.
func (g *graph) unread(v *ir.Value) {
	if v.Def != nil && v.Def.Def.Effect == ir.Pure && !g.isRead(v.Def) {
		g.drop(v.Def)
	}
}

// drop removes an operation, and those that then nothing reads.
func (g *graph) drop(op *ir.Op) {
	if g.dead[op] {
		return
	}
	g.dead[op] = true
	uses(op, func(v *ir.Value) {
		if i := slices.Index(g.readers[v], op); i >= 0 {
			g.readers[v] = slices.Delete(slices.Clone(g.readers[v]), i, i+1)
		}
		g.unread(v)
	})
}

// isRead reports whether anything reads a result of op.
func (g *graph) isRead(op *ir.Op) bool {
	return slices.ContainsFunc(op.Results, func(v *ir.Value) bool { return len(g.readers[v]) > 0 })
}

// only reports whether v, and the values on the way to it through views, are read by nothing but the one that asks.
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

// firstRead is the place of the first operation that reads v, through views too.
func (g *graph) firstRead(v *ir.Value) int {
	first := len(g.places)
	for _, op := range g.readers[v] {
		switch at, ok := g.places[op]; {
		case op != nil && op.Def.IsView():
			first = min(first, g.firstRead(op.Result()))
		case ok:
			first = min(first, at)
		}
	}
	return first
}

// like is v as a value of another type of as many elements: both are views.
func like(b *ir.Builder, v *ir.Value, t ir.Type) *ir.Value {
	v = shapedAs(b, v, t)
	if v.Type.DType != t.DType {
		v = b.Value("astype", &ir.DTypeAttrs{ScalarType: t.DType}, v)
	}
	return v
}

// shapedAs is v in the shape of a type.
func shapedAs(b *ir.Builder, v *ir.Value, t ir.Type) *ir.Value {
	dims, ok := t.Static()
	if !ok {
		b.Fail("a value of type %s, want a shape that is known", t)
	}
	if have, ok := v.Type.Static(); !ok || !slices.Equal(have, dims) {
		v = b.Value("reshape", nil, v, dims)
	}
	return v
}

// shape gives the dims of a tensor; nil where they are not known, or it is none.
func shape(v *ir.Value) []int {
	if v == nil || v.Type.Kind != ir.TensorKind {
		return nil
	}
	dims, ok := bind.Sizes{}.Dims(v.Type)
	if !ok {
		return nil
	}
	return dims
}

// width is the last dim, or 0.
func width(v *ir.Value) int {
	if dims := shape(v); len(dims) > 0 {
		return dims[len(dims)-1]
	}
	return 0
}

// numbers gives the layout of what kernels read as float32: also of a buffer that is stored so.
func (t *Target) numbers(v *ir.Value) (Layout, bool) {
	l, ok := t.floats(v)
	if v == nil || v.Type.Kind != ir.TensorKind || ok {
		return l, ok
	}
	l, ok = t.Layout(v)
	if !ok || l.Base.Def == nil || l.Base.Def.Def.Name != "load" {
		return Layout{}, false
	}
	stored, ok := CacheType(l.Base.Def.Buffer, t.Precision)
	return l, ok && stored == kernels.F32
}

// usable reports whether one of the first ways to launch a kernel may be used.
func usable[W any](t *Target, ways []W, launch func(W) (kernels.Launch, error)) bool {
	for _, w := range ways[:min(len(ways), MaxRefused)] {
		l, err := launch(w)
		if err != nil {
			return false
		}
		if t.Allowed(l, nil) {
			return true
		}
	}
	return false
}
