package fuse_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// TestNearMisses changes one operation of a graph so that it computes something else. The pattern there
// must not match any more, others still do, and the fused graph computes what the changed one does.
func TestNearMisses(t *testing.T) {
	const (
		gemma    = "etc-gemma4-chat-sample"
		qwen     = "etc-qwen35moe-chat-sample"
		portable = "etc-qwen35moe-chat-portable"
		exported = "qwen35moe-chat-4w-g64-sample"
		ring     = "gemma4-chat-int4-g64-sample-ropefix"
	)
	for _, c := range []struct {
		what, graph, old, by string
		op                   string
		lost                 int
	}{
		{"a window that ends one earlier", gemma, "%41 = less(a=%39", "%41 = less_equal(a=%39", "cached_attention", 5},
		{"a window that begins one later", gemma, "%40 = greater_equal(a=%39", "%40 = greater(a=%39",
			"cached_attention", 5},
		{"another age of slots", gemma, "%34 = less(a=%32", "%34 = less_equal(a=%32", "cached_attention", 5},
		{"queries in another order", gemma, "%39 = subtract(a=%35, b=%38)", "%39 = add(a=%35, b=%38)",
			"cached_attention", 5},
		{"attention that is not causal", gemma, "{scale=1.0, causal=true}", "{scale=1.0}", "cached_attention", 1},
		{"another function than tanh", gemma, "%256 = tanh", "%256 = sigmoid", "softcap", 1},
		{"slots of the round before", ring, "%53 = less_equal(a=%41", "%53 = less(a=%41", "cached_attention", 5},
		{"slots that are not written are seen", ring, "%63 = bitwise_and(a=%61, b=%62)",
			"%63 = bitwise_and(a=%62, b=%62)", "cached_attention", 5},
		{"another decay", qwen, "%32 = exp(x=%31)", "%32 = expm1(x=%31)", "delta_decay", 1},
		{"another activation in one arm", qwen, "%70 = silu(x=%68)", "%70 = tanh(x=%68)", "switch_mlp", 1},
		{"gelu in one arm", qwen, "%70 = silu(x=%68)", `%70 = gelu(x=%68) {approximate="tanh"}`, "switch_mlp", 1},
		{"a sum of gate and up in one arm", qwen, "%79 = multiply(a=%78, b=%77)",
			"%79 = add(a=%78, b=%77)", "switch_mlp", 1},
		{"scores that are added", qwen, "%84 = multiply(a=%58, b=%83)", "%84 = add(a=%58, b=%83)", "switch_mlp", 1},
		{"rows in the order of the experts", qwen, "%73 = take(x=%72, index=%61)", "%73 = take(x=%72, index=%60)",
			"switch_mlp", 1},
		{"a state that is kept instead of reset", qwen, "%14 = where(condition=%12, x=@scalar.bf16.0, y=%13)",
			"%14 = where(condition=%12, x=%13, y=@scalar.bf16.0)", "buffer_conv", 1},
		{"top-k from zero on", qwen, "%369 = greater(a=%top_k", "%369 = greater_equal(a=%top_k", "sample", 1},
		{"noise without a bound", qwen, "%405 = minimum(", "%405 = maximum(", "sample", 1},
		{"another order of filters", qwen, "%394 = subtract(a=%393, b=%392)", "%394 = add(a=%393, b=%392)", "sample",
			1},
		{"a state that grows", portable, "%60 = add(a=%51, b=%59)", "%60 = subtract(a=%51, b=%59)",
			"buffer_delta_rule", 1},
		{"a delta of the sum", portable, "%55 = subtract(a=%45, b=%54)", "%55 = add(a=%45, b=%54)",
			"buffer_delta_rule", 1},
		{"a partition of the other end", exported, "%66 = partition(x=%65, kth=-4)", "%66 = partition(x=%65, kth=-5)",
			"", 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			whole, err := fuse.Fuse(fusetest.Load(t, c.graph))
			require.NoError(t, err)
			m := fusetest.LoadEdited(t, c.graph, c.old, c.by)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			before, after := fusedOps(whole), fusedOps(fused)
			require.Equal(t, c.lost, before[c.op]-after[c.op], "%s: %v", c.op, after)
			require.NotEqual(t, before, after)
			a, err := eval.NewMachine(m, eval.FP32, nil)
			require.NoError(t, err)
			b, err := eval.NewMachine(fused, eval.FP32, nil)
			require.NoError(t, err)
			position := 0
			for _, n := range []int{20, 1, 60} {
				in := fusetest.Inputs(m, position, n)
				want, err := a.Run(in)
				require.NoError(t, err)
				got, err := b.Run(in)
				require.NoError(t, err)
				require.Equal(t, want[0].Tensor.I, got[0].Tensor.I)
				requireClose(t, want[0].Tensor.F, got[0].Tensor.F)
				position += n
			}
			for i, buffer := range m.Buffers {
				requireClose(t, a.Buffer(buffer).F, b.Buffer(fused.Buffers[i]).F)
			}
		})
	}
}
