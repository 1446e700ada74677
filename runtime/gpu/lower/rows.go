package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// This file lowers operations on the rows of calls of many sequences. ir/ragged.go describes their tables.

// rowsAttention replaces attention of rows over blocks by the operation of the engine.
func rowsAttention(g *graph) {
	var inPlace map[*ir.Op]bool
	g.each(func(op *ir.Op) {
		if inPlace == nil {
			inPlace = plan.InPlaceLoads(g.m.Entry.Body)
		}
		if cacheOf(op.Input("k"), inPlace) == nil || cacheOf(op.Input("v"), inPlace) == nil {
			return
		}
		attrs := ir.Attrs[ir.CachedAttentionAttrs](op)
		rows := elements(op.Input("positions"))
		for _, tiles := range []bool{true, false} {
			if tiles && (attrs.First > 0 || g.decodes(op.Input("blocks"), rows)) {
				continue // the tiled kernel starts at the first position, and takes many rows of one sequence
			}
			b := g.draft()
			if g.attendsRows(b.Op("rows_attention", &ir.AttentionAttrs{Scale: attrs.Scale, Window: attrs.Window,
				Tiles: tiles, First: attrs.First}, op.Input("q"),
				op.Input("k"), op.Input("v"), op.Input("positions"), op.Input("sequences"), op.Input("blocks"))) {
				g.put(b, op)
				return
			}
		}
	}, "block_attention")
}

// decodes reports whether a call with this number of rows, of several sequences, has few rows of prompts or none. Two
// things must hold. The call wants as many rows of logits as it has rows; a prompt wants only those of its last row.
// And a table of it, with a row for each sequence, has room for one sequence for every two rows. The sizes in a call's
// shape are padded, so up to a quarter of 128 rows may be rows of a prompt.
func (g *graph) decodes(table *ir.Value, rows int) bool {
	at := slices.IndexFunc(g.m.Entry.Params, func(v *ir.Value) bool { return v.Param == "wanted" })
	sequences := shape(table)
	return at >= 0 && len(sequences) == 2 && 2*sequences[0] >= rows && elements(g.m.Entry.Params[at]) >= rows
}

// attendsRows reports whether the device has kernels for this attention over blocks.
func (g *graph) attendsRows(op *ir.Op) bool {
	keys, ok := g.cacheType(op.Input("k"))
	values, ok2 := g.cacheType(op.Input("v"))
	if _, floats := g.floats(op.Input("q")); !ok || !ok2 || keys != values || !floats {
		return false
	}
	for _, table := range []string{"positions", "sequences", "blocks"} {
		if shape(op.Input(table)) == nil {
			return false
		}
	}
	a, rows, ok := RowsAttention(op, g.views, keys)
	if ok {
		a, ok = g.BlockAttention(a, rows)
	}
	if !ok {
		return false
	}
	if !a.Short {
		return true
	}
	if !g.Tiled(rows) || rows < kernels.ManyRows {
		return false
	}
	_, ok = g.RowsByTiles(a, rows)
	return ok
}

// BlockAttention returns the form of an attention over blocks for so many rows that may be used, one kernel where there
// is one. It returns false where no form may be used.
func (t *Target) BlockAttention(a kernels.BlockAttention, rows int) (kernels.BlockAttention, bool) {
	if a.Last = t.Machine.Target != kernels.Metal && rows <= mostLast; a.Last {
		if part, _, _, err := a.Launches(rows); t.Allowed(part, err) {
			return a, true
		}
		a.Last = false
	}
	part, merge, _, err := a.Launches(rows)
	return a, t.Allowed(part, err) && t.Allowed(merge, nil)
}

// mostLast is the largest number of rows of which the last threadgroups to finish merge what the others have computed.
// For more rows a kernel of its own, all of whose threadgroups merge, takes a small part of a call and is no slower.
const mostLast = 32

// RowsByTiles returns the launch of rows_attention that works in tiles. It returns false where none may be used.
func (t *Target) RowsByTiles(a kernels.BlockAttention, rows int) (l kernels.Launch, ok bool) {
	launch := func(v kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(rows, v) }
	variants := t.ByTiles(a.ChunkTunings(t.Machine), launch)
	if len(variants) == 0 {
		return l, false
	}
	l, err := launch(variants[0])
	return l, err == nil
}

// BlocksOf describes the blocks of a pool [heads, units, rows, width], or of a pool of coded rows of that width, and
// their table.
func BlocksOf(pool ir.Type, table []int, cache kernels.DType) (b kernels.Blocks, heads, units, width int, ok bool) {
	dims, known := pool.Static()
	if !known || len(dims) != 4 || len(table) != 2 {
		return b, 0, 0, 0, false
	}
	width = int(dims[3])
	if pool.DType == ir.U32 {
		width = ir.Q8Width(width)
	}
	return kernels.Blocks{Rows: int(dims[2]), Columns: table[1], Cache: cache}, int(dims[0]), int(dims[1]), width, true
}

// RopeRowsWrite returns the kernel of rope_rows_write, or of that part of rows_attention_step, and the number of rows.
// cache is the dtype of the pools.
func RopeRowsWrite(op *ir.Op, view Views, cache kernels.DType) (r kernels.Rope, rows int, ok bool) {
	q, ok := HeadsOf(view(op.Input("q")))
	k, ok2 := HeadsOf(view(op.Input("k")))
	v, ok3 := HeadsOf(view(op.Input("v")))
	blocks, heads, _, width, ok4 := BlocksOf(op.Buffer.Type, view(op.Input("blocks")).Shape, cache)
	if !ok || !ok2 || !ok3 || !ok4 || q.Tokens != k.Tokens || k.Tokens != v.Tokens ||
		k.Heads != v.Heads || k.Heads != heads ||
		q.Width != k.Width || k.Width != v.Width || k.Width != width {
		return r, 0, false
	}
	r = ropeOf(q, k, v, op)
	r.Dims, r.Cache, r.Blocks = 2*view(op.Input("angles")).Shape[1], cache, blocks
	return r, q.Tokens, true
}

// blockWrite reports whether op writes rows of heads to blocks.
func (g *graph) blockWrite(op *ir.Op) bool {
	u, ok := g.floats(op.Input("update"))
	if !ok {
		return false
	}
	h, ok := HeadsOf(u.View)
	_, heads, _, width, ok2 := BlocksOf(op.Buffer.Type, shape(op.Input("blocks")), kernels.F32)
	return ok && ok2 && h.Heads == heads && h.Width == width
}

// RowsAttention returns the kernel of rows_attention over pools of a dtype, and the number of rows.
func RowsAttention(op *ir.Op, view Views, cache kernels.DType) (a kernels.BlockAttention, rows int, ok bool) {
	keys, attrs := op.Input("k").Type, ir.Attrs[ir.AttentionAttrs](op)
	h, ok := HeadsOf(view(op.Input("q")))
	if !ok || !slices.EqualFunc(keys.Shape, op.Input("v").Type.Shape, (*ir.Expr).Equal) {
		return a, 0, false
	}
	var width int
	a.Blocks, a.KVHeads, _, width, ok = BlocksOf(keys, view(op.Input("blocks")).Shape, cache)
	if !ok || width != h.Width {
		return a, 0, false
	}
	a.D, a.Heads, a.Q, a.Scale, a.Window, a.Short = h.Width, h.Heads, h.Strides, attrs.Scale, attrs.Window, attrs.Tiles
	a.First, a.Half, a.Lanes = attrs.First, attrs.Prepared, attrs.Packed == kernels.InLanes
	a.Gated, a.Gates, ok = gatesOf(op, view, h)
	return a, h.Tokens, ok
}

// gatesOf returns whether an attention has a gate for its heads h, and the gate's layout.
func gatesOf(op *ir.Op, view Views, h Heads) (gated bool, gates kernels.Rows, ok bool) {
	gate := op.Input("gate")
	if gate == nil {
		return false, gates, true
	}
	v := view(gate)
	stride, ok := strided.Reshape(v.Shape, v.Strides, []int{h.Tokens, h.Heads, h.Width})
	if !ok || h.Width != 1 && stride[2] != 1 {
		return false, gates, false
	}
	return true, kernels.Rows{Token: stride[0], Row: stride[1]}, true
}
