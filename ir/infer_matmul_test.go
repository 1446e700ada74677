package ir

import (
	"math"
	"testing"
)

func TestInferMatmul(t *testing.T) { runInferCases(t, matmulCases()) }

func matmulCases() []inferCase {
	return []inferCase{
		{op: "addmm", operands: []any{"bf16[1,T,64]", "bf16[64,32]"}, want: "bf16[1,T,32]"},
		{op: "addmm", operands: []any{"bf16[1,T,64]", "bf16[64,32]", "f32[32]"}, want: "f32[1,T,32]"},
		{op: "addmm", operands: []any{"bf16[T,64]", "f16[64,32]", "f32[]"}, want: "f32[T,32]"},
		{op: "addmm", operands: []any{"f32[5,1,T,64]", "f32[7,64,32]"}, want: "f32[5,7,T,32]"},
		{op: "addmm", operands: []any{"f32[64]", "f32[64,32]"}, want: "f32[32]"},
		{op: "addmm", operands: []any{"f32[3,T,64]", "f32[64]"}, want: "f32[3,T]"},
		{op: "addmm", operands: []any{"f32[64]", "f32[64]"}, want: "f32[]"},
		{op: "addmm", operands: []any{"f32[64]", "f32[2,64,5]", "f32[2,5]"}, want: "f32[2,5]"},
		{op: "addmm", operands: []any{"i32[2,2]", "f16[2,2]"}, want: "f16[2,2]"},
		{op: "addmm", operands: []any{"f32[2,3]", "f32[4,5]"},
			err: "the last dim of mat1 f32[2,3] must be the last but one of mat2 f32[4,5]"},
		{op: "addmm", operands: []any{"f32[2,3]", "f32[4]"}, err: "the last dim of mat1"},
		{op: "addmm", operands: []any{"f32[]", "f32[4]"},
			err: "mat1 and mat2 must have at least one dim, found f32[] and f32[4]"},
		{op: "addmm", operands: []any{"i32[2,3]", "i32[3,4]"},
			err: "the promoted dtype of the operands must be floating point, found i32"},
		{op: "addmm", operands: []any{"f32[2,3]", "f32[3,4]", "f32[3]"},
			err: "bias of shape [3] does not broadcast to [2,4]"},
		{op: "addmm", operands: []any{"f32[2,3]", "f32[3,4]", "f32[1,2,4]"}, err: "does not broadcast"},
		{op: "addmm", operands: []any{"f32[5,2,3]", "f32[6,3,4]"},
			err: "leading dims of mat1 f32[5,2,3] and mat2 f32[6,3,4]"},

		{op: "gather_mm", operands: []any{"f32[3,T,64]", "f32[64,32]"}, want: "f32[3,T,32]"},
		{op: "gather_mm", operands: []any{"f32[T,1,1,64]", "bf16[8,64,32]", nil, "u32[T,2]"}, want: "f32[T,2,1,32]"},
		{op: "gather_mm", operands: []any{"f32[5,1,64]", "f32[8,64,32]", "i32[T,1]", "i32[2]", 1},
			want: "f32[T,2,1,32]"},
		{op: "gather_mm", operands: []any{"f32[64]", "f32[8,64,32]", nil, "i32[3]"}, want: "f32[3,32]"},
		{op: "gather_mm", operands: []any{"f32[4,64]", "f32[8,64,32]", nil, "i32[3]", "int(T)"}, want: "f32[3,4,32]"},
		{op: "gather_mm", operands: []any{"f32[4,64]", "f32[8,64,32]", nil, "f32[3]"},
			err: "rhs_indices must be integers, found f32"},
		{op: "gather_mm", operands: []any{"f32[4,64]", "f32[8,32,32]", nil, "i32[3]"}, err: "the last dim of a"},
		{op: "gather_mm", operands: []any{"f32[4,64]", "f32[8,64,32]", "i32[2]", "i32[3]"},
			err: "lhs_indices and rhs_indices: shapes [2] and [3] do not broadcast"},
		{op: "gather_mm", operands: []any{"i32[4,64]", "bool[8,64,32]", nil, "i32[3]"},
			err: "must be floating point, found i32"},
		{op: "gather_mm", operands: []any{"f32[4,63]", "f32[64,32]"}, err: "the last dim of a f32[4,63] must be"},
		{op: "gather_mm", operands: []any{"f32[]", "f32[8,64,32]", nil, "i32[3]"}, err: "must have at least one dim"},
	}
}

func TestInferQuantized(t *testing.T) { runInferCases(t, quantizedCases()) }

func quantizedCases() []inferCase {
	q := func(bits, group int) *QuantizedAttrs { return &QuantizedAttrs{GroupSize: group, Bits: bits} }
	qmm := func(mode string, bits, group int, transpose bool) *QuantizedMatmulAttrs {
		return &QuantizedMatmulAttrs{GroupSize: group, Bits: bits, Mode: mode, Transpose: transpose}
	}
	gqmm := func(transpose bool) *GatherQmmAttrs {
		return &GatherQmmAttrs{GroupSize: 32, Bits: 4, Mode: "affine", Transpose: transpose}
	}
	deq := func(mode string, bits, group int, d *DType) *DequantizeAttrs {
		return &DequantizeAttrs{GroupSize: group, Bits: bits, Mode: mode, Dtype: d}
	}
	return []inferCase{
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[512,16]", "bf16[512,2]", "bf16[512,2]"},
			want: "quantized<4,64,bf16>[512,128]"},
		{op: "quantized", attrs: q(3, 32), operands: []any{"u32[8,512,12]", "f16[8,512,4]"},
			want: "quantized<3,32,f16>[8,512,128]"},
		{op: "quantized", attrs: q(5, 128), operands: []any{"u32[2,40]", "f32[2,2]"},
			want: "quantized<5,128,f32>[2,256]"},
		{op: "quantized", attrs: q(6, 16), operands: []any{"u32[2,6]", "f32[2,2]"}, want: "quantized<6,16,f32>[2,32]"},
		{op: "quantized", attrs: q(7, 32), operands: []any{"u32[2,7]", "f32[2,1]"},
			err: "mode affine has bits of [2 3 4 5 6 8], found 7"},
		{op: "quantized", attrs: q(4, 48), operands: []any{"u32[2,6]", "f32[2,1]"},
			err: "mode affine has group sizes of [16 32 64 128], found 48"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"i32[512,16]", "bf16[512,2]"},
			err: "packed codes must be u32, found i32[512,16]"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[16]", "bf16[2]"},
			err: "at least 2, found u32[16] and bf16[2]"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[512,16]", "bf16[511,2]"},
			err: "leading dims of packed codes and scales: shapes [512] and [511] must be equal"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[512,16]", "bf16[512,4]"},
			err: "packed codes u32[512,16] hold 128 codes of 4 bits in a row, scales bf16[512,4] are for 256 in groups of 64"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[512,16]", "i8[512,2]"},
			err: "scales must be floating point, found i8"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[512,16]", "bf16[512,2]", "f32[512,2]"},
			err: "scales and biases must have the same dtype, found bf16[512,2] and f32[512,2]"},
		{op: "quantized", attrs: q(4, 64), operands: []any{"u32[512,16]", "bf16[512,2]", "bf16[512,1]"},
			err: "scales and biases: shapes [512,2] and [512,1] must be equal"},

		{op: "dequantize", attrs: deq("affine", 4, 64, nil), operands: []any{"u32[T,16]", "bf16[T,2]", "f32[T,2]"},
			want: "f32[T,128]"},
		{op: "dequantize", attrs: deq("affine", 8, 32, ptr(F16)),
			operands: []any{"u32[2,T,16]", "bf16[2,T,2]", "f32[2,T,2]"}, want: "f16[2,T,64]"},
		{op: "dequantize", attrs: deq("mxfp4", 4, 32, nil), operands: []any{"u32[T,16]", "u8[T,4]"},
			want: "bf16[T,128]"},
		{op: "dequantize", attrs: deq("nvfp4", 4, 16, ptr(F32)), operands: []any{"u32[T,16]", "u8[T,8]", nil, "f32[1]"},
			want: "f32[T,128]"},
		{op: "dequantize", attrs: deq("nvfp4", 4, 16, nil), operands: []any{"u32[T,16]", "u8[T,8]", nil, "f32[2]"},
			err: "global_scale must be f32 with one element, found f32[2]"},
		{op: "dequantize", attrs: deq("mxfp4", 4, 32, nil), operands: []any{"u32[T,16]", "u8[T,4]", nil, "f32[]"},
			err: "mode mxfp4 has no global_scale"},
		{op: "dequantize", attrs: deq("mxfp4", 8, 32, nil), operands: []any{"u32[T,16]", "u8[T,4]"},
			err: "mode mxfp4 has bits of [4], found 8"},
		{op: "dequantize", attrs: deq("mxfp8", 8, 32, nil), operands: []any{"u32[T,16]", "bf16[T,2]"},
			err: "mode mxfp8 has scales in u8, found bf16[T,2]"},
		{op: "dequantize", attrs: deq("mxfp8", 8, 32, nil), operands: []any{"u32[T,16]", "u8[T,2]", "u8[T,2]"},
			err: "mode mxfp8 has no biases"},
		{op: "dequantize", attrs: deq("affine", 4, 64, nil), operands: []any{"u32[T,16]", "bf16[T,2]"},
			err: "mode affine needs biases"},
		{op: "dequantize", attrs: deq("affine", 4, 64, nil), operands: []any{"u32[T,16]", "bf16[T,2]", "bf16[T,1]"},
			err: "scales and biases: shapes [T,2] and [T,1] must be equal"},
		{op: "dequantize", attrs: deq("affine", 4, 64, ptr(I8)), operands: []any{"u32[T,16]", "bf16[T,2]", "bf16[T,2]"},
			err: "dtype must be floating point, found i8"},
		{op: "dequantize", attrs: deq("", 4, 64, nil), operands: []any{"u32[T,16]", "bf16[T,2]"},
			err: `mode must be affine, mxfp4, mxfp8 or nvfp4, found ""`},

		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, true),
			operands: []any{"bf16[1,T,128]", "u32[512,16]", "bf16[512,2]", "bf16[512,2]"}, want: "bf16[1,T,512]"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, true),
			operands: []any{"f32[128]", "u32[512,16]", "bf16[512,2]", "bf16[512,2]"}, want: "f32[512]"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, false),
			operands: []any{"i32[T,512]", "u32[512,16]", "bf16[512,2]", "bf16[512,2]"}, want: "bf16[T,128]"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, true),
			operands: []any{"bf16[3,1,T,128]", "u32[5,512,16]", "bf16[5,512,2]", "bf16[5,512,2]"},
			want:     "bf16[3,5,T,512]"},
		{op: "quantized_matmul", attrs: qmm("mxfp8", 8, 32, true),
			operands: []any{"f16[T,64]", "u32[512,16]", "u8[512,2]"}, want: "f16[T,512]"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, true),
			operands: []any{"bf16[1,T,64]", "u32[512,16]", "bf16[512,2]", "bf16[512,2]"},
			err:      "x bf16[1,T,64] has rows of 64, the weight of shape [512,128] (transpose true) takes 128"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 16, true),
			operands: []any{"bf16[T,32]", "u32[512,4]", "bf16[512,2]", "bf16[512,2]"},
			err:      "products of group sizes 32, 64 and 128, found 16"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, true),
			operands: []any{"bf16[]", "u32[512,16]", "bf16[512,2]", "bf16[512,2]"}, err: "x must have at least 1 dims"},
		{op: "quantized_matmul", attrs: qmm("mxfp8", 8, 32, true),
			operands: []any{"i32[T,64]", "u32[512,16]", "u8[512,2]"}, err: "must be floating point, found i32"},
		{op: "quantized_matmul", attrs: qmm("affine", 4, 64, true),
			operands: []any{"bf16[3,T,128]", "u32[5,512,16]", "bf16[5,512,2]", "bf16[5,512,2]"},
			err:      "leading dims of x"},

		{op: "gather_qmm", attrs: gqmm(true), operands: []any{"bf16[T,1,1,128]", "u32[8,64,16]", "bf16[8,64,4]",
			"bf16[8,64,4]", nil, "u32[T,2]"}, want: "bf16[T,2,1,64]"},
		{op: "gather_qmm", attrs: gqmm(false), operands: []any{"bf16[T,1,64]", "u32[8,64,16]", "bf16[8,64,4]",
			"bf16[8,64,4]", nil, "u32[T]", 1}, want: "bf16[T,1,128]"},
		{op: "gather_qmm", attrs: gqmm(true), operands: []any{"bf16[T,128]", "u32[64,16]", "bf16[64,4]", "bf16[64,4]"},
			want: "bf16[T,64]"},
		{op: "gather_qmm", attrs: gqmm(true), operands: []any{"bf16[128]", "u32[8,64,16]", "bf16[8,64,4]",
			"bf16[8,64,4]", nil, "u32[T]"}, err: "x must have at least 2 dims"},
		{op: "gather_qmm", attrs: gqmm(true), operands: []any{"bf16[1,96]", "u32[64,16]", "bf16[64,4]", "bf16[64,4]"},
			err: "has rows of 96"},
		{op: "gather_qmm", attrs: &GatherQmmAttrs{},
			operands: []any{"bf16[1,96]", "u32[64,16]", "bf16[64,4]", "bf16[64,4]"}, err: "mode must be affine"},
		{op: "gather_qmm", attrs: gqmm(true), operands: []any{"bf16[1,128]", "u32[8,64,16]", "bf16[8,64,4]",
			"bf16[8,64,4]", nil, "bool[T]"}, err: "rhs_indices must be integers"},
	}
}

func TestInferConv(t *testing.T) { runInferCases(t, convCases()) }

func convCases() []inferCase {
	return []inferCase{
		{op: "conv1d", operands: []any{"bf16[1,T+3,64]", "bf16[32,4,64]"}, want: "bf16[1,T,32]"},
		{op: "conv1d", attrs: &Conv1DAttrs{1, 0, 1, 64}, operands: []any{"bf16[1,T+3,64]", "f32[64,4,1]"},
			want: "f32[1,T,64]"},
		{op: "conv1d", attrs: &Conv1DAttrs{2, 1, 3, 1}, operands: []any{"f32[B,10,8]", "f32[4,3,8]"},
			want: "f32[B,3,4]"},
		{op: "conv2d", attrs: &Conv2DAttrs{2, 1, 1, 0, 1, 2, 2}, operands: []any{"f32[1,9,T+4,8]", "f32[4,3,3,4]"},
			want: "f32[1,5,T,4]"},
		{op: "conv3d", operands: []any{"f32[1,4,5,6,2]", "f32[7,2,2,2,2]"}, want: "f32[1,3,4,5,7]"},
		{op: "conv_transpose1d", attrs: &ConvTranspose1DAttrs{2, 1, 1, 1, 1},
			operands: []any{"f32[1,T,8]", "f32[4,3,8]"}, want: "f32[1,2*T,4]"},
		{op: "conv_transpose2d", operands: []any{"f32[1,5,T,8]", "f32[4,3,2,8]"}, want: "f32[1,7,T+1,4]"},
		{op: "conv_transpose3d", attrs: &ConvTranspose3DAttrs{1, 2, 3, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1},
			operands: []any{"f32[1,2,2,2,8]", "f32[4,1,2,3,8]"}, want: "f32[1,2,4,8,4]"},
		{op: "conv1d", operands: []any{"i32[1,8,8]", "f32[4,3,8]"}, err: "x must be floating point, found i32"},
		{op: "conv1d", operands: []any{"f32[8,8]", "f32[4,3,8]"}, err: "x must have 3 dims, found f32[8,8]"},
		{op: "conv2d", operands: []any{"f32[1,8,8,8]", "f32[4,3,8]"}, err: "w must have 4 dims, found f32[4,3,8]"},
		{op: "conv1d", operands: []any{"f32[1,8,8]", "f32[4,3,7]"},
			err: "the channels of x f32[1,8,8] must be groups 1 times the last dim of w f32[4,3,7]"},
		{op: "conv1d", attrs: &Conv1DAttrs{1, 0, 1, 2}, operands: []any{"f32[1,8,8]", "f32[5,3,4]"},
			err: "groups 2 do not divide the output channels of w f32[5,3,4]"},
		{op: "conv1d", attrs: &Conv1DAttrs{1, 0, 1, 0}, operands: []any{"f32[1,8,8]", "f32[5,3,4]"},
			err: "groups must be at least 1, and 1 with 3 spatial dims, found 0"},
		{op: "conv3d", attrs: &Conv3DAttrs{1, 1, 1, 0, 0, 0, 1, 1, 1, 2},
			operands: []any{"f32[1,4,5,6,2]", "f32[6,2,2,2,1]"}, err: "found 2"},
		{op: "conv1d", attrs: &Conv1DAttrs{0, 0, 1, 1}, operands: []any{"f32[1,8,8]", "f32[5,3,8]"},
			err: "stride and dilation must be positive, found 0 and 1"},
		{op: "conv1d", attrs: &Conv1DAttrs{1, 0, -1, 1}, operands: []any{"f32[1,8,8]", "f32[5,3,8]"},
			err: "found 1 and -1"},
		{op: "conv1d", attrs: &Conv1DAttrs{1, math.MaxInt, 1, 1}, operands: []any{"f32[1,8,8]", "f32[5,3,8]"},
			err: "must fit 32 bits"},
		{op: "conv1d", operands: []any{"f32[1,2,8]", "f32[5,3,8]"},
			err: "spatial dim 0 of x f32[1,2,8] is too short for w f32[5,3,8] (result length 0)"},
		{op: "conv1d", operands: []any{"f32[1,M,8]", "f32[5,65,8]"}, err: "too short"},
		{op: "conv1d", operands: []any{"f32[1,M,8]", "f32[5,64,8]"}, want: "f32[1,M-63,5]"},
		{op: "conv_transpose1d", attrs: &ConvTranspose1DAttrs{1, 9, 1, 0, 1},
			operands: []any{"f32[1,4,8]", "f32[4,3,8]"}, err: "too short"},
	}
}
