package ir

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
)

const (
	// maxTextSize bounds the text that Parse reads, and with it the memory: a text of nothing but small
	// operations takes some 60 times its size. The largest real module is below 2 MiB.
	maxTextSize = 8 << 20
	// maxNesting bounds regions in regions and expressions in expressions.
	maxNesting = 64
)

// Parse reads the text form of a module, derives every type and compares it with the one in the text.
// Constants have no bytes afterwards; see [Module.Bind]. The error names the line.
func Parse(text string) (*Module, error) {
	if len(text) > maxTextSize {
		return nil, fmt.Errorf("IR text of %d bytes, at most %d are read", len(text), maxTextSize)
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, module: &Module{}, symbols: map[string]*Symbol{}, constants: map[string]*Value{},
		derived: map[string]*Value{}, buffers: map[string]*Buffer{}, values: map[string]*Value{},
		entries: map[string]bool{}}
	if err := p.run(); err != nil {
		return nil, err
	}
	if err := Verify(p.module); err != nil {
		return nil, err
	}
	return p.module, nil
}

type parser struct {
	tokens    []token
	at        int
	depth     int
	module    *Module
	symbols   map[string]*Symbol
	constants map[string]*Value
	derived   map[string]*Value
	buffers   map[string]*Buffer
	values    map[string]*Value
	entries   map[string]bool
	scope     []string // the keys of values in the order of definition
}

// parseError carries an error up to run: the grammar is recursive and stops at the first error.
type parseError struct{ err error }

func (p *parser) run() (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(parseError)
			if !ok {
				panic(r)
			}
			err = e.err
		}
	}()
	p.parseModule()
	return nil
}

// fail stops at the next token.
func (p *parser) fail(format string, args ...any) { p.failAt(p.tokens[p.at].line, format, args...) }

func (p *parser) failAt(line int32, format string, args ...any) {
	panic(parseError{fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...))})
}

func (p *parser) peek() token { return p.tokens[p.at] }

// ahead returns the token n after the next one.
func (p *parser) ahead(n int) token { return p.tokens[min(p.at+n, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

func (p *parser) accept(text string) bool {
	t := p.peek()
	if (t.kind == tokenPunct || t.kind == tokenName) && t.text == text {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail("want %q, found %s", text, p.peek())
	}
}

// name reads a bare or quoted name.
func (p *parser) name() string {
	if t := p.peek(); t.kind == tokenName || t.kind == tokenString || t.kind == tokenNumber {
		p.at++
		return t.text
	}
	p.fail("want a name, found %s", p.peek())
	return ""
}

func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.fail("nested more than %d deep", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) integer() int64 {
	negative := p.accept("-")
	t := p.next()
	text := t.text
	if negative {
		text = "-" + text
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if t.kind != tokenNumber || err != nil {
		p.at--
		p.fail("want an integer, found %s", t)
	}
	return v
}

func (p *parser) bound() int64 {
	if p.accept("inf") {
		return Unbounded
	}
	if p.peek().text == "-" && p.ahead(1).text == "inf" {
		p.at += 2
		return -Unbounded
	}
	return p.integer()
}

// list reads items separated by commas up to the closing token, which it takes too.
func (p *parser) list(closing string, item func()) {
	for i := 0; !p.accept(closing); i++ {
		if i > 0 {
			p.expect(",")
		}
		item()
	}
}

func (p *parser) parseModule() {
	p.expect("module")
	p.expect("{")
	for !p.accept("}") {
		switch t := p.next(); t.text {
		case "symbol":
			p.parseSymbol()
		case "constant":
			p.expect("@")
			name := p.name()
			p.expect(":")
			t := p.parseType()
			if _, static := t.Static(); !static || t.Kind != TensorKind {
				p.fail("constant %q has type %s, want a tensor with constant dims", name, t)
			}
			if p.constants[name] != nil {
				p.fail("constant %q is declared twice", name)
			}
			p.constants[name] = p.module.NewConstant(name, t, nil)
		case "buffer":
			p.expect("@")
			name := p.name()
			p.expect(":")
			t := p.parseType()
			if p.buffers[name] != nil {
				p.fail("buffer %q is declared twice", name)
			}
			p.buffers[name] = p.module.NewBuffer(name, t)
		case "method":
			p.parseMethod()
		case "init":
			if p.module.Init != nil {
				p.fail("a second init")
			}
			p.parseInit()
		case "entry":
			p.parseEntry()
		default:
			p.at--
			p.fail("want symbol, constant, buffer, method, init or entry, found %s", t)
		}
	}
	if t := p.peek(); t.kind != tokenEnd {
		p.fail("want the end of the text, found %s", t)
	}
}

func (p *parser) parseSymbol() {
	name := p.name()
	if p.symbols[name] != nil {
		p.fail("symbol %s is declared twice", name)
	}
	p.expect("[")
	lo := p.bound()
	p.expect(",")
	hi := p.bound()
	p.expect("]")
	if lo > hi {
		p.fail("symbol %s has bounds [%d, %d]", name, lo, hi)
	}
	p.symbols[name] = &Symbol{name, lo, hi}
}

func (p *parser) parseMethod() {
	k := Method{Name: p.name()}
	p.expect("=")
	p.expect("[")
	p.list("]", func() {
		switch {
		case p.accept("true"):
			k.Values = append(k.Values, true)
		case p.accept("false"):
			k.Values = append(k.Values, false)
		default:
			a := p.number()
			if a.Kind == FloatArg {
				k.Values = append(k.Values, a.Float)
			} else {
				k.Values = append(k.Values, a.Int)
			}
		}
	})
	p.module.Metadata = append(p.module.Metadata, k)
}

func (p *parser) parseInit() {
	p.expect("{")
	p.module.Init = &Region{}
	p.parseOps(p.module.Init)
	for p.accept("derive") {
		p.expect("^")
		name := p.name()
		cell := p.constants[name]
		if cell == nil {
			p.fail("derive ^%s: no constant has that name", name)
		}
		if p.derived[name] != nil {
			p.fail("^%s is derived twice", name)
		}
		p.expect("=")
		from := p.value()
		v := &Value{Type: from.Type}
		p.derived[name] = v
		p.module.Derived = append(p.module.Derived, &Derived{v, cell.Constant, from})
	}
	p.expect("}")
	p.values, p.scope = map[string]*Value{}, nil
}

func (p *parser) parseEntry() {
	f := &Func{Name: p.name(), Body: &Region{}}
	switch {
	case p.module.Entry == nil:
		p.module.Entry = f
	case p.entries[f.Name]:
		p.fail("a second entry %s", quoteName(f.Name))
	default:
		p.module.More = append(p.module.More, f)
	}
	p.entries[f.Name] = true
	p.values, p.scope = map[string]*Value{}, nil
	p.expect("(")
	p.list(")", func() {
		p.expect("%")
		name := p.name()
		p.expect(":")
		p.define(name, f.NewParam(name, p.parseType()), p.tokens[p.at-1].line)
	})
	p.expect("{")
	p.parseOps(f.Body)
	p.expect("return")
	for i := 0; !p.accept("}"); i++ {
		if i > 0 {
			p.expect(",")
		}
		f.Body.Results = append(f.Body.Results, p.value())
		p.expect(":")
		f.Outputs = append(f.Outputs, p.parseType())
	}
}

func (p *parser) define(name string, v *Value, line int32) {
	if p.values[name] != nil {
		p.failAt(line, "%%%s is defined twice", name)
	}
	p.values[name] = v
	p.scope = append(p.scope, name)
}

// parseOps reads operations up to yield, derive, return or a closing brace, which it leaves.
func (p *parser) parseOps(r *Region) {
	for {
		switch t := p.peek(); {
		case t.kind == tokenPunct && t.text == "}", t.text == "yield", t.text == "derive", t.text == "return":
			return
		}
		r.Ops = append(r.Ops, p.parseOp())
	}
}

// parseOp parses an operation: results, name, operands, attributes, regions, types. It is long because these parts
// follow each other in one line of text.
func (p *parser) parseOp() *Op {
	var names []string
	line := p.peek().line // of the operation, for what is wrong with all of it
	if p.peek().text == "%" && p.peek().kind == tokenPunct {
		for {
			p.expect("%")
			names = append(names, p.name())
			if !p.accept(",") {
				break
			}
		}
		p.expect("=")
	}
	t := p.next()
	def := LookupOp(t.text)
	if t.kind != tokenName || def == nil {
		p.at--
		p.fail("want the name of an op, found %s", t)
	}
	op := &Op{Def: def, Args: make([][]Arg, len(def.Operands)), Attrs: def.NewAttrs()}
	for _, buffer := range []**Buffer{&op.Buffer, &op.Second} {
		if !p.accept("@") {
			break
		}
		name := p.name()
		if *buffer = p.buffers[name]; *buffer == nil {
			p.fail("no buffer is named %q", name)
		}
	}
	p.expect("(")
	p.list(")", func() { p.parseOperand(op) })
	// Attributes and a region both open with a brace; only attributes go on with "name =".
	if p.peek().text == "{" && p.ahead(1).kind == tokenName && p.ahead(2).text == "=" {
		p.expect("{")
		p.list("}", func() { p.parseAttr(op) })
	}
	var types []Type
	if p.accept(":") {
		for {
			types = append(types, p.parseType())
			if !p.accept(",") {
				break
			}
		}
	}
	if len(types) != len(names) {
		p.failAt(line, "%s has %d results and %d types", def.Name, len(names), len(types))
	}
	for i := range def.Regions {
		if i > 0 {
			p.expect("else")
		}
		op.Regions = append(op.Regions, p.parseRegion())
	}
	// The types in the text come first: a rule that needs a fresh symbol takes the one that stands there.
	for i, t := range types {
		op.Results = append(op.Results, &Value{Def: op, Index: i, Type: t})
	}
	if err := checkOp(op); err != nil {
		p.failAt(line, "%w", err)
	}
	if err := Infer(op); err != nil {
		p.failAt(line, "%w", err)
	}
	for i, t := range types {
		if got := op.Results[i].Type; !got.Equal(t) {
			p.failAt(line, "%s: the text says %s, the arguments make it %s", def.Name, t, got)
		}
		p.define(names[i], op.Results[i], line)
	}
	return op
}

func (p *parser) parseRegion() *Region {
	p.enter()
	defer p.leave()
	first := len(p.scope)
	r := &Region{}
	p.expect("{")
	if p.accept("args") {
		for {
			p.expect("%")
			name := p.name()
			p.expect(":")
			p.define(name, r.NewArg(p.parseType()), p.tokens[p.at-1].line)
			if !p.accept(",") {
				break
			}
		}
	}
	p.parseOps(r)
	p.expect("yield")
	for i := 0; !p.accept("}"); i++ {
		if i > 0 {
			p.expect(",")
		}
		r.Results = append(r.Results, p.value())
	}
	for _, name := range p.scope[first:] { // the names of a region end with it
		delete(p.values, name)
	}
	p.scope = p.scope[:first]
	return r
}

func (p *parser) parseOperand(op *Op) {
	name := p.name()
	p.expect("=")
	for i, o := range op.Def.Operands {
		if o.Name != name {
			continue
		}
		if op.Args[i] != nil {
			p.fail("%s: operand %s stands twice", op.Def.Name, name)
		}
		if !o.Kind.IsList() {
			op.Args[i] = []Arg{p.arg()}
			return
		}
		p.expect("[")
		op.Args[i] = []Arg{}
		p.list("]", func() { op.Args[i] = append(op.Args[i], p.arg()) })
		return
	}
	p.fail("%s has no operand %q", op.Def.Name, name)
}

func (p *parser) arg() Arg {
	switch t := p.peek(); {
	case t.kind == tokenPunct && (t.text == "%" || t.text == "@" || t.text == "^"):
		return Use(p.value())
	default:
		return p.number()
	}
}

func (p *parser) number() Arg {
	negative := p.accept("-")
	t := p.next()
	sign := 1.0
	if negative {
		sign = -1
	}
	switch {
	case t.kind == tokenName && t.text == "inf":
		return Float(math.Inf(int(sign)))
	case t.kind == tokenName && t.text == "nan":
		return Float(math.NaN())
	case t.kind == tokenNumber:
		text := t.text
		if negative {
			text = "-" + text
		}
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return Int(v)
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return Float(v)
		}
	}
	p.at--
	p.fail("want a value or a number, found %s", t)
	return Arg{}
}

func (p *parser) value() *Value {
	t := p.next()
	var from map[string]*Value
	switch {
	case t.kind == tokenPunct && t.text == "%":
		from = p.values
	case t.kind == tokenPunct && t.text == "@":
		from = p.constants
	case t.kind == tokenPunct && t.text == "^":
		from = p.derived
	default:
		p.at--
		p.fail("want a value, found %s", t)
	}
	name := p.name()
	v := from[name]
	if v == nil {
		p.fail("%s%s is not defined here", t.text, name)
	}
	return v
}

func (p *parser) parseAttr(op *Op) {
	name := p.name()
	p.expect("=")
	if op.Attrs == nil {
		p.fail("%s has no attributes", op.Def.Name)
	}
	v := reflect.ValueOf(op.Attrs).Elem()
	for i := range v.NumField() {
		if snake(v.Type().Field(i).Name) == name {
			p.attrValue(v.Field(i))
			return
		}
	}
	p.fail("%s has no attribute %q", op.Def.Name, name)
}

func (p *parser) attrValue(v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		if p.accept("none") {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		p.attrValue(v.Elem())
		return
	}
	if v.Type() == reflect.TypeFor[DType]() {
		d, err := ParseDType(p.name())
		if err != nil {
			p.fail("%w", err)
		}
		v.SetInt(int64(d))
		return
	}
	if v.Type() == reflect.TypeFor[QuantMode]() {
		m, err := ParseQuantMode(p.name())
		if err != nil {
			p.fail("%w", err)
		}
		v.SetUint(uint64(m))
		return
	}
	switch v.Kind() {
	case reflect.Slice:
		p.expect("[")
		v.SetZero()
		p.list("]", func() {
			item := reflect.New(v.Type().Elem()).Elem()
			p.attrValue(item)
			v.Set(reflect.Append(v, item))
		})
	case reflect.String:
		t := p.next()
		if t.kind != tokenString {
			p.at--
			p.fail("want a quoted string, found %s", t)
		}
		v.SetString(t.text)
	case reflect.Bool:
		if !p.accept("true") {
			p.expect("false")
			v.SetBool(false)
			return
		}
		v.SetBool(true)
	case reflect.Float32:
		a := p.number()
		if a.Kind == IntArg {
			p.fail("want a float, found the integer %d", a.Int)
		}
		v.SetFloat(float64(float32(a.Float)))
	default:
		v.SetInt(p.integer())
	}
}
