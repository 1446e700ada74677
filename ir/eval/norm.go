package eval

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"rms_norm":   rmsNorm,
		"layer_norm": layerNorm,
	})
}

// rmsNorm is x / √(mean(x²) + eps) · weight over the last dim. The normalised value is computed in
// float32 and, under Strict, rounded before it meets the weight, as in MLX.
func rmsNorm(c *Call) ([]Value, error) {
	eps := ir.Attrs[ir.NormAttrs](c.Op).Eps
	return c.normalize(func(dst, x []float32) {
		scale := inverseRoot(meanSquare(x) + eps)
		for i, v := range x {
			dst[i] = v * scale
		}
	})
}

// layerNorm is (x − mean(x)) / √(var(x) + eps) · weight + bias over the last dim, rounded like rmsNorm.
func layerNorm(c *Call) ([]Value, error) {
	eps := ir.Attrs[ir.NormAttrs](c.Op).Eps
	return c.normalize(func(dst, x []float32) {
		mean := float32(sumFloats(x) / float64(len(x)))
		for i, v := range x {
			dst[i] = v - mean
		}
		scale := inverseRoot(meanSquare(dst) + eps)
		for i := range dst {
			dst[i] *= scale
		}
	})
}

// inverseRoot is 1/√x rounded once from float64.
func inverseRoot(x float32) float32 { return float32(1 / math.Sqrt(float64(x))) }

// meanSquare returns the mean of the squares of x, formed in float64 and rounded once.
func meanSquare(x []float32) float32 {
	s := 0.0
	for _, v := range x {
		s += float64(float64(v) * float64(v))
	}
	return float32(s / float64(len(x)))
}

// normalize applies row to the last dim of x, then weight and bias where the operation has them.
func (c *Call) normalize(row func(dst, x []float32)) ([]Value, error) {
	x, d := c.Tensor("x"), c.Result(0).DType
	if len(x.Shape) == 0 {
		return nil, fmt.Errorf("x has no dims, want at least one")
	}
	n := x.Shape[len(x.Shape)-1]
	affine := map[string][]float32{}
	for _, o := range c.Op.Def.Operands[1:] {
		t := c.Tensor(o.Name)
		if t == nil {
			continue
		}
		if len(t.Shape) != 1 || t.Shape[0] != n {
			return nil, fmt.Errorf("%s has shape %v, want [%d], the last dim of x", o.Name, t.Shape, n)
		}
		affine[o.Name] = c.as(t, d)
	}
	weight, bias := affine["weight"], affine["bias"]
	in := c.as(x, ir.F32)
	out, err := room(x.Shape)
	if err != nil {
		return nil, err
	}
	parallel(len(out)/max(n, 1), 2*n, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			dst := out[r*n : (r+1)*n]
			row(dst, in[r*n:(r+1)*n])
			if weight != nil {
				c.roundAll(d, dst)
				for i, w := range weight {
					dst[i] *= w
				}
			}
			if bias != nil {
				c.roundAll(d, dst)
				for i, b := range bias {
					dst[i] += b
				}
			}
		}
	})
	return one(c.floatResult(0, x.Shape, out))
}
