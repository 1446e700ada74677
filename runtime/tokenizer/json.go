package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/etc-ml/etc/internal/kind"
)

// An Error says what in a tokenizer.json is wrong or not supported.
type Error struct {
	File   string
	Path   string // of the value, as in pre_tokenizer.pretokenizers[0].pattern.Regex; empty for the whole file
	Reason string // what was found and what is expected or supported
}

// Is reports whether target is what all errors about a file's content are.
func (e *Error) Is(target error) bool { return target == kind.ErrInvalid }

func (e *Error) Error() string {
	if e.Path == "" {
		return e.File + ": " + e.Reason
	}
	return e.File + ": " + e.Path + ": " + e.Reason
}

// fail ends the parsing of a file; Parse turns it into the returned error.
func fail(at *place, format string, args ...any) {
	panic(&Error{Path: at.String(), Reason: fmt.Sprintf(format, args...)})
}

// maxDepth is how deep values may nest. It is serde_json's bound, under which the library reads.
const maxDepth = 127

// A reader walks JSON text (RFC 8259), as strictly as serde_json: valid UTF-8, no lone surrogates, nothing after the
// value. Vocabularies and merges, which make up nearly all of a file, are taken in passing; see value for the rest.
// Strings that it returns may be parts of data: what outlives the reading is cloned.
type reader struct {
	data  string
	at    int
	depth int
}

func (r *reader) fail(format string, args ...any) {
	fail(nil, "byte %d: %s", r.at, fmt.Sprintf(format, args...))
}

// peek skips white space and returns the next byte, 0 at the end.
func (r *reader) peek() byte {
	for r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) found() string {
	if r.at >= len(r.data) {
		return "the end of the file"
	}
	return strconv.QuoteRune(rune(r.data[r.at]))
}

func (r *reader) expect(c byte) {
	if r.peek() != c {
		r.fail("expected %q, found %s", c, r.found())
	}
	r.at++
}

// object calls each for every member, with the reader at its value.
func (r *reader) object(each func(key string)) {
	r.list('{', '}', func(int) {
		key := r.str()
		r.expect(':')
		each(key)
	})
}

// array calls each for every element, with the reader at it.
func (r *reader) array(each func(i int)) { r.list('[', ']', each) }

func (r *reader) list(open, end byte, each func(i int)) {
	r.expect(open)
	if r.depth++; r.depth > maxDepth {
		r.fail("values nest deeper than %d", maxDepth)
	}
	for i := 0; r.peek() != end || i > 0; i++ {
		each(i)
		if r.peek() == end {
			break
		}
		if r.peek() != ',' {
			r.fail("expected ',' or %q, found %s", end, r.found())
		}
		r.at++
	}
	r.at++
	r.depth--
}

func (r *reader) str() string {
	r.expect('"')
	start := r.at
	for {
		if r.at >= len(r.data) {
			r.at = start
			r.fail("a string that does not end")
		}
		if r.data[r.at] == '"' {
			break
		}
		if r.data[r.at] == '\\' {
			r.at++
		}
		r.at++
	}
	raw := r.data[start:r.at]
	r.at++
	plain, ascii := true, true
	for i := range len(raw) {
		c := raw[i]
		if c < ' ' {
			r.at = start
			r.fail("a control character %#02x in a string", c)
		}
		plain = plain && c != '\\'
		ascii = ascii && c < utf8.RuneSelf
	}
	if !ascii && !utf8.ValidString(raw) {
		r.at = start
		r.fail("a string that is not valid UTF-8")
	}
	if plain {
		return raw
	}
	s, ok := unescape(raw)
	if !ok {
		r.at = start
		r.fail("a string with an escape that JSON does not have, or half a surrogate pair")
	}
	return s
}

func unescape(raw string) (string, bool) {
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		if raw[0] != '\\' {
			out = append(out, raw[0])
			raw = raw[1:]
			continue
		}
		const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
		if i := strings.IndexByte(from, raw[1]); i >= 0 {
			out = append(out, to[i])
			raw = raw[2:]
			continue
		}
		c, ok := unescapeUnit(raw)
		if !ok {
			return "", false
		}
		raw = raw[6:]
		if utf16.IsSurrogate(c) {
			low, ok := unescapeUnit(raw)
			if c = utf16.DecodeRune(c, low); !ok || c == utf8.RuneError {
				return "", false
			}
			raw = raw[6:]
		}
		out = utf8.AppendRune(out, c)
	}
	return string(out), true
}

// unescapeUnit reads \uXXXX.
func unescapeUnit(raw string) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(raw[2:6], 16, 16)
	return rune(v), err == nil
}

// number reads a number and returns its text.
func (r *reader) number() string {
	r.peek()
	start := r.at
	digits := func() bool {
		from := r.at
		for r.at < len(r.data) && '0' <= r.data[r.at] && r.data[r.at] <= '9' {
			r.at++
		}
		return r.at > from
	}
	next := func(set string) bool {
		if r.at < len(r.data) && strings.IndexByte(set, r.data[r.at]) >= 0 {
			r.at++
			return true
		}
		return false
	}
	next("-")
	ok := next("0") || digits()
	if next(".") {
		ok = ok && digits()
	}
	if next("eE") {
		next("+-")
		ok = ok && digits()
	}
	if !ok {
		r.at = start
		r.fail("expected a value, found %s", r.found())
	}
	return r.data[start:r.at]
}

type valueKind uint8

const (
	null valueKind = iota
	boolean
	number
	text
	array
	object
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

// A place is where a value stands: in the object or array up, under key or, if that is empty, at index.
type place struct {
	up    *place
	key   string
	index int
}

// String returns the path of a place, as in pre_tokenizer.pretokenizers[0].type.
func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case p.key == "":
		return fmt.Sprintf("%s[%d]", p.up, p.index)
	case p.up == nil:
		return abridge(p.key)
	default:
		return p.up.String() + "." + abridge(p.key)
	}
}

// A value is a JSON value that knows its place.
type value struct {
	at    *place
	kind  valueKind
	text  string // of a string, number or boolean
	items []value
	keys  []string // of an object, parallel to items
}

// value reads any value. A key that comes twice in an object is an error.
func (r *reader) value(at *place) value {
	v := value{at: at}
	switch c := r.peek(); c {
	case '{':
		v.kind = object
		seen := map[string]bool{}
		r.object(func(key string) {
			if seen[key] {
				fail(at, "the key %q comes twice", abridge(key))
			}
			seen[key] = true
			v.keys = append(v.keys, key)
			v.items = append(v.items, r.value(&place{up: at, key: key}))
		})
	case '[':
		v.kind = array
		r.array(func(i int) { v.items = append(v.items, r.value(&place{up: at, index: i})) })
	case '"':
		v.kind, v.text = text, r.str()
	default:
		for _, word := range []string{"null", "true", "false"} {
			if strings.HasPrefix(r.data[r.at:], word) {
				r.at += len(word)
				if v.text = word; word != "null" {
					v.kind = boolean
				}
				return v
			}
		}
		v.kind, v.text = number, r.number()
	}
	return v
}

func (v value) want(k valueKind) value {
	if v.kind != k {
		fail(v.at, "found %s, expected %s", v.describe(), kindNames[k])
	}
	return v
}

func (v value) describe() string {
	switch v.kind {
	case boolean, number:
		return v.text
	case text:
		return strconv.Quote(abridge(v.text))
	default:
		return kindNames[v.kind]
	}
}

func (v value) str() string   { return v.want(text).text }
func (v value) boolean() bool { return v.want(boolean).text == "true" }

// natural returns an integer from 0 to maxID.
func (v value) natural() int {
	n, ok := parseNatural(v.want(number).text)
	if !ok {
		fail(v.at, "found %s, expected an integer from 0 to %d", v.text, maxID)
	}
	return n
}

func parseNatural(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

// char returns the only character of a string.
func (v value) char() rune {
	c, n := utf8.DecodeRuneInString(v.str())
	if n == 0 || n != len(v.text) {
		fail(v.at, "found %s, expected a string of one character", v.describe())
	}
	return c
}

// abridge shortens a text for an error.
func abridge(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// A component is an object whose members are asked for one by one, so that in the end those that nobody asked for
// can be refused: they are flags of a kind that this package does not know.
type component struct {
	value
	asked []string
}

func newComponent(v value) *component { return &component{value: v.want(object)} }

// get returns a member, and whether it is there and not null.
func (c *component) get(key string) (value, bool) {
	if !slices.Contains(c.asked, key) {
		c.asked = append(c.asked, key)
	}
	if i := slices.Index(c.keys, key); i >= 0 {
		return c.items[i], c.items[i].kind != null
	}
	return value{at: &place{up: c.at, key: key}}, false
}

// need returns a member that must be there.
func (c *component) need(key string) value {
	v, ok := c.get(key)
	if !ok {
		fail(c.at, "%q is missing", key)
	}
	return v
}

// flag returns a boolean that may be missing.
func (c *component) flag(key string, missing bool) bool {
	if v, ok := c.get(key); ok {
		return v.boolean()
	}
	return missing
}

// oneOf returns a string that must be one of the given ones.
func (c *component) oneOf(key string, names ...string) string {
	v := c.need(key)
	if !slices.Contains(names, v.str()) {
		fail(v.at, "found %s; supported are %s", v.describe(), strings.Join(names, ", "))
	}
	return v.text
}

// done refuses the members that nobody asked for. One that is null is as good as absent.
func (c *component) done() {
	for i, key := range c.keys {
		if !slices.Contains(c.asked, key) && c.items[i].kind != null {
			fail(c.items[i].at, "found %s; this key is not known, supported are %s", c.items[i].describe(),
				strings.Join(c.asked, ", "))
		}
	}
}
