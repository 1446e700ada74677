package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"full":      full,
		"full_like": fullLike,
		"arange":    arange,
		"tri":       tri,
		"tril":      triangle(func(i, j, k int) bool { return j <= i+k }),
		"triu":      triangle(func(i, j, k int) bool { return j >= i+k }),
	})
}

// maxBytes is the largest allocation that the delegate makes for a shape that a file asks for.
const maxBytes = int64(4) << 30

// allocate makes a tensor of zeros for an operation whose shape comes from the program. Like the
// delegate it refuses a dim below 1 and more than 4 GiB.
func allocate(d ir.DType, shape []int) (*Tensor, error) {
	bytes := int64(d.Size())
	for _, dim := range shape {
		if dim < 1 {
			return nil, fmt.Errorf("shape %v has a dim of %d, want at least 1", shape, dim)
		}
		if int64(dim) > maxBytes/bytes {
			return nil, fmt.Errorf("%s%v is larger than 4 GiB", d, shape)
		}
		bytes *= int64(dim)
	}
	return NewTensor(d, shape...)
}

// fill sets every element of t to v converted to t's dtype; floats are rounded under Strict.
func (c *Call) fill(t *Tensor, v float32) {
	value := c.cast(Floats(ir.F32, nil, []float32{v}), t.DType)
	for i := range t.F {
		t.F[i] = value.F[0]
	}
	for i := range t.I {
		t.I[i] = value.I[0]
	}
}

// full takes v through a float32 whatever the dtype, so that integers beyond 2^24 lose digits.
func full(c *Call) ([]Value, error) {
	out, err := allocate(ir.Attrs[ir.DTypeAttrs](c.Op).ScalarType, c.int32s("shape"))
	if err != nil {
		return nil, err
	}
	c.fill(out, float32(c.Float("v")))
	return c.result(out, nil)
}

func fullLike(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	d := x.DType
	if s := ir.Attrs[ir.OptionalDTypeAttrs](c.Op).ScalarType; s != nil {
		d = *s
	}
	out, err := NewTensor(d, x.Shape...)
	if err != nil {
		return nil, err
	}
	c.fill(out, float32(c.Float("v")))
	return c.result(out, nil)
}

// arange is start, start+step, … up to but without stop; i32 where no dtype is given.
func arange(c *Call) ([]Value, error) {
	start, stop, step := c.int32("start"), c.int32("stop"), c.int32("step")
	d := ir.I32
	if s := ir.Attrs[ir.OptionalDTypeAttrs](c.Op).ScalarType; s != nil {
		d = *s
	}
	switch {
	case step == 0:
		return nil, fmt.Errorf("step is 0")
	case d == ir.Bool:
		return nil, fmt.Errorf("the dtype is bool: want an integer or float")
	}
	span, width := stop-start, step
	if step < 0 {
		span, width = -span, -width
	}
	out, err := allocate(d, []int{int(max(0, (span+width-1)/width))})
	if err != nil {
		return nil, fmt.Errorf("from %d to %d by %d: %w", start, stop, step, err)
	}
	for i := range out.F {
		out.F[i] = float32(start + int64(i)*step)
	}
	c.roundAll(d, out.F)
	for i := range out.I {
		out.I[i] = wrap(d, start+int64(i)*step)
	}
	return c.result(out, nil)
}

// tri returns a matrix of ones on and below the diagonal number k, and zeros above.
func tri(c *Call) ([]Value, error) {
	a := ir.Attrs[ir.TriAttrs](c.Op)
	rows, columns := int(c.int32("n")), int(c.int32("m"))
	out, err := allocate(a.ScalarType, []int{rows, columns})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		for j := range max(0, min(columns, i+a.K+1)) {
			if out.F != nil {
				out.F[i*columns+j] = 1
			} else {
				out.I[i*columns+j] = 1
			}
		}
	}
	return c.result(out, nil)
}

// triangle makes a kernel that keeps the elements (i, j) of every matrix of x for which keep holds with
// the diagonal number k, and zeroes the others.
func triangle(keep func(i, j, k int) bool) Kernel {
	return func(c *Call) ([]Value, error) {
		x, k := c.Tensor("x"), ir.Attrs[ir.DiagonalAttrs](c.Op).K
		rank := len(x.Shape)
		if rank < 2 {
			return nil, fmt.Errorf("x has shape %v, want at least 2 dims", x.Shape)
		}
		out := x.Clone()
		rows, columns := x.Shape[rank-2], x.Shape[rank-1]
		for at := 0; at < x.Len(); at++ {
			if keep(at/columns%rows, at%columns, k) {
				continue
			}
			if out.F != nil {
				out.F[at] = 0
			} else {
				out.I[at] = 0
			}
		}
		return c.result(out, nil)
	}
}
