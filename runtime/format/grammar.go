package format

import (
	"encoding/json"
	"fmt"
	"strings"
)

// QuoteMark stands for the quote token in the grammars of Grammar: a character of private use.
const QuoteMark = "\U0010FFFD"

// Parameter is a parameter of a tool, for Grammar.
type Parameter struct {
	Name     string
	Required bool
	// Type is the JSON schema's, "" where it has none or several; Enum are the values that it lists, as JSON.
	Type string
	Enum []json.RawMessage
}

// Signature is a tool with its parameters in order, for Grammar.
type Signature struct {
	Name       string
	Parameters []Parameter
}

// Grammar returns the grammar (GBNF) of what stands between the marks of a call of one of the tools; ok is false for
// families that write JSON, whose calls a JSON schema describes.
func (f *Format) Grammar(tools []Signature) (grammar string, ok bool) {
	g := &grammarWriter{}
	switch f.table.body {
	case xmlBody:
		g.xml(tools)
	case callBody:
		g.bare(tools)
	default:
		return "", false
	}
	return g.b.String(), true
}

// grammarWriter writes rules.
type grammarWriter struct{ b strings.Builder }

func (g *grammarWriter) rule(name, format string, args ...any) {
	fmt.Fprintf(&g.b, "%s ::= %s\n", name, fmt.Sprintf(format, args...))
}

// literal returns the GBNF expression that matches a text: the text in quotes, with escapes.
func literal(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7F:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// root writes the rule root: a call of any of the tools, between the texts before and after. The rule of tool number i
// is called f and i.
func (g *grammarWriter) root(tools []Signature, before, behind string) {
	var names []string
	for i := range tools {
		names = append(names, fmt.Sprint("f", i))
	}
	g.rule("root", "%s (%s) %s", literal(before), strings.Join(names, " | "), literal(behind))
}

// xml writes the grammar of xmlBody.
func (g *grammarWriter) xml(tools []Signature) {
	g.root(tools, "\n", "\n")
	for i, t := range tools {
		body := literal("<function=" + t.Name + ">\n")
		for _, p := range t.Parameters {
			one := fmt.Sprintf("(%s %s %s)", literal("<parameter="+p.Name+">\n"), g.xmlValue(p),
				literal("\n</parameter>\n"))
			if !p.Required {
				one += "?"
			}
			body += " " + one
		}
		g.rule(fmt.Sprint("f", i), "%s %s", body, literal("</function>"))
	}
	g.rule("text", `([^<] | "<" [^/])*`)
	g.numbers()
	g.rule("value", `object | array | string | number | boolean | "null"`)
	g.rule("object", `"{" (member ("," " "? member)*)? "}"`)
	g.rule("member", `string ":" " "? value`)
	g.rule("array", `"[" (value ("," " "? value)*)? "]"`)
	g.rule("string", `"\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""`)
}

func (g *grammarWriter) numbers() {
	g.rule("integer", `"-"? ("0" | [1-9] [0-9]{0,17})`)
	g.rule("number", `integer ("." [0-9]{1,15})?`)
	g.rule("boolean", `"true" | "false"`)
}

// xmlValue returns the GBNF expression for the values of a parameter in a call of xmlBody.
func (g *grammarWriter) xmlValue(p Parameter) string {
	if list := listed(p, func(s string) string { return s }); list != "" {
		return list
	}
	switch p.Type {
	case "string":
		return "text"
	case "integer", "number", "boolean", "object", "array":
		return p.Type
	case "null":
		return `"null"`
	}
	return "value"
}

// listed returns the GBNF alternatives of the values that a parameter's enum lists, in parentheses, or "" if it has no
// enum. text returns how a call writes a value that is a string; other values are written as JSON.
func listed(p Parameter, text func(string) string) string {
	var out []string
	for _, raw := range p.Enum {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			out = append(out, literal(text(s)))
		} else {
			out = append(out, literal(string(raw)))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "(" + strings.Join(out, " | ") + ")"
}

// bare writes the grammar of callBody.
func (g *grammarWriter) bare(tools []Signature) {
	g.root(tools, "call:", "")
	for i, t := range tools {
		f := fmt.Sprint("f", i)
		g.rule(f, "%s %s-0-first %s", literal(t.Name+"{"), f, literal("}"))
		for k, p := range t.Parameters {
			one := fmt.Sprintf("%s %s", literal(p.Name+":"), bareValue(p))
			first := fmt.Sprintf("%s %s-%d-more", one, f, k+1)
			more := fmt.Sprintf(`"," %s`, first)
			if !p.Required {
				first += fmt.Sprintf(" | %s-%d-first", f, k+1)
				more += fmt.Sprintf(" | %s-%d-more", f, k+1)
			}
			g.rule(fmt.Sprintf("%s-%d-first", f, k), "%s", first)
			g.rule(fmt.Sprintf("%s-%d-more", f, k), "%s", more)
		}
		g.rule(fmt.Sprintf("%s-%d-first", f, len(t.Parameters)), `""`)
		g.rule(fmt.Sprintf("%s-%d-more", f, len(t.Parameters)), `""`)
	}
	g.numbers()
	g.rule("string", `%s [^%s]* %s`, literal(QuoteMark), QuoteMark, literal(QuoteMark))
	g.rule("key", `[A-Za-z_] [A-Za-z0-9_-]*`)
	g.rule("value", `object | array | string | number | boolean | "null"`)
	g.rule("object", `"{" (key ":" value ("," key ":" value)*)? "}"`)
	g.rule("array", `"[" (value ("," value)*)? "]"`)
}

// bareValue returns the grammar of a parameter's value.
func bareValue(p Parameter) string {
	if list := listed(p, func(s string) string { return QuoteMark + s + QuoteMark }); list != "" {
		return list
	}
	switch p.Type {
	case "string", "integer", "number", "boolean", "object", "array":
		return p.Type
	case "null":
		return `"null"`
	}
	return "value"
}
