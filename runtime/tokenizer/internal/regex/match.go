package regex

import (
	"iter"
	"unicode/utf8"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// All yields the begin and end of the matches in s, which must be valid UTF-8, from left to right: each is the
// leftmost after the one before, and an empty match is not taken right after another match.
func (re *Regex) All(s string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		m := matcher{re: re, text: s}
		at, last := 0, -1
		for at <= len(s) {
			begin, end := m.find(at)
			if begin < 0 {
				return
			}
			if begin == end && end == last {
				at += width(s, at)
				continue
			}
			if !yield(begin, end) {
				return
			}
			at, last = end, end
		}
	}
}

// width returns how many bytes the character at s[at:] has, 1 at the end.
func width(s string, at int) int {
	_, n := utf8.DecodeRuneInString(s[at:])
	return max(n, 1)
}

// A matcher is the state of matching one text.
type matcher struct {
	re    *Regex
	text  string
	stack []choice
	look  []choice // the stack of look-arounds, whose programs are short

	// After many steps the matcher remembers at which branches it was at which offsets: failed has one bit for each,
	// and trail the ones on the way to where it is, which have not failed yet.
	steps  int
	failed []uint64
	trail  []int
}

// A choice is where to go on when the way taken fails, and how long the trail was when it was taken.
type choice struct{ pc, at, trail int }

func (m *matcher) find(from int) (begin, end int) {
	for at := from; at <= len(m.text); at += width(m.text, at) {
		if end := m.match(at); end >= 0 {
			return at, end
		}
	}
	return -1, -1
}

// remember says whether this branch has failed at this offset before, and notes that it is being tried.
func (m *matcher) remember(branch, at int) bool {
	if m.failed == nil {
		if m.steps++; m.steps <= 64*(len(m.text)+16) {
			return false
		}
		m.failed = make([]uint64, (m.re.branch*(len(m.text)+1)+63)/64)
	}
	bit := at*m.re.branch + branch
	if m.failed[bit>>6]>>(bit&63)&1 != 0 {
		return true
	}
	m.failed[bit>>6] |= 1 << (bit & 63)
	m.trail = append(m.trail, bit)
	return false
}

// match returns where the match that begins at offset at ends, or -1.
func (m *matcher) match(at int) int {
	m.stack = m.stack[:0]
	m.trail = m.trail[:0]
	pc := 0
	for {
		in := &m.re.program[pc]
		ok := true
		switch in.op {
		case opSet:
			r, n := utf8.DecodeRuneInString(m.text[at:])
			ok = n > 0 && m.re.sets[in.arg].has(r)
			at += n
			pc++
		case opBranch:
			if ok = !m.remember(in.arg, at); ok {
				m.stack = append(m.stack, choice{in.y, at, len(m.trail)})
				pc = in.x
			}
		case opJump:
			pc = in.x
		case opAssert:
			ok = m.assert(in, at)
			pc++
		case opLook:
			ok = m.around(pc, at) != in.negated
			pc = in.x
		case opMatch:
			// What is on the trail led here: it has not failed.
			for _, bit := range m.trail {
				m.failed[bit>>6] &^= 1 << (bit & 63)
			}
			return at
		}
		if !ok {
			if len(m.stack) == 0 {
				return -1
			}
			c := m.stack[len(m.stack)-1]
			m.stack = m.stack[:len(m.stack)-1]
			pc, at, m.trail = c.pc, c.at, m.trail[:c.trail]
		}
	}
}

// around tries the body of the look-around at pc. Its width is bounded, so it needs no memory.
func (m *matcher) around(pc, at int) bool {
	in := &m.re.program[pc]
	if in.behind {
		for range in.arg {
			if at == 0 {
				return false
			}
			_, n := utf8.DecodeLastRuneInString(m.text[:at])
			at -= n
		}
	}
	base := len(m.look)
	defer func() { m.look = m.look[:base] }()
	pc++
	for {
		in := &m.re.program[pc]
		ok := true
		switch in.op {
		case opSet:
			r, n := utf8.DecodeRuneInString(m.text[at:])
			ok = n > 0 && m.re.sets[in.arg].has(r)
			at += n
			pc++
		case opBranch:
			m.look = append(m.look, choice{pc: in.y, at: at})
			pc = in.x
		case opJump:
			pc = in.x
		case opAssert:
			ok = m.assert(in, at)
			pc++
		case opLook:
			ok = m.around(pc, at) != in.negated
			pc = in.x
		case opMatch:
			return true
		}
		if !ok {
			if len(m.look) == base {
				return false
			}
			c := m.look[len(m.look)-1]
			m.look = m.look[:len(m.look)-1]
			pc, at = c.pc, c.at
		}
	}
}

func (m *matcher) assert(in *instruction, at int) bool {
	s := m.text
	switch in.anchor {
	case textBegin:
		return at == 0
	case textEnd:
		return at == len(s)
	case lastLine:
		return at == len(s) || at == len(s)-1 && s[at] == '\n'
	case lineBegin:
		return at == 0 || s[at-1] == '\n' && at < len(s)
	case lineEnd:
		return at == len(s) || s[at] == '\n'
	default:
		before, n := utf8.DecodeLastRuneInString(s[:at])
		in1 := n > 0 && ucd.Of(before)&ucd.Word != 0
		after, n := utf8.DecodeRuneInString(s[at:])
		in2 := n > 0 && ucd.Of(after)&ucd.Word != 0
		return (in1 != in2) != in.negated
	}
}
