package kernel

import "math"

// ArgMax returns the index of the first largest element; NaN is passed over, and nothing gives 0.
func ArgMax(x []float32) int {
	largest, at := float32(math.Inf(-1)), 0
	for lo := 0; lo < len(x); lo += selectBlock {
		block := x[lo:min(lo+selectBlock, len(x))]
		m := active.maximum(block)
		if !(m > largest) {
			continue
		}
		for i, v := range block {
			if v == m {
				largest, at = m, lo+i
				break
			}
		}
	}
	return at
}

// selectBlock is how many elements are passed over at once if their largest is too small.
const selectBlock = 256

// TopK writes the indices of the len(indices) largest elements of x, the largest first and of equal ones
// the one that comes first, and gives how many it wrote: fewer where x has fewer that are not NaN.
func TopK(indices []int32, x []float32) int {
	if len(indices) == 0 {
		return 0
	}
	// A heap of what was found, the one to go first at the root.
	heap := indices[:0]
	for lo := 0; lo < len(x); lo += selectBlock {
		block := x[lo:min(lo+selectBlock, len(x))]
		if len(heap) == len(indices) && !(active.maximum(block) > x[heap[0]]) {
			continue
		}
		for i, v := range block {
			switch {
			case v != v:
			case len(heap) < len(indices):
				heap = append(heap, int32(lo+i))
				siftUp(heap, x)
			case v > x[heap[0]]:
				heap[0] = int32(lo + i)
				siftDown(heap, x)
			}
		}
	}
	n := len(heap)
	for i := n - 1; i > 0; i-- {
		heap[0], heap[i] = heap[i], heap[0]
		siftDown(heap[:i], x)
	}
	return n
}

// after says that element a comes after element b in the order of TopK.
func after(x []float32, a, b int32) bool {
	return x[a] < x[b] || x[a] == x[b] && a > b
}

func siftUp(heap []int32, x []float32) {
	for i := len(heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !after(x, heap[i], heap[parent]) {
			return
		}
		heap[i], heap[parent] = heap[parent], heap[i]
		i = parent
	}
}

func siftDown(heap []int32, x []float32) {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && after(x, heap[child+1], heap[child]) {
			child++
		}
		if !after(x, heap[child], heap[i]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
