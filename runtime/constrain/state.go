package constrain

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Limits of a machine.
const (
	maxItems  = 4096    // items of one state
	maxStates = 1 << 14 // states kept by content
	maxWork   = 1 << 23 // items moved for one mask: about a second
)

// item is one reading of the text so far: a position, the turns that its rule has done where that is a counted one, and
// where to go on when the rule ends.
type item struct {
	pos, count int32
	up         *frames
}

// frames is a set of items that wait for one rule to end. Equal sets that live at one time are one pointer.
type frames struct {
	id     uint64
	items  []item
	behind *state // the state of items alone, once it was asked for
}

// state is the set of all readings of the text so far: the items that can take a byte.
type state struct {
	id      uint64
	items   []item
	ends    bool     // the text so far is whole
	escapes bool     // the frame that the state began in has ended (see mask.go)
	next    []*state // by class of bytes, nil where it is not known yet
}

// machine runs a program. States and transitions come into being as they are asked for and are kept by content. A
// machine is not safe for use by several goroutines at once.
type machine struct {
	*program
	states  map[string]*state
	frameBy map[string]*frames
	ids     uint64
	start   *state
	dead    *state  // no text goes on from here
	complex *state  // dead, because of too many readings
	outside *frames // stands for the frames that a mask does not know
	work    int     // items moved since it was last set to 0

	// Scratch space.
	items  []item
	known  map[item]bool
	calls  map[int32][]item
	queue  []int32
	key    []byte
	frames []item
}

func newMachine(p *program) *machine {
	m := &machine{program: p, known: map[item]bool{}, calls: map[int32][]item{}}
	m.outside = &frames{}
	m.dead, m.complex = &state{}, &state{}
	m.reset()
	m.add(item{pos: p.rules[0].start})
	m.start = m.finish()
	return m
}

// reset forgets the states kept. Those that are held elsewhere stay valid, but forget where they lead.
func (m *machine) reset() {
	for _, s := range m.states {
		s.next = make([]*state, len(m.first))
	}
	m.states, m.frameBy = map[string]*state{}, map[string]*frames{}
	if m.start != nil {
		m.states[string(m.itemsKey(m.start.items, m.start.ends, m.start.escapes))] = m.start
	}
}

// step returns the state after byte b.
func (m *machine) step(s *state, b byte) *state {
	if s == m.dead || s == m.complex {
		return s
	}
	class := m.classOf[b]
	if next := s.next[class]; next != nil {
		return next
	}
	next := m.move(s, b)
	s.next[class] = next
	return next
}

func (m *machine) move(s *state, b byte) *state {
	m.work += len(s.items)
	for i := range s.items {
		it := &s.items[i]
		if !m.turns(it) {
			continue
		}
		for _, e := range m.pos[it.pos].edges {
			if e.lo <= b && b <= e.hi {
				m.arrive(e.to, it.count, it.up, m.add)
			}
		}
	}
	return m.finish()
}

// turns reports whether an item may continue in its rule: at the start of a counted rule only while repetitions are
// left.
func (m *machine) turns(it *item) bool {
	r := &m.rules[m.pos[it.pos].rule]
	return !r.counted || it.pos != r.start || it.count < r.max
}

// ended reports whether the rule of an item may end there. The item is after at least one byte of the rule.
func (m *machine) ended(it *item) bool {
	r := &m.rules[m.pos[it.pos].rule]
	if r.counted {
		return it.pos == r.start && it.count >= 1 && it.count >= r.min
	}
	return m.pos[it.pos].final
}

// arrive gives the items of coming to a position; in a counted rule, that may end a turn.
func (m *machine) arrive(to, count int32, up *frames, emit func(item)) {
	q := &m.pos[to]
	r := &m.rules[q.rule]
	if !r.counted {
		emit(item{pos: to, up: up})
		return
	}
	if q.final {
		next := count + 1
		if r.max == unbounded {
			next = min(next, max(r.min, 1))
		}
		emit(item{r.start, next, up})
	}
	if len(q.edges)+len(q.calls) > 0 {
		emit(item{to, count, up})
	}
}

// add notes an item of the state that is being made.
func (m *machine) add(it item) {
	if !m.known[it] && len(m.items) < maxItems {
		m.known[it] = true
		m.items = append(m.items, it)
	}
}

// finish ends the rules that may end at the items noted, begins the rules that they call, and gives the state.
func (m *machine) finish() *state {
	ends, escapes := false, false
	if len(m.items) == 0 {
		return m.dead
	}
	for i := 0; i < len(m.items); i++ {
		it := m.items[i]
		if !m.ended(&it) {
			continue
		}
		switch it.up {
		case nil:
			ends = true
		case m.outside:
			escapes = true
		default:
			for _, up := range it.up.items {
				m.add(up)
			}
		}
	}
	m.work += len(m.items)
	for i := range m.items {
		m.note(m.items[i])
	}
	for len(m.queue) > 0 {
		r := m.queue[0] // the least order: rules that it begins with come later
		m.queue = m.queue[1:]
		m.frames = append(m.frames[:0], m.calls[r]...)
		delete(m.calls, r)
		it := item{pos: m.rules[r].start, up: m.internFrames()}
		m.add(it)
		m.note(it)
	}
	m.queue = nil
	full := len(m.items) >= maxItems
	items := slices.DeleteFunc(m.items, func(it item) bool {
		return len(m.pos[it.pos].edges) == 0 || !m.turns(&it)
	})
	var s *state
	if full {
		s = m.complex
	} else {
		s = m.internState(items, ends, escapes)
	}
	m.items = m.items[:0]
	clear(m.known)
	return s
}

// note queues the rules that an item calls.
func (m *machine) note(it item) {
	if !m.turns(&it) {
		return
	}
	for _, c := range m.pos[it.pos].calls {
		if _, ok := m.calls[c.rule]; !ok {
			order := m.rules[c.rule].order
			at, _ := slices.BinarySearchFunc(m.queue, order, func(r, order int32) int {
				return cmp.Compare(m.rules[r].order, order)
			})
			m.queue = slices.Insert(m.queue, at, c.rule)
		}
		m.arrive(c.to, it.count, it.up, func(back item) {
			m.calls[c.rule] = append(m.calls[c.rule], back)
		})
	}
}

// internFrames returns the set of the items in m.frames. An item that can only end is replaced by those after it, so
// that recursion on the right does not grow a stack.
func (m *machine) internFrames() *frames {
	var items []item
	for _, it := range m.frames {
		q := &m.pos[it.pos]
		only := m.ended(&it) && (len(q.edges)+len(q.calls) == 0 || !m.turns(&it))
		if only && it.up != nil && it.up != m.outside {
			items = append(items, it.up.items...)
		} else {
			items = append(items, it)
		}
	}
	sortItems(items)
	items = slices.Compact(items)
	key := string(m.itemsKey(items, false, false))
	if f := m.frameBy[key]; f != nil {
		return f
	}
	m.ids++
	f := &frames{id: m.ids, items: items}
	m.frameBy[key] = f
	return f
}

func (m *machine) internState(items []item, ends, escapes bool) *state {
	if len(items) == 0 && !ends && !escapes {
		return m.dead
	}
	sortItems(items)
	key := m.itemsKey(items, ends, escapes)
	if s := m.states[string(key)]; s != nil {
		return s
	}
	if len(m.states) >= maxStates {
		held := string(key)
		m.reset()
		key = []byte(held)
	}
	m.ids++
	s := &state{id: m.ids, items: slices.Clone(items), ends: ends, escapes: escapes, next: make([]*state, len(m.first))}
	m.states[string(key)] = s
	return s
}

func sortItems(items []item) {
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.up.number(), b.up.number()), cmp.Compare(a.pos, b.pos),
			cmp.Compare(a.count, b.count))
	})
}

// number returns the identity of a set in keys: 0 for none, 1 for the one outside.
func (f *frames) number() uint64 {
	switch {
	case f == nil:
		return 0
	case f.id == 0:
		return 1
	}
	return f.id + 1
}

// itemsKey writes what tells states apart; it is valid until the next call.
func (m *machine) itemsKey(items []item, ends, escapes bool) []byte {
	k := m.key[:0]
	flags := byte(0)
	if ends {
		flags |= 1
	}
	if escapes {
		flags |= 2
	}
	k = append(k, flags)
	for _, it := range items {
		k = binary.AppendUvarint(k, uint64(it.pos))
		k = binary.AppendUvarint(k, uint64(it.count))
		k = binary.AppendUvarint(k, it.up.number())
	}
	m.key = k
	return k
}

// forced returns the only byte that can follow s, if there is only one and the text is not whole.
func (m *machine) forced(s *state) (byte, bool) {
	if s.ends {
		return 0, false
	}
	found := -1
	for c, b := range m.first {
		if next := m.step(s, b); next == m.dead || next == m.complex {
			continue
		}
		if found >= 0 || m.width[c] != 1 {
			return 0, false
		}
		found = c
	}
	if found < 0 {
		return 0, false
	}
	return m.first[found], true
}
