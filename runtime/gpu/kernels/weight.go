package kernels

import (
	"fmt"
	"math"
)

// Format says how a weight [N, K] is stored, in MLX's layout.
type Format struct {
	// Bits is 4 or 8 for affine codes: words u32 [N, K·Bits/32], the first code in the lowest bits, with
	// scales and biases [N, K/Group], w = scale·q + bias. 16 is bf16 [N, K] and 32 f32 [N, K], which have
	// neither.
	Bits int
	// Group is the number of columns that share a scale: 32, 64 or 128, for float codes 32 or 16. It divides K.
	Group int
	// Floats says that codes are floats, e2m1 with 4 bits or e4m3 with 8. Their scales are single bytes, and they have
	// no biases, so Symmetric is set too. These are MLX's modes mxfp4 and mxfp8, with e8m0 scales of groups of 32, and
	// nvfp4, with e4m3 scales of groups of 16.
	Floats bool
	// F32 says that scales and biases are float32; else they are bf16.
	F32 bool
	// Symmetric says that there are no stored biases: bias = −2^(Bits−1)·scale, or 0 with Floats.
	Symmetric bool
}

// Quantized reports whether the weight has scales.
func (f Format) Quantized() bool { return f.Bits < 16 }

// ScaleBytes returns the size in bytes of the scales of columns columns. Biases, where stored, take as much again.
func (f Format) ScaleBytes(columns int) int {
	switch {
	case f.Floats:
		return columns / f.Group
	case f.F32:
		return columns / f.Group * 4
	}
	return columns / f.Group * 2
}

// String returns the name of the format in tests and tables.
func (f Format) String() string {
	switch f.Bits {
	case 16:
		return "bf16"
	case 32:
		return "f32"
	}
	if f.Floats {
		if f.Group == 16 {
			return "nvfp4"
		}
		return fmt.Sprintf("mxfp%d", f.Bits)
	}
	s := fmt.Sprintf("%dbit/%d", f.Bits, f.Group)
	if f.F32 {
		s += "/f32"
	}
	if f.Symmetric {
		s += "/symmetric"
	}
	return s
}

// check returns an error where there is no kernel for rows of K columns.
func (f Format) check(k int) error {
	switch {
	case f.Bits != 4 && f.Bits != 8 && f.Bits != 16 && f.Bits != 32:
		return fmt.Errorf("weights of %d bits, want 4, 8, 16 (bf16) or 32 (f32)", f.Bits)
	case f.Floats && (!f.Quantized() || f.Group != 32 && (f.Group != 16 || f.Bits != 4) || f.F32 || !f.Symmetric):
		return fmt.Errorf("floats of %d bits in groups of %d, want 4 or 8 bits in groups of 32, or 4 in groups of "+
			"16, with scales of a byte and no biases", f.Bits, f.Group)
	case f.Quantized() && !f.Floats && f.Group != 32 && f.Group != 64 && f.Group != 128:
		return fmt.Errorf("groups of %d columns, want 32, 64 or 128", f.Group)
	case f.Quantized() && k%f.Group != 0:
		return fmt.Errorf("%d columns are no multiple of the group of %d", k, f.Group)
	case k <= 0 || k%8 != 0:
		return fmt.Errorf("%d columns, want a multiple of 8", k)
	}
	return nil
}

func (f Format) defines() []Define {
	scale := "bfloat"
	switch {
	case f.Floats:
		return define("WEIGHT_BITS", f.Bits, "WEIGHT_GROUP", f.Group, "WEIGHT_SCALE", "uchar", "WEIGHT_BIASES",
			false, "WEIGHT_FLOATS", true)
	case f.F32:
		scale = "float"
	}
	return define("WEIGHT_BITS", f.Bits, "WEIGHT_GROUP", max(f.Group, 1), "WEIGHT_SCALE", scale,
		"WEIGHT_BIASES", !f.Symmetric)
}

// Weight is a stored weight, for the reference implementations.
type Weight struct {
	Format
	N, K int
	// Words are the codes, or for a dense weight its bf16 or float32 bit patterns, packed in 32-bit words.
	Words []uint32
	// Scales and Biases are bf16 or float32 bit patterns; with Floats, scales are bytes.
	Scales, Biases []uint32
}

// At returns the element at a row and a column, exact in float64.
func (w *Weight) At(row, column int) float64 {
	i := row*w.K + column
	switch w.Bits {
	case 16:
		return float64(math.Float32frombits(w.Words[i/2] >> (16 * (i % 2)) << 16))
	case 32:
		return float64(math.Float32frombits(w.Words[i]))
	}
	per := 32 / w.Bits
	q := w.Words[i/per] >> (w.Bits * (i % per)) & (1<<w.Bits - 1)
	if w.Floats {
		if w.Group == 16 { // nvfp4
			return smallFloat(8, w.Scales[i/w.Group]) * smallFloat(w.Bits, q)
		}
		return math.Ldexp(smallFloat(w.Bits, q), int(w.Scales[i/w.Group])-127)
	}
	scale := w.number(w.Scales[i/w.Group])
	bias := scale * -float64(int(1)<<(w.Bits-1))
	if !w.Symmetric {
		bias = w.number(w.Biases[i/w.Group])
	}
	return float64(scale*float64(q)) + bias
}

// smallFloat returns the number of an e2m1 or e4m3 code. For e4m3 it knows no NaN.
func smallFloat(bits int, q uint32) float64 {
	mantissa, bias := 1, 1
	if bits == 8 {
		mantissa, bias = 3, 7
	}
	sign, magnitude := q>>(bits-1), int(q&(1<<(bits-1)-1))
	exponent, fraction := magnitude>>mantissa, float64(magnitude&(1<<mantissa-1))/float64(int(1)<<mantissa)
	v := math.Ldexp(1+fraction, exponent-bias)
	if exponent == 0 {
		v = math.Ldexp(fraction, 1-bias)
	}
	if sign != 0 {
		return -v
	}
	return v
}

func (w *Weight) number(bits uint32) float64 {
	if !w.F32 {
		bits <<= 16
	}
	return float64(math.Float32frombits(bits))
}
