package constrain

import (
	"errors"
	"slices"
)

// node is a position that still has empty moves.
type node struct {
	edges []edge
	calls []call
	eps   []int32
}

// builder makes nodes of expressions, rule by rule, as Thompson's construction does.
type builder struct {
	nodes  []node
	rules  []rule
	bodies []*expr
	starts []int32 // by rule: its first and last node
	ends   []int32
	owner  []int32 // by node: its rule
	rule   int32   // the one being built
}

var errTooLarge = errors.New("it is too large: repetitions or alternatives make more than a million positions")

func (b *builder) node() int32 {
	b.nodes = append(b.nodes, node{})
	b.owner = append(b.owner, b.rule)
	return int32(len(b.nodes) - 1)
}

func (b *builder) buildRule(i int32) error {
	b.rule = i
	start, end := b.node(), b.node()
	b.starts, b.ends = append(b.starts, start), append(b.ends, end)
	from := b.node() // nothing leads back to start
	b.join(start, from)
	return b.build(b.bodies[i], from, end)
}

func (b *builder) join(from, to int32) { b.nodes[from].eps = append(b.nodes[from].eps, to) }

// build adds e between two nodes. It adds no move into from and none out of to.
func (b *builder) build(e *expr, from, to int32) error {
	if len(b.nodes) > maxPositions || len(b.rules) > maxRules {
		return errTooLarge
	}
	switch e.op {
	case opNone:
	case opBytes:
		for i := range len(e.lit) {
			next := to
			if i < len(e.lit)-1 {
				next = b.node()
			}
			b.nodes[from].edges = append(b.nodes[from].edges, edge{e.lit[i], e.lit[i], next})
			from = next
		}
		if e.lit == "" {
			b.join(from, to)
		}
	case opRange:
		b.nodes[from].edges = append(b.nodes[from].edges, edge{e.lo, e.hi, to})
	case opCat:
		for i, s := range e.subs {
			next := to
			if i < len(e.subs)-1 {
				next = b.node()
			}
			if err := b.build(s, from, next); err != nil {
				return err
			}
			from = next
		}
	case opAlt:
		for _, s := range e.subs {
			if err := b.build(s, from, to); err != nil {
				return err
			}
		}
	case opRepeat:
		return b.buildRepeat(e, from, to)
	case opRef:
		b.nodes[from].calls = append(b.nodes[from].calls, call{e.rule, to})
	case opDFA:
		b.buildDFA(e.dfa, from, to)
	}
	return nil
}

func (b *builder) buildRepeat(e *expr, from, to int32) error {
	sub := e.subs[0]
	switch {
	case e.min <= 1 && e.max == unbounded:
		in, out := b.node(), b.node()
		b.join(from, in)
		b.join(out, to)
		b.join(out, in)
		if e.min == 0 {
			b.join(from, to)
		}
		return b.build(sub, in, out)
	case e.max != unbounded && e.size(inlineSize+1) <= inlineSize:
		for i := range e.max {
			if i >= e.min {
				b.join(from, to)
			}
			next := b.node()
			if err := b.build(sub, from, next); err != nil {
				return err
			}
			from = next
		}
		b.join(from, to)
		return nil
	}
	i := int32(len(b.rules))
	name := "repetition in " + b.rules[b.rule].name
	if b.rules[b.rule].inner {
		name = b.rules[b.rule].name
	}
	b.rules = append(b.rules, rule{name: name, min: e.min, max: e.max, counted: true, inner: !sub.calls()})
	b.bodies = append(b.bodies, sub)
	b.nodes[from].calls = append(b.nodes[from].calls, call{i, to})
	return nil
}

func (b *builder) buildDFA(d *dfa, from, to int32) {
	base := int32(len(b.nodes))
	for range d.accept {
		b.node()
	}
	b.join(from, base)
	for i, row := range d.next {
		at := base + int32(i)
		if d.accept[i] {
			b.join(at, to)
		}
		for lo := 0; lo < 256; {
			hi := lo
			for hi < 255 && row[hi+1] == row[lo] {
				hi++
			}
			if row[lo] >= 0 {
				b.nodes[at].edges = append(b.nodes[at].edges, edge{byte(lo), byte(hi), base + row[lo]})
			}
			lo = hi + 1
		}
	}
}

// findNullable marks the rules that the empty string belongs to, and sets the least count of those that repeat one.
func (b *builder) findNullable() {
	reach := make([]bool, len(b.nodes)) // the rule can end from here without a byte
	into := make([][]int32, len(b.nodes))
	callInto := make([][]int32, len(b.nodes))
	callers := make([][]int32, len(b.rules))
	for i := range b.nodes {
		for _, to := range b.nodes[i].eps {
			into[to] = append(into[to], int32(i))
		}
		for _, c := range b.nodes[i].calls {
			callInto[c.to] = append(callInto[c.to], int32(i))
			callers[c.rule] = append(callers[c.rule], int32(i))
		}
	}
	var work []int32
	mark := func(i int32) {
		if !reach[i] {
			reach[i] = true
			work = append(work, i)
		}
	}
	revisit := func(i int32) {
		for _, c := range b.nodes[i].calls {
			if b.rules[c.rule].nullable && reach[c.to] {
				mark(i)
			}
		}
	}
	setNullable := func(r int32) {
		if !b.rules[r].nullable {
			b.rules[r].nullable = true
			for _, j := range callers[r] {
				revisit(j)
			}
		}
	}
	for i := range b.rules {
		mark(b.ends[i])
		if b.rules[i].counted && b.rules[i].min == 0 {
			b.rules[i].nullable = true
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for _, j := range into[i] {
			mark(j)
		}
		for _, j := range callInto[i] {
			revisit(j)
		}
		if r := b.owner[i]; b.starts[r] == i {
			if b.rules[r].counted {
				b.rules[r].min = 0 // turns may be empty, so fewer do
			}
			setNullable(r)
		}
	}
}

// eliminate folds the empty moves into positions and leaves out the nodes that nothing leads to.
func (b *builder) eliminate() *program {
	p := &program{rules: b.rules}
	number := make([]int32, len(b.nodes))
	for i := range number {
		number[i] = -1
	}
	var work []int32
	use := func(i int32) int32 {
		if number[i] < 0 {
			number[i] = int32(len(p.pos))
			p.pos = append(p.pos, position{rule: b.owner[i]})
			work = append(work, i)
		}
		return number[i]
	}
	for i := range p.rules {
		p.rules[i].start = use(b.starts[i])
	}
	seen := make([]int32, len(b.nodes))
	var closure []int32
	for stamp := int32(1); len(work) > 0; stamp++ {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		q := position{rule: b.owner[i]}
		closure = append(closure[:0], i)
		seen[i] = stamp
		visit := func(j int32) {
			if seen[j] != stamp {
				seen[j] = stamp
				closure = append(closure, j)
			}
		}
		for k := 0; k < len(closure); k++ {
			n := &b.nodes[closure[k]]
			q.final = q.final || closure[k] == b.ends[q.rule]
			for _, to := range n.eps {
				visit(to)
			}
			for _, e := range n.edges {
				q.edges = append(q.edges, edge{e.lo, e.hi, use(e.to)})
			}
			for _, c := range n.calls {
				q.calls = append(q.calls, call{c.rule, use(c.to)})
				if b.rules[c.rule].nullable {
					visit(c.to)
				}
			}
		}
		slices.SortFunc(q.calls, func(a, b call) int { return int(a.rule) - int(b.rule) })
		p.pos[number[i]] = q
	}
	return p
}
