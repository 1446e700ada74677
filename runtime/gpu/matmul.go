package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/strided"
)

// bindPrepare binds the preparation of rows for tiled products: converted to bf16 unless exact, and normalized if the
// operation has a norm.
func bindPrepare(b *binder) bool {
	a, x := ir.Attrs[ir.PrepareAttrs](b.Op), b.floats("x")
	shape, known := b.Dims(b.Op.Result().Type)
	if x == nil || !x.isDense() || len(x.shape) == 0 || !known {
		return false
	}
	width := x.shape[len(x.shape)-1]
	norm, ok := b.normOperand("norm", a.Norm, a.Eps, width)
	if !ok {
		return false
	}
	v := &value{dtype: b.Op.Result().Type.DType, shape: shape, stride: strided.RowMajor(shape)}
	if !a.Exact {
		v.format = bf16
	}
	rows, p := x.len()/width, kernels.Prepare{K: width, Exact: a.Exact, Packed: a.Packed}
	v.slot, v.packed = b.scratch(v.format.size()*p.Size(rows)), a.Packed
	args := kernels.MatMulPrepareArguments[operand]{X: bytesOf(x), Y: bytesOf(v), Step: b.stepAt(rows, nil)}
	p.Norm, p.Eps, args.Norm = norm.vectors()
	b.Values[b.Op.Result()] = v
	l, err := p.Launch(rows)
	return b.launch("prepare", l, err, args)
}

// preparedRows returns operand x of an operation, as bindPrepare has left it. It returns false for other rows.
func (b *binder) preparedRows(width int, exact bool, packed int) (x operand, ok bool) {
	v := b.Input("x")
	if v != nil && exact {
		v = b.floats("x")
	}
	if v == nil || v.place != onDevice || !v.isDense() || (v.format == f32) != exact || v.len()%width != 0 ||
		v.packed != packed {
		return x, false
	}
	if packed > 0 {
		return whole(v.slot), true
	}
	return bytesOf(v), true
}

// bindMatmul binds the tiled product of many rows with a weight.
func bindMatmul(b *binder) bool {
	w := b.matrix("weight")
	k, rows, ok := lower.MatMul(b.Op)
	if w == nil || !ok {
		return false
	}
	x, ok := b.preparedRows(k.K, k.Exact, k.Packed)
	extra, ok2 := b.extra(k.Epilogue, 0, rows, k.N)
	out := b.result(0, nil)
	if !ok || !ok2 || out == nil {
		return false
	}
	tiles := k.Tiles(b.x.exe.machine, rows)
	of := func(t kernels.Tile) (kernels.Launch, error) { return k.Launch(t, rows) }
	partial, arrivals := b.shared(k.Shared(tiles, rows))
	return offer(b, "matmul", tiles, of, w.bytes(), kernels.MatMulArguments[operand]{W: w.arguments(), X: x, Extra: extra,
		Y: bytesOf(out), Step: b.stepAt(rows, nil), Partial: partial, Arrivals: arrivals})
}

// shared returns the buffers in which the threadgroups of a product leave sums for each other, numbers f32 elements,
// and count arrivals, counters u32 elements. It returns absent ones where numbers is 0.
func (b *binder) shared(numbers, counters int) (partial, arrivals operand) {
	if numbers == 0 {
		return operand{}, operand{}
	}
	return whole(b.scratch(4 * numbers)), whole(b.arrivals(counters))
}

// bindMatmulGLU binds activation(gate) · up of many rows, by tiles.
func bindMatmulGLU(b *binder) bool {
	p := b.pair()
	k, rows, ok := lower.MatMulGLU(b.Op)
	if p == nil || !ok {
		return false
	}
	x, ok := b.preparedRows(k.K, k.Exact, k.Packed)
	out := b.result(0, nil)
	if a := ir.Attrs[ir.MatmulGLUAttrs](b.Op); out != nil && a.Prepared {
		out.round(a.ResultPacked)
	}
	if !ok || out == nil {
		return false
	}
	tiles, step := k.Tiles(b.x.exe.machine, rows), b.stepAt(rows, nil)
	of := func(t kernels.Tile) (kernels.Launch, error) { return k.Launch(t, rows) }
	if k.Packed > kernels.InLanes {
		partial, arrivals := b.shared(k.Shared(tiles, rows))
		return offer(b, "matmul glu", tiles, of, p.size, kernels.MatMulPackedGLUArguments[operand]{W0: p.first,
			W1: p.second, X: x, Partial: partial, Arrivals: arrivals, Y: bytesOf(out), Step: step})
	}
	return offer(b, "matmul glu", tiles, of, p.size, kernels.MatMulGLUArguments[operand]{W0: p.first, W1: p.second,
		X: x, Y: bytesOf(out), Step: step})
}

// bindDenseWeight binds the conversion of a quantized weight to bf16, for the device's library.
func bindDenseWeight(b *binder) bool {
	w := b.matrix("weight")
	shape, known := b.Dims(b.Op.Result().Type)
	if w == nil || !known {
		return false
	}
	launch, err := kernels.Dequantize{Format: w.Format, N: w.rows, K: w.cols}.Launch()
	v := &value{dtype: ir.BF16, shape: shape, stride: strided.RowMajor(shape), format: bf16,
		slot: b.scratch(2 * w.rows * w.cols)}
	if !b.launch("dequantize", launch, err, kernels.DequantizeArguments[operand]{W: w.arguments(), Y: whole(v.slot)}) {
		return false
	}
	b.reading(w.bytes())
	b.Values[b.Op.Result()] = v
	return true
}

// bindLibraryProduct binds a product of many rows that the device's library of matrix products computes.
func bindLibraryProduct(b *binder) bool {
	of, dense := b.Op.Input("weight"), operand{}
	dims, known := b.Dims(of.Type)
	if !known || len(dims) != 2 {
		return false
	}
	if v := b.Values[of]; v != nil && v.place == onDevice && v.format == bf16 {
		dense = bytesOf(v)
	} else if w := b.x.exe.weight(of); w != nil && w.count == 1 && w.Bits == 16 {
		dense = whole(w.data)
	} else {
		return false
	}
	x, ok := b.preparedRows(dims[1], false, 0)
	if !ok {
		return false
	}
	rows := b.Input("x").len() / dims[1]
	kernel, out := b.x.exe.product(device.Product{M: rows, N: dims[0], K: dims[1], Float32: true}), b.result(0, nil)
	if kernel == nil || out == nil {
		return false
	}
	y := bytesOf(out)
	y.write = true // the library's kernel has no signature that says which buffers it writes
	return b.add(step{op: b.Op, kind: "product", kernel: kernel, launch: kernels.Launch{Groups: [3]int{1, 1, 1},
		Threads: [3]int{1, 1, 1}}, operands: []operand{x, dense, y}})
}

// product returns the kernel of the device's library of matrix products, or nil if there is none.
func (x *executable) product(p device.Product) device.Kernel {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k, ok := x.products[p]; ok {
		return k
	}
	var k device.Kernel
	if m, ok := x.device.(device.MatrixMultiplier); ok {
		if made, err := m.MatrixProduct(p); err == nil {
			k = made
		}
	}
	x.products[p] = k
	return k
}
