package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// resetOf matches the content of a buffer, or zeros where a bool says so: where(reset, 0, load), or load ·
// (1 − reset). Of a state with infinities the product makes NaN; here it is zeros.
func resetOf(v *ir.Value) (load *ir.Op, reset *ir.Value) {
	v = plain(v)
	if op := def(v, "load"); op != nil {
		return op, nil
	}
	if op := def(v, "where"); op != nil {
		load := is(op.Input("y"), "load")
		if cond := op.Input("condition"); load != nil && isFlag(cond) && isScalar(op.Input("x"), 0) &&
			sameShape(load.Result().Type, v.Type) {
			return load, cond
		}
		return nil, nil
	}
	op := def(v, "multiply")
	if op == nil {
		return nil, nil
	}
	eitherWay(op, func(state, factor *ir.Value) bool {
		difference := is(factor, "subtract")
		if is(state, "load") == nil || difference == nil || !isScalar(difference.Input("a"), 1) ||
			factor.Type.Rank() != 0 {
			return false
		}
		flag := is(difference.Input("b"), "astype")
		if flag == nil || !isFlag(flag.Input("x")) {
			return false
		}
		load, reset = is(state, "load"), flag.Input("x")
		return true
	})
	return load, reset
}

// isFlag reports whether v is one bool.
func isFlag(v *ir.Value) bool {
	return v != nil && v.Type.Kind == ir.TensorKind && v.Type.DType == ir.Bool && v.Type.Rank() == 0
}

// bufferUses are the operations of a region on a buffer, in order. other says that a nested region has some.
type bufferUses struct {
	loads, writes []*ir.Op
	other         bool
}

func buffersOf(r *ir.Region) map[*ir.Buffer]*bufferUses {
	out := map[*ir.Buffer]*bufferUses{}
	get := func(b *ir.Buffer) *bufferUses {
		if out[b] == nil {
			out[b] = &bufferUses{}
		}
		return out[b]
	}
	for _, op := range r.Ops {
		if op.Buffer != nil {
			u := get(op.Buffer)
			if op.Def.Effect == ir.Reads {
				u.loads = append(u.loads, op)
			} else {
				u.writes = append(u.writes, op)
			}
		}
		for _, n := range op.Regions {
			n.Walk(func(o *ir.Op) {
				if o.Buffer != nil {
					get(o.Buffer).other = true
				}
			})
		}
	}
	return out
}

// edit collects changes of a region's list of operations. at has the operations that replace an operation; dropped
// operations are left out. Uses of replaced results are replaced too.
type edit struct {
	module   *ir.Module
	at       map[*ir.Op]func(b *ir.Builder) []*ir.Value
	dropped  map[*ir.Op]bool
	replaced map[*ir.Value]*ir.Value
}

func newEdit(m *ir.Module) *edit {
	return &edit{m, map[*ir.Op]func(*ir.Builder) []*ir.Value{}, map[*ir.Op]bool{}, map[*ir.Value]*ir.Value{}}
}

func (e *edit) run(r *ir.Region) {
	get := func(v *ir.Value) *ir.Value {
		if n := e.replaced[v]; n != nil {
			return n
		}
		return v
	}
	var ops []*ir.Op
	b := &ir.Builder{Module: e.module, Insert: func(op *ir.Op) { ops = append(ops, op) }}
	var use func(op *ir.Op)
	use = func(op *ir.Op) {
		op.EachArg(func(a *ir.Arg) { a.Value = get(a.Value) })
		for _, n := range op.Regions {
			for _, o := range n.Ops {
				use(o)
			}
			for i, v := range n.Results {
				n.Results[i] = get(v)
			}
		}
	}
	for _, op := range r.Ops {
		if e.dropped[op] {
			continue
		}
		use(op)
		f := e.at[op]
		if f == nil {
			ops = append(ops, op)
			continue
		}
		for i, v := range f(b) {
			e.replaced[op.Results[i]] = v
		}
	}
	r.Ops = ops
	for i, v := range r.Results {
		r.Results[i] = get(v)
	}
}

// fuseState makes buffer_delta_rule of a gated_delta_rule that begins with a buffer's content, possibly
// reset, and whose last state is stored there and goes nowhere else.
func fuseState(m *ir.Module) error {
	return ir.Build(func() {
		r, e, uses := m.Entry.Body, newEdit(m), ir.CountUses(m.Entry.Body)
		dropSelfStores(r, e)
		buffers := buffersOf(r)
		for _, op := range r.Ops {
			if op.Def.Name != "gated_delta_rule" {
				continue
			}
			load, reset := resetOf(op.Input("state"))
			if load == nil {
				continue
			}
			u := buffers[load.Buffer]
			store := onlyStore(u, e, op.Results[1], uses)
			if store == nil {
				continue
			}
			var flag any
			if reset != nil {
				flag = reset
			}
			e.dropped[store] = true
			e.at[op] = func(b *ir.Builder) []*ir.Value {
				in := func(name string) *ir.Value { return op.Input(name) }
				rule := b.BufferOp("buffer_delta_rule", load.Buffer, nil, in("q"), in("k"), in("v"),
					in("g"), in("beta"), flag)
				return []*ir.Value{rule.Result(), nil}
			}
		}
		e.run(r)
	})
}

// onlyStore returns the store of v, where that is the only use of v and, beside one load, of the buffer.
func onlyStore(u *bufferUses, e *edit, v *ir.Value, uses map[*ir.Value]int) *ir.Op {
	writes := slices.DeleteFunc(slices.Clone(u.writes), func(op *ir.Op) bool { return e.dropped[op] })
	if u.other || len(u.loads) != 1 || len(writes) != 1 || writes[0].Def.Name != "store" {
		return nil
	}
	x := writes[0].Input("x")
	if plain(x) != v {
		return nil
	}
	for ; x != v; x = x.Def.Input("x") {
		if uses[x] != 1 {
			return nil
		}
	}
	if uses[v] != 1 || uses[u.loads[0].Result()] != 1 {
		return nil
	}
	return writes[0]
}

// dropSelfStores drops the stores of a buffer's own content, which exporters end a graph with: the load
// is of what the updates before it have left.
func dropSelfStores(r *ir.Region, e *edit) {
	version, loaded := map[*ir.Buffer]int{}, map[*ir.Value]int{}
	for _, op := range r.Ops {
		switch {
		case op.Def.Effect == ir.Reads:
			loaded[op.Result()] = version[op.Buffer]
		case op.Def.Effect == ir.Writes:
			if load := is(op.Input(op.Def.Operands[0].Name), "load"); op.Def.Name == "store" && load != nil &&
				load.Buffer == op.Buffer && loaded[load.Result()] == version[op.Buffer] {
				if _, here := loaded[load.Result()]; here {
					e.dropped[op] = true
					continue
				}
			}
			version[op.Buffer]++
		default:
			op.EachWrite(func(b *ir.Buffer) { version[b]++ })
		}
	}
}

// fuseConv makes buffer_conv of a causal convolution of each channel over the rows that a buffer holds and
// those that follow, whose last rows are stored in the buffer.
func fuseConv(m *ir.Module) error {
	return ir.Build(func() {
		r, e, uses := m.Entry.Body, newEdit(m), ir.CountUses(m.Entry.Body)
		dropSelfStores(r, e)
		buffers := buffersOf(r)
		activated := map[*ir.Op]bool{} // slices that an activation follows
		for _, op := range r.Ops {
			if op.Def.Name == "silu" && uses[op.Input("x")] == 1 {
				activated[plain(op.Input("x")).Def] = true
			}
		}
		for _, op := range r.Ops {
			c := matchConv(op)
			if c == nil || activated[op] {
				continue
			}
			if c.store = onlyTail(buffers[c.load.Buffer], e, c, uses); c.store == nil {
				continue
			}
			var flag any
			if c.reset != nil {
				flag = c.reset
			}
			e.dropped[c.store] = true
			e.at[op] = func(b *ir.Builder) []*ir.Value {
				attrs := &ir.BufferConvAttrs{Activation: c.activation, ChannelFirst: c.channelFirst}
				x := c.x
				if c.transposed {
					x = b.Value("transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, x)
				}
				y := b.BufferOp("buffer_conv", c.load.Buffer, attrs, x, c.w, flag)
				return []*ir.Value{cast(b, y.Result(), op.Result().Type.DType)}
			}
		}
		e.run(r)
	})
}

// convolution is the result of fuseConv's match.
type convolution struct {
	load, store  *ir.Op
	reset        *ir.Value
	x, w         *ir.Value
	rows         *ir.Value // the buffer's rows and those of x, joined
	taps         int64
	activation   string
	channelFirst bool
	transposed   bool // x is [B, C, S] and must be transposed
}

// matchConv matches activation(slice(conv1d(rows))) or the slice alone, without its first output.
func matchConv(op *ir.Op) *convolution {
	var c convolution
	v := op
	switch op.Def.Name {
	case "silu":
		if v = is(op.Input("x"), "slice"); v == nil {
			return nil
		}
		c.activation = "silu"
	case "slice":
	default:
		return nil
	}
	all, axis, start, stop, ok := sliced(v.Result())
	conv := is(all, "conv1d")
	if !ok || conv == nil || axis != 1 || !start.IsConst(1) {
		return nil
	}
	a, w := ir.Attrs[ir.Conv1DAttrs](conv), conv.Input("w")
	if constant(w) == nil || w.Type.Rank() != 3 || a.Stride != 1 || a.Padding != 0 || a.Dilation != 1 ||
		!w.Type.Shape[2].IsConst(1) || !w.Type.Shape[0].IsConst(int64(a.Groups)) {
		return nil
	}
	if !stop.Equal(all.Type.Shape[1]) && !atLeast(stop, all.Type.Shape[1]) {
		return nil
	}
	c.w, c.taps = plain(w), size(w, 1)
	return c.matchRows(conv.Input("x"))
}

// atLeast reports whether e is a constant that no value of dim exceeds.
func atLeast(e, dim *ir.Expr) bool {
	v, ok := e.Const()
	_, hi := dim.Bounds()
	return ok && v >= hi
}

// matchRows matches the buffer's rows and new ones, joined along the time axis, in one of two layouts.
func (c *convolution) matchRows(v *ir.Value) *convolution {
	axis := 1
	c.rows = plain(v)
	if x, perm := permutation(v); x != nil {
		if !slices.Equal(perm, []int{0, 2, 1}) {
			return nil
		}
		axis, c.rows, c.channelFirst = 2, plain(x), true
	}
	joined := def(c.rows, "concatenate")
	if joined == nil || axisOf(ir.Attrs[ir.AxisAttrs](joined).Axis, c.rows.Type) != axis ||
		len(joined.Operand("tensors")) != 2 {
		return nil
	}
	if c.load, c.reset = resetOf(joined.Operand("tensors")[0].Value); c.load == nil {
		return nil
	}
	if !c.load.Buffer.Type.Shape[axis].IsConst(c.taps) || c.load.Buffer.Type.Rank() != 3 {
		return nil
	}
	if c.x = joined.Operand("tensors")[1].Value; c.channelFirst {
		if x, perm := permutation(c.x); x != nil && slices.Equal(perm, []int{0, 2, 1}) {
			c.x = x
		} else {
			c.transposed = true
		}
	}
	return c
}

// onlyTail returns the store of the last rows into the buffer, where that and the convolution are its only uses.
func onlyTail(u *bufferUses, e *edit, c *convolution, uses map[*ir.Value]int) *ir.Op {
	writes := slices.DeleteFunc(slices.Clone(u.writes), func(op *ir.Op) bool { return e.dropped[op] })
	if u.other || len(u.loads) != 1 || len(writes) != 1 || writes[0].Def.Name != "store" || uses[c.load.Result()] != 1 {
		return nil
	}
	rows, axis, start, stop, ok := sliced(writes[0].Input("x"))
	if !ok || plain(rows) != c.rows {
		return nil
	}
	length := rows.Type.Shape[axis]
	first := start
	if v, fixed := start.Const(); fixed && v < 0 {
		first = length.Add(start)
	}
	want := 1
	if c.channelFirst {
		want = 2
	}
	if axis != want || !length.Sub(first).IsConst(c.taps) || !stop.Equal(length) && !atLeast(stop, length) {
		return nil
	}
	return writes[0]
}
