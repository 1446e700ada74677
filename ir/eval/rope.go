package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{"rope": rope})
}

// rope rotates pairs of the first dims elements of every vector of x [B, heads…, T, D] by
// θ = (offset + t)·scale / freq (Su et al., RoFormer, 2021). freqs are given or base^(i/(dims/2)); an
// infinite freq leaves its pair as it is. Pair i is (i, i + dims/2), or (2i, 2i+1) where traditional.
// offset is one number, or one per row of the batch. Angles are computed in float32 as in MLX; under
// Strict sines, cosines and products are rounded as in MLX's form without a fused kernel.
func rope(c *Call) ([]Value, error) {
	attrs, x := ir.Attrs[ir.RopeAttrs](c.Op), c.Tensor("x")
	rank := len(x.Shape)
	if rank < 3 {
		return nil, fmt.Errorf("x has shape %v, want at least three dims, [B, …, T, D]", x.Shape)
	}
	if !x.DType.IsFloat() {
		return nil, fmt.Errorf("x is %s, want a floating-point dtype", x.DType)
	}
	steps, width, dims := x.Shape[rank-2], x.Shape[rank-1], attrs.Dims
	if dims <= 0 || dims%2 != 0 || dims > width {
		return nil, fmt.Errorf("dims is %d, want an even number from 2 to %d, the last dim of x", dims, width)
	}
	inverse, err := c.inverseFreqs(dims/2, attrs.Base)
	if err != nil {
		return nil, err
	}
	offsets, err := c.ropeOffsets(x.Shape[0])
	if err != nil {
		return nil, err
	}
	d, half := x.DType, dims/2
	sin, cos := make([]float32, len(offsets)*steps*half), make([]float32, len(offsets)*steps*half)
	parallel(len(offsets)*steps, 64*half, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			position := (float32(r%steps) + float32(offsets[r/steps])) * attrs.Scale
			for i, f := range inverse {
				s, k := numeric.Sincos32(position * f)
				sin[r*half+i], cos[r*half+i] = c.Round(d, s), c.Round(d, k)
			}
		}
	})
	first, second, stride := 0, half, 1
	if attrs.Traditional {
		first, second, stride = 0, 1, 2
	}
	out := append([]float32(nil), x.F...)
	rows := len(out) / width
	perBatch := rows / max(x.Shape[0], 1)
	parallel(rows, 2*dims, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			angle := r % steps
			if len(offsets) > 1 {
				angle += r / perBatch * steps
			}
			c.rotate(d, out[r*width:(r+1)*width], sin[angle*half:(angle+1)*half], cos[angle*half:(angle+1)*half], first,
				second, stride)
		}
	})
	return one(c.floatResult(0, x.Shape, out))
}

// rotate turns pair i of v, elements first + i·stride and second + i·stride, by the angle with sine s[i] and cosine
// k[i].
func (c *Call) rotate(d ir.DType, v, s, k []float32, first, second, stride int) {
	for i := range s {
		a, b := first+i*stride, second+i*stride
		x, y := v[a], v[b]
		v[a] = c.Round(d, float32(x*k[i])) - c.Round(d, float32(y*s[i]))
		v[b] = c.Round(d, float32(x*s[i])) + c.Round(d, float32(y*k[i]))
	}
}

// inverseFreqs returns the angles per position of the n pairs.
func (c *Call) inverseFreqs(n int, base float32) ([]float32, error) {
	inverse := make([]float32, n)
	if t := c.Tensor("freqs"); t != nil {
		if len(t.Shape) != 1 || t.Shape[0] != n {
			return nil, fmt.Errorf("freqs has shape %v, want [%d], half of dims", t.Shape, n)
		}
		for i, f := range c.as(t, ir.F32) {
			inverse[i] = 1 / f
		}
		return inverse, nil
	}
	step := numeric.Log32(base) / float32(n)
	for i := range inverse {
		inverse[i] = numeric.Exp32(-float32(i) * step)
	}
	return inverse, nil
}

// ropeOffsets returns the start position for each row of the batch. It may be the same for all.
func (c *Call) ropeOffsets(batch int) ([]int32, error) {
	t := c.Tensor("offset")
	if t == nil {
		return []int32{int32(c.Int("offset"))}, nil
	}
	if t.DType.IsFloat() || t.DType == ir.Bool {
		return nil, fmt.Errorf("offset is %s, want an integer dtype", t.DType)
	}
	if len(t.Shape) > 1 || len(t.I) != 1 && len(t.I) != batch {
		return nil, fmt.Errorf("offset has shape %v, want a scalar or one start position for each of %d rows "+
			"of the batch", t.Shape, batch)
	}
	offsets := make([]int32, len(t.I))
	for i, v := range t.I {
		offsets[i] = int32(v)
	}
	return offsets, nil
}
