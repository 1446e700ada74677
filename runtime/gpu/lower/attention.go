package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// MaxRefused is the number of variants of a kernel that may fail their self-tests before the kernel is given up.
const MaxRefused = 3

// Tiled reports whether a product of this number of rows is computed by kernels that round the rows to bfloat16 and
// multiply tiles of rows, with the GPU's matrix units where it has them. Products of 8 rows or fewer, and products that
// must not round their rows, are computed in float32.
func (t *Target) Tiled(rows int) bool { return rows > 8 && t.rounds() }

// rounds reports whether products may round their rows to bfloat16, which precision mixed allows.
func (t *Target) rounds() bool { return t.Precision == eval.Mixed && !t.Exact }

// attention replaces cached_attention by the operations of the engine, which read queries in the memory order
// [T, H, D].
func attention(g *graph) {
	var inPlace map[*ir.Op]bool
	g.each(func(op *ir.Op) {
		if inPlace == nil {
			inPlace = plan.InPlaceLoads(g.m.Entry.Body)
		}
		if cacheOf(op.Input("k"), inPlace) != nil && cacheOf(op.Input("v"), inPlace) != nil {
			g.attention(op)
		}
	}, "cached_attention")
}

func (g *graph) attention(op *ir.Op) {
	x := op.Input("q")
	q, ok := g.floats(x)
	position, _ := op.Arg("position")
	if !ok || !known(position) {
		return
	}
	h, ok := HeadsOf(q.View)
	if !ok {
		return
	}
	attrs := ir.Attrs[ir.CachedAttentionAttrs](op)
	for _, tiles := range []bool{true, false} {
		if tiles && !g.Tiled(h.Tokens) {
			continue
		}
		b, x := g.draft(), x
		if h.Strides.Row != h.Width && h.Heads > 1 || h.Strides.Token != h.Heads*h.Width && h.Tokens > 1 {
			perm := &ir.TransposeAttrs{Perm: []int{0, 2, 1, 3}}
			x = b.Value("transpose", perm, b.Value("copy", nil, b.Value("transpose", perm, x)))
		}
		if g.attends(b.Op("attention", &ir.AttentionAttrs{Scale: attrs.Scale, Window: attrs.Window, Tiles: tiles},
			x, op.Input("k"), op.Input("v"), position)) {
			g.put(b, op)
			return
		}
	}
}

// attentionGate merges a glu into the attention before it, if the glu multiplies the whole result of attention, token
// by token, with sigmoid(gate).
func (g *graph) attentionGate(glu *ir.Op) {
	if ir.Attrs[ir.GLUAttrs](glu).Activation != "sigmoid" {
		return
	}
	of := g.from(glu.Input("x"), "attention")
	if of == nil {
		of = g.from(glu.Input("x"), "rows_attention")
	}
	if of == nil || of.Input("gate") != nil {
		return
	}
	whole, _ := g.Layout(of.Result())
	x, _ := g.Layout(glu.Input("x"))
	gate, ok := g.floats(glu.Input("gate"))
	if !ok || !slices.Equal(gate.Shape, x.Shape) || !x.IsDense() || !g.only(glu.Input("x")) ||
		strided.Elements(x.Shape) != strided.Elements(whole.Shape) {
		return
	}
	for _, cache := range []*ir.Buffer{bufferOf(of.Input("k")), bufferOf(of.Input("v"))} {
		if g.written(g.places[of], g.places[glu], cache) {
			return
		}
	}
	b, n := g.draft(), of.Like()
	n.Args[len(n.Args)-1] = []ir.Arg{ir.Use(glu.Input("gate"))}
	attends := g.attends
	if n.Def.Name == "rows_attention" {
		attends = g.attendsRows
	}
	if attends(b.Append(n)) {
		g.put(b, glu)
	}
}

// Attention returns the kernel of an attention, or of the attention part of attention_step, over caches of a dtype, and
// the number of tokens.
func Attention(op *ir.Op, view Views, cache kernels.DType) (a kernels.Attention, tokens int, ok bool) {
	var keys ir.Type
	switch attrs := op.Attrs.(type) {
	case *ir.AttentionAttrs:
		keys, a.Scale, a.Window = op.Input("k").Type, attrs.Scale, attrs.Window
		if !slices.EqualFunc(keys.Shape, op.Input("v").Type.Shape, (*ir.Expr).Equal) {
			return a, 0, false
		}
	case *ir.AttentionStepAttrs:
		keys, a.Scale, a.Window = op.Buffer.Type, attrs.Scale, attrs.Window
	}
	h, ok := HeadsOf(view(op.Input("q")))
	shape, known := keys.Static()
	if !ok || !known || len(shape) != 4 || shape[0] != 1 || int(shape[3]) != h.Width {
		return a, 0, false
	}
	a.D, a.Heads, a.KVHeads, a.Slots, a.Cache = h.Width, h.Heads, int(shape[1]), int(shape[2]), cache
	a.Gated, a.Gates, ok = gatesOf(op, view, h)
	return a, h.Tokens, ok
}

// attends reports whether the device has kernels for this attention.
func (g *graph) attends(op *ir.Op) bool {
	cache, ok := g.cacheType(op.Input("k"))
	other, ok2 := g.cacheType(op.Input("v"))
	if !ok || !ok2 || cache != other {
		return false
	}
	a, tokens, ok := Attention(op, g.views, cache)
	if !ok {
		return false
	}
	tunings := a.Tunings(g.Machine.Target, tokens > 1)
	if len(tunings) > 0 {
		a.Tuning = tunings[0]
	}
	part, merge, _, err := a.Launches(tokens)
	if err != nil {
		return false
	}
	if ir.Attrs[ir.AttentionAttrs](op).Tiles {
		return g.Tiled(tokens) && len(g.ByTiles(a.ChunkTunings(g.Machine),
			func(v kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(tokens, v) })) > 0
	}
	return g.Allowed(merge, nil) && (g.Allowed(part, nil) ||
		slices.ContainsFunc(tunings[:min(len(tunings), MaxRefused)], func(w kernels.AttentionTuning) bool {
			return g.Allowed(PartOf(a, w, tokens))
		}))
}

// ByTiles returns the variants of attention by tiles from the first one on whose kernel may be used: the kernel in
// which four simdgroups multiply together, where there is one, else that in which each multiplies for itself. launch
// returns the launch of a variant.
func (t *Target) ByTiles(variants []kernels.ChunkTuning,
	launch func(kernels.ChunkTuning) (kernels.Launch, error)) []kernels.ChunkTuning {
	for i, v := range variants {
		tried := i > 0 && v.Together == variants[i-1].Together
		if !tried && t.Allowed(launch(v)) {
			return variants[i:]
		}
	}
	return nil
}

// cacheType returns the dtype of the cache behind a value. The value is a load, or a cast of one.
func (t *Target) cacheType(v *ir.Value) (kernels.DType, bool) {
	for v.Def != nil && v.Def.Def.Name == "astype" {
		v = v.Def.Input("x")
	}
	if v.Def == nil || v.Def.Buffer == nil {
		return kernels.None, false
	}
	return CacheType(v.Def.Buffer, t.Precision)
}

// PartOf returns the first launch of attention in a variant, with the self-test of both launches. The second launch is
// the same for all variants with the same number of blocks of positions.
func PartOf(a kernels.Attention, variant kernels.AttentionTuning, tokens int) (kernels.Launch, error) {
	if variant.Blocks != a.Tuning.Blocks || variant.Least != a.Tuning.Least {
		return kernels.Launch{}, errOtherBlocks(variant, a.Tuning)
	}
	a.Tuning = variant
	part, merge, _, err := a.Launches(tokens)
	part.Case = merge.Case
	return part, err
}
