package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// settle moves operations behind those that define their operands, and otherwise keeps their order. This is needed
// because a pass may put a merged operation in the place of one of its parts. Operations on one buffer keep their
// order.
func (g *graph) settle() {
	body := g.m.Entry.Body
	out, placed := make([]*ir.Op, 0, len(body.Ops)), make([]bool, len(body.Ops))
	var waiting []*ir.Op
	ready := func(op *ir.Op, before []*ir.Op) bool {
		ok := true
		eachUse(op, func(v **ir.Value) {
			if def := (*v).Def; ok && def != nil {
				i, here := g.places[def]
				ok = !here || placed[i]
			}
		})
		if op.Buffer != nil && len(before) > 0 {
			for _, b := range op.Buffers() {
				ok = ok && !slices.ContainsFunc(before, func(o *ir.Op) bool { return slices.Contains(o.Buffers(), b) })
			}
		}
		return ok
	}
	emit := func(op *ir.Op) {
		out = append(out, op)
		placed[g.places[op]] = true
	}
	for _, op := range body.Ops {
		if !ready(op, waiting) {
			waiting = append(waiting, op)
			continue
		}
		emit(op)
		for i := 0; i < len(waiting); {
			if !ready(waiting[i], waiting[:i]) {
				i++
				continue
			}
			w := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			emit(w)
			i = 0
		}
	}
	body.Ops = append(out, waiting...)
}
