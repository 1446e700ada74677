package lower

import (
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// Grid describes a strided tensor as rows of its last dim, in two levels: Tokens groups of Rows rows of Width elements.
type Grid struct {
	Tokens, Rows, Width int
	Strides             kernels.Rows
}

// GridOf returns the grid of a tensor. It returns false where the dims before the last are not evenly spaced in one or
// two levels.
func GridOf(shape, strides []int) (g Grid, ok bool) {
	last := len(shape) - 1
	if last < 0 {
		return Grid{1, 1, 1, kernels.Rows{Token: 1, Row: 1}}, true
	}
	g = Grid{Tokens: 1, Rows: 1, Width: shape[last]}
	if g.Width != 1 && strides[last] != 1 {
		return g, false
	}
	dims, strides := shape[:last], strides[:last]
	for i := last; i >= 0; i-- {
		n, stride, ok := strided.Merge(dims[i:], strides[i:])
		m, outer, ok2 := strided.Merge(dims[:i], strides[:i])
		if !ok {
			break
		}
		if ok2 {
			g.Tokens, g.Rows = m, n
			g.Strides = kernels.Rows{Token: outer, Row: stride}
			if n == 1 {
				g.Strides.Row = g.Width
			}
			if m == 1 {
				g.Strides.Token = n * max(g.Strides.Row, g.Width)
			}
			return g, true
		}
	}
	return g, false
}

// GridsOf describes two tensors of as many elements as rows in the same two levels: the grid of x, and the strides of
// the rows of y. It returns false where they have no such levels in common.
func GridsOf(x, y plan.View) (g Grid, of kernels.Rows, ok bool) {
	if g, ok = GridOf(x.Shape, x.Strides); ok {
		if of, ok = g.Like(y.Shape, y.Strides); ok {
			return g, of, true
		}
	}
	// The rows of x are evenly spaced, those of y may stand in groups.
	if g, ok = GridOf(y.Shape, y.Strides); !ok {
		return g, of, false
	}
	of = g.Strides
	g.Strides, ok = g.Like(x.Shape, x.Strides)
	return g, of, ok
}

// Like returns the strides of the rows of another tensor, which must have the same number of rows in the same two
// levels.
func (g Grid) Like(shape, strides []int) (kernels.Rows, bool) {
	stride, ok := strided.Reshape(shape, strides, []int{g.Tokens, g.Rows, g.Width})
	if !ok || strided.Elements(shape) != g.Tokens*g.Rows*g.Width || g.Width != 1 && stride[2] != 1 {
		return kernels.Rows{}, false
	}
	return kernels.Rows{Token: stride[0], Row: stride[1]}, true
}

// RowsOf describes a strided tensor as rows of width elements, one row for each token. It returns false where the
// tensor does not have that layout.
func RowsOf(shape, strides []int, width int) (Grid, bool) {
	rows := []int{strided.Elements(shape) / max(width, 1), 1, width}
	stride, ok := strided.Reshape(shape, strides, rows)
	if !ok || width != 1 && stride[2] != 1 {
		return Grid{}, false
	}
	return Grid{rows[0], 1, width, kernels.Rows{Token: stride[0], Row: width}}, true
}
