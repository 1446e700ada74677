package diff

import (
	"fmt"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// contextLines are shown around each difference.
const contextLines = 3

// line is a line of IR text.
type line struct {
	number int // from 1
	text   string
	// key is the text with the numbers of values and symbols taken out, names are they in their order.
	key   string
	names []string
}

// diffGraphs compares the texts of two modules up to the numbers of values and symbols. It gives the unified
// diff and the numbers of lines added and removed.
func diffGraphs(a, b *ir.Module) (diff []string, added, removed int) {
	la, lb := graphLines(a), graphLines(b)
	edits := compareLines(la, lb)
	for _, e := range edits {
		switch e.kind {
		case '+':
			added++
		case '-':
			removed++
		}
	}
	return unified(edits), added, removed
}

// graphLines returns the lines of a module's text that no other comparison covers.
func graphLines(m *ir.Module) []line {
	var out []line
	for i, text := range strings.Split(strings.TrimSuffix(m.String(), "\n"), "\n") {
		if strings.HasPrefix(text, "  constant @") || strings.HasPrefix(text, "  method ") {
			continue
		}
		l := line{number: i + 1, text: text}
		l.key, l.names = takeNames(text)
		out = append(out, l)
	}
	return out
}

// takeNames takes the numbered values (%12) and the symbols (s3) out of a line. Names of parameters, constants
// and buffers and quoted strings stay.
func takeNames(text string) (key string, names []string) {
	var b strings.Builder
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			b.WriteString(text[i:end])
			i = end
		case c == '%' || c == '@' || c == '^' || isWord(c):
			end := i + 1
			for end < len(text) && isWord(text[end]) {
				end++
			}
			word := text[i:end]
			if (c == '%' || c == 's') && isNumber(word[1:]) {
				names = append(names, word)
				word = word[:1]
			}
			b.WriteString(word)
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String(), names
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.'
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// edit is a line of a diff: kind is ' ', '-' or '+'.
type edit struct {
	kind byte
	a, b int // numbers of the lines in either text that come next
	text string
}

// compareLines aligns lines by their keys and checks that the names of aligned lines correspond one to one:
// a value of one text is the same value of the other wherever it is used. Where lines that define a value
// differ, the values are taken to correspond, so that what follows differs only where it does.
func compareLines(a, b []line) []edit {
	keysA, keysB := make([]string, len(a)), make([]string, len(b))
	for i, l := range a {
		keysA[i] = l.key
	}
	for i, l := range b {
		keysB[i] = l.key
	}
	var out []edit
	values := correspondence{map[string]string{}, map[string]string{}}
	i, j := 0, 0
	// Lines are removed before others are added in their place.
	advance := func(toA, toB int) {
		for ; i < toA; i++ {
			out = append(out, edit{'-', a[i].number, numberAt(b, j), a[i].text})
		}
		for ; j < toB; j++ {
			out = append(out, edit{'+', numberAt(a, i), b[j].number, b[j].text})
		}
	}
	for _, p := range align(keysA, keysB) {
		advance(p.a, p.b)
		la, lb := a[p.a], b[p.b]
		if strings.HasPrefix(la.text, "  entry ") {
			values.forgetValues() // the numbers of the entry function begin anew
		}
		if !values.match(la.names, lb.names) {
			advance(p.a+1, p.b+1)
			continue
		}
		out = append(out, edit{' ', la.number, lb.number, lb.text})
		i, j = i+1, j+1
	}
	advance(len(a), len(b))
	return out
}

// numberAt returns the number of line i, or of the one after the last.
func numberAt(lines []line, i int) int {
	if i < len(lines) {
		return lines[i].number
	}
	if len(lines) == 0 {
		return 1
	}
	return lines[len(lines)-1].number + 1
}

// correspondence pairs the names of two texts.
type correspondence struct{ to, from map[string]string }

// match pairs names that have no partner yet and reports whether all are partners of each other.
func (c correspondence) match(a, b []string) bool {
	same := true
	for i := range a {
		to, known := c.to[a[i]]
		from, taken := c.from[b[i]]
		switch {
		case !known && !taken:
			c.to[a[i]], c.from[b[i]] = b[i], a[i]
		case to != b[i] || from != a[i]:
			same = false
		}
	}
	return same
}

// forgetValues forgets the pairs of values; symbols remain.
func (c correspondence) forgetValues() {
	for _, m := range []map[string]string{c.to, c.from} {
		for name := range m {
			if name[0] == '%' {
				delete(m, name)
			}
		}
	}
}

// unified writes edits as hunks with context.
func unified(edits []edit) []string {
	var out []string
	for i := 0; i < len(edits); {
		if edits[i].kind == ' ' {
			i++
			continue
		}
		begin := max(0, i-contextLines)
		end := i
		for last := i; end < len(edits) && end-last <= 2*contextLines+1; end++ {
			if edits[end].kind != ' ' {
				last = end
			}
		}
		for end > i && edits[end-1].kind == ' ' {
			end--
		}
		i = end
		end = min(end+contextLines, len(edits))
		var countA, countB int
		for _, e := range edits[begin:end] {
			if e.kind != '+' {
				countA++
			}
			if e.kind != '-' {
				countB++
			}
		}
		out = append(out, fmt.Sprintf("@@ -%d,%d +%d,%d @@", edits[begin].a, countA, edits[begin].b, countB))
		for _, e := range edits[begin:end] {
			out = append(out, string(e.kind)+e.text)
		}
	}
	return out
}
