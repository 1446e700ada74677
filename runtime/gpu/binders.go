package gpu

import "github.com/etc-ml/etc/runtime/gpu/kernels"

// kernelBinders has, for each operation with a kernel, the function that adds the kernel's steps to the plan and makes
// the values of its results. A function returns false where the operands are not what the kernel takes.
var kernelBinders map[string]func(b *binder) bool

func init() {
	kernelBinders = map[string]func(*binder) bool{
		"load": bindLoad, "copy": bindCopy, "concatenate": bindConcatenate, "delta_gates": bindDeltaGates,
		"buffer_slice_update": bindCacheWrite, "buffer_ring_update": bindCacheWrite,
		"embedding": bindEmbedding,
		"rms_norm":  bindNorm, "rope_angles": bindRopeAngles, "rope_heads": bindRopeHeads, "rope_write": bindRopeWrite,
		"glu": bindGLU, "softcap": bindSoftcap,
		"sigmoid": bindUnary, "add": bindAdd, "multiply": bindBinary,
		"attention": bindAttention, "attention_step": bindAttentionStep, "buffer_conv": bindConv,
		"delta_step": bindDeltaStep, "delta_chunks": bindDeltaChunks, "delta_decay": bindDecay,
		"router": bindRouter, "experts": bindExperts, "routed_experts": bindRoutedExperts,
		"sorted_experts": bindSortedExperts, "gated_add": bindGatedAdd, "top_k": bindTopK,
		"softmax": bindSoftmax, "sample": bindSample,
		"adjust_logits": bindAdjust, "draw": bindDraw, "fill_drafts": bindFillDrafts, "logprobs": bindLogprobs,
		"take": bindTake, "gather": bindGather, "argmax": bindArgReduce, "argmin": bindArgReduce,
		"gated_norm": bindGatedNorm, "residual_add": bindResidualAdd, "add_norm": bindAddNorm,
		"matvec": bindMatvec, "matvec_conv": bindMatvecConv, "matvec_glu": bindMatvecGLU,
		"matvec_heads": bindMatvecHeads,
		"matvec_sum":   bindMatvecSum, "matvec_glu_sum": bindMatvecGLUSum,
		"prepare": bindPrepare, "matmul": bindMatmul, "matmul_glu": bindMatmulGLU, "dense_weight": bindDenseWeight,
		"library_product": bindLibraryProduct,
		"rope_row_angles": bindRopeRowAngles, "block_write": bindBlockWrite, "rope_rows_write": bindRopeRowsWrite,
		"rows_attention": bindRowsAttention, "rows_attention_step": bindRowsAttentionStep,
		"slot_conv": bindSlotConv, "slot_delta_step": bindSlotDeltaStep, "slot_delta_chunks": bindSlotDeltaChunks,
		"unit_copy": bindUnitCopy,
		"sum":       bindReduce, "mean": bindReduce, "max": bindReduce, "min": bindReduce,
	}
	for _, name := range []string{"neg", "abs", "square", "sign", "floor", "exp", "log", "sqrt", "rsqrt", "reciprocal",
		"sin", "cos", "tanh", "erf", "silu", "gelu"} {
		if kernels.Arity(name) == 1 {
			kernelBinders[name] = bindUnary
		}
	}
	for _, name := range []string{"subtract", "maximum", "minimum", "divide", "power", "logaddexp"} {
		if kernels.Arity(name) == 2 {
			kernelBinders[name] = bindBinary
		}
	}
}
