package strided

import "slices"

// Elements returns the number of elements of a shape.
func Elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// RowMajor returns the strides of a dense tensor.
func RowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= shape[i]
	}
	return strides
}

// Merge sees dims as one, of n elements that lie stride apart.
func Merge(shape, strides []int) (n, stride int, ok bool) {
	n, stride = 1, 0
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] == 1 {
			continue
		}
		switch {
		case n == 1:
			stride = strides[i]
		case strides[i] != n*stride:
			return 0, 0, false
		}
		n *= shape[i]
	}
	return n, stride, true
}

// Rows sees a tensor as n rows of its last dim, of width elements, that lie stride apart. It fails where rows are not
// evenly spaced or their elements not adjacent.
func Rows(shape, strides []int) (n, width, stride int, ok bool) {
	last := len(shape) - 1
	if last < 0 {
		return 1, 1, 1, true
	}
	width = shape[last]
	if width != 1 && strides[last] != 1 {
		return 0, 0, 0, false
	}
	n, stride, ok = Merge(shape[:last], strides[:last])
	if n == 1 {
		stride = width
	}
	return n, width, stride, ok
}

// Reshape returns the strides with which a strided tensor is seen in another shape of as many
// elements. Groups of dims with as many elements on both sides are matched; those of the old shape must
// be evenly spaced.
func Reshape(old, strides, shape []int) ([]int, bool) {
	if Elements(old) == 0 {
		return RowMajor(shape), true
	}
	var dims, steps []int
	for i, d := range old {
		if d != 1 {
			dims, steps = append(dims, d), append(steps, strides[i])
		}
	}
	out := make([]int, len(shape))
	at, to := 0, 0
	for at < len(dims) {
		from, first := at, to
		have, want := dims[at], 1
		at++
		for have != want {
			if want < have {
				if to == len(shape) {
					return nil, false
				}
				want *= shape[to]
				to++
			} else {
				if at == len(dims) {
					return nil, false
				}
				have *= dims[at]
				at++
			}
		}
		n, step, ok := Merge(dims[from:at], steps[from:at])
		if !ok || n != want {
			return nil, false
		}
		for i := to - 1; i >= first; i-- {
			out[i] = step
			step *= shape[i]
		}
	}
	for i := to; i < len(shape); i++ { // only ones are left
		out[i] = 1
	}
	return out, true
}

// InOrder returns strides for the elements of a tensor one after the other, in the order in which these strides
// have them in memory: what is computed from a transposed value is transposed too.
func InOrder(shape, stride []int) []int {
	for i, s := range stride {
		if s == 0 && shape[i] > 1 {
			return RowMajor(shape)
		}
	}
	order := make([]int, len(shape))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return stride[b] - stride[a] })
	out := make([]int, len(shape))
	n := 1
	for i := len(order) - 1; i >= 0; i-- {
		out[order[i]] = n
		n *= shape[order[i]]
	}
	return out
}

// AxisFirst is InOrder with an axis before all others: its indices are rows that lie one after the other. It fails
// where elements share memory.
func AxisFirst(shape, stride []int, axis int) ([]int, bool) {
	for i, s := range stride {
		if s == 0 && shape[i] > 1 {
			return nil, false
		}
	}
	first := slices.Clone(stride)
	first[axis] = slices.Max(stride) + 1
	return InOrder(shape, first), true
}
