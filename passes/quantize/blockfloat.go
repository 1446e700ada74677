package quantize

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// blockFloat is a mode of MLX whose codes are small floats. The scale of a group is a small float too, without a sign.
type blockFloat struct {
	// largest is the greatest magnitude of a code.
	largest float32
	encode  func(x float32) uint8
	levels  [256]float32
	// The scales of groups: scaleCode returns the code of the scale nearest to a number, as MLX rounds it; the others
	// are the value of a code, the largest code, and whether code 0 stands for 0.
	scaleCode   func(x float32) uint8
	scaleValue  func(code uint8) float32
	greatest    uint8
	zeroIsScale bool
}

// blockFloats has the modes that weights can be quantized to; nil for others.
var blockFloats = [...]*blockFloat{
	ir.MXFP4: powersOfTwo(newBlockFloat(6, 4, numeric.F32ToE2M1, numeric.E2M1ToF32)),
	ir.MXFP8: powersOfTwo(newBlockFloat(448, 8, numeric.F32ToE4M3, numeric.E4M3ToF32)),
	ir.NVFP4: smallFloatScales(newBlockFloat(6, 4, numeric.F32ToE2M1, numeric.E2M1ToF32)),
}

func newBlockFloat(largest float32, bits int, encode func(float32) uint8, decode func(uint8) float32) *blockFloat {
	f := &blockFloat{largest: largest, encode: encode}
	for code := range 1 << bits {
		f.levels[code] = decode(uint8(code))
	}
	return f
}

// powersOfTwo gives a format the scales of the OCP Microscaling Formats (MX) Specification 1.0.
func powersOfTwo(f *blockFloat) *blockFloat {
	f.scaleCode, f.scaleValue, f.greatest = numeric.F32ToE8M0, numeric.E8M0ToF32, 254
	return f
}

// smallFloatScales gives a format the scales of nvfp4: e4m3.
func smallFloatScales(f *blockFloat) *blockFloat {
	f.scaleCode, f.scaleValue, f.greatest, f.zeroIsScale = numeric.F32ToE4M3, numeric.E4M3ToF32, 0x7e, true
	return f
}

// blockFloatOf returns the format of a mode; nil for affine and for modes that nothing is quantized to.
func blockFloatOf(mode ir.QuantMode) *blockFloat {
	if int(mode) < len(blockFloats) {
		return blockFloats[mode]
	}
	return nil
}

// checkBlockFloat is Check for modes other than affine.
func (s Scheme) checkBlockFloat(cols int) error {
	form := ir.WeightForm{Mode: s.Mode, Bits: s.Bits, Group: s.GroupSize}
	if err := form.Check(); err != nil {
		return fmt.Errorf("%s quantization: %w", s.Method, err)
	}
	switch {
	case blockFloatOf(s.Mode) == nil:
		return fmt.Errorf("%s quantization to %s: expected affine, mxfp4, mxfp8 or nvfp4", s.Method, s.Mode)
	case s.Method != MinMax && s.Method != Best:
		return fmt.Errorf("%s quantization to %s: expected minmax, which is MLX's choice of scales, or best", s.Method,
			s.Mode)
	case s.Params != BF16 || s.Iterations != 0:
		return fmt.Errorf("%s quantization to %s: its scales are bytes, found %d iterations and scales of type %s",
			s.Method, s.Mode, s.Iterations, s.Params)
	case cols <= 0 || cols%s.GroupSize != 0:
		return fmt.Errorf("%s quantization to %s in groups of %d: a row has %d weights, which %d does not divide; "+
			"leave the tensor unquantized",
			s.Method, s.Mode, s.GroupSize, cols, s.GroupSize)
	}
	return nil
}

// quantizeBlocks is quantizeMatrix for modes other than affine.
func quantizeBlocks(dst *Result, w []float32, rows, cols int, s Scheme) error {
	dst.reset(rows, cols, s)
	f := blockFloatOf(s.Mode)
	words := s.GroupSize * s.Bits / 32
	for g := range dst.Scales {
		group := w[g*s.GroupSize : (g+1)*s.GroupSize]
		lo, hi, finite := extent(group)
		if !finite {
			return located(nonFinite(group), g*s.GroupSize, cols)
		}
		most := max(-lo, hi) / f.largest
		scale := f.scaleCode(most)
		if err := f.outOfRange(most, scale); err != nil {
			return located(err, g*s.GroupSize, cols)
		}
		if s.Method == Best {
			scale = f.search(group, scale)
		}
		f.pack(dst.Packed[g*words:(g+1)*words], group, scale, s.Bits)
		dst.Scales[g] = f.scaleValue(scale)
	}
	return nil
}

// outOfRange refuses a group whose scale the format cannot represent. For such groups nvfp4 has a global scale, which
// multiplies all scales of a matrix. The nodes that multiply by a weight do not have it, so it is always 1.
func (f *blockFloat) outOfRange(most float32, scale uint8) *ValueError {
	if !f.zeroIsScale || most == 0 || scale > 0 && most <= f.scaleValue(f.greatest) {
		return nil
	}
	return &ValueError{Detail: fmt.Sprintf(
		"the 16 weights from here on need the scale %g, and a scale e4m3 is between %g and %g; "+
			"the global scale that nvfp4 has for this is nothing that nodes which multiply can say: leave the tensor "+
			"unquantized, or in another form",
		most, f.scaleValue(1), f.scaleValue(f.greatest))}
}

// pack stores the codes of a group as [Pack] does.
func (f *blockFloat) pack(dst []uint32, w []float32, scale uint8, bits int) {
	step, per := f.scaleValue(scale), 32/bits
	for i := range dst {
		word := uint32(0)
		for j, x := range w[i*per : (i+1)*per] {
			word |= uint32(f.code(x, step)) << (j * bits)
		}
		dst[i] = word
	}
}

// code returns the code of the level nearest to x/step; 0 where step is 0.
func (f *blockFloat) code(x, step float32) uint8 {
	if step == 0 {
		return 0
	}
	return f.encode(x / step)
}

// search returns the scale with the smallest squared error among MLX's, the two above it and the two below it. Of equal
// ones it prefers MLX's, then the larger.
func (f *blockFloat) search(w []float32, scale uint8) uint8 {
	best, least := scale, f.squaredError(w, scale)
	for _, step := range [...]int{1, -1, 2, -2} {
		n := int(scale) + step
		if n < 0 || n > int(f.greatest) {
			continue
		}
		if e := f.squaredError(w, uint8(n)); e < least {
			best, least = uint8(n), e
		}
	}
	return best
}

// squaredError returns the squared error of a group's weights as pack stores them.
func (f *blockFloat) squaredError(w []float32, scale uint8) float64 {
	step, sum := f.scaleValue(scale), 0.0
	for _, x := range w {
		d := float64(x) - float64(float64(step)*float64(f.levels[f.code(x, step)]))
		sum += float64(d * d)
	}
	return sum
}
