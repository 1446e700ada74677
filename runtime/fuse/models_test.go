package fuse_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/ragged"
)

// fusedOps counts the operations that take time; groups of products count as one.
func fusedOps(m *ir.Module) map[string]int {
	n := map[string]int{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		switch name := op.Def.Name; name {
		case "linear", "linears":
			n["products"]++
		case "embedding", "top_k", "switch_mlp", "switch_geglu", "sample", "glu", "softcap", "delta_decay",
			"cached_attention", "buffer_ring_update",
			"buffer_slice_update", "buffer_conv", "buffer_delta_rule", "rms_norm", "rope", "softmax", "sigmoid":
			n[name]++
		case "if", "scan", "metal_kernel", "sdpa", "quantized_matmul", "addmm", "gather_mm", "gather_qmm", "sort",
			"argsort", "partition", "argpartition",
			"conv1d", "concatenate", "dequantize", "where", "store", "logaddexp", "exp", "silu", "gelu", "tanh",
			"gated_delta_rule", "random_bits":
			n["left: "+name]++
		}
	})
	return n
}

// TestModels: what the graphs are fused to does not depend on who wrote them, and nothing is left of what
// fused operations stand for.
func TestModels(t *testing.T) {
	qwen := map[string]int{"products": 17, "embedding": 1, "top_k": 4, "switch_mlp": 4, "glu": 12,
		"delta_decay": 3, "cached_attention": 1,
		"buffer_slice_update": 2, "buffer_conv": 3, "buffer_delta_rule": 3, "rms_norm": 20, "rope": 2,
		"softmax": 4, "sigmoid": 3}
	tiny := map[string]int{"products": 17, "embedding": 1, "top_k": 4, "switch_mlp": 4, "glu": 12,
		"delta_decay": 2, "cached_attention": 2,
		"buffer_slice_update": 4, "buffer_conv": 2, "buffer_delta_rule": 2, "rms_norm": 19, "rope": 4,
		"softmax": 4, "sigmoid": 2}
	gemma := map[string]int{"products": 25, "embedding": 1, "glu": 6, "softcap": 1, "cached_attention": 6,
		"buffer_ring_update":  10,
		"buffer_slice_update": 2, "rms_norm": 43, "rope": 12}
	for _, name := range fusetest.Names() {
		want := map[string]int{}
		for prefix, ops := range map[string]map[string]int{"qwen35moe-chat": qwen,
			"qwen35moe-tiny": tiny, "gemma4": gemma} {
			if strings.HasPrefix(strings.TrimPrefix(name, "etc-"), prefix) {
				for op, n := range ops {
					want[op] = n
				}
			}
		}
		if strings.Contains(name, "sample") {
			want["sample"] = 1
		}
		t.Run(name, func(t *testing.T) {
			m := fusetest.Load(t, name)
			before := text(t, m)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			require.Equal(t, want, fusedOps(fused))
			require.Equal(t, before, text(t, m), "the module was changed")
			require.Nil(t, fused.Init, "biases of symmetric codes need no init")
			again, err := fuse.Fuse(fused)
			require.NoError(t, err)
			require.Equal(t, want, fusedOps(again), "fusing twice changes nothing")
		})
	}
}

// TestNeighbours: graphs of the other families are fused to the same operations, with nothing left of what they stand
// for, and compute the same as before.
func TestNeighbours(t *testing.T) {
	tests := map[string]map[string]int{
		"qwen35-4w": {"products": 17, "glu": 8, "delta_decay": 3, "cached_attention": 1,
			"buffer_slice_update": 2, "buffer_conv": 3,
			"buffer_delta_rule": 3, "rms_norm": 20, "rope": 2, "sigmoid": 3},
		"qwen3next-4w": {"products": 17, "top_k": 4, "switch_mlp": 4, "softmax": 4, "glu": 12,
			"delta_decay": 3, "cached_attention": 1,
			"buffer_slice_update": 2, "buffer_conv": 3, "buffer_delta_rule": 3, "rms_norm": 20,
			"rope": 2, "sigmoid": 3},
		"qwen3moe-bf16": {"products": 13, "top_k": 4, "switch_mlp": 4, "softmax": 4, "cached_attention": 4,
			"buffer_slice_update": 8,
			"rms_norm":            17, "rope": 8},
		"qwen3-4w": {"products": 17, "glu": 4, "cached_attention": 4, "buffer_slice_update": 8,
			"rms_norm": 17, "rope": 8},
		"gemma4moe-4w": {"products": 31, "embedding": 7, "top_k": 6, "switch_geglu": 6, "softmax": 6,
			"glu": 6, "softcap": 1,
			"cached_attention": 6, "buffer_ring_update": 10, "buffer_slice_update": 2, "rms_norm": 67, "rope": 12},
		"gemma4e-bf16": {"products": 38, "embedding": 2, "glu": 12, "softcap": 1, "cached_attention": 6,
			"buffer_ring_update":  4,
			"buffer_slice_update": 2, "rms_norm": 44, "rope": 9},
		"gemma4unified-4w": {"products": 21, "glu": 5, "softcap": 1, "cached_attention": 5, "buffer_ring_update": 8,
			"buffer_slice_update": 2, "rms_norm": 36, "rope": 10},
		"museglimmer-4w": {"products": 21, "glu": 10, "softcap": 1, "cached_attention": 5, "buffer_ring_update": 6,
			"buffer_slice_update": 4, "rms_norm": 32, "rope": 6},
	}
	require.Len(t, tests, len(fusetest.Neighbours()))
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if want["sample"] = 1; want["embedding"] == 0 {
				want["embedding"] = 1
			}
			m := fusetest.Load(t, "neighbours/"+name)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			require.Equal(t, want, fusedOps(fused))
			again, err := fuse.Fuse(fused)
			require.NoError(t, err)
			require.Equal(t, want, fusedOps(again), "fusing twice changes nothing")
			requireAgree(t, m, fused, eval.FP32, 5, 1, 16, 9, 1)
		})
	}
}

// TestOtherDeltaKernels: a kernel whose template arguments are of other kinds than those of the one that is known stays
// as it is, and the reference engine says what is wrong with it.
func TestOtherDeltaKernels(t *testing.T) {
	m := fusetest.Load(t, "qwen35moe-tiny-bf16")
	kernels := 0
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == "metal_kernel" {
			a := *ir.Attrs[ir.MetalKernelAttrs](op)
			a.TemplateArgKinds = slices.Clone(a.TemplateArgKinds)
			a.TemplateArgKinds[len(a.TemplateArgKinds)-1] = 2
			op.Attrs = &a
			kernels++
		}
	})
	require.NotZero(t, kernels)
	fused, err := fuse.Fuse(m)
	require.NoError(t, err)
	left := 0
	fused.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == "metal_kernel" {
			left++
		}
	})
	require.Equal(t, kernels, left)
}

// requireAgree runs a graph as it is and fused, in calls of the given numbers of tokens.
func requireAgree(t *testing.T, m, fused *ir.Module, p eval.Precision, calls ...int) {
	t.Helper()
	a, err := eval.NewMachine(m, p, nil)
	require.NoError(t, err)
	b, err := eval.NewMachine(fused, p, nil)
	require.NoError(t, err)
	position := 0
	for _, n := range calls {
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
}

func text(t *testing.T, m *ir.Module) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, ir.Print(&b, m))
	return b.String()
}

// TestModelsAgree runs every graph as it is and fused, in chunks and single tokens, over more positions than
// the windows are long.
func TestModelsAgree(t *testing.T) {
	for _, name := range fusetest.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			for _, p := range []eval.Precision{eval.FP32, eval.Mixed} {
				requireAgree(t, m, fused, p, 5, 1, 60, 33, 1)
			}
		})
	}
}

func requireClose(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		if d := math.Abs(float64(w) - float64(got[i])); !(d <= 1e-5*max(1, math.Abs(float64(w)))) {
			require.Fail(t, "not close", "element %d is %g, want %g", i, got[i], w)
		}
	}
}

// TestEveryPassDoesSomething: no row of the table is there in vain.
func TestEveryPassDoesSomething(t *testing.T) {
	changed := map[string]bool{}
	for _, name := range fusetest.Names() {
		m := fusetest.Load(t, name)
		before := text(t, m)
		note := func(pass string, m *ir.Module) error {
			after := text(t, m)
			changed[pass] = changed[pass] || after != before
			before = after
			return nil
		}
		_, err := fuse.Trace(m, note)
		require.NoError(t, err)
		if before = text(t, m); name == fusetest.Names()[0] {
			_, _, err = fuse.Ragged(m, ragged.Options{}, fewRows, passes.Control{After: note, Verify: true})
			require.NoError(t, err)
			before = text(t, m)
			_, _, err = fuse.Lengthened(m, fuse.LongCalls{Rows: 1 << 20, Room: 1 << 40}, passes.Control{After: note})
			require.NoError(t, err)
		}
	}
	for _, p := range fuse.Table {
		require.True(t, changed[p.Name], "pass %s changes nothing", p.Name)
	}
}
