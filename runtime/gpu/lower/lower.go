package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Target is what the rows ask of the device and of the call. One is made for each plan.
type Target struct {
	// Machine is what is known of the device.
	Machine kernels.Machine
	// Precision is eval.FP32 or eval.Mixed.
	Precision eval.Precision
	// Exact says that products take their inputs as they are, also in precision mixed.
	Exact bool
	// Refuses reports whether a kernel must not be used: its self-test failed on this device. Nil refuses none.
	Refuses func(kernels.Launch) bool
	// Library reports whether the device's library has the product of rows × k numbers in bf16 with n rows of k. Nil stands
	// for a device without one.
	Library func(rows, n, k int) bool

	layouts map[*ir.Value]Layout
}

// Table is the rows of a GPU, in the order in which they run.
var Table = passes.Ordered(
	passes.Row[*Target]{Name: "rope", Run: rope},
	passes.Row[*Target]{Name: "rope-write", Run: ropeWrites, After: []passes.Order{
		{Pass: "rope", Because: "queries and keys are rotated by the same table"},
	}},
	passes.Row[*Target]{Name: "attention", Run: attention, After: []passes.Order{
		{Pass: "rope-write", Because: "it looks for attention over what was written"},
	}},
	passes.Row[*Target]{Name: "attention-gate", Run: attentionGates, After: []passes.Order{
		{Pass: "attention", Because: "the kernel of attention ends with the gate"},
	}},
	passes.Row[*Target]{Name: "attention-step", Run: attentionStep, After: []passes.Order{
		{Pass: "attention-gate", Because: "its kernel ends with the gate, too"},
	}},
	passes.Row[*Target]{Name: "insert-copies", Run: insertCopies, After: []passes.Order{
		{Pass: "rope", Because: "rotated heads lie token by token"},
		{Pass: "attention-gate", Because: "its output lies token by token without a gate, and else does not"},
	}},
	passes.Row[*Target]{Name: "router", Run: routers, After: []passes.Order{
		{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
	}},
	passes.Row[*Target]{Name: "experts", Run: mixturesOfExperts, After: []passes.Order{
		{Pass: "router", Because: "the kernel of few tokens chooses the experts"},
	}},
	passes.Row[*Target]{Name: "delta-gates", Run: deltaGates, After: []passes.Order{
		{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
	}},
	passes.Row[*Target]{Name: "delta-rule", Run: deltaRules, After: []passes.Order{
		{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
		{Pass: "delta-gates", Because: "that looks for the rules that gates are of"},
	}},
	passes.Row[*Target]{Name: "sums", Run: sumsOfBlocks, After: []passes.Order{
		{Pass: "insert-copies", Because: "it reads layouts, which copies change"},
		{Pass: "rope", Because: "kernels of heads do their normalization themselves"},
		{Pass: "delta-rule", Because: "its kernel does the normalization of queries and keys itself"},
		{Pass: "experts", Because: "sums of their result are a part of them"},
	}},
	passes.Row[*Target]{Name: "gated-norms", Run: gatedNorms, After: []passes.Order{
		{Pass: "sums", Because: "the normalization of a sum is a part of the sum"},
	}},
	passes.Row[*Target]{Name: "convolved-products", Run: convolvedProducts, After: []passes.Order{
		{Pass: "sums", Because: "products do a normalization themselves that is none of a sum"},
		{Pass: "gated-norms", Because: "it looks for gates, of which these have one"},
	}},
	passes.Row[*Target]{Name: "pairs-of-products", Run: pairsOfProducts, After: []passes.Order{
		{Pass: "convolved-products", Because: "a convolution takes the products of the same row along"},
	}},
	passes.Row[*Target]{Name: "products", Run: products, After: []passes.Order{
		{Pass: "pairs-of-products", Because: "it takes all products that are left"},
		{Pass: "sums", Because: "a product does a normalization itself that is none of a sum"},
	}},
	passes.Row[*Target]{Name: "rows-of-experts", Run: rowsOfExperts, After: []passes.Order{
		{Pass: "experts", Because: "it extends these"},
		{Pass: "products", Because: "rows that products have prepared are there for experts, too"},
	}},
	passes.Row[*Target]{Name: "products-of-heads", Run: productsOfHeads, After: []passes.Order{
		{Pass: "products", Because: "it extends matvec"},
		{Pass: "gated-norms", Because: "it takes those of heads"},
		{Pass: "convolved-products", Because: "these may have the gate after its activation"},
	}},
	passes.Row[*Target]{Name: "products-of-sums", Run: productsOfSums, After: []passes.Order{
		{Pass: "products", Because: "it extends matvec and matvec_glu"},
		{Pass: "sums", Because: "it takes add_norm"},
	}},
)

// Run gives m, which runtime/fuse has fused, for inputs of these shapes (nil for an int), in the operations of the target.
func Run(m *ir.Module, shapes [][]int, t *Target, c passes.Control) (*ir.Module, error) {
	sizes := bind.SizesOf(m.Entry.Params, shapes)
	m = m.Specialize(func(s *ir.Symbol) (int64, bool) { n, ok := sizes[s]; return n, ok })
	if c.After != nil {
		if err := c.After(engine.BindShapes, m); err != nil {
			return nil, err
		}
	}
	t.layouts = map[*ir.Value]Layout{}
	return m, Table.Run(m, t, c)
}

// Allowed passes a launch on, unless its kernel must not be used or err says that there is none.
func (t *Target) Allowed(l kernels.Launch, err error) bool {
	return err == nil && (t.Refuses == nil || !t.Refuses(l))
}

// rewrite replaces, in order, every operation of that name for which f gives the values that stand for its results.
func rewrite(m *ir.Module, name string, f func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool)) error {
	return ir.Build(func() {
		passes.Rewrite(m, m.Entry.Body, func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			if op.Def.Name != name {
				return nil, false
			}
			return f(b, op)
		})
	})
}
