package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"id_copy":      func(c *Call) ([]Value, error) { return c.result(c.Tensor("x").Clone(), nil) },
		"contiguous":   func(c *Call) ([]Value, error) { return c.result(c.Tensor("x"), nil) },
		"reshape":      reshape,
		"expand_dims":  expandDims,
		"squeeze":      squeeze,
		"transpose":    transpose,
		"broadcast_to": broadcastTo,
		"as_strided":   asStrided,
		"tile":         tile,
		"repeat":       repeat,
		"roll":         roll,
	})
}

// reshape gives the elements another shape; one dim may be -1, whatever is left.
func reshape(c *Call) ([]Value, error) {
	x, shape := c.Tensor("x"), c.int32s("shape")
	free, known := -1, 1
	for i, d := range shape {
		switch {
		case d == -1 && free >= 0:
			return nil, fmt.Errorf("shape %v has more than one -1", shape)
		case d == -1:
			free = i
		case d < 0:
			return nil, fmt.Errorf("shape %v has a dim of %d, want at least 0, or -1 for what is left", shape, d)
		case d > 0 && known > maxElements/d:
			return nil, fmt.Errorf("shape %v has more than %d elements, x %v has %d", shape,
				maxElements, x.Shape, x.Len())
		default:
			known *= d
		}
	}
	if free >= 0 {
		if known == 0 {
			return nil, fmt.Errorf("shape %v: -1 has no value beside a dim of 0", shape)
		}
		shape[free] = x.Len() / known
		known *= shape[free]
	}
	if known != x.Len() {
		return nil, fmt.Errorf("shape %v has %d elements, x %v has %d", shape, known, x.Shape, x.Len())
	}
	return c.result(x.reshaped(shape), nil)
}

func expandDims(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(x.Shape)+1)
	if err != nil {
		return nil, err
	}
	return c.result(x.reshaped(insertDim(x.Shape, axis, 1)), nil)
}

// insertDim is shape with a new dim in front of the dim that axis numbers.
func insertDim(shape []int, axis, dim int) []int {
	out := make([]int, 0, len(shape)+1)
	return append(append(append(out, shape[:axis]...), dim), shape[axis:]...)
}

// squeeze drops dims of size 1: all of them where no dims are listed. Listed dims that are not 1, or that x does not
// have, stay. A symbolic dim also stays where it happens to be 1, since the result's type has it. (ExecuTorch's runtime
// drops it in such a call, and gives another rank than the program declares.)
func squeeze(c *Call) ([]Value, error) {
	x, dims := c.Tensor("x"), ir.Attrs[ir.SqueezeAttrs](c.Op).Dims
	drop := make([]bool, len(x.Shape))
	for _, d := range dims {
		if axis, err := axisIn(d, len(x.Shape)); err == nil {
			drop[axis] = true
		}
	}
	declared := c.Op.Input("x").Type.Shape
	shape := make([]int, 0, len(x.Shape))
	for i, d := range x.Shape {
		if !declared[i].IsConst(1) || len(dims) > 0 && !drop[i] {
			shape = append(shape, d)
		}
	}
	return c.result(x.reshaped(shape), nil)
}

func transpose(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	perm, err := permutation(ir.Attrs[ir.TransposeAttrs](c.Op).Perm, len(x.Shape))
	if err != nil {
		return nil, err
	}
	return c.result(x.permuted(perm))
}

// permutation checks that perm lists every axis once, counting from the end where negative.
func permutation(perm []int, rank int) ([]int, error) {
	if len(perm) != rank {
		return nil, fmt.Errorf("perm %v lists %d axes, x has %d dims", perm, len(perm), rank)
	}
	out, seen := make([]int, rank), make([]bool, rank)
	for i, p := range perm {
		axis, err := axisIn(p, rank)
		if err != nil {
			return nil, fmt.Errorf("perm %v: %w", perm, err)
		}
		if seen[axis] {
			return nil, fmt.Errorf("perm %v lists axis %d twice", perm, axis)
		}
		out[i], seen[axis] = axis, true
	}
	return out, nil
}

// permuted is t with its dims in the order of perm.
func (t *Tensor) permuted(perm []int) (*Tensor, error) {
	dense := rowMajor(t.Shape)
	shape, strides := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		shape[i], strides[i] = t.Shape[p], dense[p]
	}
	return t.view(shape, strides, 0)
}

// broadcastTo stretches dims of 1; -1 keeps a dim of x, counted from the right.
func broadcastTo(c *Call) ([]Value, error) {
	x, shape := c.Tensor("x"), c.int32s("shape")
	for i, d := range shape {
		if from := i - len(shape) + len(x.Shape); d == -1 && from >= 0 {
			shape[i] = x.Shape[from]
		}
		if shape[i] < 0 {
			return nil, fmt.Errorf("shape %v has a dim of %d for which x %v has none to keep", shape, d, x.Shape)
		}
	}
	return c.result(x.broadcast(shape))
}

// asStrided reads the elements of x at offset + Σ index·stride, counted in elements of the dense x.
func asStrided(c *Call) ([]Value, error) {
	x, shape, strides := c.Tensor("x"), c.int32s("shape"), c.int32s("strides")
	offset := ir.Attrs[ir.AsStridedAttrs](c.Op).Offset
	if len(shape) != len(strides) {
		return nil, fmt.Errorf("%d dims and %d strides, want one stride per dim", len(shape), len(strides))
	}
	n, err := elements(shape)
	if err != nil {
		return nil, err
	}
	lo, hi := offset, offset
	for i, d := range shape {
		if s := (d - 1) * strides[i]; s < 0 {
			lo += s
		} else {
			hi += s
		}
	}
	if n > 0 && (lo < 0 || hi >= x.Len() || offset >= x.Len()) { // the last guards the sums against overflow
		return nil, fmt.Errorf("shape %v with strides %v and offset %d reaches elements %d to %d, x %v has %d", shape,
			strides, offset, lo, hi, x.Shape, x.Len())
	}
	return c.result(x.view(shape, strides, offset))
}

// tile repeats the whole of x along each axis. reps and the shape of x are aligned from the right.
func tile(c *Call) ([]Value, error) {
	x, reps := c.Tensor("x"), c.int32s("reps")
	rank := max(len(reps), len(x.Shape))
	dense := rowMajor(x.Shape)
	final := make([]int, rank)
	shape, strides := make([]int, 2*rank), make([]int, 2*rank) // a dim of copies before each dim
	for i := range rank {
		rep, dim := 1, 1
		if k := i - rank + len(reps); k >= 0 {
			rep = reps[k]
		}
		if k := i - rank + len(x.Shape); k >= 0 {
			dim = x.Shape[k]
			strides[2*i+1] = dense[k]
		}
		if rep < 0 {
			return nil, fmt.Errorf("reps %v has %d, want at least 0", reps, rep)
		}
		final[i], shape[2*i], shape[2*i+1] = rep*dim, rep, dim
	}
	out, err := x.view(shape, strides, 0)
	if err != nil {
		return nil, err
	}
	return c.result(out.reshaped(final), nil)
}

// repeat repeats every index of an axis.
func repeat(c *Call) ([]Value, error) {
	x, n := c.Tensor("x"), int(c.int32("repeats"))
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(x.Shape))
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fmt.Errorf("repeats is %d, want at least 1", n)
	}
	out, err := allocate(x.DType, withDim(x.Shape, axis, x.Shape[axis]*n))
	if err != nil {
		return nil, err
	}
	strides := rowMajor(x.Shape)
	shape := insertDim(x.Shape, axis+1, n)
	strides = insertDim(strides, axis+1, 0)
	if out.F != nil {
		readView(out.F, x.F, shape, strides, 0)
	} else {
		readView(out.I, x.I, shape, strides, 0)
	}
	return c.result(out, nil)
}

// roll moves the elements along axes by shifts; what leaves at one end comes back at the other.
func roll(c *Call) ([]Value, error) {
	x, shifts, axes := c.Tensor("x"), c.int32s("shift"), ir.Attrs[ir.RollAttrs](c.Op).Axes
	if len(shifts) < len(axes) {
		return nil, fmt.Errorf("%d shifts for %d axes, want one per axis", len(shifts), len(axes))
	}
	for i, a := range axes {
		axis, err := axisIn(a, len(x.Shape))
		if err != nil {
			return nil, err
		}
		dim := x.Shape[axis]
		if dim == 0 {
			continue
		}
		shift := int(intRemainder(int64(shifts[i]), int64(dim)))
		outer, inner := around(x.Shape, axis)
		out := x.Clone()
		for o := range outer {
			from, to := o*dim*inner, (o+1)*dim*inner
			cut := to - shift*inner
			if x.F != nil {
				copy(out.F[from:to], x.F[cut:to])
				copy(out.F[from+shift*inner:to], x.F[from:cut])
			} else {
				copy(out.I[from:to], x.I[cut:to])
				copy(out.I[from+shift*inner:to], x.I[from:cut])
			}
		}
		x = out
	}
	return c.result(x, nil)
}
