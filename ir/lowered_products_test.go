package ir

import "testing"

func TestInferLoweredProducts(t *testing.T) { runInferCases(t, loweredProductsCases()) }

func loweredProductsCases() []inferCase {
	x, w, norm := "bf16[1,T,64]", "quantized<4,32,bf16>[8,64]", "f32[64]"
	sum := []any{x, x, norm}
	return []inferCase{
		{op: "gated_norm", attrs: &GatedNormAttrs{Eps: 1e-6, Activation: "silu"},
			operands: []any{"bf16[1,3,4,16]", "f32[16]", "bf16[1,3,64]"}, want: "f32[1,3,64]"},
		{op: "gated_norm", attrs: &GatedNormAttrs{Eps: 1e-6, Activation: "silu"},
			operands: []any{"bf16[1,3,4,16]", nil, "bf16[1,3,65]"}, err: "65"},
		{op: "gated_norm", attrs: &GatedNormAttrs{Activation: "tanh"},
			operands: []any{"bf16[1,3,64]", nil, "bf16[1,3,64]"}, err: `activation "tanh"`},
		{op: "residual_add", operands: []any{x, x}, want: x},
		{op: "residual_add", operands: []any{x, x, norm, "f32[]"}, want: "f32[1,T,64]"},
		{op: "residual_add", operands: []any{x, x, "f32[63]"}, err: "weight f32[63]"},
		{op: "add_norm", operands: []any{x, x}, want: x},
		{op: "add_norm", attrs: &AddNormAttrs{Kept: true}, operands: []any{x, x, nil, nil, norm},
			want: "f32[1,T,64] bf16[1,T,64]"},
		{op: "matvec", operands: []any{x, []any{w}}, want: "bf16[1,T,8]"},
		{op: "matvec", attrs: &MatvecAttrs{Norm: true, Eps: 1e-6}, operands: []any{x, []any{w, "bf16[5,64]"}, norm},
			want: "f32[1,T,8] f32[1,T,5]"},
		{op: "matvec", operands: []any{x, []any{w}, nil, "bf16[8]"}, want: "bf16[1,T,8]"},
		{op: "matvec", attrs: &MatvecAttrs{Cap: 30}, operands: []any{x, []any{w}}, want: "f32[1,T,8]"},
		{op: "matvec", operands: []any{x, []any{"bf16[8,63]"}}, err: "63"},
		{op: "matvec_glu", attrs: &MatvecGLUAttrs{Activation: "silu"}, operands: []any{x, w, w}, want: "bf16[1,T,8]"},
		{op: "matvec_glu", attrs: &MatvecGLUAttrs{Activation: "silu"}, operands: []any{x, w}, want: "bf16[1,T,4]"},
		{op: "matvec_heads", attrs: &MatvecHeadsAttrs{Head: 16, Activation: "silu"},
			operands: []any{"bf16[1,1,64]", w, "f32[16]", "bf16[1,1,4,16]"}, want: "f32[1,1,8]"},
		{op: "matvec_heads", attrs: &MatvecHeadsAttrs{Head: 16},
			operands: []any{"bf16[1,1,64]", w, nil, "bf16[64]", "bf16[1,1,8]"}, want: "bf16[1,1,8]"},
		{op: "matvec_sum", attrs: &MatvecSumAttrs{Kept: true}, operands: append(sum[:3:3], nil, norm, w),
			want: "f32[1,T,8] f32[1,T,64]"},
		{op: "matvec_glu_sum", attrs: &MatvecSumAttrs{Activation: "gelu"},
			operands: append(sum[:3:3], "f32[1]", nil, w, w), want: "f32[1,T,8]"},
		{op: "prepare", attrs: &PrepareAttrs{Norm: true}, operands: []any{x, norm}, want: "f32[1,T,64]"},
		{op: "prepare", operands: []any{x}, want: x},
		{op: "matmul", operands: []any{x, w, nil, "bf16[1,T,8]"}, want: "bf16[1,T,8]"},
		{op: "matmul_glu", attrs: &MatmulGLUAttrs{Activation: "silu"}, operands: []any{x, w}, want: "bf16[1,T,4]"},
		{op: "dense_weight", operands: []any{"f32[8,64]"}, want: "bf16[8,64]"},
		{op: "dense_weight", operands: []any{w}, err: "want one that an operation quantized gives"},
		{op: "library_product", operands: []any{x, "bf16[8,64]"}, want: "bf16[1,T,8]"},
	}
}
