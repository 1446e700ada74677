package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// blockFormat is one of MLX's quantization modes without biases: codes are small floats, a group of
// them shares a scale of 8 bits (OCP Microscaling Formats 1.0; NVFP4 has groups of 16 and e4m3 scales).
type blockFormat struct {
	level func(code uint8) float32
	scale func(code uint8) float32
}

var blockFormats = map[ir.QuantMode]*blockFormat{
	ir.MXFP4: {numeric.E2M1ToF32, numeric.E8M0ToF32},
	ir.MXFP8: {numeric.E4M3ToF32, numeric.E8M0ToF32},
	ir.NVFP4: {numeric.E2M1ToF32, numeric.E4M3ToF32},
}

// open completes q. The global scale of nvfp4 multiplies every scale by global/(448·6).
func (f *blockFormat) open(c *Call, q *codes, mode ir.QuantMode, scales, biases, global *Tensor) error {
	switch {
	case scales.DType != ir.U8:
		return fmt.Errorf("scales are %s, mode %s needs u8", scales.DType, mode)
	case biases != nil:
		return fmt.Errorf("mode %s has no biases", mode)
	case global != nil && (mode != ir.NVFP4 || global.DType != ir.F32 || len(global.F) != 1):
		return fmt.Errorf("global scale %s%v with mode %s, want one f32 with mode nvfp4",
			global.DType, global.Shape, mode)
	}
	d, factor := c.Result(0).DType, float32(1)
	if global != nil {
		factor = c.Round(d, global.F[0]/2688)
	}
	q.scales = make([]float32, len(scales.I))
	for i, s := range scales.I {
		q.scales[i] = f.scale(uint8(s))
		if global != nil {
			q.scales[i] = c.Round(d, q.scales[i]*factor)
		}
	}
	q.levels = make([]float32, 1<<q.bits)
	for code := range q.levels {
		q.levels[code] = f.level(uint8(code))
	}
	return nil
}
