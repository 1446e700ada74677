package eval

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// parseWeight reads bits and group of a recorded name like bf16_b4_g64 or f32_moe_b8_g32.
func parseWeight(t *testing.T, name string) (bits, group int) {
	t.Helper()
	parts := strings.Split(name, "_")
	_, err := fmt.Sscanf(parts[len(parts)-2]+" "+parts[len(parts)-1], "b%d g%d", &bits, &group)
	require.NoError(t, err)
	return bits, group
}

func TestDequantizeAgreesWithMLX(t *testing.T) {
	a := answers(t, "dequantize")
	tested := 0
	for key := range a {
		name, ok := strings.CutSuffix(key, "_deq")
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			bits, group := parseWeight(t, name)
			attrs := &ir.DequantizeAttrs{GroupSize: group, Bits: bits, Mode: "affine"}
			got := run(t, "dequantize", attrs, Strict, a[name+"_q"], a[name+"_scales"], a[name+"_biases"])[0]
			require.Equal(t, a[key], got, "every bit, in 16-bit dtypes too")
		})
		tested++
	}
	require.Equal(t, 11, tested)
}

func TestQuantizedMatmulAgreesWithMLX(t *testing.T) {
	a := answers(t, "quantized_matmul")
	tested := 0
	for key := range a {
		name, ok := strings.CutSuffix(key, "_q")
		if !ok || strings.Contains(name, "moe") {
			continue
		}
		bits, group := parseWeight(t, name)
		dtype := name[:strings.Index(name, "_")]
		w := []any{a[key], a[name+"_scales"], a[name+"_biases"]}
		for suffix, x := range map[string]string{"_y": "_x", "_yb": "_xb", "_y_notrans": "_xt"} {
			want := a[name+suffix]
			if want == nil {
				continue
			}
			t.Run(name+suffix, func(t *testing.T) {
				attrs := &ir.QuantizedMatmulAttrs{GroupSize: group, Bits: bits, Mode: "affine",
					Transpose: suffix != "_y_notrans"}
				got := run(t, "quantized_matmul", attrs, Strict, append([]any{a[dtype+x]}, w...)...)[0]
				if suffix == "_y_notrans" && dtype == "bf16" { // this MLX accumulates these in bf16
					requireWithin(t, want, got, 1.0/16)
				} else {
					requireNear(t, want, got)
				}
			})
			tested++
		}
	}
	require.Equal(t, 11, tested)
	t.Run("mixed", func(t *testing.T) {
		x := Floats(ir.F32, a["bf16_x"].Shape, a["bf16_x"].F)
		attrs := &ir.QuantizedMatmulAttrs{GroupSize: 64, Bits: 4, Mode: "affine", Transpose: true}
		got := run(t, "quantized_matmul", attrs, Strict, x, a["bf16_b4_g64_q"], a["bf16_b4_g64_scales"],
			a["bf16_b4_g64_biases"])[0]
		requireNear(t, a["mixed_xf32_wbf16_y"], got)
	})
}

func TestGatherQMMAgreesWithMLX(t *testing.T) {
	a := answers(t, "quantized_matmul")
	for _, name := range []string{"bf16_moe_b4_g32", "f32_moe_b8_g64"} {
		bits, group := parseWeight(t, name)
		dtype := name[:strings.Index(name, "_")]
		x := a[dtype+"_moe_x"]
		for _, test := range []struct {
			suffix   string
			x        *Tensor
			lhs, rhs *Tensor
		}{
			{"_y", x, nil, a["moe_rhs"]},
			{"_y_sorted", x, nil, a["moe_rhs_sorted"]},
			{"_y_lhs", x, a["moe_lhs"], a["moe_rhs"]},
			{"_y_2d", a[dtype+"_moe_x2"], nil, a["moe_rhs2"]},
		} {
			t.Run(name+test.suffix, func(t *testing.T) {
				attrs := &ir.GatherQmmAttrs{GroupSize: group, Bits: bits, Mode: "affine", Transpose: true}
				got := run(t, "gather_qmm", attrs, Strict, test.x, a[name+"_q"], a[name+"_scales"],
					a[name+"_biases"], test.lhs, test.rhs)[0]
				requireNear(t, a[name+test.suffix], got)
			})
		}
	}
}

// TestExecuTorchAffineMatmul compares with torchao's weights in MLX form.
func TestExecuTorchAffineMatmul(t *testing.T) {
	a := answers(t, "executorch")
	for name, attrs := range map[string]*ir.QuantizedAttrs{"qmm0": {GroupSize: 32, Bits: 4},
		"qmm3": {GroupSize: 64, Bits: 8}} {
		t.Run(name, func(t *testing.T) {
			q := &Quantized{a[name+".w"], a[name+".scales"], a[name+".biases"], a[name+".scales"].DType,
				ir.WeightForm{Bits: attrs.Bits, Group: attrs.GroupSize}}
			requireNear(t, a[name+".y"], run(t, "linear", nil, FP32, a[name+".x"], q)[0])
		})
	}
}

// packBits writes codes as MLX packs them: a little-endian stream of bits over the words of a row.
func packBits(codes []int, bits int) []int64 {
	words := make([]int64, len(codes)*bits/32)
	for i, code := range codes {
		for b := range bits {
			if code>>b&1 != 0 {
				at := i*bits + b
				words[at/32] |= 1 << (at % 32)
			}
		}
	}
	return words
}

func TestUnpackEveryWidth(t *testing.T) {
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		want := make([]int, 192)
		for i := range want {
			want[i] = (i*37 + 11) % (1 << bits)
		}
		packed := Ints(ir.U32, []int{2, 3 * bits}, append(packBits(want[:96], bits), packBits(want[96:], bits)...))
		one, zero := Floats(ir.F32, []int{2, 3}, slices.Repeat([]float32{1}, 6)), floats(2, 3)
		clear(zero.F)
		got := run(t, "dequantize", &ir.DequantizeAttrs{GroupSize: 32, Bits: bits, Mode: "affine"},
			FP32, packed, one, zero)[0]
		for i, code := range want {
			require.EqualValues(t, code, got.F[i], "bits %d, element %d", bits, i)
		}
	}
}

// TestSymmetricQuantized: without biases the code 2^(bits−1) stands for zero.
func TestSymmetricQuantized(t *testing.T) {
	codes := make([]int, 64)
	for i := range codes {
		codes[i] = i % 16
	}
	packed := Ints(ir.U32, []int{2, 4}, packBits(codes, 4))
	scales := Floats(ir.BF16, []int{2, 1}, []float32{0.5, 2})
	c, err := newCall("quantized", &ir.QuantizedAttrs{GroupSize: 32, Bits: 4}, Strict, packed, scales)
	require.NoError(t, err)
	values, err := Run(c)
	require.NoError(t, err)
	q := values[0].Quantized
	require.Nil(t, q.Biases)
	got := run(t, "embedding", nil, Strict, Ints(ir.I64, []int{2}, []int64{1, -2}), q)[0]
	for i, code := range codes {
		require.Equal(t, []float32{0.5, 2}[i/32]*float32(code-8), got.F[(1-i/32)*32+i%32])
	}
}

// TestBlockFloatFormats checks every code against the formats' definitions: e2m1 and e4m3 are
// (−1)^s·2^(e−bias)·(1+m/2^M) with subnormals at e = 0, e8m0 is 2^(e−127).
func TestBlockFloatFormats(t *testing.T) {
	exp2 := func(e int) float64 {
		v := 1.0
		for ; e > 0; e-- {
			v *= 2
		}
		for ; e < 0; e++ {
			v /= 2
		}
		return v
	}
	small := func(code, exponentBits, mantissaBits, bias int) float32 {
		m, e := code&(1<<mantissaBits-1), code>>mantissaBits&(1<<exponentBits-1)
		v := float64(m) / exp2(mantissaBits) * exp2(1-bias)
		if e > 0 {
			v = (1 + float64(m)/exp2(mantissaBits)) * exp2(e-bias)
		}
		if code>>(exponentBits+mantissaBits) != 0 {
			v = -v
		}
		return float32(v)
	}
	for code := range 16 {
		require.Equal(t, small(code, 2, 1, 1), numeric.E2M1ToF32(uint8(code)), code)
	}
	for code := range 256 {
		require.Equal(t, small(code, 4, 3, 7), numeric.E4M3ToF32(uint8(code)), code)
		if code < 255 {
			require.Equal(t, float32(exp2(code-127)), numeric.E8M0ToF32(uint8(code)), code)
		}
	}
}

func TestBlockFloatWeights(t *testing.T) {
	codes := make([]int, 32)
	for i := range codes {
		codes[i] = i % 16
	}
	x := floats(1, 32)
	for _, test := range []struct {
		mode        string
		group, bits int
		codes       []int
		scales      []int64
		global      float32
		want        func(i int) float32
	}{
		{"mxfp4", 32, 4, codes, []int64{129}, 0, func(i int) float32 { return 4 * numeric.E2M1ToF32(uint8(i%16)) }},
		{"mxfp8", 32, 8, codes, []int64{126}, 0, func(i int) float32 { return numeric.E4M3ToF32(uint8(i%16)) / 2 }},
		{"nvfp4", 16, 4, codes, []int64{0x38, 0x41}, 0,
			func(i int) float32 { return numeric.E2M1ToF32(uint8(i%16)) * []float32{1, 2.25}[i/16] }},
		{"nvfp4", 16, 4, codes, []int64{0x38, 0x41}, 5376,
			func(i int) float32 { return numeric.E2M1ToF32(uint8(i%16)) * []float32{2, 4.5}[i/16] }},
	} {
		t.Run(fmt.Sprint(test.mode, test.global), func(t *testing.T) {
			w := Ints(ir.U32, []int{1, 32 * test.bits / 32}, packBits(test.codes, test.bits))
			scales := Ints(ir.U8, []int{1, len(test.scales)}, test.scales)
			var global *Tensor
			if test.global != 0 {
				global = Floats(ir.F32, nil, []float32{test.global})
			}
			attrs := &ir.DequantizeAttrs{GroupSize: test.group, Bits: test.bits, Mode: test.mode}
			got := run(t, "dequantize", attrs, Strict, w, scales, nil, global)[0]
			require.Equal(t, ir.BF16, got.DType)
			sum := float32(0)
			for i := range got.F {
				require.Equal(t, test.want(i), got.F[i], i)
				sum += x.F[i] * got.F[i]
			}
			if global == nil {
				mm := &ir.QuantizedMatmulAttrs{GroupSize: test.group, Bits: test.bits, Mode: test.mode, Transpose: true}
				require.InDelta(t, sum, run(t, "quantized_matmul", mm, FP32, x, w, scales)[0].F[0], 1e-4)
			}
		})
	}
}

func TestQuantizedRefusals(t *testing.T) {
	w := Ints(ir.U32, []int{2, 4}, make([]int64, 8))
	scales, x := floats(2, 1), floats(3, 32)
	attrs := func(group, bits int, mode string) *ir.QuantizedMatmulAttrs {
		return &ir.QuantizedMatmulAttrs{GroupSize: group, Bits: bits, Mode: mode, Transpose: true}
	}
	require.Equal(t, []int{3, 2}, run(t, "quantized_matmul", attrs(32, 4, "affine"), FP32, x, w,
		scales, scales)[0].Shape)
	for _, test := range []struct {
		want  string
		attrs *ir.QuantizedMatmulAttrs
		args  []any
	}{
		{"u32", attrs(32, 4, "affine"), []any{x, Ints(ir.I32, []int{2, 4}, make([]int64, 8)), scales, scales}},
		{"biases", attrs(32, 4, "affine"), []any{x, w, scales}},
		{"bits", attrs(32, 7, "affine"), []any{x, w, scales, scales}},
		{"bits", attrs(32, 0, "affine"), []any{x, w, scales, scales}},
		{"group", attrs(64, 4, "affine"), []any{x, w, scales, scales}},
		{"group", attrs(0, 4, "affine"), []any{x, w, scales, scales}},
		{"mode", attrs(32, 4, "mxfp5"), []any{x, w, scales, scales}},
		{"mxfp4", attrs(16, 4, "mxfp4"), []any{x, w, Ints(ir.U8, []int{2, 2}, make([]int64, 4))}},
		{"32", attrs(32, 4, "affine"), []any{floats(3, 31), w, scales, scales}},
	} {
		requireError(t, test.want, "quantized_matmul", test.attrs, test.args...)
	}
	gather := &ir.GatherQmmAttrs{GroupSize: 32, Bits: 4, Mode: "affine", Transpose: true}
	experts, s := Ints(ir.U32, []int{2, 2, 4}, make([]int64, 16)), floats(2, 2, 1)
	requireError(t, "rhs_indices[1] is 2", "gather_qmm", gather, floats(2, 1, 32), experts, s, s, nil,
		Ints(ir.I32, []int{2}, []int64{0, 2}))
	requireError(t, "rhs_indices[0] is -1", "gather_qmm", gather, floats(2, 1, 32), experts, s, s, nil,
		Ints(ir.I32, []int{2}, []int64{-1, 0}))
}
