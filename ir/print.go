package ir

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// String returns the canonical text of m; see [Print].
func (m *Module) String() string {
	var b strings.Builder
	Print(&b, m) // a strings.Builder does not refuse writes
	return b.String()
}

// Print writes the canonical text of m: two modules are the same if and only if their texts are. Symbols are numbered
// in the order in which they appear, values so in each entry; the main entry stands first. The bytes of constants are
// not part of the text.
func Print(w io.Writer, m *Module) error {
	p := newPrinter(m)
	p.module(m)
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Describe writes op in the text form, with values named as in the text of m, for error messages.
func Describe(m *Module, op *Op) string {
	p := newPrinter(m)
	p.module(m)
	p.b.Reset()
	regions := op.Regions
	op = &Op{Def: op.Def, Args: op.Args, Attrs: op.Attrs, Buffer: op.Buffer, Second: op.Second, Results: op.Results}
	p.op(op)
	text := strings.TrimSpace(p.b.String())
	if len(regions) > 0 {
		text += " { … }"
	}
	return text
}

type printer struct {
	b       strings.Builder
	indent  int
	values  map[*Value]string
	count   int
	params  map[string]bool // names of parameters, which numbered values must not take
	symbols map[*Symbol]string
	order   []*Symbol
}

func newPrinter(m *Module) *printer {
	p := &printer{values: map[*Value]string{}, symbols: map[*Symbol]string{}}
	for _, c := range m.Constants {
		p.values[c.Value] = "@" + quoteName(c.Name)
	}
	for _, d := range m.Derived {
		p.values[d.Value] = "^" + quoteName(d.Cell.Name)
	}
	note := func(s *Symbol) {
		if _, ok := p.symbols[s]; !ok {
			p.symbols[s] = "s" + strconv.Itoa(len(p.order))
			p.order = append(p.order, s)
		}
	}
	noteType := func(t Type) {
		for _, d := range t.Shape {
			symbolsInOrder(d, note)
		}
		if t.Int != nil {
			symbolsInOrder(t.Int, note)
		}
	}
	noteRegion := func(r *Region) {
		var walk func(*Region)
		walk = func(r *Region) {
			for _, v := range r.Args {
				noteType(v.Type)
			}
			for _, op := range r.Ops {
				for _, v := range op.Results {
					noteType(v.Type)
				}
				for _, n := range op.Regions {
					walk(n)
				}
			}
		}
		walk(r)
	}
	if m.Init != nil {
		noteRegion(m.Init)
	}
	for _, f := range m.Entries() {
		for _, v := range f.Params {
			noteType(v.Type)
		}
		noteRegion(f.Body)
		for _, t := range f.Outputs {
			noteType(t)
		}
	}
	return p
}

// symbolsInOrder visits the symbols of e in the order of their names (the order of an earlier text), never in the order
// of their addresses. A symbol without a name first appears alone (as a parameter's dim, the value of item_int, or a
// joined dim), so there is at most one such in an expression.
func symbolsInOrder(e *Expr, f func(*Symbol)) {
	var symbols []*Symbol
	e.Symbols(func(s *Symbol) { symbols = append(symbols, s) })
	slices.SortStableFunc(symbols, func(a, b *Symbol) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range symbols {
		f(s)
	}
}

func quoteName(s string) string {
	plain := s != ""
	for _, r := range s {
		if !isNameRune(r) {
			plain = false
		}
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.'
}

func (p *printer) symbol(s *Symbol) string {
	if n, ok := p.symbols[s]; ok {
		return n
	}
	return "?" // not reachable in a verified module
}

func (p *printer) typ(t Type) string { return t.format(p.symbol) }

func (p *printer) line(format string, args ...any) {
	p.b.WriteString(strings.Repeat("  ", p.indent))
	fmt.Fprintf(&p.b, format, args...)
	p.b.WriteByte('\n')
}

func (p *printer) module(m *Module) {
	p.line("module {")
	p.indent++
	for _, s := range p.order {
		p.line("symbol %s [%s, %s]", p.symbols[s], bound(s.Lo), bound(s.Hi))
	}
	for _, c := range m.Constants {
		p.line("constant @%s : %s", quoteName(c.Name), p.typ(c.Value.Type))
	}
	for _, b := range m.Buffers {
		p.line("buffer @%s : %s", quoteName(b.Name), p.typ(b.Type))
	}
	for _, k := range m.Metadata {
		p.line("method %s = %s", quoteName(k.Name), formatMethodValues(k.Values))
	}
	if m.Init != nil {
		p.line("init {")
		p.indent++
		p.ops(m.Init)
		for _, d := range m.Derived {
			p.line("derive ^%s = %s", quoteName(d.Cell.Name), p.value(d.From))
		}
		p.indent--
		p.line("}")
	}
	for _, f := range m.Entries() {
		p.count, p.params = 0, map[string]bool{}
		params := make([]string, len(f.Params))
		for i, v := range f.Params {
			p.values[v] = "%" + quoteName(v.Param)
			p.params[p.values[v]] = true
			params[i] = p.values[v] + ": " + p.typ(v.Type)
		}
		p.line("entry %s(%s) {", quoteName(f.Name), strings.Join(params, ", "))
		p.indent++
		p.ops(f.Body)
		outputs := make([]string, len(f.Body.Results))
		for i, v := range f.Body.Results {
			outputs[i] = p.value(v) + ": " + p.typ(f.Outputs[i])
		}
		p.line("%s", strings.TrimSpace("return "+strings.Join(outputs, ", ")))
		p.indent--
		p.line("}")
	}
	p.indent--
	p.line("}")
}

func bound(v int64) string {
	switch v {
	case Unbounded:
		return "inf"
	case -Unbounded:
		return "-inf"
	}
	return strconv.FormatInt(v, 10)
}

func formatMethodValues(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case float64:
			out[i] = formatFloat(v, 64)
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func (p *printer) value(v *Value) string {
	if n, ok := p.values[v]; ok {
		return n
	}
	return "%?" // not reachable in a verified module
}

func (p *printer) define(v *Value) string {
	if n, ok := p.values[v]; ok {
		return n // Describe prints an operation a second time
	}
	for p.values[v] == "" || p.params[p.values[v]] {
		p.values[v] = "%" + strconv.Itoa(p.count)
		p.count++
	}
	return p.values[v]
}

func (p *printer) ops(r *Region) {
	for _, op := range r.Ops {
		p.op(op)
	}
}

// op prints an operation and its regions. It is long because the parts of its text follow each other.
func (p *printer) op(op *Op) {
	var b strings.Builder
	var types []string
	for i, v := range op.Results {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.define(v))
		types = append(types, p.typ(v.Type))
	}
	if len(op.Results) > 0 {
		b.WriteString(" = ")
	}
	b.WriteString(op.Def.Name)
	for _, buffer := range op.Buffers() {
		b.WriteString(" @" + quoteName(buffer.Name))
	}
	b.WriteByte('(')
	first := true
	for i, o := range op.Def.Operands {
		args := op.Args[i]
		if len(args) == 0 && (o.Optional || o.Kind.IsList()) {
			continue
		}
		if !first {
			b.WriteString(", ")
		}
		first = false
		texts := make([]string, len(args))
		for j, a := range args {
			texts[j] = p.arg(a)
		}
		text := strings.Join(texts, ", ")
		if o.Kind.IsList() {
			text = "[" + text + "]"
		}
		b.WriteString(o.Name + "=" + text)
	}
	b.WriteByte(')')
	b.WriteString(FormatAttrs(op))
	if len(types) > 0 {
		b.WriteString(" : " + strings.Join(types, ", "))
	}
	for i, r := range op.Regions {
		if i > 0 {
			b.WriteString(" else")
		}
		b.WriteString(" {")
		p.line("%s", b.String())
		b.Reset()
		p.indent++
		if len(r.Args) > 0 {
			args := make([]string, len(r.Args))
			for i, v := range r.Args {
				args[i] = p.define(v) + ": " + p.typ(v.Type)
			}
			p.line("args %s", strings.Join(args, ", "))
		}
		p.ops(r)
		results := make([]string, len(r.Results))
		for i, v := range r.Results {
			results[i] = p.value(v)
		}
		p.line("%s", strings.TrimSpace("yield "+strings.Join(results, ", ")))
		p.indent--
		b.WriteByte('}')
	}
	p.line("%s", b.String())
}

func (p *printer) arg(a Arg) string {
	switch a.Kind {
	case IntArg:
		return strconv.FormatInt(a.Int, 10)
	case FloatArg:
		return formatFloat(a.Float, 64)
	}
	return p.value(a.Value)
}

// formatFloat writes the shortest text that reads back as the same float, always with a point, an
// exponent or a name, so that it is never read as an integer.
func formatFloat(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(v, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// FormatAttrs writes the attributes of op that differ from the defaults of its definition: " {axis=1}", or nothing.
func FormatAttrs(op *Op) string {
	if op.Attrs == nil {
		return ""
	}
	v, def := reflect.ValueOf(op.Attrs).Elem(), reflect.ValueOf(op.Def.Attrs)
	var parts []string
	for i := range v.NumField() {
		text := formatAttr(v.Field(i))
		if text != formatAttr(def.Field(i)) {
			parts = append(parts, snake(v.Type().Field(i).Name)+"="+text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " {" + strings.Join(parts, ", ") + "}"
}

func formatAttr(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "none"
		}
		return formatAttr(v.Elem())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = formatAttr(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.String:
		return strconv.Quote(v.String())
	case reflect.Float32:
		return formatFloat(v.Float(), 32)
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	}
	switch e := v.Interface().(type) {
	case DType:
		return e.String()
	case QuantMode:
		return e.String()
	}
	return strconv.FormatInt(v.Int(), 10)
}

// snake returns the name of an attribute in the text form: GroupSize is group_size.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
