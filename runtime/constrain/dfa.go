package constrain

import "slices"

// maxDFA bounds the states of a deterministic automaton.
const maxDFA = 1 << 14

// maxMinimize bounds the states of an automaton that minimize joins; of larger ones it only takes away dead states,
// because Moore's algorithm takes a round for each state of a chain.
const maxMinimize = 512

// dfa is a deterministic automaton over bytes: next has the state after each byte, or -1. State 0 is the start. Every
// state can reach an accepting one, except for the start of an automaton that accepts nothing.
type dfa struct {
	next   [][256]int32
	accept []bool
}

// determinize makes a deterministic automaton of an expression without references.
// It reports false where that takes too many states.
func determinize(e *expr) (*dfa, bool) {
	if e.op == opDFA {
		return e.dfa, true
	}
	s := &source{}
	s.add("")
	s.bodies[0] = e
	if e.size(maxPositions) >= maxPositions {
		return nil, false
	}
	p, err := compileProgram(s)
	if err != nil { // the only rule cannot be left-recursive, so nothing satisfies it
		return emptyDFA(), true
	}
	m := newMachine(p)
	d := &dfa{}
	numbers := map[*state]int32{}
	var states []*state
	number := func(s *state) int32 {
		if s == m.dead {
			return -1
		}
		n, ok := numbers[s]
		if !ok {
			n = int32(len(states))
			numbers[s] = n
			states = append(states, s)
		}
		return n
	}
	number(m.start)
	for i := 0; i < len(states); i++ {
		var row [256]int32
		for b := range 256 {
			next := m.step(states[i], byte(b))
			if next == m.complex || m.work > 4*maxWork {
				return nil, false
			}
			row[b] = number(next)
		}
		d.next = append(d.next, row)
		d.accept = append(d.accept, states[i].ends)
		if len(states) > maxDFA {
			return nil, false
		}
	}
	return d.minimize(), true
}

func emptyDFA() *dfa {
	d := &dfa{next: make([][256]int32, 1), accept: []bool{false}}
	for b := range d.next[0] {
		d.next[0][b] = -1
	}
	return d
}

// empty reports whether no string is accepted.
func (d *dfa) empty() bool { return !slices.Contains(d.accept, true) }

// matches reports whether d accepts s.
func (d *dfa) matches(s string) bool {
	at := int32(0)
	for i := range len(s) {
		if at = d.next[at][s[i]]; at < 0 {
			return false
		}
	}
	return d.accept[at]
}

// combine makes the automaton of the strings for which keep holds of whether d and o accept them. keep(false, false)
// has to be false. It reports false where that takes too many states.
func (d *dfa) combine(o *dfa, keep func(a, b bool) bool) (*dfa, bool) {
	out := &dfa{}
	numbers := map[[2]int32]int32{}
	var pairs [][2]int32
	number := func(p [2]int32) int32 {
		if p[0] < 0 && p[1] < 0 || p[0] < 0 && !keep(false, true) || p[1] < 0 && !keep(true, false) {
			return -1
		}
		n, ok := numbers[p]
		if !ok {
			n = int32(len(pairs))
			numbers[p] = n
			pairs = append(pairs, p)
		}
		return n
	}
	number([2]int32{0, 0})
	step := func(d *dfa, at int32, b int) int32 {
		if at < 0 {
			return -1
		}
		return d.next[at][b]
	}
	for i := 0; i < len(pairs); i++ {
		p := pairs[i]
		var row [256]int32
		for b := range 256 {
			row[b] = number([2]int32{step(d, p[0], b), step(o, p[1], b)})
		}
		out.next = append(out.next, row)
		out.accept = append(out.accept, keep(p[0] >= 0 && d.accept[p[0]], p[1] >= 0 && o.accept[p[1]]))
		if len(pairs) > maxDFA {
			return nil, false
		}
	}
	return out.minimize(), true
}

func (d *dfa) and(o *dfa) (*dfa, bool) {
	return d.combine(o, func(a, b bool) bool { return a && b })
}

func (d *dfa) minus(o *dfa) (*dfa, bool) {
	return d.combine(o, func(a, b bool) bool { return a && !b })
}

// minimize takes away the states that cannot reach an accepting one and joins those that accept the same (Moore).
func (d *dfa) minimize() *dfa {
	live := d.live()
	if !live[0] {
		return emptyDFA()
	}
	if len(d.accept) > maxMinimize {
		return d.keep(live)
	}
	part := make([]int32, len(d.accept)) // -1: not live
	count := int32(0)
	for i := range part {
		part[i] = -1
		if live[i] && d.accept[i] {
			part[i] = 1
		} else if live[i] {
			part[i] = 0
		}
	}
	for {
		next, parts := d.refine(part)
		part = next
		if parts == count {
			break
		}
		count = parts
	}
	// The start is the first live state, so its part is number 0.
	out := &dfa{next: make([][256]int32, count), accept: make([]bool, count)}
	for i, p := range part {
		if p < 0 {
			continue
		}
		out.accept[p] = d.accept[i]
		for b, to := range d.next[i] {
			if out.next[p][b] = -1; to >= 0 {
				out.next[p][b] = part[to]
			}
		}
	}
	return out
}

// refine splits the parts whose states lead to different parts, and gives the number of parts; -1 is no part.
func (d *dfa) refine(part []int32) (next []int32, parts int32) {
	type sign struct {
		part int32
		row  [256]int32
	}
	numbers := map[sign]int32{}
	next = make([]int32, len(part))
	for i := range part {
		if next[i] = -1; part[i] < 0 {
			continue
		}
		s := sign{part: part[i]}
		for b, to := range d.next[i] {
			if s.row[b] = -1; to >= 0 {
				s.row[b] = part[to]
			}
		}
		n, ok := numbers[s]
		if !ok {
			n = int32(len(numbers))
			numbers[s] = n
		}
		next[i] = n
	}
	return next, int32(len(numbers))
}

// keep leaves out the states that are not live.
func (d *dfa) keep(live []bool) *dfa {
	number := make([]int32, len(live))
	out := &dfa{}
	for i := range live {
		if number[i] = -1; live[i] {
			number[i] = int32(len(out.accept))
			out.accept = append(out.accept, d.accept[i])
			out.next = append(out.next, d.next[i])
		}
	}
	for i := range out.next {
		for b, to := range out.next[i] {
			if to >= 0 {
				out.next[i][b] = number[to]
			}
		}
	}
	return out
}

// live finds the states that can reach an accepting one.
func (d *dfa) live() []bool {
	into := make([][]int32, len(d.accept))
	live := make([]bool, len(d.accept))
	var work []int32
	for i := range d.next {
		last := int32(-1)
		for _, to := range d.next[i] {
			if to >= 0 && to != last {
				into[to] = append(into[to], int32(i))
				last = to
			}
		}
		if d.accept[i] {
			live[i] = true
			work = append(work, int32(i))
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for _, j := range into[i] {
			if !live[j] {
				live[j] = true
				work = append(work, j)
			}
		}
	}
	return live
}

// expr returns the automaton as an expression.
func (d *dfa) expr() *expr {
	if d.empty() {
		return none
	}
	return &expr{op: opDFA, dfa: d}
}
