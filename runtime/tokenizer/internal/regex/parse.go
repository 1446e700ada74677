package regex

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// A SyntaxError says what in a pattern is wrong or not supported, and where.
type SyntaxError struct {
	Pattern string
	Offset  int // in bytes
	Reason  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("regular expression %q, byte %d: %s", e.Pattern, e.Offset, e.Reason)
}

// A node is a part of the syntax tree.
type node struct {
	kind     kind
	class    *class  // of a character
	subs     []*node // of a sequence, alternation, repetition, look-around
	min, max int     // of a repetition; max < 0: without bound
	lazy     bool
	negated  bool // of a look-around, a boundary
	behind   bool // of a look-around
	anchor   anchor
}

type kind uint8

const (
	character kind = iota
	sequence
	alternation
	repetition
	lookAround
	assertion
)

type anchor uint8

const (
	lineBegin anchor = iota // ^
	lineEnd                 // $
	textBegin               // \A
	textEnd                 // \z
	lastLine                // \Z: the end or before a last newline
	boundary                // \b, negated \B
)

// Bounds on patterns. The memory that a match may need is a bit per branch of the program and byte of text; a
// look-around tries all ways through its body, of which there may be two to the number of its branches.
const (
	maxDepth        = 100  // of groups
	maxRepeat       = 1000 // of an interval
	maxProgram      = 1024 // instructions
	maxLookBranches = 8
)

type parser struct {
	pattern string
	at      int
	depth   int
	fold    bool // inside (?i:)
}

func parse(pattern string) (n *node, err error) {
	p := &parser{pattern: pattern}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *SyntaxError:
			n, err = nil, e
		default:
			panic(e)
		}
	}()
	if !utf8.ValidString(pattern) {
		p.fail(0, "it is not valid UTF-8")
	}
	if p.accept("(?i)") {
		p.fold = true
	}
	n = p.alternation()
	if p.at < len(pattern) {
		p.fail(p.at, "a ) without its (")
	}
	return n, nil
}

func (p *parser) fail(at int, format string, args ...any) {
	panic(&SyntaxError{p.pattern, at, fmt.Sprintf(format, args...)})
}

func (p *parser) accept(s string) bool {
	if strings.HasPrefix(p.pattern[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *parser) peek() byte {
	if p.at < len(p.pattern) {
		return p.pattern[p.at]
	}
	return 0
}

func (p *parser) more() bool { return p.at < len(p.pattern) }

func (p *parser) next() rune {
	r, size := utf8.DecodeRuneInString(p.pattern[p.at:])
	p.at += size
	return r
}

func (p *parser) alternation() *node {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.at, "groups nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	alt := &node{kind: alternation}
	for {
		alt.subs = append(alt.subs, p.sequence())
		if !p.accept("|") {
			break
		}
	}
	if len(alt.subs) == 1 {
		return alt.subs[0]
	}
	return alt
}

func (p *parser) sequence() *node {
	seq := &node{kind: sequence}
	folded := "" // the letters before, inside (?i:)
	for p.more() && p.peek() != '|' && p.peek() != ')' {
		at := p.at
		n := p.atom()
		letter := ""
		if p.fold && n.kind == character && p.at == at+1 {
			letter = strings.ToLower(p.pattern[at:p.at])
		}
		// Oniguruma lets some pairs of letters match one character: ss ß, st ﬆ, ff fi fl their ligatures.
		if folded = folded + letter; letter == "" {
			folded = ""
		}
		for _, pair := range []string{"ss", "st", "ff", "fi", "fl"} {
			if strings.HasSuffix(folded, pair) {
				p.fail(at, "%q inside (?i:) also matches a ligature; that is not supported", pair)
			}
		}
		seq.subs = append(seq.subs, p.repeats(n, at))
	}
	if len(seq.subs) == 1 {
		return seq.subs[0]
	}
	return seq
}

// repeats reads what may follow an atom: * + ? {n,m}, and ? for the lazy form.
func (p *parser) repeats(n *node, start int) *node {
	at := p.at
	rep := &node{kind: repetition, subs: []*node{n}}
	interval := false
	switch p.peek() {
	case '*':
		rep.min, rep.max = 0, -1
		p.at++
	case '+':
		rep.min, rep.max = 1, -1
		p.at++
	case '?':
		rep.min, rep.max = 0, 1
		p.at++
	case '{':
		interval = true
		p.interval(rep)
	default:
		return n
	}
	if n.kind == lookAround || n.kind == assertion {
		p.fail(at, "a repetition of %q, which matches no characters", p.pattern[start:at])
	}
	if rep.max != 1 && n.nullable() {
		p.fail(at, "a repetition of %q, which can match nothing; that is not supported", p.pattern[start:at])
	}
	switch p.peek() {
	case '?':
		if interval && rep.min == rep.max {
			p.fail(p.at, "a ? after {n}, which Oniguruma takes for (?:...)?: write it so")
		}
		rep.lazy = true
		p.at++
	case '+':
		if !interval {
			p.fail(p.at, "a possessive repetition is not supported")
		}
	}
	switch p.peek() {
	case '*', '+', '?', '{':
		p.fail(p.at, "a repetition of a repetition: put the inner one into (?:...)")
	}
	return rep
}

func (p *parser) interval(rep *node) {
	at := p.at
	body, _, ok := strings.Cut(p.pattern[at+1:], "}")
	p.at += len(body) + 2
	lo, hi, comma := strings.Cut(body, ",")
	number := func(s string, empty int) int {
		if s == "" {
			return empty
		}
		v, err := strconv.ParseUint(s, 10, 16)
		if err != nil || v > maxRepeat {
			p.fail(at, "{%s} is not an interval {n}, {n,}, {,m} or {n,m} of numbers up to %d; write \\{ for "+
				"the character", body, maxRepeat)
		}
		return int(v)
	}
	if !ok || lo == "" && (!comma || hi == "") {
		p.fail(at, "a { that opens no interval; write \\{ for the character")
	}
	rep.min = number(lo, 0)
	switch {
	case !comma:
		rep.max = rep.min
	default:
		rep.max = number(hi, -1)
	}
	if rep.max >= 0 && rep.max < rep.min || rep.max == 0 {
		p.fail(at, "the interval {%s} is empty or backward", body)
	}
}

func (p *parser) atom() *node {
	at := p.at
	switch r := p.next(); r {
	case '(':
		return p.group(at)
	case '[':
		return p.charNode(p.bracket(at), at)
	case '.':
		return &node{kind: character, class: &class{negated: true, ranges: []ucd.Range{{Lo: '\n', Hi: '\n'}}}}
	case '^':
		return &node{kind: assertion, anchor: lineBegin}
	case '$':
		return &node{kind: assertion, anchor: lineEnd}
	case '*', '+', '?':
		p.fail(at, "a %c with nothing before it to repeat", r)
	case '{':
		p.fail(at, "a { that opens no interval; write \\{ for the character")
	case '\\':
		switch p.peek() {
		case 'A', 'z', 'Z', 'b', 'B':
			c := p.next()
			return &node{
				kind:    assertion,
				negated: c == 'B',
				anchor:  map[rune]anchor{'A': textBegin, 'z': textEnd, 'Z': lastLine, 'b': boundary, 'B': boundary}[c],
			}
		}
		return p.charNode(p.escape(at), at)
	default:
		return p.charNode(single(r), at)
	}
	panic("unreachable")
}

// charNode makes a class a node, folding case where (?i:) asks for it.
func (p *parser) charNode(c *class, at int) *node {
	n := &node{kind: character, class: c}
	if !p.fold {
		return n
	}
	if len(c.ranges) != 1 || c.ranges[0].Lo != c.ranges[0].Hi || c.negated || c.any != 0 ||
		len(c.union)+len(c.and) != 0 {
		p.fail(at, "a character class inside (?i:) is not supported, only literals")
	}
	r := c.ranges[0].Lo
	lower := r | 0x20
	switch {
	case r >= utf8.RuneSelf:
		p.fail(at, "%q inside (?i:) is not supported, only ASCII characters", r)
	case lower < 'a' || lower > 'z':
		return n
	case p.at != at+1:
		p.fail(at, "an escaped letter inside (?i:) is not supported")
	}
	n.class = &class{ranges: []ucd.Range{{Lo: lower, Hi: lower}, {Lo: lower - 0x20, Hi: lower - 0x20}}}
	switch lower {
	case 's':
		n.class.ranges = append(n.class.ranges, ucd.Range{Lo: 'ſ', Hi: 'ſ'})
	case 'k':
		n.class.ranges = append(n.class.ranges, ucd.Range{Lo: '\u212A', Hi: '\u212A'}) // the Kelvin sign
	}
	return n
}

func (p *parser) group(at int) *node {
	look := &node{kind: lookAround}
	fold := p.fold
	defer func() { p.fold = fold }()
	switch {
	case p.accept("?:"):
		look = nil
	case p.accept("?i:"):
		look, p.fold = nil, true
	case p.accept("?-i:"):
		look, p.fold = nil, false
	case p.accept("?="):
	case p.accept("?!"):
		look.negated = true
	case p.accept("?<="):
		look.behind = true
	case p.accept("?<!"):
		look.behind, look.negated = true, true
	case p.peek() == '?':
		p.fail(at, "the group %q is not supported; (...), (?:, (?i:, (?-i:, (?=, (?!, (?<=, (?<! are",
			prefix(p.pattern[at:], 4))
	default:
		look = nil // captures are of no use to a splitter
	}
	n := p.alternation()
	if !p.accept(")") {
		p.fail(at, "a ( without its )")
	}
	if look == nil {
		return &node{kind: sequence, subs: []*node{n}}
	}
	shortest, longest := n.width()
	if longest < 0 {
		p.fail(at, "a look-around of unbounded width is not supported")
	}
	if look.behind && shortest != longest {
		p.fail(at, "a look-behind of %d to %d characters is not supported, only of one width", shortest, longest)
	}
	look.subs, look.min = []*node{n}, longest
	return look
}

// escape reads what follows a backslash at offset at and means a character or a class of them.
func (p *parser) escape(at int) *class {
	if !p.more() {
		p.fail(at, "a \\ at the end")
	}
	switch r := p.next(); r {
	case 'n':
		return single('\n')
	case 'r':
		return single('\r')
	case 't':
		return single('\t')
	case 'f':
		return single('\f')
	case 'v':
		return single('\v')
	case 'a':
		return single('\a')
	case 'e':
		return single(0x1B)
	case 'd', 'D':
		return &class{negated: r == 'D', any: ucd.Nd}
	case 's', 'S':
		return &class{negated: r == 'S', any: ucd.Space}
	case 'w', 'W':
		return &class{negated: r == 'W', any: ucd.Word}
	case 'h', 'H':
		return &class{negated: r == 'H',
			ranges: []ucd.Range{{Lo: '0', Hi: '9'}, {Lo: 'a', Hi: 'f'}, {Lo: 'A', Hi: 'F'}}}
	case 'p', 'P':
		return p.property(at, r == 'P')
	case 'x':
		if p.accept("{") {
			return p.code(at, strings.IndexByte(p.pattern[p.at:], '}'), "}", utf8.MaxRune)
		}
		return p.code(at, 2, "", utf8.RuneSelf-1)
	case 'u':
		return p.code(at, 4, "", 0xFFFF)
	default:
		if r < utf8.RuneSelf && (r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9') {
			p.fail(at, "the escape \\%c is not supported", r)
		}
		return single(r)
	}
}

// code reads a character given by digits hexadecimal digits.
func (p *parser) code(at, digits int, end string, limit uint64) *class {
	if digits < 1 || p.at+digits > len(p.pattern) {
		p.fail(at, "a character code that does not end")
	}
	v, err := strconv.ParseUint(p.pattern[p.at:p.at+digits], 16, 32)
	if err != nil || v > limit || !utf8.ValidRune(rune(v)) {
		p.fail(at, "%q is not a character code of at most %X", p.pattern[p.at:p.at+digits], limit)
	}
	p.at += digits + len(end)
	return single(rune(v))
}

func (p *parser) property(at int, negated bool) *class {
	body, _, ok := strings.Cut(p.pattern[p.at:], "}")
	if !ok || !strings.HasPrefix(body, "{") {
		p.fail(at, "a \\p without {name}")
	}
	p.at += len(body) + 1
	name, inverse := strings.CutPrefix(body[1:], "^")
	c := &class{negated: negated != inverse}
	if mask, ok := ucd.Category(name); ok {
		c.any = mask
	} else if c.ranges, ok = ucd.Script(name); !ok {
		p.fail(at, "the property %q is not supported; general categories by their short names (L, Lu, Nd, ...), Han, "+
			"Hiragana, Katakana and Hangul are", name)
	}
	return c
}

// bracket reads a bracket expression whose [ at offset at is read.
func (p *parser) bracket(at int) *class {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.at, "groups nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	c := &class{negated: p.accept("^")}
	if p.peek() == ']' {
		p.fail(p.at, "an empty class, or a ] that should be \\]")
	}
	part := c // what is read: the class, or an operand of &&
	for {
		if !p.more() {
			p.fail(at, "a [ without its ]")
		}
		from := p.at
		switch {
		case p.accept("]"):
			return c
		case p.accept("&&"):
			part = &class{}
			c.and = append(c.and, part)
		case p.accept("[:"):
			p.fail(from, "a POSIX class is not supported; write \\p{...}")
		case p.accept("["):
			part.union = append(part.union, p.bracket(from))
		default:
			p.item(part)
		}
	}
}

// item reads one character, range or escape of a bracket expression.
func (p *parser) item(c *class) {
	at := p.at
	lo := p.classChar()
	if len(lo.ranges) != 1 || lo.negated || lo.ranges[0].Lo != lo.ranges[0].Hi {
		c.union = append(c.union, lo)
		if p.peek() == '-' && !strings.HasPrefix(p.pattern[p.at:], "-]") {
			p.fail(p.at, "a - after a class; write \\- for the character")
		}
		return
	}
	first := lo.ranges[0].Lo
	if first == '-' && p.pattern[at] == '-' && p.peek() != ']' && p.pattern[at-1] != '[' && p.pattern[at-1] != '^' {
		p.fail(at, "a - that is neither first nor last nor part of a range; write \\- for the character")
	}
	last := first
	if p.peek() == '-' && !strings.HasPrefix(p.pattern[p.at:], "-]") {
		p.at++
		if !p.more() || p.peek() == '[' {
			p.fail(p.at, "a range without an end")
		}
		hi := p.classChar()
		if len(hi.ranges) != 1 || hi.negated || hi.ranges[0].Lo != hi.ranges[0].Hi {
			p.fail(at, "a range that ends with a class")
		}
		last = hi.ranges[0].Lo
	}
	if last < first {
		p.fail(at, "the range %q is backward", p.pattern[at:p.at])
	}
	c.ranges = append(c.ranges, ucd.Range{Lo: first, Hi: last})
}

func (p *parser) classChar() *class {
	at := p.at
	r := p.next()
	if r != '\\' {
		return single(r)
	}
	switch p.peek() {
	case 'b':
		p.fail(at, "a \\b inside a class is not supported; write \\x08")
	case 'w', 'W':
		// Inside brackets Oniguruma's \w is without these, outside with them.
		c := &class{any: ucd.Word, and: []*class{{negated: true, ranges: []ucd.Range{
			{Lo: '²', Hi: '³'}, {Lo: '¹', Hi: '¹'}, {Lo: '¼', Hi: '¾'},
		}}}}
		c.negated = p.next() == 'W'
		return c
	}
	return p.escape(at)
}

// nullable says whether a node can match nothing.
func (n *node) nullable() bool {
	shortest, _ := n.width()
	return shortest == 0
}

// width returns how many characters a node matches at least and at most (-1: any number). It saturates far above
// every bound that matters.
func (n *node) width() (shortest, longest int) {
	const many = 1 << 30
	switch n.kind {
	case character:
		return 1, 1
	case sequence:
		for _, s := range n.subs {
			lo, hi := s.width()
			shortest = min(shortest+lo, many)
			if longest = longest + hi; longest > many || hi < 0 || longest < hi {
				longest = -1
			}
			if longest < 0 {
				longest = -many // stays negative whatever is added
			}
		}
		return shortest, max(longest, -1)
	case alternation:
		shortest = many
		for _, s := range n.subs {
			lo, hi := s.width()
			shortest = min(shortest, lo)
			if hi < 0 || longest < 0 {
				longest = -1
			} else {
				longest = max(longest, hi)
			}
		}
		return shortest, longest
	case repetition:
		lo, hi := n.subs[0].width()
		if n.max < 0 || hi < 0 || hi > many/max(n.max, 1) {
			longest = -1
		} else {
			longest = hi * n.max
		}
		return min(lo*n.min, many), longest
	default:
		return 0, 0
	}
}

func prefix(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
