package quantize

import "github.com/etc-ml/etc/ir/numeric"

// torchAOEpsilon is the least scale of torchao's min/max methods: float32's least normal number.
const torchAOEpsilon = 0x1p-126

// asymmetricParams returns torchao's affine parameters, in bf16, of a group with the finite extent
// lo..hi, and the zero point among the codes 0 to 2^bits-1.
func asymmetricParams(lo, hi float32, bits int) (p params, zeroPoint int32) {
	levels := float32(int(1)<<bits - 1)
	lo, hi = min(lo, 0), max(hi, 0)
	scale := max((hi-lo)/levels, torchAOEpsilon)
	zero := min(max(-roundToEven(lo/scale), 0), levels)
	p.scale = numeric.RoundBF16(scale)
	p.bias = Bias(p.scale, zero-float32(int(1)<<(bits-1)), bits, BF16)
	return p, int32(zero)
}

// symmetricParams returns torchao's symmetric parameters, in bf16, of a group with the finite
// extent lo..hi, and the code of zero.
func symmetricParams(lo, hi float32, bits int) (p params, zeroPoint int32) {
	half := float32(int(1)<<bits-1) / 2
	p.scale = numeric.RoundBF16(max(max(-lo, hi)/half, torchAOEpsilon))
	p.bias = Bias(p.scale, 0, bits, BF16)
	return p, 1 << (bits - 1)
}

// reciprocalQuotients sets t = w * bf16(1/scale), as torchao does: the scale is a bf16 tensor, so
// its reciprocal is one too. Quotients are below 2^(bits+1), because the scale is within a rounding
// of the extent over the levels.
func reciprocalQuotients(t, w []float32, scale float32) {
	reciprocal := numeric.RoundBF16(1 / scale)
	for i, x := range w[:len(t)] {
		t[i] = float32(x * reciprocal)
	}
}

// Bias returns the bias that makes MLX's scale*Q + bias equal to torchao's scale*(q - zeroPoint),
// where q = Q - 2^(bits-1) is signed: -scale * (zeroPoint + 2^(bits-1)), with the sum and the
// product rounded to f, as ExecuTorch's exporter computes it
// (backends/mlx/builder/op_helpers.py, to_mlx_qparams). scale must be a value of f.
func Bias(scale, zeroPoint float32, bits int, f Float) float32 {
	middle := f.Round(zeroPoint + float32(int(1)<<(bits-1)))
	return f.Round(float32(-scale * middle))
}
