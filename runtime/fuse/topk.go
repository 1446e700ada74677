package fuse

import "github.com/etc-ml/etc/ir"

// fuseTopK makes top_k of the ways to write it: the end of a full sort taken backwards, and partitions
// whose end is sorted. Equal operations are merged afterwards, so values and indices become results of one.
func fuseTopK(m *ir.Module) error {
	return apply(m, "", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		switch op.Def.Name {
		case "slice":
			x, k := reversed(op.Result())
			if x == nil {
				return nil, false
			}
			if sort := is(x, "argsort"); sort != nil && isLast(sort) && k < size(x, -1) {
				return []*ir.Value{topK(b, sort.Input("x"), k).Results[1]}, true
			}
			// The values: the sorted end of a partition.
			if sort := is(x, "sort"); sort != nil && isLast(sort) && size(x, -1) == k {
				if source := largest(sort.Input("x"), "partition", k); source != nil {
					return []*ir.Value{cast(b, topK(b, source, k).Results[0], op.Result().Type.DType)}, true
				}
			}
		case "take_along_axis":
			return topKOfTaken(b, op)
		}
		return nil, false
	})
}

func topK(b *ir.Builder, x *ir.Value, k int64) *ir.Op {
	return b.Op("top_k", &ir.TopKAttrs{K: int(k)}, x)
}

func topKOfTaken(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
	x, indices := op.Input("x"), op.Input("indices")
	if axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, x.Type) != x.Type.Rank()-1 {
		return nil, false
	}
	// The values at indices that are a result of top_k already.
	if top := def(indices, "top_k"); top != nil && indices.Index == 1 && plain(top.Input("x")) == plain(x) {
		return []*ir.Value{cast(b, top.Results[0], op.Result().Type.DType)}, true
	}
	// The indices: the end of a partition in the order of the values there.
	order, k := reversed(indices)
	if order == nil || size(order, -1) != k {
		return nil, false
	}
	sort := is(order, "argsort")
	if sort == nil || !isLast(sort) {
		return nil, false
	}
	values := is(sort.Input("x"), "take_along_axis")
	if values == nil || plain(values.Input("indices")) != plain(x) ||
		axisOf(ir.Attrs[ir.AxisAttrs](values).Axis, values.Input("x").Type) != values.Input("x").Type.Rank()-1 {
		return nil, false
	}
	source := largest(x, "argpartition", k)
	if source == nil || plain(source) != plain(values.Input("x")) {
		return nil, false
	}
	return []*ir.Value{topK(b, source, k).Results[1]}, true
}

// largest matches the last k elements of a partition whose k largest stand there.
func largest(v *ir.Value, name string, k int64) *ir.Value {
	x, axis, start, stop, ok := sliced(v)
	if !ok || axis != x.Type.Rank()-1 {
		return nil
	}
	p := is(x, name)
	if p == nil || !isLast(p) {
		return nil
	}
	n, known := x.Type.Shape[axis].Const()
	first, fixed := start.Const()
	end, fixed2 := stop.Const()
	if !known || !fixed || !fixed2 || wrap(first, n) != n-k || end < n {
		return nil
	}
	if kth, ok := literal(p, "kth"); !ok || wrap(kth, n) != n-k {
		return nil
	}
	return p.Input("x")
}

// wrap reads a Python-style index.
func wrap(i, n int64) int64 {
	if i < 0 {
		return i + n
	}
	return i
}

// size returns a constant dim, or -1.
func size(v *ir.Value, axis int) int64 {
	if n, ok := v.Type.Shape[axisOf(axis, v.Type)].Const(); ok {
		return n
	}
	return -1
}

// isLast reports whether an operation with an axis works on the last one.
func isLast(op *ir.Op) bool {
	x := op.Input("x")
	return axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, x.Type) == x.Type.Rank()-1
}

// reversed matches the last k elements of the last axis taken backwards.
func reversed(v *ir.Value) (x *ir.Value, k int64) {
	op := is(v, "slice")
	if op == nil || ir.Attrs[ir.StepAttrs](op).Step != -1 {
		return nil, 0
	}
	x = op.Input("x")
	axis, ok := literal(op, "axis")
	n := size(x, -1)
	if !ok || axisOf(int(axis), x.Type) != x.Type.Rank()-1 || n < 1 {
		return nil, 0
	}
	start, ok := literal(op, "start")
	stop, ok2 := literal(op, "stop")
	if !ok || !ok2 || wrap(start, n) != n-1 {
		return nil, 0
	}
	// Of a negative step, stop -1 itself would mean n-1; what lies before the first element is -n-1.
	k = n - 1 - max(wrap(stop, n), -1)
	if k < 1 || k > n {
		return nil, 0
	}
	return x, k
}
