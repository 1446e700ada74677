package strided

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// places lists where the elements lie, in row-major order.
func places(shape, strides []int) []int {
	if len(shape) == 0 {
		return []int{0}
	}
	var out []int
	for i := range shape[0] {
		for _, p := range places(shape[1:], strides[1:]) {
			out = append(out, i*strides[0]+p)
		}
	}
	return out
}

// TestReshape: a view has the same elements in the same order, or there is none.
func TestReshape(t *testing.T) {
	for _, test := range []struct {
		shape, strides, to []int
		ok                 bool
	}{
		{[]int{2, 3, 4}, []int{12, 4, 1}, []int{6, 4}, true},
		{[]int{2, 3, 4}, []int{12, 4, 1}, []int{2, 1, 12}, true},
		{[]int{2, 3, 4}, []int{24, 8, 2}, []int{24}, true},         // every other element
		{[]int{2, 12}, []int{1, 2}, []int{2, 3, 4}, true},          // transposed, a dim split
		{[]int{2, 3}, []int{1, 2}, []int{6}, false},                // transposed, dims merged
		{[]int{2, 3}, []int{0, 1}, []int{2, 3, 1}, true},           // broadcast
		{[]int{2, 3}, []int{0, 1}, []int{6}, false},                //
		{[]int{1, 1}, []int{7, 9}, []int{}, true},                  // one element
		{[]int{4, 6}, []int{6, 1}, []int{3, 8}, true},              // regrouped
		{[]int{4, 6}, []int{8, 1}, []int{3, 8}, false},             // padded rows
		{[]int{0, 6}, []int{6, 1}, []int{3, 0}, true},              // none
		{[]int{2, 1, 3}, []int{3, 77, 1}, []int{1, 6, 1, 1}, true}, // ones
	} {
		got, ok := Reshape(test.shape, test.strides, test.to)
		require.Equal(t, test.ok, ok, "%v", test)
		if ok {
			require.Equal(t, places(test.shape, test.strides), places(test.to, got), "%v", test)
		}
	}
}

// TestInOrder: dense strides in the order of the given ones; row-major where elements share memory.
func TestInOrder(t *testing.T) {
	require.Equal(t, []int{1, 2}, InOrder([]int{2, 3}, []int{1, 8}))
	require.Equal(t, []int{3, 1}, InOrder([]int{2, 3}, []int{9, 2}))
	require.Equal(t, []int{3, 1}, InOrder([]int{2, 3}, []int{0, 1}))
	require.Equal(t, []int{3, 3, 1}, InOrder([]int{2, 1, 3}, []int{9, 9, 1}))
}

// TestRows: the rows of a tensor begin stride apart, if they are evenly spaced and their elements adjacent.
func TestRows(t *testing.T) {
	for _, test := range []struct {
		shape, strides   []int
		n, width, stride int
		ok               bool
	}{
		{[]int{2, 3, 4}, []int{12, 4, 1}, 6, 4, 4, true},
		{[]int{2, 3, 4}, []int{24, 8, 1}, 6, 4, 8, true}, // columns of a wider matrix
		{[]int{3, 2, 4}, []int{4, 12, 1}, 0, 0, 0, false},
		{[]int{3, 4}, []int{1, 3}, 0, 0, 0, false}, // transposed
		{[]int{3, 1}, []int{1, 3}, 3, 1, 1, true},
		{[]int{1, 4}, []int{9, 1}, 1, 4, 4, true},
		{[]int{4}, []int{1}, 1, 4, 4, true},
		{[]int{3, 4}, []int{0, 1}, 3, 4, 0, true}, // one row, three times
		{nil, nil, 1, 1, 1, true},
	} {
		n, width, stride, ok := Rows(test.shape, test.strides)
		require.Equal(t, test.ok, ok, "%v", test)
		if ok {
			require.Equal(t, []int{test.n, test.width, test.stride}, []int{n, width, stride}, "%v", test)
		}
	}
}

// TestAxisFirst: the rows of an axis lie one after the other, the elements of each in the order that they had.
func TestAxisFirst(t *testing.T) {
	strides, ok := AxisFirst([]int{1, 4, 3, 5}, []int{60, 5, 20, 1}, 2)
	require.True(t, ok)
	require.Equal(t, []int{5, 20, 1}, strides[1:], "heads token by token")
	strides, ok = AxisFirst([]int{4, 3, 5}, []int{15, 5, 1}, 1)
	require.True(t, ok)
	require.Equal(t, []int{5, 20, 1}, strides)
	_, ok = AxisFirst([]int{4, 3}, []int{1, 0}, 0)
	require.False(t, ok)
}
