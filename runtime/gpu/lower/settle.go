package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// settle moves operations behind those that define their arguments, and else leaves them in their order. A row that puts an
// operation of several into the place of one of them calls it. Operations on a buffer keep their order.
func settle(r *ir.Region) {
	defined := map[*ir.Value]bool{}
	here := map[*ir.Value]bool{} // defined in r at all
	for _, op := range r.Ops {
		for _, v := range op.Results {
			here[v] = true
		}
	}
	var out, waiting []*ir.Op
	ready := func(op *ir.Op, before []*ir.Op) bool {
		ok := true
		uses(op, func(v *ir.Value) { ok = ok && (!here[v] || defined[v]) })
		for _, b := range op.Buffers() {
			ok = ok && !slices.ContainsFunc(before, func(o *ir.Op) bool { return slices.Contains(o.Buffers(), b) })
		}
		return ok
	}
	emit := func(op *ir.Op) {
		out = append(out, op)
		for _, v := range op.Results {
			defined[v] = true
		}
	}
	for _, op := range r.Ops {
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
	r.Ops = append(out, waiting...)
}

// uses calls f for every value that op and its regions use.
func uses(op *ir.Op, f func(*ir.Value)) {
	op.EachArg(func(a *ir.Arg) {
		if a.Kind == ir.ValueArg {
			f(a.Value)
		}
	})
	for _, n := range op.Regions {
		for _, o := range n.Ops {
			uses(o, f)
		}
		for _, v := range n.Results {
			f(v)
		}
	}
}
