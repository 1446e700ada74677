package template

import (
	"html"
	"strings"
)

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escape replaces what HTML gives a meaning.
func (in *interp) escape(s string) string {
	in.alloc(len(s))
	if !strings.ContainsAny(s, `&<>"'`) {
		return s
	}
	in.alloc(4 * strings.Count(s, `"`))
	s = htmlEscapes.Replace(s)
	in.alloc(len(s))
	return s
}

// escapeText returns the text of a value, escaped unless it is a Markup.
func (in *interp) escapeText(v Value) string {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return in.escape(in.str(v))
}

func (in *interp) escapeValue(v Value) Value { return markup(in.escapeText(v)) }

func (in *interp) unescapeHTML(s string) string {
	in.alloc(2 * len(s))
	return html.UnescapeString(s)
}

// stripTags removes comments and tags, makes white space single blanks and replaces the entities.
func (in *interp) stripTags(s string) string {
	in.alloc(2 * len(s))
	s = cutBetween(s, "<!--", "-->")
	s = cutBetween(s, "<", ">")
	return in.unescapeHTML(strings.Join(strings.FieldsFunc(s, isSpace), " "))
}

// cutBetween removes the parts between the marks, marks included, as long as both are found.
func cutBetween(s, open, end string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, open)
		if i < 0 {
			break
		}
		j := strings.Index(s[i:], end)
		if j < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+j+len(end):]
	}
	b.WriteString(s)
	return b.String()
}
