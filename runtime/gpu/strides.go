package gpu

import (
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// maxRank is the largest number of dims of a value on the device.
const maxRank = plan.MaxRank

// extent returns the number of elements from the first one of a strided tensor to after its last one.
func extent(shape, stride []int) int {
	n := 1
	for i, d := range shape {
		if d == 0 {
			return 0
		}
		n += (d - 1) * stride[i]
	}
	return n
}

// eachElement calls f for each element of a strided tensor in row-major order, with its number i and its offset at.
func eachElement(shape, stride []int, f func(i, at int)) {
	n := strided.Elements(shape)
	var index [maxRank]int
	at := 0
	for i := range n {
		f(i, at)
		for d := len(shape) - 1; d >= 0; d-- {
			at += stride[d]
			if index[d]++; index[d] < shape[d] {
				break
			}
			at -= shape[d] * stride[d]
			index[d] = 0
		}
	}
}
