package lower

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// attentionStep merges the attention of one token with the rotation and the cache writes before it into the operation
// attention_step, or that of a few rows of a call of several sequences into rows_attention_step. It takes the place of
// the writes. Other loads of the caches move behind it.
func (g *graph) attentionStep(op *ir.Op) {
	writes, follows, step := "rope_write", atPosition, "attention_step"
	if op.Def.Name == "rows_attention" {
		writes, follows, step = "rope_rows_write", ofSameRows, "rows_attention_step"
	}
	w := g.from(op.Input("q"), writes)
	if w == nil || !g.only(op.Input("q")) || !isStep(op.Input("q"), step) || !isStep(w.Result(), step) ||
		bufferOf(op.Input("k")) != w.Buffer || bufferOf(op.Input("v")) != w.Second || !follows(w, op) {
		return
	}
	// The gate must not depend on a load of the caches that comes after the writes.
	first, last := g.places[w], g.places[op]
	between := g.m.Entry.Body.Ops[first+1 : last]
	if g.written(first+1, last, w.Buffer) || g.written(first+1, last, w.Second) ||
		dependsOn(between, op.Input("gate"), w.Buffer, w.Second) {
		return
	}
	early := !g.written(0, first, w.Buffer) && !g.written(0, first, w.Second)
	write, attrs := ir.Attrs[ir.RopeWriteAttrs](w), ir.Attrs[ir.AttentionAttrs](op)
	b, def := g.draft(), ir.LookupOp(step)
	args := make([][]ir.Arg, len(def.Operands))
	for i, o := range def.Operands {
		from := w
		if o.Name == "position" || o.Name == "gate" {
			from = op
		}
		args[i] = slices.Clone(from.Operand(o.Name))
	}
	n := b.Append(&ir.Op{Def: def, Buffer: w.Buffer, Second: w.Second, Args: args, Attrs: &ir.AttentionStepAttrs{
		Traditional: write.Traditional, QNorm: write.QNorm, KNorm: write.KNorm, VNorm: write.VNorm, Eps: write.Eps,
		Scale: attrs.Scale, Window: attrs.Window, Early: early,
	}})
	if !g.steps(n) {
		return
	}
	g.insert(b, w)
	g.stand(w, op.Result(), n.Result())
	g.drop(w)
}

// isStep reports whether heads v [1, H, T, D] are of so few tokens that the operation step takes them.
func isStep(v *ir.Value, step string) bool {
	most := 1
	if step == "rows_attention_step" {
		most = kernels.StepRows
	}
	dims := shape(v)
	return len(dims) == 4 && dims[2] <= most
}

// bufferOf returns the buffer whose content v is, perhaps after a cast, or nil.
func bufferOf(v *ir.Value) *ir.Buffer {
	for v.Def != nil && v.Def.Def.Name == "astype" {
		v = v.Def.Input("x")
	}
	if v.Def == nil {
		return nil
	}
	return v.Def.Buffer
}

// atPosition reports whether w writes the first token to the cache slot of op's position.
func atPosition(w, op *ir.Op) bool {
	exprOf := func(op *ir.Op, operand string) *ir.Expr {
		a, _ := op.Arg(operand)
		if a.Kind == ir.IntArg {
			return ir.Const(a.Int)
		}
		return a.Value.Type.Int
	}
	start, position := exprOf(w, "start"), exprOf(op, "position")
	_, linear := w.Arg("stop")
	return start.Equal(position) || !linear && start.Equal(position.Mod(w.Buffer.Type.Shape[2]))
}

// ofSameRows reports whether w writes the rows that op attends with, from the first position on.
func ofSameRows(w, op *ir.Op) bool {
	for _, table := range []string{"positions", "sequences", "blocks"} {
		if w.Input(table) != op.Input(table) {
			return false
		}
	}
	return ir.Attrs[ir.AttentionAttrs](op).First == 0
}

// dependsOn reports whether v depends on a load of one of the buffers by an operation of the list.
func dependsOn(list []*ir.Op, v *ir.Value, buffers ...*ir.Buffer) bool {
	tainted := map[*ir.Value]bool{}
	for _, op := range list {
		found := slices.ContainsFunc(buffers, func(b *ir.Buffer) bool { return worksOn(op, b) })
		eachUse(op, func(v **ir.Value) { found = found || tainted[*v] })
		for _, r := range op.Results {
			tainted[r] = found
		}
	}
	return tainted[v]
}

// steps reports whether the device has a kernel for this attention_step or rows_attention_step.
func (g *graph) steps(op *ir.Op) bool {
	cache, ok := CacheType(op.Buffer, g.Precision)
	if !ok {
		return false
	}
	k, ok := g.AttentionStep(op, g.views, cache)
	if !ok {
		return false
	}
	variants := StepTunings(k, g.Machine.Target)
	return slices.ContainsFunc(variants[:min(len(variants), MaxRefused)], func(variant kernels.StepTuning) bool {
		k.Step = variant
		one, merge, _, err := k.Launches()
		return g.Allowed(one, err) && (variant.Last || g.Allowed(merge, nil))
	})
}

// AttentionStep returns the kernel of an attention_step or rows_attention_step.
func (t *Target) AttentionStep(op *ir.Op, view Views, cache kernels.DType) (k kernels.AttentionStep, ok bool) {
	attrs := ir.Attrs[ir.AttentionStepAttrs](op)
	k.Early, k.Alike = attrs.Early, !t.rounds()
	if op.Def.Name == "rows_attention_step" {
		var rows int
		k.Rope, rows, ok = RopeRowsWrite(op, view, cache)
		h, ok2 := HeadsOf(view(op.Input("q")))
		if !ok || !ok2 || rows > kernels.StepRows {
			return k, false
		}
		k.Rows, k.Half, k.Lanes = rows, attrs.Prepared, attrs.Packed == kernels.InLanes
		k.Rope.Slots = k.Rope.Blocks.Rows * k.Rope.Blocks.Columns
		k.Attention = kernels.Attention{D: h.Width, Heads: h.Heads, KVHeads: k.Rope.KVHeads, Slots: k.Rope.Slots,
			Window: attrs.Window, Scale: attrs.Scale, Cache: cache}
		k.Gated, k.Gates, ok = gatesOf(op, view, h)
		return k, ok
	}
	if k.Attention, _, ok = Attention(op, view, cache); !ok {
		return k, false
	}
	k.Rope, _, ok = RopeWrite(op, view, cache)
	return k, ok
}

// StepTunings returns the variants of the kernel. They are the same with and without a gate, and over blocks as far as
// the kernel over blocks has them.
func StepTunings(k kernels.AttentionStep, target kernels.Target) []kernels.StepTuning {
	blocks := k.Rope.Blocks.Rows > 0
	k.Gated, k.Gates, k.Rope.Blocks = false, kernels.Rows{}, kernels.Blocks{}
	return slices.DeleteFunc(k.StepTunings(target), func(t kernels.StepTuning) bool { return blocks && !t.Last })
}

func errOtherBlocks(got, want kernels.AttentionTuning) error {
	return fmt.Errorf("%d blocks of %d positions or more, want %d of %d", got.Blocks, got.Least,
		want.Blocks, want.Least)
}
