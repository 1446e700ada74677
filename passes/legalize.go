package passes

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// legalize makes a lowered module writable. On the wire a value is a slot, which an If's arms share with
// its result and a Scan's carry keeps from step to step; so values that come from elsewhere are copied
// where a region yields them. Loads are placed where lifting will find them: right before the first use
// after the last write of their buffer. What several entries share is put into the order in which lifting finds it.
func legalize(m *ir.Module, _ *Options) error {
	err := ir.Build(func() {
		for _, f := range m.Entries() {
			legalizeRegion(m, f.Body)
			copyCarriedOutputs(m, f.Body)
			copyStaleLoads(f.Body)
			placeLoads(f.Body, map[*ir.Buffer]*ir.Value{})
		}
	})
	m.OrderByEntry()
	return err
}

// legalizeRegion inserts the copies that nested regions need, inner regions first.
func legalizeRegion(m *ir.Module, r *ir.Region) {
	var ops []*ir.Op
	b := &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
	for _, op := range r.Ops {
		for _, n := range op.Regions {
			legalizeRegion(m, n)
		}
		switch op.Def.Name {
		case "if":
			for _, n := range op.Regions {
				copyResults(m, n, len(n.Results))
			}
			sortResults(op)
		case "scan":
			for i, a := range op.Args[1] {
				if !isOwnCopy(a.Value, r, op) {
					op.Args[1][i] = ir.Use(b.Value("id_copy", nil, a.Value))
				}
			}
			body := op.Regions[0]
			outputs := len(body.Results) - len(op.Args[1])
			copyResults(m, body, outputs)
			copyCarries(m, body, outputs)
		}
		ops = append(ops, op)
	}
	r.Ops = ops
}

// copyCarriedOutputs copies the outputs that are last values of carries: these lie in the carry's slot, an output has
// one of its own.
func copyCarriedOutputs(m *ir.Module, body *ir.Region) {
	for i, v := range body.Results {
		if v.Def != nil && v.Def.Def.Name == "scan" && v.Index >= len(v.Def.Results)-len(v.Def.Args[1]) {
			body.Results[i] = (&ir.Builder{Module: m, Region: body}).Value("id_copy", nil, v)
		}
	}
}

// isOwnCopy reports whether v is an id_copy in r that only op uses.
func isOwnCopy(v *ir.Value, r *ir.Region, op *ir.Op) bool {
	if v.Def == nil || v.Def.Def.Name != "id_copy" || !slices.Contains(r.Ops, v.Def) {
		return false
	}
	return ir.CountUses(r)[v] == 1
}

// copyResults makes the first n results of a region distinct results of its own operations.
func copyResults(m *ir.Module, r *ir.Region, n int) {
	b := &ir.Builder{Module: m, Region: r}
	seen := map[*ir.Value]bool{}
	for i, v := range r.Results[:n] {
		if seen[v] || !yieldable(r, v) {
			if v.Type.Kind == ir.IntKind {
				// There is no copy of an int on the wire; adding zero makes one.
				v = b.Value("add_int", nil, v, 0)
			} else {
				v = b.Value("id_copy", nil, v)
			}
			r.Results[i] = v
		}
		seen[v] = true
	}
}

// sortResults puts the results of an if in the order in which its first arm computes them: the wire has
// none, and lifting finds this one.
func sortResults(op *ir.Op) {
	at := map[*ir.Value]int{}
	for _, o := range op.Regions[0].Ops {
		for _, v := range o.Results {
			at[v] = len(at)
		}
	}
	order := make([]int, len(op.Results))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return at[op.Regions[0].Results[a]] - at[op.Regions[0].Results[b]] })
	for _, list := range []*[]*ir.Value{&op.Results, &op.Regions[0].Results, &op.Regions[1].Results} {
		sorted := make([]*ir.Value, len(order))
		for i, from := range order {
			sorted[i] = (*list)[from]
		}
		*list = sorted
	}
	renumber(op.Results)
}

// yieldable reports whether an operation of r can compute v straight into the slot of the result that
// it becomes.
func yieldable(r *ir.Region, v *ir.Value) bool {
	if v.Def == nil || v.Def.Def.Effect == ir.Reads || !slices.Contains(r.Ops, v.Def) {
		return false
	}
	return v.Def.Def.Name != "scan" || v.Index < len(v.Def.Results)-len(v.Def.Args[1])
}

// copyCarries ends a scan's body with the copies of its new carries into their slots. A new value that
// is another carry's old one is copied aside first: the copies happen one after the other.
func copyCarries(m *ir.Module, body *ir.Region, outputs int) {
	b := &ir.Builder{Module: m, Region: body}
	carries := body.Results[outputs:]
	for i, v := range carries {
		if v.Region == body && v != body.Args[len(body.Args)-len(carries)+i] {
			carries[i] = b.Value("id_copy", nil, v)
		}
	}
	for i, v := range carries {
		carries[i] = b.Value("id_copy", nil, v)
	}
}

// copyStaleLoads copies the value of a load that is used after a later write of its buffer, right after
// the load.
func copyStaleLoads(r *ir.Region) {
	w := staleLoads{version: map[*ir.Buffer]int{}, loaded: map[*ir.Value]int{}, stale: map[*ir.Value]bool{}}
	w.walk(r)
	if len(w.stale) == 0 {
		return
	}
	copies := map[*ir.Value]*ir.Value{}
	var insert func(r *ir.Region)
	insert = func(r *ir.Region) {
		var ops []*ir.Op
		b := &ir.Builder{Insert: func(op *ir.Op) { ops = append(ops, op) }}
		for _, op := range r.Ops {
			ops = append(ops, op)
			if len(op.Results) == 1 && w.stale[op.Results[0]] {
				copies[op.Results[0]] = b.Value("id_copy", nil, op.Results[0])
			}
			for _, n := range op.Regions {
				insert(n)
			}
		}
		r.Ops = ops
	}
	insert(r)
	ir.EachUse(r, func(v **ir.Value, user *ir.Op) {
		if c := copies[*v]; c != nil && c.Def != user {
			*v = c
		}
	})
}

// staleLoads finds the loads whose values are used after a later write of their buffer.
type staleLoads struct {
	version map[*ir.Buffer]int // how often a buffer was written before the operation that the walk has reached
	loaded  map[*ir.Value]int  // for the result of a load, the version that it has read
	stale   map[*ir.Value]bool // the results of loads that are used after a later write
}

// use notes that the operation which the walk has reached uses v.
func (w *staleLoads) use(v *ir.Value) {
	if at, is := w.loaded[v]; is && at != w.version[v.Def.Buffer] {
		w.stale[v] = true
	}
}

func (w *staleLoads) walk(r *ir.Region) {
	for _, op := range r.Ops {
		op.EachArg(func(a *ir.Arg) { w.use(a.Value) })
		w.regions(op)
		switch op.Def.Effect {
		case ir.Reads:
			w.loaded[op.Result()] = w.version[op.Buffer]
		case ir.Writes:
			w.version[op.Buffer]++
		}
	}
	for _, v := range r.Results {
		w.use(v)
	}
}

// regions walks the regions of an if or a scan. A buffer that they write has a new version afterwards.
func (w *staleLoads) regions(op *ir.Op) {
	before := map[*ir.Buffer]int{}
	for _, n := range op.Regions {
		n.EachWrite(func(b *ir.Buffer) { before[b] = 0 })
	}
	for b := range before {
		if op.Def.Name == "scan" {
			w.version[b]++ // the body runs again after its own writes
		}
		before[b] = w.version[b]
	}
	for _, n := range op.Regions {
		for b, v := range before {
			w.version[b] = v // one arm does not see what the other writes
		}
		w.walk(n)
	}
	for b, v := range before {
		w.version[b] += v + 1 // never one that an arm has seen
	}
}

// placeLoads removes every load and inserts one where a buffer is first read after its last write, as lifting does.
func placeLoads(r *ir.Region, live map[*ir.Buffer]*ir.Value) {
	var ops []*ir.Op
	b := &ir.Builder{Insert: func(op *ir.Op) { ops = append(ops, op) }}
	place := func(v *ir.Value) *ir.Value {
		if v == nil || v.Def == nil || v.Def.Def.Effect != ir.Reads {
			return v
		}
		buffer := v.Def.Buffer
		if live[buffer] == nil {
			live[buffer] = b.Load(buffer)
		}
		return live[buffer]
	}
	for _, op := range r.Ops {
		if op.Def.Effect == ir.Reads {
			continue
		}
		op.EachArg(func(a *ir.Arg) { a.Value = place(a.Value) })
		written := map[*ir.Buffer]bool{}
		for _, n := range op.Regions {
			n.EachWrite(func(b *ir.Buffer) { written[b] = true })
		}
		if op.Def.Name == "scan" {
			for w := range written {
				delete(live, w)
			}
		}
		for _, n := range op.Regions {
			inner := map[*ir.Buffer]*ir.Value{}
			for k, v := range live {
				inner[k] = v
			}
			placeLoads(n, inner)
		}
		for w := range written {
			delete(live, w)
		}
		ops = append(ops, op)
		if op.Def.Effect == ir.Writes {
			delete(live, op.Buffer)
		}
	}
	for i, v := range r.Results {
		r.Results[i] = place(v)
	}
	r.Ops = ops
}
