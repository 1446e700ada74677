package eval

import "fmt"

// rowMajor returns the strides of a dense tensor, in elements.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = step
		step *= shape[i]
	}
	return strides
}

// axisIn makes an axis non-negative and checks it against a rank.
func axisIn(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d is out of range for %d dims", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

// around returns the products of the dims before and after an axis: a dense tensor is outer blocks of
// shape[axis] rows of inner elements.
func around(shape []int, axis int) (outer, inner int) {
	outer, inner = 1, 1
	for i, d := range shape {
		switch {
		case i < axis:
			outer *= d
		case i > axis:
			inner *= d
		}
	}
	return outer, inner
}

// withDim returns a copy of shape with one dim replaced.
func withDim(shape []int, axis, dim int) []int {
	out := append([]int(nil), shape...)
	out[axis] = dim
	return out
}

// reshaped is t with another shape of as many elements; it shares t's storage.
func (t *Tensor) reshaped(shape []int) *Tensor {
	return &Tensor{DType: t.DType, Shape: shape, F: t.F, I: t.I}
}

// view returns a dense copy of the elements of t at offset + Σ index·stride. They must lie within t.
func (t *Tensor) view(shape, strides []int, offset int) (*Tensor, error) {
	out, err := NewTensor(t.DType, shape...)
	if err != nil {
		return nil, err
	}
	if t.DType.IsFloat() {
		readView(out.F, t.F, shape, strides, offset)
	} else {
		readView(out.I, t.I, shape, strides, offset)
	}
	return out, nil
}

// paste writes the elements of src, which has the dtype of t, to those of t at offset + Σ index·stride.
func (t *Tensor) paste(src *Tensor, strides []int, offset int) {
	if t.DType.IsFloat() {
		writeView(t.F, src.F, src.Shape, strides, offset)
	} else {
		writeView(t.I, src.I, src.Shape, strides, offset)
	}
}

// readView copies the strided elements of src to the dense dst.
func readView[T any](dst, src []T, shape, strides []int, offset int) {
	if len(dst) == 0 {
		return
	}
	eachRun(shape, strides, func(at, from, n, step int) {
		run := dst[at : at+n]
		from += offset
		switch step {
		case 1:
			copy(run, src[from:from+n])
		case 0:
			v := src[from]
			for i := range run {
				run[i] = v
			}
		default:
			for i := range run {
				run[i] = src[from]
				from += step
			}
		}
	})
}

// writeView copies the dense src to the strided elements of dst.
func writeView[T any](dst, src []T, shape, strides []int, offset int) {
	if len(src) == 0 {
		return
	}
	eachRun(shape, strides, func(at, to, n, step int) {
		run := src[at : at+n]
		to += offset
		if step == 1 {
			copy(dst[to:to+n], run)
			return
		}
		for _, v := range run {
			dst[to] = v
			to += step
		}
	})
}

// eachRun cuts a strided view into runs along its last dim: f gets the number of elements before a run,
// the strided position of its first element, its length and its stride.
func eachRun(shape, strides []int, f func(at, position, n, step int)) {
	dims, merged := mergeDims(shape, strides)
	last := len(dims) - 1
	n, step := dims[last], merged[0][last]
	index := make([]int, last)
	position := 0
	for at := 0; ; at += n {
		f(at, position, n, step)
		i := last - 1
		for ; i >= 0; i-- {
			position += merged[0][i]
			if index[i]++; index[i] < dims[i] {
				break
			}
			position -= dims[i] * merged[0][i]
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}
