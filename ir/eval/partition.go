package eval

import (
	"fmt"
	"math/bits"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"partition":    partition,
		"argpartition": argPartition,
	})
}

// partition moves elements smaller than number kth of an axis before it, and greater ones after it.
//
// The order within the two sides is that of MLX on a CPU, which uses nth_element of libstdc++ (MLX on a GPU sorts
// completely). Programs must not depend on it, but recorded answers do.
func partition(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	r, kth, err := partitionRows(c, x)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(x.DType, x.Shape...)
	if err != nil {
		return nil, err
	}
	if x.F != nil {
		row := make([]float32, r.n)
		eachRow(r, x.F, func(i int, from []float32) {
			copy(row, from)
			nthElement(row, kth, lessFloat)
			setRow(r, out.F, i, row)
		})
	} else {
		less := lessInt(x.DType)
		row := make([]int64, r.n)
		eachRow(r, x.I, func(i int, from []int64) {
			copy(row, from)
			nthElement(row, kth, less)
			setRow(r, out.I, i, row)
		})
	}
	return c.result(out, nil)
}

// argPartition returns the positions that partition an axis, as u32; of equal elements the first is smaller.
func argPartition(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	r, kth, err := partitionRows(c, x)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(ir.U32, x.Shape...)
	if err != nil {
		return nil, err
	}
	order := make([]int64, r.n)
	arrange := func(i int, less func(a, b int64) bool) {
		for j := range order {
			order[j] = int64(j)
		}
		nthElement(order, kth, less)
		setRow(r, out.I, i, order)
	}
	if x.F != nil {
		eachRow(r, x.F, func(i int, row []float32) {
			arrange(i, func(a, b int64) bool {
				return lessFloat(row[a], row[b]) || row[a] == row[b] && a < b
			})
		})
	} else {
		less := lessInt(x.DType)
		eachRow(r, x.I, func(i int, row []int64) {
			arrange(i, func(a, b int64) bool { return less(row[a], row[b]) || row[a] == row[b] && a < b })
		})
	}
	return c.result(out, nil)
}

func partitionRows(c *Call, x *Tensor) (*rows, int, error) {
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(x.Shape))
	if err != nil {
		return nil, 0, err
	}
	kth, dim := int(c.int32("kth")), x.Shape[axis]
	if kth < -dim || kth >= dim {
		return nil, 0, fmt.Errorf("kth %d is out of range for dim %d of axis %d", kth, dim, axis)
	}
	if kth < 0 {
		kth += dim
	}
	r, err := alongRows(x, axis)
	return r, kth, err
}

// lessFloat orders floats with NaN last.
func lessFloat(a, b float32) bool { return a < b || b != b && a == a }

// lessInt orders the integers of a dtype.
func lessInt(d ir.DType) func(a, b int64) bool {
	if d == ir.U64 {
		return func(a, b int64) bool { return uint64(a) < uint64(b) }
	}
	return func(a, b int64) bool { return a < b }
}

// nthElement puts the element that sorting would put at position n there, smaller ones before it and
// greater ones after it, by introselect (Musser, Introspective Sorting and Selection Algorithms, 1997)
// with the median of three as pivot and insertion sort for the last three, as libstdc++ does it.
func nthElement[T any](x []T, n int, less func(a, b T) bool) {
	lo, hi := 0, len(x)
	if lo == hi || n >= hi {
		return
	}
	for limit := 2 * (bits.Len(uint(hi)) - 1); hi-lo > 3; limit-- {
		if limit == 0 {
			heapSelect(x[lo:hi], n-lo+1, less)
			x[lo], x[n] = x[n], x[lo]
			return
		}
		if cut := splitByMedian(x, lo, hi, less); cut <= n {
			lo = cut
		} else {
			hi = cut
		}
	}
	for i := lo + 1; i < hi; i++ {
		for j := i; j > lo && less(x[j], x[j-1]); j-- {
			x[j], x[j-1] = x[j-1], x[j]
		}
	}
}

// splitByMedian partitions x[lo:hi] around the median of its second, middle and last element and gives
// where the upper part starts.
func splitByMedian[T any](x []T, lo, hi int, less func(a, b T) bool) int {
	a, b, c := lo+1, lo+(hi-lo)/2, hi-1
	if !less(x[a], x[b]) {
		a, b = b, a // now x[a] <= x[b]
	}
	median := b
	switch {
	case less(x[b], x[c]):
	case less(x[a], x[c]):
		median = c
	default:
		median = a
	}
	x[lo], x[median] = x[median], x[lo]
	for i, j := lo+1, hi; ; i++ {
		for less(x[i], x[lo]) {
			i++
		}
		for j--; less(x[lo], x[j]); j-- {
		}
		if i >= j {
			return i
		}
		x[i], x[j] = x[j], x[i]
	}
}

// heapSelect brings the n smallest elements to the front as a heap with the greatest of them first.
func heapSelect[T any](x []T, n int, less func(a, b T) bool) {
	sink := func(i int) {
		for {
			child := 2*i + 1
			if child >= n {
				return
			}
			if child+1 < n && less(x[child], x[child+1]) {
				child++
			}
			if !less(x[i], x[child]) {
				return
			}
			x[i], x[child] = x[child], x[i]
			i = child
		}
	}
	for i := n/2 - 1; i >= 0; i-- {
		sink(i)
	}
	for i := n; i < len(x); i++ {
		if less(x[i], x[0]) {
			x[i], x[0] = x[0], x[i]
			sink(0)
		}
	}
}
