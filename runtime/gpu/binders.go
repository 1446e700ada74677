package gpu

import "github.com/etc-ml/etc/runtime/gpu/kernels"

// kernelBinders bind operations to kernels: they make the results' values and steps. They give false where the
// arguments are not what the kernels take.
var kernelBinders map[string]func(b *binder) bool

func init() {
	kernelBinders = map[string]func(*binder) bool{
		"load": bindLoad, "copy": bindCopy, "delta_gates": bindDeltaGates, "buffer_slice_update": bindCacheWrite, "buffer_ring_update": bindCacheWrite,
		"linear": bindLinear, "linears": bindLinears, "embedding": bindEmbedding,
		"rms_norm": bindNorm, "rope_angles": bindRopeAngles, "rope_heads": bindRopeHeads, "rope_write": bindRopeWrite, "glu": bindGLU, "softcap": bindSoftcap,
		"sigmoid": bindUnary, "add": bindAdd, "multiply": bindMultiply,
		"attention": bindAttention, "attention_step": bindAttentionStep, "buffer_conv": bindConv, "delta_step": bindDeltaStep, "delta_chunks": bindDeltaChunks, "delta_decay": bindDecay,
		"switch_mlp": bindSwitchMLP, "top_k": bindTopK, "softmax": bindSoftmax, "sample": bindSample,
		"take": bindTake, "gather": bindGather, "argmax": bindArgReduce, "argmin": bindArgReduce,
		"sum": bindReduce, "mean": bindReduce, "max": bindReduce, "min": bindReduce,
	}
	for _, name := range []string{"neg", "abs", "square", "sign", "floor", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "silu", "gelu"} {
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
