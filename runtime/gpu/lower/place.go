package lower

import "github.com/etc-ml/etc/ir"

// placeAtReaders moves operations that only compute to where their results are first read, so that these live in memory
// no longer than they must. What works on a buffer stays where it is, and what reads a buffer's content stands before
// the next write of that.
func placeAtReaders(g *graph) {
	body := g.m.Entry.Body
	p := &placing{graph: g, placed: make([]bool, len(body.Ops)), held: map[*ir.Value]*ir.Buffer{},
		waiting: map[*ir.Buffer][]*ir.Op{}}
	p.ops = make([]*ir.Op, 0, len(body.Ops))
	for _, op := range body.Ops {
		op.EachWrite(func(b *ir.Buffer) {
			for _, reader := range p.waiting[b] {
				p.place(reader)
			}
			delete(p.waiting, b)
		})
		switch op.Def.Effect {
		case ir.Pure:
			p.wait(op)
			continue
		case ir.Reads:
			p.held[op.Result()] = op.Buffer
		}
		p.place(op)
	}
	for _, v := range body.Results {
		p.placeValue(v)
	}
	body.Ops = p.ops
	g.number()
}

// placing is a new order of the operations of the entry in the making.
type placing struct {
	*graph
	ops    []*ir.Op
	placed []bool // by the place where the operation was
	// held are the values that lie in a buffer: they are what it held when it was loaded.
	held map[*ir.Value]*ir.Buffer
	// waiting are the operations that read what a buffer holds.
	waiting map[*ir.Buffer][]*ir.Op
}

// wait notes which buffers an operation reads the content of.
func (p *placing) wait(op *ir.Op) {
	if len(p.held) == 0 {
		return
	}
	op.EachArg(func(a *ir.Arg) {
		b := p.held[a.Value]
		if b == nil {
			return
		}
		p.waiting[b] = append(p.waiting[b], op)
		if op.Def.IsView() {
			p.held[op.Result()] = b
		}
	})
}

// place puts an operation behind those that give what it reads.
func (p *placing) place(op *ir.Op) {
	at := p.places[op]
	if p.placed[at] {
		return
	}
	p.placed[at] = true
	eachUse(op, func(v **ir.Value) { p.placeValue(*v) })
	p.ops = append(p.ops, op)
}

func (p *placing) placeValue(v *ir.Value) {
	if v.Def == nil {
		return
	}
	if _, here := p.places[v.Def]; here { // and not in a region
		p.place(v.Def)
	}
}
