package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// bindTake reads rows by their indices.
func bindTake(b *binder) bool {
	axis := ir.Attrs[ir.AxisAttrs](b.Op).Axis
	return b.takeOnly(axis) || b.gather("x", axis, "index") || b.takeInside(axis)
}

// takeOnly binds the choice of the only index along an axis: the result is x itself.
func (b *binder) takeOnly(axis int) bool {
	x, index := b.floats("x"), b.Input("index")
	if x == nil || index == nil || !slices.Equal(index.shape, []int{1}) || !x.isDense() || x.offset != 0 ||
		x.slot.state {
		return false
	}
	if axis < 0 {
		axis += len(x.shape)
	}
	if strided.Elements(x.shape[:axis+1]) != 1 || b.indices(index, 1) == nil {
		return false
	}
	n := *x
	n.dtype = b.Op.Result().Type.DType
	b.Values[b.Op.Result()] = &n
	return true
}

// takeInside binds the choice of indices along an axis that is not the first, such as tokens of heads [1, H, T, D]. The
// rows of the result are contiguous.
func (b *binder) takeInside(axis int) bool {
	x, index := b.floats("x"), b.Input("index")
	if x == nil || index == nil || len(index.shape) != 1 {
		return false
	}
	if axis < 0 {
		axis += len(x.shape)
	}
	shape, known := b.Dims(b.Op.Result().Type)
	strides, ok := strided.AxisFirst(x.shape, x.stride, axis)
	if !known || !ok || strided.Elements(x.shape[:axis]) == 1 {
		return false
	}
	inPlace := true
	for i, n := range x.shape {
		inPlace = inPlace && (n == 1 || strides[i] == x.stride[i])
	}
	if !inPlace {
		dense := &value{dtype: x.dtype, shape: x.shape, stride: strides, slot: b.scratch(4 * x.len())}
		if !b.elements("copy", "copy", dense, x) {
			return false
		}
		x = dense
	}
	rows := x.shape[axis]
	at := b.indices(index, rows)
	if at == nil {
		return false
	}
	to, _ := strided.AxisFirst(shape, x.stride, axis)
	n, width := at.len(), x.len()/rows
	l, err := kernels.Gather{N: width, Rows: roundedRows(rows), Each: 1, Table: kernels.F32, Out: kernels.F32,
		Index: kernels.I32}.Launch(n)
	out := b.result(0, to)
	return out != nil && b.launch("gather", l, err,
		kernels.GatherRowsArguments[operand]{Table: bytesOf(x), Index: bytesOf(at), Out: bytesOf(out),
			Step: b.stepAt(n, nil)})
}

// bindGather binds a gather by indices whose slices are whole rows.
func bindGather(b *binder) bool {
	a := ir.Attrs[ir.GatherAttrs](b.Op)
	shape, ok := b.Dims(b.Op.Input("x").Type)
	if !ok || len(a.Axes) != 1 || len(a.SliceSizes) != len(shape) {
		return false
	}
	for i, n := range a.SliceSizes {
		if i == a.Axes[0] && n != 1 || i != a.Axes[0] && n != shape[i] {
			return false
		}
	}
	return b.gather("x", a.Axes[0], "indices")
}

// roundedRows rounds the rows of a table up to a power of two, 64 at least. A kernel is compiled for the rows of its
// table, to which it clamps indices; rounded, calls with many different numbers of rows share a few kernels. No index
// needs the clamp: each was checked against the exact number before.
func roundedRows(rows int) int {
	n := 64
	for n < rows {
		n *= 2
	}
	return n
}

// gather reads rows of an operand, which run over all axes after the given one, by the indices in another operand.
// Axes before that one must have a single index. Indices that lie outside are clamped.
func (b *binder) gather(from string, axis int, indices string) bool {
	shape, ok := b.Dims(b.Op.Input(from).Type)
	if axis < 0 {
		axis += len(shape)
	}
	index := b.Input(indices)
	if !ok || strided.Elements(shape[:axis]) != 1 || index == nil || index.shape == nil {
		return false
	}
	n, rows, width := index.len(), shape[axis], strided.Elements(shape[axis+1:])
	at := b.indices(index, rows)
	if at == nil {
		return false
	}
	table, of, ok := b.table(from)
	if !ok {
		return false
	}
	if !table.slot.fixed {
		rows = roundedRows(rows)
	}
	l, err := kernels.Gather{N: width, Rows: rows, Each: 1, Table: of, Out: kernels.F32, Index: kernels.I32}.Launch(n)
	out := b.result(0, nil)
	if out == nil {
		return false
	}
	a := kernels.GatherRowsArguments[operand]{Table: table, Index: bytesOf(at), Out: bytesOf(out),
		Step: b.stepAt(n, nil)}
	if !b.launch("gather", l, err, a) {
		return false
	}
	if table.slot.fixed {
		b.reading(n * width * of.Size())
	}
	return true
}

// table returns an operand of floats in row-major order and its dtype. A constant is read as the file stores it if it
// has a float dtype that kernels read; else the operand's value on the device is used.
func (b *binder) table(name string) (operand, kernels.DType, bool) {
	of := b.Op.Input(name)
	if of.Constant != nil && (of.Type.DType == ir.BF16 || of.Type.DType == ir.F32) {
		f := f32
		if of.Type.DType == ir.BF16 {
			f = bf16
		}
		s := b.x.exe.stored(of, f)
		if s == nil {
			return operand{}, 0, false
		}
		return whole(s), f.kernelType(), true
	}
	x := b.device(of, b.Input(name))
	if x == nil || x.format == i32 {
		return operand{}, 0, false
	}
	if !x.isDense() {
		if x = b.dense(x); x == nil {
			return operand{}, 0, false
		}
	}
	return bytesOf(x), x.format.kernelType(), true
}
