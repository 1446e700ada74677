package format

import (
	"encoding/json"
	"strings"
)

// caller reads the body of one call. name is given once, when it is certain; arguments are given as they come.
type caller interface {
	text(s string) (name, arguments string)
	quote() // the token around texts
	finish() (name, arguments string)
	begun() bool // a name was given
}

func newCaller(b body, tools []Tool) caller {
	switch b {
	case xmlBody:
		return &xmlCaller{tools: tools}
	case callBody:
		return &bareCaller{}
	}
	return &jsonCaller{}
}

// quoted writes a text as JSON, without the escapes that are for HTML.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) //nolint:errcheck // a text can be written
	return strings.TrimSuffix(b.String(), "\n")
}

// jsonCaller reads {"name": "f", "arguments": {…}}.
type jsonCaller struct {
	all  string
	name string
	done bool // the arguments have ended
	// depth is the nesting of objects and arrays in the arguments. open says that the last character is inside of a
	// string, escape that it is a backslash there.
	depth        int
	open, escape bool
}

func (c *jsonCaller) begun() bool { return c.name != "" }
func (c *jsonCaller) quote()      {}

func (c *jsonCaller) text(s string) (name, arguments string) {
	if c.name != "" {
		return "", c.value(s)
	}
	c.all += s
	rest, ok := c.head()
	if !ok {
		return "", ""
	}
	return c.name, c.value(rest)
}

// head reads the part before the arguments, where the name comes first, and returns the rest.
func (c *jsonCaller) head() (rest string, ok bool) {
	rest, ok = cutToken(c.all, "{")
	for _, want := range []string{`"name"`, ":"} {
		if ok {
			rest, ok = cutToken(rest, want)
		}
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	if !ok || !strings.HasPrefix(rest, `"`) {
		return "", false
	}
	end := 1
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return "", false
	}
	var name string
	if json.Unmarshal([]byte(rest[:end+1]), &name) != nil || name == "" {
		return "", false
	}
	rest, ok = rest[end+1:], true
	for _, want := range []string{",", `"arguments"`, ":"} {
		if ok {
			rest, ok = cutToken(rest, want)
		}
	}
	if rest = strings.TrimLeft(rest, " \t\r\n"); !ok || !strings.HasPrefix(rest, "{") {
		return "", false
	}
	c.name = name
	return rest, true
}

func cutToken(s, token string) (string, bool) {
	return strings.CutPrefix(strings.TrimLeft(s, " \t\r\n"), token)
}

// value reads text of the arguments, and returns the beginning of it up to the end of the object.
func (c *jsonCaller) value(s string) string {
	for i := 0; i < len(s); i++ {
		if c.done {
			return s[:i]
		}
		switch b := s[i]; {
		case c.escape:
			c.escape = false
		case c.open:
			c.escape, c.open = b == '\\', b != '"'
		case b == '"':
			c.open = true
		case b == '{' || b == '[':
			c.depth++
		case b == '}' || b == ']':
			c.depth--
			c.done = c.depth == 0
		}
	}
	return s
}

// finish reads a body whose members come in another order, or that has no arguments.
func (c *jsonCaller) finish() (name, arguments string) {
	if c.name != "" {
		return "", ""
	}
	var whole struct {
		Name       string
		Arguments  json.RawMessage
		Parameters json.RawMessage
	}
	if json.Unmarshal([]byte(c.all), &whole) != nil || whole.Name == "" {
		return "", ""
	}
	c.name = whole.Name
	if whole.Arguments == nil {
		whole.Arguments = whole.Parameters
	}
	var inside string
	if json.Unmarshal(whole.Arguments, &inside) == nil { // arguments as a text of JSON
		whole.Arguments = json.RawMessage(inside)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(whole.Arguments, &object) != nil {
		return c.name, "{}"
	}
	return c.name, string(whole.Arguments)
}

// xmlCaller reads <function=f>, <parameter=a>, a value in lines of its own, </parameter>, </function>.
type xmlCaller struct {
	tools []Tool
	rest  string
	name  string
	count int
	done  bool
}

func (c *xmlCaller) begun() bool { return c.name != "" }
func (c *xmlCaller) quote()      {}

func (c *xmlCaller) text(s string) (name, arguments string) {
	c.rest += s
	if c.name == "" {
		head, ok := cutToken(c.rest, "<function=")
		called, rest, whole := strings.Cut(head, ">")
		if called = strings.TrimSpace(called); !ok || !whole || called == "" {
			return "", ""
		}
		c.name, c.rest = called, rest
		name, arguments = c.name, "{"
	}
	for !c.done {
		more, ok := c.parameter()
		if !ok {
			break
		}
		arguments += more
	}
	return name, arguments
}

// parameter reads one more, or the end of the function.
func (c *xmlCaller) parameter() (arguments string, ok bool) {
	if rest, ok := cutToken(c.rest, "</function>"); ok {
		c.rest, c.done = rest, true
		return "}", true
	}
	rest, ok := cutToken(c.rest, "<parameter=")
	end := strings.IndexByte(rest, '>')
	if !ok || end < 1 {
		return "", false
	}
	key, value := strings.TrimSpace(rest[:end]), rest[end+1:]
	stop, length := c.valueEnd(value)
	if stop < 0 {
		return "", false
	}
	c.rest = value[stop+length:]
	value = strings.TrimPrefix(value[:stop], "\n")
	if c.count > 0 {
		arguments = ", "
	}
	c.count++
	return arguments + quoted(key) + ": " + c.typed(key, value), true
}

// valueEnd finds the end of a value: a closing tag that another parameter or the end of the function follows, so that
// a text may have one in it.
func (c *xmlCaller) valueEnd(s string) (at, length int) {
	const closing = "</parameter>"
	for from := 0; ; {
		i := strings.Index(s[from:], closing)
		if i < 0 {
			return -1, 0
		}
		i += from
		behind := strings.TrimLeft(s[i+len(closing):], " \t\r\n")
		if strings.HasPrefix(behind, "<parameter=") || strings.HasPrefix(behind, "</function>") {
			if i > 0 && s[i-1] == '\n' {
				return i - 1, len(closing) + 1
			}
			return i, len(closing)
		}
		if strings.HasPrefix("<parameter=", behind) || strings.HasPrefix("</function>", behind) {
			return -1, 0 // what follows is not there yet
		}
		from = i + 1
	}
}

// typed writes a value as JSON: as text where the tool's parameter is one, else as the JSON that it is.
func (c *xmlCaller) typed(key, value string) string {
	for _, t := range c.tools {
		if t.Name == c.name && t.Texts[key] {
			return quoted(value)
		}
	}
	trimmed := strings.TrimSpace(value)
	switch trimmed { // as Python writes them
	case "True", "False":
		return strings.ToLower(trimmed)
	case "None":
		return "null"
	}
	if json.Valid([]byte(trimmed)) {
		return trimmed
	}
	return quoted(value)
}

func (c *xmlCaller) finish() (name, arguments string) {
	if c.name == "" || c.done {
		return "", ""
	}
	c.done = true
	if strings.TrimSpace(c.rest) == "" || strings.HasPrefix("</function>", strings.TrimSpace(c.rest)) {
		return "", "}"
	}
	if more, ok := c.parameterAtEnd(); ok {
		return "", more + "}"
	}
	return "", "}"
}

// parameterAtEnd reads a last parameter whose function is not closed.
func (c *xmlCaller) parameterAtEnd() (string, bool) {
	c.rest += "</function>"
	return c.parameter()
}

// bareCaller reads call:f{a:1,b:<|"|>text<|"|>,c:{d:true},e:[1,2]} and writes JSON: keys get quotation marks, texts
// stand between quote tokens.
type bareCaller struct {
	head   string
	name   string
	inText bool
	word   strings.Builder // a key or a value without quotation marks
	kinds  []byte          // { or [ for each object and array that is open
	key    bool            // a key comes next
	done   bool
	out    strings.Builder
}

func (c *bareCaller) begun() bool { return c.name != "" }

func (c *bareCaller) quote() {
	if c.name == "" || c.done {
		return
	}
	if !c.inText {
		c.flushWord()
	}
	c.out.WriteByte('"')
	c.inText = !c.inText
}

func (c *bareCaller) text(s string) (name, arguments string) {
	if c.name == "" {
		c.head += s
		rest, ok := cutToken(c.head, "call:")
		end := strings.IndexByte(rest, '{')
		if !ok || end < 0 {
			return "", ""
		}
		if c.name = strings.TrimSpace(rest[:end]); c.name == "" {
			return "", ""
		}
		name, s = c.name, rest[end:]
	}
	for i := 0; i < len(s) && !c.done; i++ {
		c.step(s[i])
	}
	return name, c.taken()
}

func (c *bareCaller) taken() string {
	s := c.out.String()
	c.out.Reset()
	return s
}

// step takes one byte after the name.
func (c *bareCaller) step(b byte) {
	if c.inText {
		switch {
		case b == '"' || b == '\\':
			c.out.WriteByte('\\')
			c.out.WriteByte(b)
		case b < ' ':
			c.out.WriteString(strings.Trim(quoted(string(b)), `"`))
		default:
			c.out.WriteByte(b)
		}
		return
	}
	switch b {
	case '{', '[':
		c.flushWord()
		c.kinds, c.key = append(c.kinds, b), b == '{'
		c.out.WriteByte(b)
	case '}', ']':
		c.flushWord()
		last := len(c.kinds) - 1
		c.out.WriteByte(c.kinds[last] + 2) // } or ], whichever is open
		c.kinds = c.kinds[:last]
		c.key, c.done = false, last == 0
	case ',':
		c.flushWord()
		c.out.WriteByte(b)
		c.key = c.kinds[len(c.kinds)-1] == '{'
	case ':':
		if !c.key {
			c.word.WriteByte(b)
			return
		}
		c.flushWord()
		c.out.WriteByte(b)
		c.key = false
	default:
		c.word.WriteByte(b)
	}
}

// flushWord writes a key, or a value without quotation marks: JSON as it is, anything else as text.
func (c *bareCaller) flushWord() {
	w := strings.TrimSpace(c.word.String())
	c.word.Reset()
	switch {
	case w == "":
	case c.key || !json.Valid([]byte(w)):
		c.out.WriteString(quoted(strings.Trim(w, `"`)))
	default:
		c.out.WriteString(w)
	}
}

// finish closes what a call that was cut has left open.
func (c *bareCaller) finish() (name, arguments string) {
	if c.name == "" || c.done {
		return "", ""
	}
	if c.inText {
		c.quote()
	}
	c.flushWord()
	for i := len(c.kinds) - 1; i >= 0; i-- {
		c.out.WriteByte(c.kinds[i] + 2) // } and ]
	}
	c.done = true
	return "", c.taken()
}
