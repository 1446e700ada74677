package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
)

// Target has the properties of the device and the call that passes ask for. There is one for each plan.
type Target struct {
	// Machine describes the device.
	Machine kernels.Machine
	// Precision is eval.FP32 or eval.Mixed.
	Precision eval.Precision
	// Exact says that products do not round their inputs, also in precision mixed.
	Exact bool
	// Refuses reports whether a kernel must not be used because its self-test failed on this device. Nil refuses none.
	Refuses func(kernels.Launch) bool
	// Library reports whether the device has, in a library, the bf16 product of [rows, k] with the transpose of [n, k].
	// Nil stands for a device without such a library.
	Library func(rows, n, k int) bool

	answers map[any]bool
}

// Table has the passes of a GPU, in the order in which they run.
var Table = passes.Ordered(
	passes.Row[*graph]{Name: "rows-taken-late", Run: row(takenLate)},
	passes.Row[*graph]{Name: "rope", Run: row(rope), After: []passes.Order{
		{Pass: "rows-taken-late", Because: "the rotation of queries that are not taken yet is merged with that of keys"},
	}},
	passes.Row[*graph]{Name: "rope-write", Run: row(ropeWrites), After: []passes.Order{
		{Pass: "rope", Because: "queries and keys are rotated by the same table"},
	}},
	passes.Row[*graph]{Name: "attention", Run: row(attention), After: []passes.Order{
		{Pass: "rope-write", Because: "it looks for attention over what was written"},
	}},
	passes.Row[*graph]{Name: "rows-attention", Run: row(rowsAttention), After: []passes.Order{
		{Pass: "rope-write", Because: "that looks for attention over what was written"},
	}},
	passes.Row[*graph]{Name: "attention-gate", Run: each((*graph).attentionGate, "glu"), After: []passes.Order{
		{Pass: "attention", Because: "the kernel of attention ends with the gate"},
		{Pass: "rows-attention", Because: "so does that of attention over blocks"},
	}},
	passes.Row[*graph]{Name: "attention-step", Run: each((*graph).attentionStep, "attention", "rows_attention"),
		After: []passes.Order{
			{Pass: "attention-gate", Because: "its kernel ends with the gate, too"},
		}},
	passes.Row[*graph]{Name: "insert-copies", Run: each((*graph).insertCopy, "reshape"), After: []passes.Order{
		{Pass: "rope", Because: "rotated heads lie token by token"},
		{Pass: "attention-gate", Because: "its output lies token by token without a gate, and else does not"},
	}},
	passes.Row[*graph]{Name: "router", Run: each((*graph).router, "softmax"), After: []passes.Order{
		{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
	}},
	passes.Row[*graph]{Name: "experts", Run: row(mixturesOfExperts), After: []passes.Order{
		{Pass: "router", Because: "the kernel of few tokens chooses the experts"},
	}},
	passes.Row[*graph]{Name: "delta-gates", Run: each((*graph).deltaGates, "buffer_delta_rule", "slot_delta_rule"),
		After: []passes.Order{
			{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
		}},
	passes.Row[*graph]{Name: "delta-rule", Run: each((*graph).deltaRule, "buffer_delta_rule", "slot_delta_rule"),
		After: []passes.Order{
			{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
			{Pass: "delta-gates", Because: "that looks for the rules that gates are of"},
		}},
	passes.Row[*graph]{Name: "sums", Run: each((*graph).sums, "add", "multiply", "rms_norm"), After: []passes.Order{
		{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
		{Pass: "rope", Because: "kernels of heads do their normalization themselves"},
		{Pass: "delta-rule", Because: "its kernel does the normalization of queries and keys itself"},
		{Pass: "experts", Because: "sums of their result are a part of them"},
	}},
	passes.Row[*graph]{Name: "gated-norms", Run: each((*graph).gatedNorm, "glu"), After: []passes.Order{
		{Pass: "sums", Because: "the normalization of a sum is a part of the sum"},
	}},
	passes.Row[*graph]{Name: "convolved-products", Run: each((*graph).convolved, "buffer_conv", "slot_conv"),
		After: []passes.Order{
			{Pass: "sums", Because: "products do a normalization themselves that is none of a sum"},
			{Pass: "gated-norms", Because: "it looks for gates, of which these have one"},
		}},
	passes.Row[*graph]{Name: "pairs-of-products", Run: each((*graph).pair, "glu"), After: []passes.Order{
		{Pass: "convolved-products", Because: "a convolution takes the products of the same row along"},
	}},
	passes.Row[*graph]{Name: "products", Run: row(products), After: []passes.Order{
		{Pass: "pairs-of-products", Because: "it takes all products that are left"},
		{Pass: "sums", Because: "a product does a normalization itself that is none of a sum"},
	}},
	passes.Row[*graph]{Name: "rows-of-experts", Run: each((*graph).rowsOfExperts, "experts", "routed_experts",
		"sorted_experts"), After: []passes.Order{
		{Pass: "experts", Because: "it extends these"},
		{Pass: "products", Because: "rows that products have prepared are there for experts, too"},
	}},
	passes.Row[*graph]{Name: "rounded-rows", Run: each((*graph).roundedBefore, "prepare"), After: []passes.Order{
		{Pass: "products", Because: "it looks for the rows that these have prepared"},
		{Pass: "rows-of-experts", Because: "and these"},
	}},
	passes.Row[*graph]{Name: "products-of-heads", Run: each((*graph).ofHeads, "matvec"), After: []passes.Order{
		{Pass: "products", Because: "it extends matvec"},
		{Pass: "gated-norms", Because: "it takes those of heads"},
		{Pass: "convolved-products", Because: "these may have the gate after its activation"},
	}},
	passes.Row[*graph]{Name: "products-of-sums", Run: each((*graph).ofSum, "matvec", "matvec_glu"),
		After: []passes.Order{
			{Pass: "products", Because: "it extends matvec and matvec_glu"},
			{Pass: "sums", Because: "it takes add_norm"},
		}},
)

// Run lowers m to the operations of the target, for inputs of these shapes (nil for an int). runtime/fuse must have
// fused m.
func Run(m *ir.Module, shapes [][]int, t *Target, c passes.Control) (*ir.Module, error) {
	sizes := plan.SizesOf(m.Entry.Params, shapes)
	m = m.Specialize(func(s *ir.Symbol) (int64, bool) { n, ok := sizes[s]; return n, ok })
	if c.After != nil {
		if err := c.After(engine.BindShapes, m); err != nil {
			return nil, err
		}
	}
	return m, Table.Run(m, newGraph(m, t), c)
}

// Allowed reports whether a launch may be used. It may not if err is set, or if its self-test failed.
func (t *Target) Allowed(l kernels.Launch, err error) bool {
	return err == nil && (t.Refuses == nil || !t.Refuses(l))
}

// question identifies a query whether the device has a kernel for this number of rows.
type question[K comparable] struct {
	what   string
	kernel K
	rows   int
}

// ask returns the answer to a query and computes it only once: the layers of a model need the same kernels.
func ask[K comparable](t *Target, what string, kernel K, rows int, answer func() bool) bool {
	q := question[K]{what, kernel, rows}
	yes, known := t.answers[q]
	if !known {
		if t.answers == nil {
			t.answers = map[any]bool{}
		}
		yes = answer()
		t.answers[q] = yes
	}
	return yes
}

// usable reports whether one of the first MaxRefused variants of a kernel may be used.
func usable[W any](t *Target, variants []W, launch func(W) (kernels.Launch, error)) bool {
	for _, w := range variants[:min(len(variants), MaxRefused)] {
		l, err := launch(w)
		if err != nil {
			return false
		}
		if t.Allowed(l, nil) {
			return true
		}
	}
	return false
}
