package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"take":            take,
		"take_along_axis": takeAlongAxis,
		"gather":          gather,
		"scatter_add":     scatterAdd,
		"index_copy":      indexCopy,
	})
}

// indices returns the elements of an index tensor as positions in a dim; negative ones count from the
// end. MLX reads out of bounds where an index is out of range; here that is an error.
func indices(t *Tensor, name string, dim int) ([]int, error) {
	if !t.DType.IsInteger() {
		return nil, fmt.Errorf("%s is %s, want an integer dtype", name, t.DType)
	}
	out := make([]int, len(t.I))
	for i, v := range t.I {
		at := v
		if v < 0 && !t.DType.IsUnsigned() {
			at += int64(dim)
		}
		if at < 0 || at >= int64(dim) {
			return nil, fmt.Errorf("%s has %d at element %d, which is out of range for a dim of %d", name, v, i, dim)
		}
		out[i] = int(at)
	}
	return out, nil
}

// take reads the slices of x at indices of an axis. A number drops the axis; a tensor puts its own dims
// in the axis's place.
func take(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(x.Shape))
	if err != nil {
		return nil, err
	}
	dim := x.Shape[axis]
	var at, dims []int
	if index := c.Tensor("index"); index != nil {
		if at, err = indices(index, "index", dim); err != nil {
			return nil, err
		}
		dims = index.Shape
	} else {
		v := int(c.int32("index"))
		if v < -dim || v >= dim {
			return nil, fmt.Errorf("index %d is out of range for dim %d of axis %d", v, dim, axis)
		}
		if v < 0 {
			v += dim
		}
		at = []int{v}
	}
	shape := make([]int, 0, len(x.Shape)+len(dims))
	shape = append(append(append(shape, x.Shape[:axis]...), dims...), x.Shape[axis+1:]...)
	out, err := NewTensor(x.DType, shape...)
	if err != nil {
		return nil, err
	}
	outer, inner := around(x.Shape, axis)
	if out.F != nil {
		takeRows(out.F, x.F, outer, dim, inner, at)
	} else {
		takeRows(out.I, x.I, outer, dim, inner, at)
	}
	return c.result(out, nil)
}

// takeRows copies the rows at the given positions of every outer block.
func takeRows[T any](dst, src []T, outer, dim, inner int, at []int) {
	for o := range outer {
		for _, k := range at {
			copy(dst[:inner], src[(o*dim+k)*inner:])
			dst = dst[inner:]
		}
	}
}

// takeAlongAxis reads x at (…, indices[…, i, …], …). x and indices broadcast in the other dims.
func takeAlongAxis(c *Call) ([]Value, error) {
	x, index := c.Tensor("x"), c.Tensor("indices")
	x, index, axis, err := alongAxis(x, index, ir.Attrs[ir.AxisAttrs](c.Op).Axis)
	if err != nil {
		return nil, err
	}
	at, err := indices(index, "indices", x.Shape[axis])
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(x.DType, index.Shape...)
	if err != nil {
		return nil, err
	}
	from := positions(at, index.Shape, axis, x.Shape[axis])
	for i, p := range from {
		if out.F != nil {
			out.F[i] = x.F[p]
		} else {
			out.I[i] = x.I[p]
		}
	}
	return c.result(out, nil)
}

// alongAxis broadcasts x and index to each other in every dim but that of axis.
func alongAxis(x, index *Tensor, axis int) (*Tensor, *Tensor, int, error) {
	if len(x.Shape) != len(index.Shape) {
		return nil, nil, 0, fmt.Errorf("indices have shape %v, x %v: want as many dims", index.Shape, x.Shape)
	}
	axis, err := axisIn(axis, len(x.Shape))
	if err != nil {
		return nil, nil, 0, err
	}
	shape, err := broadcastShape(withDim(x.Shape, axis, 1), withDim(index.Shape, axis, 1))
	if err != nil {
		return nil, nil, 0, err
	}
	xs, is := withDim(shape, axis, x.Shape[axis]), withDim(shape, axis, index.Shape[axis])
	if x, err = x.broadcast(xs); err != nil {
		return nil, nil, 0, err
	}
	index, err = index.broadcast(is)
	return x, index, axis, err
}

// positions turns indices into an axis of length dim, stored row-major with the given shape, into
// positions of elements: those of the dense tensor whose shape has dim in that axis.
func positions(at, shape []int, axis, dim int) []int {
	outer, inner := around(shape, axis)
	i := 0
	for o := range outer {
		for range shape[axis] {
			for k := range inner {
				at[i] = (o*dim+at[i])*inner + k
				i++
			}
		}
	}
	return at
}

// scatterAdd is x with updates added at (…, indices[…, i, …], …). Sums are formed in float32 and
// rounded once under Strict.
func scatterAdd(c *Call) ([]Value, error) {
	x, index, updates := c.Tensor("x"), c.Tensor("indices"), c.cast(c.Tensor("updates"), c.Tensor("x").DType)
	for len(updates.Shape) > len(index.Shape) {
		if updates.Shape[0] != 1 {
			return nil, fmt.Errorf("updates have shape %v, indices %v: want at most as many dims",
				updates.Shape, index.Shape)
		}
		updates = updates.reshaped(updates.Shape[1:])
	}
	shape, err := broadcastShape(index.Shape, updates.Shape)
	if err != nil {
		return nil, err
	}
	if index, err = index.broadcast(shape); err != nil {
		return nil, err
	}
	x, index, axis, err := alongAxis(x, index, ir.Attrs[ir.AxisAttrs](c.Op).Axis)
	if err != nil {
		return nil, err
	}
	if updates, err = updates.broadcast(index.Shape); err != nil {
		return nil, err
	}
	at, err := indices(index, "indices", x.Shape[axis])
	if err != nil {
		return nil, err
	}
	out := x.Clone()
	for i, p := range positions(at, index.Shape, axis, x.Shape[axis]) {
		if out.F != nil {
			out.F[p] += updates.F[i]
		} else {
			out.I[p] = wrap(out.DType, out.I[p]+updates.I[i])
		}
	}
	c.roundAll(out.DType, out.F)
	return c.result(out, nil)
}

// gather reads one block of x, of the size slice_sizes, for every element of the broadcast indices: index tensor number
// k says where the block begins in axis axes[k]. It is long because it is one sequence of steps, each of which needs
// what those before it made.
func gather(c *Call) ([]Value, error) {
	x, tensors, a := c.Tensor("x"), c.Tensors("indices"), ir.Attrs[ir.GatherAttrs](c.Op)
	if len(tensors) != len(a.Axes) {
		return nil, fmt.Errorf("%d index tensors for %d axes, want one per axis", len(tensors), len(a.Axes))
	}
	if len(a.SliceSizes) != len(x.Shape) {
		return nil, fmt.Errorf("%d slice sizes, want one for each of the %d dims of x", len(a.SliceSizes), len(x.Shape))
	}
	for i, n := range a.SliceSizes {
		if n < 1 || n > x.Shape[i] {
			return nil, fmt.Errorf("slice sizes %v: %d is not between 1 and dim %d of axis %d",
				a.SliceSizes, n, x.Shape[i], i)
		}
	}
	shapes := make([][]int, len(tensors))
	for k, t := range tensors {
		shapes[k] = t.Shape
	}
	shape, err := broadcastShape(shapes...)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(x.DType, append(append([]int(nil), shape...), a.SliceSizes...)...)
	if err != nil {
		return nil, err
	}
	count, err := elements(shape)
	if err != nil {
		return nil, err
	}
	strides, used := rowMajor(x.Shape), make([]bool, len(x.Shape))
	offsets := make([]int, count)
	for k, t := range tensors {
		axis := a.Axes[k]
		if axis < 0 || axis >= len(x.Shape) || used[axis] {
			return nil, fmt.Errorf("axes %v: want different axes of the %d of x", a.Axes, len(x.Shape))
		}
		used[axis] = true
		if t, err = t.broadcast(shape); err != nil {
			return nil, err
		}
		at, err := indices(t, fmt.Sprintf("index tensor %d", k), x.Shape[axis])
		if err != nil {
			return nil, err
		}
		for i, v := range at {
			if v+a.SliceSizes[axis] > x.Shape[axis] {
				return nil, fmt.Errorf("a slice of %d that begins at %d is out of range for dim %d of axis %d",
					a.SliceSizes[axis], v, x.Shape[axis], axis)
			}
			offsets[i] += v * strides[axis]
		}
	}
	block, _ := elements(a.SliceSizes)
	for i, offset := range offsets {
		if out.F != nil {
			readView(out.F[i*block:(i+1)*block], x.F, a.SliceSizes, strides, offset)
		} else {
			readView(out.I[i*block:(i+1)*block], x.I, a.SliceSizes, strides, offset)
		}
	}
	return c.result(out, nil)
}

// indexCopy is dst with the slices at indices of an axis replaced; dst itself keeps its elements.
func indexCopy(c *Call) ([]Value, error) {
	dst := c.Tensor("dst").Clone()
	return c.result(dst, updateIndices(dst, c, c.Precision))
}

// updateIndices writes the operand update to the slices of dst at the operand indices: slice i to index
// i, so that of equal indices the last one stays. update is converted to dst's dtype with precision p
// and broadcast in the other dims. Like the delegate it wants indices i64 with one dim.
func updateIndices(dst *Tensor, c *Call, p Precision) error {
	index := c.Tensor("indices")
	if index.DType != ir.I64 || len(index.Shape) != 1 {
		return fmt.Errorf("indices are %s%v, want i64 with one dim", index.DType, index.Shape)
	}
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(dst.Shape))
	if err != nil {
		return err
	}
	at, err := indices(index, "indices", dst.Shape[axis])
	if err != nil {
		return err
	}
	update := c.Tensor("update")
	if len(update.Shape) != len(dst.Shape) || update.Shape[axis] != len(at) {
		return fmt.Errorf("update has shape %v, want %d dims and %d along axis %d", update.Shape,
			len(dst.Shape), len(at), axis)
	}
	if update, err = update.broadcast(withDim(dst.Shape, axis, len(at))); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	update = convert(update, dst.DType, p)
	for i, k := range at {
		copyBlock(dst, k, update, i, 1, axis)
	}
	return nil
}
