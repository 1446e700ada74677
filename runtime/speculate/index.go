package speculate

import "slices"

// MaxMatch is the length of the longest match that an [Index] looks for. It bounds the work for a token in texts that
// repeat themselves, such as a run of one token.
const MaxMatch = 64

// undoTokens is the number of last tokens that an [Index] can remove one by one. To remove more it is built anew.
const undoTokens = 256

// Index finds drafts in the text itself: it tells the longest end of the text, of at most MaxMatch tokens, that
// occurs in it before, and the latest of these places; the tokens after it are the draft.
//
// It is a suffix automaton (Blumer et al., The smallest automaton recognizing the subwords of a text, 1985), which
// grows by a token at a time in amortized constant time, and takes at most MaxMatch steps more for each. Its states
// are the sets of subwords that end at the same places of the text. The states of the ends of the text are on the
// way from the state of the longest one, along links, to that of the empty one; whenever a token comes, the states
// on the way of the text so far learn that its end is their latest place.
//
// The zero value is an empty text. An Index is not safe for concurrent use.
type Index struct {
	text   []int32
	states []state
	edges  []edge
	wide   map[[2]int32]int32 // edges of states with at least manyEdges of them, by state and token

	last   int32 // the state of the whole text
	end    int32 // the state of the last endLen tokens: MaxMatch of them, or the whole text
	endLen int32

	marks []mark // one for each of the last tokens, made before it was added
	undo  []note // changes since the first mark
}

// state is a set of subwords that end at the same positions of the text.
type state struct {
	length int32 // of its longest subword
	link   int32 // the state of the longest suffix that also ends elsewhere; -1 for the root
	latest int32 // the end of the latest occurrence
	edges  int32 // the first edge; -1 for none
	degree int32 // number of edges
}

// edge leads from a state to the state of its subwords with token appended.
type edge struct{ from, token, to, next int32 }

// mark holds the sizes and states of the index before a token was added.
type mark struct{ undo, states, edges, last, end, endLen int32 }

// note holds a state, or the target of an edge, before it changed.
type note struct {
	isEdge bool
	which  int32
	state  state
	to     int32
}

// manyEdges is the number of edges from which on a state's edges are found by a map.
const manyEdges = 8

// NewIndex returns an index of the text tokens.
func NewIndex(tokens ...int32) *Index {
	x := &Index{}
	x.Append(tokens...)
	return x
}

// Len returns the number of tokens of the text.
func (x *Index) Len() int { return len(x.text) }

// Append adds tokens to the text.
func (x *Index) Append(tokens ...int32) {
	for _, t := range tokens {
		x.add(t)
	}
}

// Truncate removes all tokens but the first n.
func (x *Index) Truncate(n int) {
	if back := len(x.text) - n; back > len(x.marks) {
		*x = *NewIndex(x.text[:n]...)
	} else {
		for ; back > 0; back-- {
			x.remove()
		}
	}
}

// Match returns the length of the longest end of the text, of at most MaxMatch tokens, that occurs earlier, and the
// position after its latest occurrence; 0, 0 if the last token is new.
func (x *Index) Match() (length, position int) {
	if len(x.text) == 0 {
		return 0, 0
	}
	s, n := x.end, x.endLen
	if s == x.last { // this end occurs nowhere else
		s = x.states[s].link
		n = x.states[s].length
	}
	if s == 0 {
		return 0, 0
	}
	return int(n), int(x.states[s].latest)
}

// Draft returns n tokens that are likely to follow: those after the latest occurrence of the longest match. They may
// run into themselves at the end of the text. It returns none if less than least tokens match.
func (x *Index) Draft(n, least int) []int32 {
	length, position := x.Match()
	if length < max(least, 1) {
		return nil
	}
	out := make([]int32, 0, n)
	for i := range n {
		if at := position + i; at < len(x.text) {
			out = append(out, x.text[at])
		} else {
			out = append(out, out[at-len(x.text)])
		}
	}
	return out
}

// add appends a token.
func (x *Index) add(token int32) {
	if x.states == nil {
		x.states, x.wide = []state{{link: -1, edges: -1}}, map[[2]int32]int32{}
	}
	x.forget()
	x.marks = append(x.marks, mark{int32(len(x.undo)), int32(len(x.states)), int32(len(x.edges)),
		x.last, x.end, x.endLen})
	// The text so far is a place of all its ends. They learn it now, so that what they know is the place before the
	// text's own whenever they are asked.
	for s := x.end; s > 0; s = x.states[s].link {
		x.change(s).latest = int32(len(x.text))
	}
	x.text = append(x.text, token)
	x.extend(token)
	if x.endLen == MaxMatch { // the first of its tokens goes
		if link := x.states[x.end].link; x.states[link].length == MaxMatch-1 {
			x.end = link
		}
	} else {
		x.endLen++
	}
	to, _ := x.find(x.end, token)
	x.end = x.edges[to].to
}

// extend appends a token to the automaton.
func (x *Index) extend(token int32) {
	now := x.newState(state{length: x.states[x.last].length + 1, latest: int32(len(x.text)), edges: -1})
	p := x.last
	x.last = now
	for ; p >= 0; p = x.states[p].link {
		if at, ok := x.find(p, token); ok {
			x.states[now].link = x.split(p, at)
			return
		}
		x.newEdge(p, token, now)
	}
	x.states[now].link = 0
}

// split returns the state of the longest subword of p followed by the token of one of its edges. That is where the
// edge leads, or a new state if longer subwords share that one: they now occur at fewer positions.
func (x *Index) split(p, at int32) int32 {
	q, token := x.edges[at].to, x.edges[at].token
	if x.states[q].length == x.states[p].length+1 {
		return q
	}
	old := x.states[q]
	clone := x.newState(state{length: x.states[p].length + 1, link: old.link, latest: old.latest, edges: -1})
	for e := old.edges; e >= 0; e = x.edges[e].next {
		x.newEdge(clone, x.edges[e].token, x.edges[e].to)
	}
	for ; p >= 0; p = x.states[p].link {
		at, ok := x.find(p, token)
		if !ok || x.edges[at].to != q {
			break
		}
		x.undo = append(x.undo, note{isEdge: true, which: at, to: q})
		x.edges[at].to = clone
	}
	x.change(q).link = clone
	// x.end is still that of the text without the token. It goes to the state that has its length.
	if x.end == q && x.endLen <= x.states[clone].length {
		x.end = clone
	}
	return clone
}

func (x *Index) newState(s state) int32 {
	x.states = append(x.states, s)
	return int32(len(x.states) - 1)
}

// change returns a state for the caller to change, and notes what it was.
func (x *Index) change(s int32) *state {
	if s < x.marks[len(x.marks)-1].states {
		x.undo = append(x.undo, note{which: s, state: x.states[s]})
	}
	return &x.states[s]
}

// find returns the edge of a state for a token.
func (x *Index) find(s, token int32) (at int32, ok bool) {
	if x.states[s].degree > manyEdges {
		at, ok = x.wide[[2]int32{s, token}]
		return at, ok
	}
	for at = x.states[s].edges; at >= 0; at = x.edges[at].next {
		if x.edges[at].token == token {
			return at, true
		}
	}
	return 0, false
}

func (x *Index) newEdge(from, token, to int32) {
	s := x.change(from)
	at := int32(len(x.edges))
	x.edges = append(x.edges, edge{from, token, to, s.edges})
	s.edges = at
	s.degree++
	if s.degree == manyEdges+1 {
		for e := at; e >= 0; e = x.edges[e].next {
			x.wide[[2]int32{from, x.edges[e].token}] = e
		}
	} else if s.degree > manyEdges {
		x.wide[[2]int32{from, token}] = at
	}
}

// remove removes the last token.
func (x *Index) remove() {
	m := x.marks[len(x.marks)-1]
	for _, e := range x.edges[m.edges:] {
		delete(x.wide, [2]int32{e.from, e.token})
	}
	for _, n := range slices.Backward(x.undo[m.undo:]) {
		if n.isEdge {
			x.edges[n.which].to = n.to
		} else {
			x.states[n.which] = n.state
		}
	}
	x.undo, x.states, x.edges = x.undo[:m.undo], x.states[:m.states], x.edges[:m.edges]
	x.last, x.end, x.endLen = m.last, m.end, m.endLen
	x.marks, x.text = x.marks[:len(x.marks)-1], x.text[:len(x.text)-1]
}

// forget drops the notes of tokens that are too old to be removed one by one, many at a time.
func (x *Index) forget() {
	if len(x.marks) < 2*undoTokens {
		return
	}
	gone := x.marks[undoTokens].undo
	x.undo = append(x.undo[:0], x.undo[gone:]...)
	x.marks = append(x.marks[:0], x.marks[undoTokens:]...)
	for i := range x.marks {
		x.marks[i].undo -= gone
	}
}
