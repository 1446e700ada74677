package plan

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// InPlaceLoads finds the loads that need no copy, because their value can be the buffer's own memory. Such a load
// stands directly in the list of r, and nothing uses it, or a view of it, after a later write of the buffer.
func InPlaceLoads(r *ir.Region) map[*ir.Op]bool {
	inPlace := map[*ir.Op]bool{}
	source := map[*ir.Value]*ir.Op{} // the load that a value may be a view of
	written := map[*ir.Buffer]bool{} // by nested regions
	for _, op := range r.Ops {
		for _, n := range op.Regions {
			n.EachWrite(func(b *ir.Buffer) { written[b] = true })
		}
	}
	stale := map[*ir.Op]bool{}
	use := func(op *ir.Op) {
		op.EachArg(func(a *ir.Arg) {
			if load := source[a.Value]; load != nil && stale[load] {
				inPlace[load] = false
			}
		})
	}
	for _, op := range r.Ops {
		use(op)
		for _, n := range op.Regions {
			n.Walk(use)
			for _, v := range n.Results {
				if load := source[v]; load != nil {
					inPlace[load] = false // it becomes a result of the if
				}
			}
		}
		switch {
		case op.Def.Effect == ir.Reads:
			source[op.Result()] = op
			inPlace[op] = !written[op.Buffer]
		case op.Def.Effect == ir.Writes:
			for load := range inPlace {
				if slices.Contains(op.Buffers(), load.Buffer) {
					stale[load] = true
				}
			}
		case op.Def.IsView():
			if x := op.Input("x"); x != nil && source[x] != nil {
				source[op.Result()] = source[x]
			}
		}
	}
	for _, v := range r.Results {
		if load := source[v]; load != nil && stale[load] {
			inPlace[load] = false
		}
	}
	return inPlace
}
