package constrain

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of a program. They bound what a stranger's grammar may cost.
const (
	maxPositions = 1 << 20 // positions of a program
	maxRules     = 1 << 17 // rules of a program
	inlineSize   = 24      // a counted repetition up to this many positions is written out
)

// edge goes from a position to another by one byte from lo to hi.
type edge struct {
	lo, hi byte
	to     int32
}

// call goes from a position to another by a string of a rule, which is not empty.
type call struct {
	rule int32
	to   int32
}

// position is a place in a rule. It has no empty moves: they are folded into its edges and calls.
type position struct {
	edges []edge
	calls []call
	rule  int32
	final bool // the rule (of a counted rule: one turn of its body) may end here
}

// rule is a part of a program that other rules call. A counted rule is its body min to max times; its start has no edge
// that leads back to it.
type rule struct {
	name     string
	start    int32
	min, max int32
	order    int32 // callers at their start come before what they call
	counted  bool
	nullable bool
	inner    bool // made for a repetition: masks see through it to the rule around
}

// program is a pushdown automaton over bytes. Rule 0 is where it starts.
type program struct {
	pos     []position
	rules   []rule
	classOf [256]uint8 // bytes of one class lead to the same places from everywhere
	first   []byte     // one byte of each class
	width   []int      // the number of bytes of each class
}

// source is the output of a front end: named rules. The first rule describes the whole text.
type source struct {
	names  []string
	bodies []*expr
}

// add makes room for a rule and gives its number; its body is set later.
func (s *source) add(name string) int32 {
	s.names = append(s.names, name)
	s.bodies = append(s.bodies, none)
	return int32(len(s.bodies) - 1)
}

// compileProgram makes an automaton of the rules. It refuses left recursion, a language without any string, and rules
// that are too large.
func compileProgram(s *source) (*program, error) {
	b := &builder{}
	for i, name := range s.names {
		b.rules = append(b.rules, rule{name: name, min: 1, max: 1})
		b.bodies = append(b.bodies, s.bodies[i])
	}
	for i := 0; i < len(b.rules); i++ { // building adds counted rules after
		if err := b.buildRule(int32(i)); err != nil {
			return nil, err
		}
	}
	b.findNullable()
	p := b.eliminate()
	if !p.trim() {
		return nil, fmt.Errorf("nothing satisfies it: there is no text that ends")
	}
	if err := p.sortRules(); err != nil {
		return nil, err
	}
	p.classes()
	return p, nil
}

// trim takes away the edges and calls from which a rule cannot end, and reports whether rule 0 can.
func (p *program) trim() bool {
	productive := make([]bool, len(p.rules))
	live := make([]bool, len(p.pos))
	into := make([][]int32, len(p.pos)) // the positions with a move to this one
	callers := make([][]int32, len(p.rules))
	var work []int32
	mark := func(i int32) {
		if !live[i] {
			live[i] = true
			work = append(work, i)
		}
	}
	for i := range p.pos {
		for _, e := range p.pos[i].edges {
			into[e.to] = append(into[e.to], int32(i))
		}
		for _, c := range p.pos[i].calls {
			callers[c.rule] = append(callers[c.rule], int32(i))
		}
		if p.pos[i].final {
			mark(int32(i))
		}
	}
	revisit := func(i int32) { // a call of i may have become possible
		for _, c := range p.pos[i].calls {
			if productive[c.rule] && live[c.to] {
				mark(i)
			}
		}
	}
	callInto := make([][]int32, len(p.pos))
	for i := range p.pos {
		for _, c := range p.pos[i].calls {
			callInto[c.to] = append(callInto[c.to], int32(i))
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
		if r := p.pos[i].rule; p.rules[r].start == i && !productive[r] {
			productive[r] = true
			for _, j := range callers[r] {
				revisit(j)
			}
		}
	}
	for i := range p.pos {
		q := &p.pos[i]
		q.edges = slices.DeleteFunc(q.edges, func(e edge) bool { return !live[e.to] })
		q.calls = slices.DeleteFunc(q.calls, func(c call) bool { return !live[c.to] || !productive[c.rule] })
	}
	return productive[0]
}

// sortRules gives each rule its order, or says which rules begin with themselves.
func (p *program) sortRules() error {
	state := make([]uint8, len(p.rules)) // 1: being visited, 2: done
	var order []int32
	type frame struct {
		rule int32
		next int
	}
	for root := range p.rules {
		if state[root] != 0 {
			continue
		}
		stack := []frame{{rule: int32(root)}}
		state[root] = 1
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			calls := p.pos[p.rules[f.rule].start].calls
			if f.next == len(calls) {
				state[f.rule] = 2
				order = append(order, f.rule)
				stack = stack[:len(stack)-1]
				continue
			}
			to := calls[f.next].rule
			f.next++
			switch state[to] {
			case 1:
				var names []string
				seen := false
				for _, g := range stack {
					if seen = seen || g.rule == to; seen {
						names = append(names, p.rules[g.rule].name)
					}
				}
				return fmt.Errorf("a rule begins with itself (%s → %s); write the recursion on the right",
					strings.Join(names, " → "), p.rules[to].name)
			case 0:
				state[to] = 1
				stack = append(stack, frame{rule: to})
			}
		}
	}
	for i, r := range order {
		p.rules[r].order = int32(len(order) - i)
	}
	return nil
}

// classes finds the classes of bytes.
func (p *program) classes() {
	var begins [257]bool
	for i := range p.pos {
		for _, e := range p.pos[i].edges {
			begins[e.lo] = true
			begins[int(e.hi)+1] = true
		}
	}
	for b := range 256 {
		if b == 0 || begins[b] {
			p.first = append(p.first, byte(b))
			p.width = append(p.width, 0)
		}
		p.classOf[b] = uint8(len(p.first) - 1)
		p.width[len(p.first)-1]++
	}
}
