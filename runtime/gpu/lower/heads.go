package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// Heads describes a view [1, H, T, D] as the heads of tokens.
type Heads struct {
	Heads, Tokens, Width int
	Strides              kernels.Rows
}

// HeadsOf returns the description of a view. It returns false where the elements of a head are not contiguous.
func HeadsOf(v plan.View) (h Heads, ok bool) {
	if len(v.Shape) != 4 || v.Shape[0] != 1 || v.Shape[3] > 1 && v.Strides[3] != 1 {
		return h, false
	}
	return Heads{v.Shape[1], v.Shape[2], v.Shape[3], kernels.Rows{Token: v.Strides[2], Row: v.Strides[1]}}, true
}

// Views returns the view (offset, shape, strides) of a value in the memory that it lies in.
type Views func(v *ir.Value) plan.View

// views returns the view that the layouts of the graph give.
func (g *graph) views(v *ir.Value) plan.View {
	l, _ := g.Layout(v)
	return l.View
}

// CacheType returns the dtype in which a buffer of keys or values is stored. It returns false where the buffer does not
// lie on the device.
func CacheType(b *ir.Buffer, p eval.Precision) (kernels.DType, bool) {
	switch d := b.Type.DType; {
	case d == ir.U32 && b.Type.Rank() == 4: // rows of codes of 8 bits, which only operations on blocks read and write
		return kernels.U32, true
	case !d.IsFloat() || p == eval.Mixed && d != ir.BF16 && d != ir.F32:
		return kernels.None, false
	case d == ir.BF16 && p == eval.Mixed:
		return kernels.BF16, true
	}
	return kernels.F32, true
}

// headNorm returns the field for a kernel's norm of heads: none, without a weight, or with a weight.
func headNorm(asked bool, weight *ir.Value) kernels.HeadNorm {
	switch {
	case !asked:
		return kernels.NoHeadNorm
	case weight == nil:
		return kernels.PlainHeadNorm
	}
	return kernels.WeightedHeadNorm
}

// RopeHeads returns the kernel of rope_heads, and the number of tokens.
func RopeHeads(op *ir.Op, view Views) (r kernels.Rope, tokens int, ok bool) {
	attrs := ir.Attrs[ir.RopeHeadsAttrs](op)
	h, ok := HeadsOf(view(op.Input("x")))
	if !ok {
		return r, 0, false
	}
	r = kernels.Rope{D: h.Width, Dims: 2 * view(op.Input("angles")).Shape[1], Traditional: attrs.Traditional,
		QHeads: h.Heads, Q: h.Strides, Eps: attrs.Eps}
	if r.QNorm = headNorm(attrs.Norm, op.Input("weight")); r.QNorm == kernels.WeightedHeadNorm {
		r.Weight = kernels.F32
	}
	return r, h.Tokens, true
}

// RopeWrite returns the kernel of rope_write, or of that part of attention_step, and the number of tokens. cache is the
// dtype of the caches.
func RopeWrite(op *ir.Op, view Views, cache kernels.DType) (r kernels.Rope, tokens int, ok bool) {
	q, ok := HeadsOf(view(op.Input("q")))
	k, ok2 := HeadsOf(view(op.Input("k")))
	v, ok3 := HeadsOf(view(op.Input("v")))
	slots, known := op.Buffer.Type.Static()
	if !ok || !ok2 || !ok3 || !known || len(slots) != 4 || q.Tokens != k.Tokens || k.Tokens != v.Tokens ||
		k.Heads != v.Heads || q.Width != k.Width || k.Width != v.Width {
		return r, 0, false
	}
	_, linear := op.Arg("stop")
	r = ropeOf(q, k, v, op)
	r.Dims, r.Cache, r.Slots, r.Ring = 2*view(op.Input("angles")).Shape[1], cache, int(slots[2]), !linear
	return r, q.Tokens, true
}

// ropeOf returns the fields of a kernel that rotates and writes that describe the heads, their norms and their
// rotation.
func ropeOf(q, k, v Heads, op *ir.Op) kernels.Rope {
	var attrs ir.RopeWriteAttrs
	switch a := op.Attrs.(type) {
	case *ir.RopeWriteAttrs:
		attrs = *a
	case *ir.AttentionStepAttrs:
		attrs = ir.RopeWriteAttrs{Traditional: a.Traditional, QNorm: a.QNorm, KNorm: a.KNorm,
			VNorm: a.VNorm, Eps: a.Eps}
	}
	r := kernels.Rope{D: q.Width, Traditional: attrs.Traditional, QHeads: q.Heads, KVHeads: k.Heads, Q: q.Strides,
		K: k.Strides, V: v.Strides,
		QNorm: headNorm(attrs.QNorm, op.Input("q_weight")), KNorm: headNorm(attrs.KNorm, op.Input("k_weight")),
		VNorm: headNorm(attrs.VNorm, nil), Eps: attrs.Eps}
	if r.QNorm == kernels.WeightedHeadNorm || r.KNorm == kernels.WeightedHeadNorm {
		r.Weight = kernels.F32
	}
	return r
}

// normOfHeads is a norm of heads that is merged into the operation that reads its result.
type normOfHeads struct {
	norm *ir.Op
	eps  float32
	// shape is the shape in which the operand of the norm is read: token by token.
	shape []int
}

// headNorm returns the norm whose result the heads x [1, H, T, D] are, if nothing else reads that and kernels of heads
// can compute the norm themselves; else nil.
func (g *graph) headNorm(x *ir.Value) *normOfHeads {
	l, ok := g.Layout(x)
	op := g.from(x, "rms_norm")
	if !ok || op == nil || !g.only(x) || len(l.Shape) != 4 || l.Shape[0] != 1 || l.Offset != 0 {
		return nil
	}
	heads, tokens, width := l.Shape[1], l.Shape[2], l.Shape[3]
	of, ok := g.Layout(op.Result())
	if !ok || strided.Elements(of.Shape) != strided.Elements(l.Shape) || of.Shape[len(of.Shape)-1] != width ||
		l.Strides[2] != heads*width || l.Strides[1] != width {
		return nil
	}
	if w := op.Input("weight"); w != nil && !isVector(w, width) {
		return nil
	}
	in, ok := g.floats(op.Input("x"))
	if !ok {
		return nil
	}
	n := &normOfHeads{norm: op, eps: ir.Attrs[ir.NormAttrs](op).Eps, shape: []int{1, tokens, heads, width}}
	if stride, ok := strided.Reshape(in.Shape, in.Strides, n.shape[1:]); !ok || stride[2] != 1 && width > 1 {
		return nil
	}
	return n
}

// input returns the operand of the norm as heads [1, H, T, D], and its weight. Without a norm it returns x and nil.
func (n *normOfHeads) input(b *ir.Builder, x *ir.Value) (heads, weight *ir.Value) {
	if n == nil {
		return x, nil
	}
	heads = reshaped(b, n.norm.Input("x"), n.shape)
	return b.Value("transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1, 3}}, heads), n.norm.Input("weight")
}
