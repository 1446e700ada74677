package eval

import (
	"fmt"
	"math"

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
	ir.MXFP4: {e2m1, e8m0},
	ir.MXFP8: {e4m3, e8m0},
	ir.NVFP4: {e2m1, e4m3},
}

// e2m1 is a float of 4 bits: 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives.
func e2m1(code uint8) float32 {
	v := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
	if code&8 != 0 {
		return -v
	}
	return v
}

// e4m3 is a float of 8 bits with exponent bias 7. Like MLX (FromFP8) it has no NaN: 0x7f is 480.
func e4m3(code uint8) float32 {
	v := numeric.F16ToF32(uint16(code&127)<<7) * 256
	if code&128 != 0 {
		return -v
	}
	return v
}

// e8m0 is a power of two: 2^(code−127). Like MLX it has no NaN: 255 is infinity.
func e8m0(code uint8) float32 {
	if code == 0 {
		return math.Float32frombits(1 << 22)
	}
	return math.Float32frombits(uint32(code) << 23)
}

// open completes q. The global scale of nvfp4 multiplies every scale by global/(448·6).
func (f *blockFormat) open(c *Call, q *codes, mode ir.QuantMode, scales, biases, global *Tensor) error {
	switch {
	case scales.DType != ir.U8:
		return fmt.Errorf("scales are %s, mode %s needs u8", scales.DType, mode)
	case biases != nil:
		return fmt.Errorf("mode %s has no biases", mode)
	case global != nil && (mode != ir.NVFP4 || global.DType != ir.F32 || len(global.F) != 1):
		return fmt.Errorf("global scale %s%v with mode %s, want one f32 with mode nvfp4", global.DType, global.Shape, mode)
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
