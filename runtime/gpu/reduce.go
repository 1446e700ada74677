package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// reductions are the operations that reduce rows, with what the kernel computes for each.
var reductions = map[string]kernels.Reduction{"sum": kernels.SumOf, "mean": kernels.MeanOf,
	"max": kernels.MaxOf, "min": kernels.MinOf,
	"argmax": kernels.ArgMaxOf, "argmin": kernels.ArgMinOf}

// bindReduce binds a reduction of floats over axes.
func bindReduce(b *binder) bool { return b.reduce(ir.Attrs[ir.ReduceAttrs](b.Op).Axes) }

// bindArgReduce binds the index of the largest or smallest float along an axis.
func bindArgReduce(b *binder) bool { return b.reduce([]int{ir.Attrs[ir.ArgReduceAttrs](b.Op).Axis}) }

func (b *binder) reduce(axes []int) bool {
	x := b.floats("x")
	if x == nil {
		return false
	}
	if x = b.rowsOver(x, axes); x == nil {
		return false
	}
	g, _ := x.grid()
	k := kernels.Reduce{Kind: reductions[b.Op.Def.Name], N: g.Width, Heads: g.Rows, X: g.Strides}
	l, err := k.Launch(g.Tokens)
	out := b.result(0, nil)
	if out == nil {
		return false
	}
	if out.format == i32 {
		out.below = g.Width
	}
	return b.launch("reduce", l, err, kernels.ReduceArguments[operand]{X: bytesOf(x), Out: bytesOf(out),
		Step: b.stepAt(g.Tokens, nil)})
}

// rowsOver returns x as rows that run over axes (over all axes if the list is empty). Where x does not have such a
// layout, it is copied. It returns nil where no kernel can copy it.
func (b *binder) rowsOver(x *value, axes []int) *value {
	over := make([]bool, len(x.shape))
	for _, a := range axes {
		if a < 0 {
			a += len(over)
		}
		over[a] = true
	}
	kept, gone := *x, value{}
	kept.shape, kept.stride = nil, nil
	for i, d := range x.shape {
		to := &kept
		if len(axes) == 0 || over[i] {
			to = &gone
		}
		to.shape, to.stride = append(to.shape, d), append(to.stride, x.stride[i])
	}
	rows := append(slices.Clone(kept.shape), strided.Elements(gone.shape))
	kept.shape, kept.stride = append(kept.shape, gone.shape...), append(kept.stride, gone.stride...)
	seen := kept
	if stride, ok := strided.Reshape(kept.shape, kept.stride, rows); ok {
		seen.shape, seen.stride = rows, stride
		if _, ok := seen.grid(); ok {
			return &seen
		}
	}
	n := b.copied(&kept)
	if n != nil {
		n.shape, n.stride = rows, strided.RowMajor(rows)
	}
	return n
}
