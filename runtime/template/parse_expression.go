package template

import (
	"slices"
	"strings"
)

// nest bounds the nesting of expressions; the caller defers the result.
func (p *parser) nest() func() {
	if p.depth++; p.depth > maxExpressionDepth {
		p.fail("expressions are nested more than %d deep", maxExpressionDepth)
	}
	return func() { p.depth-- }
}

// expression parses an expression; without condition, one that is no inline if.
func (p *parser) expression(condition bool) expression {
	defer p.nest()()
	if !condition {
		return p.or()
	}
	line := pos(p.current().line)
	e := p.or()
	for n := 0; p.skipName("if"); n++ {
		p.chain(n)
		c := &conditional{pos: line, then: e, test: p.or()}
		if p.skipName("else") {
			c.otherwise = p.expression(true)
		}
		e = c
		line = pos(p.current().line)
	}
	return e
}

// chain bounds the length of a chain of operators, which nests to the left.
func (p *parser) chain(n int) {
	if n > maxExpressionDepth {
		p.fail("more than %d operators follow each other", maxExpressionDepth)
	}
}

func (p *parser) or() expression {
	line := pos(p.current().line)
	left := p.and()
	for n := 0; p.skipName("or"); n++ {
		p.chain(n)
		left = &logical{line, true, left, p.and()}
		line = pos(p.current().line)
	}
	return left
}

func (p *parser) and() expression {
	line := pos(p.current().line)
	left := p.not()
	for n := 0; p.skipName("and"); n++ {
		p.chain(n)
		left = &logical{line, false, left, p.not()}
		line = pos(p.current().line)
	}
	return left
}

func (p *parser) not() expression {
	defer p.nest()()
	if p.isName("not") {
		line := pos(p.next().line)
		return &unary{line, "not", p.not()}
	}
	return p.comparison()
}

func (p *parser) comparison() expression {
	n := &compareNode{pos: pos(p.current().line), first: p.sum()}
	for {
		op := string(p.current().kind)
		switch {
		case slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op):
			p.next()
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.look().kind == tokenName && p.look().text == "in":
			p.next()
			p.next()
			op = "not in"
		default:
			if len(n.ops) == 0 {
				return n.first
			}
			return n
		}
		n.ops = append(n.ops, op)
		n.rest = append(n.rest, p.sum())
	}
}

// operators parses a chain of left-associative operators.
func (p *parser) operators(operand func() expression, ops ...string) expression {
	line := pos(p.current().line)
	left := operand()
	for n := 0; slices.Contains(ops, string(p.current().kind)); n++ {
		p.chain(n)
		op := string(p.next().kind)
		left = &binaryNode{line, op, left, operand()}
		line = pos(p.current().line)
	}
	return left
}

func (p *parser) sum() expression { return p.operators(p.concat, "+", "-") }

func (p *parser) concat() expression {
	n := &concatNode{pos: pos(p.current().line), parts: []expression{p.product()}}
	for p.skip("~") {
		n.parts = append(n.parts, p.product())
	}
	if len(n.parts) == 1 {
		return n.parts[0]
	}
	return n
}

func (p *parser) product() expression { return p.operators(p.power, "*", "/", "//", "%") }

func (p *parser) power() expression {
	return p.operators(func() expression { return p.unary(true) }, "**")
}

func (p *parser) unary(withFilters bool) expression {
	defer p.nest()()
	var e expression
	switch t := p.current(); t.kind {
	case "-", "+":
		p.next()
		e = &unary{pos(t.line), string(t.kind), p.unary(false)}
	default:
		e = p.primary(false)
	}
	e = p.postfix(e)
	if withFilters {
		e = p.filtersAndTests(e)
	}
	return e
}

// primary parses a name, a literal or an expression in brackets; with namespace, ns.attribute as a target.
func (p *parser) primary(namespace bool) expression {
	t := p.current()
	line := pos(t.line)
	switch t.kind {
	case tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constant{line, Bool(true)}
		case "false", "False":
			return &constant{line, Bool(false)}
		case "none", "None":
			return &constant{line, None{}}
		}
		if namespace && p.skip(".") {
			return &attributeTarget{line, t.text, p.expect(tokenName).text}
		}
		return &nameNode{pos: line, name: t.text}
	case tokenString:
		var text strings.Builder
		for p.is(tokenString) {
			text.WriteString(p.next().text)
		}
		return &constant{line, Str(text.String())}
	case tokenInteger, tokenFloat:
		p.next()
		return &constant{line, t.value}
	case "(":
		p.next()
		e := p.tuple(tupleOptions{condition: true, parentheses: true})
		p.expect(")")
		return e
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	p.fail("unexpected %s", t.describe())
	return nil
}

// tupleOptions says how to parse what may be a tuple.
type tupleOptions struct {
	simplified  bool   // only names and literals
	namespace   bool   // ns.attribute too
	condition   bool   // inline if too
	parentheses bool   // it is in parentheses, so that it may be empty
	end         string // the name that ends it
}

// tuple parses an expression, or a tuple if there are commas.
func (p *parser) tuple(o tupleOptions) expression {
	line := pos(p.current().line)
	var items []expression
	isTuple := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		if p.is(tokenClose) || p.is(tokenCloseTag) || p.is(")") || o.end != "" && p.isName(o.end) {
			break
		}
		if o.simplified {
			items = append(items, p.primary(o.namespace))
		} else {
			items = append(items, p.expression(o.condition))
		}
		if !p.is(",") {
			break
		}
		isTuple = true
		line = pos(p.current().line)
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !o.parentheses {
			p.fail("expected an expression, found %s", p.current().describe())
		}
	}
	return &tupleNode{line, items}
}

func (p *parser) list() expression {
	n := &listNode{pos: pos(p.next().line)}
	for !p.is("]") {
		if len(n.items) > 0 {
			p.expect(",")
		}
		if p.is("]") {
			break
		}
		n.items = append(n.items, p.expression(true))
	}
	p.next()
	return n
}

func (p *parser) dict() expression {
	n := &dictNode{pos: pos(p.next().line)}
	for !p.is("}") {
		if len(n.keys) > 0 {
			p.expect(",")
		}
		if p.is("}") {
			break
		}
		n.keys = append(n.keys, p.expression(true))
		p.expect(":")
		n.values = append(n.values, p.expression(true))
	}
	p.next()
	return n
}

// targetOptions says what may be assigned to.
type targetOptions struct {
	namespace bool
	end       string
}

// target parses what a set, for or with assigns to.
func (p *parser) target(o targetOptions) expression {
	e := p.tuple(tupleOptions{simplified: true, namespace: o.namespace, end: o.end})
	setUse(e, store)
	if !assignable(e) {
		failAt(e.position(), "this cannot be assigned to")
	}
	return e
}

// nameTarget parses a name to assign to.
func (p *parser) nameTarget() *nameNode {
	t := p.expect(tokenName)
	n := &nameNode{pos: pos(t.line), name: t.text, use: store}
	if !assignable(n) {
		failAt(t.line, "%q cannot be assigned to", t.text)
	}
	return n
}

func assignable(e expression) bool {
	switch e := e.(type) {
	case *attributeTarget:
		return true
	case *nameNode:
		return !slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, e.name)
	case *tupleNode:
		return !slices.ContainsFunc(e.items, func(x expression) bool { return !assignable(x) })
	}
	return false
}

// setUse says what the names of a target are for.
func setUse(e expression, use nameUse) {
	set := func(n node) bool {
		if name, ok := n.(*nameNode); ok {
			name.use = use
		}
		return true
	}
	set(e)
	descend(e, set)
}

// postfix parses the attributes, subscripts and calls that follow an expression.
func (p *parser) postfix(e expression) expression {
	for n := 0; ; n++ {
		p.chain(n)
		switch p.current().kind {
		case ".":
			e = p.attribute(e)
		case "[":
			e = p.subscript(e)
		case "(":
			e = p.call(e)
		default:
			return e
		}
	}
}

// filtersAndTests parses the filters and tests, and calls of their results, that follow an expression.
func (p *parser) filtersAndTests(e expression) expression {
	for n := 0; ; n++ {
		p.chain(n)
		switch {
		case p.is("|"):
			e = p.filters(e)
		case p.isName("is"):
			e = p.test(e)
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) attribute(object expression) expression {
	line := pos(p.next().line)
	switch t := p.next(); t.kind {
	case tokenName:
		return &attributeNode{line, object, t.text}
	case tokenInteger:
		return &subscript{line, object, &constant{pos(t.line), t.value}}
	default:
		failAt(t.line, "expected a name or a number after the dot, found %s", t.describe())
	}
	return nil
}

func (p *parser) subscript(object expression) expression {
	line := pos(p.next().line)
	var args []expression
	for !p.is("]") {
		if len(args) > 0 {
			p.expect(",")
		}
		args = append(args, p.index())
	}
	p.next()
	if len(args) == 1 {
		return &subscript{line, object, args[0]}
	}
	if slices.ContainsFunc(args, func(e expression) bool { _, ok := e.(*sliceNode); return ok }) {
		failAt(int(line), "a slice is the only index in its brackets")
	}
	return &subscript{line, object, &tupleNode{line, args}}
}

// index parses an index or a slice.
func (p *parser) index() expression {
	n := &sliceNode{pos: pos(p.current().line)}
	if !p.is(":") {
		e := p.expression(true)
		if !p.is(":") {
			return e
		}
		n.start = e
	}
	p.next()
	bound := func() expression {
		if p.is(":") || p.is("]") || p.is(",") {
			return nil
		}
		return p.expression(true)
	}
	n.stop = bound()
	if p.skip(":") {
		if p.is(":") {
			p.fail("a slice has at most two colons")
		}
		n.step = bound()
	}
	return n
}

func (p *parser) call(function expression) expression {
	line := pos(p.current().line)
	return &callNode{line, function, p.arguments()}
}

// arguments parses the arguments of a call in parentheses.
func (p *parser) arguments() arguments {
	line := p.expect("(").line
	var a arguments
	ensure := func(ok bool) {
		if !ok {
			failAt(line, "the arguments of a call come in this order: positional, named, *list, **dict")
		}
	}
	for comma := false; !p.is(")"); comma = true {
		p.count(len(a.positional) + len(a.names))
		if comma {
			p.expect(",")
			if p.is(")") {
				break
			}
		}
		switch {
		case p.skip("*"):
			ensure(a.list == nil && a.dict == nil)
			a.list = p.expression(true)
		case p.skip("**"):
			ensure(a.dict == nil)
			a.dict = p.expression(true)
		case p.is(tokenName) && p.look().kind == "=":
			ensure(a.dict == nil)
			name := p.next().text
			if slices.Contains(a.names, name) {
				failAt(line, "the argument %q is there twice", name)
			}
			p.next()
			a.names = append(a.names, name)
			a.named = append(a.named, p.expression(true))
		default:
			ensure(a.list == nil && a.dict == nil && len(a.names) == 0)
			a.positional = append(a.positional, p.expression(true))
		}
	}
	p.next()
	return a
}

// filters parses the filters that are applied to an expression, which is nil in blocks.
func (p *parser) filters(e expression) expression {
	for n := 0; p.skip("|"); n++ {
		p.chain(n)
		e = p.filter(e)
	}
	return e
}

// filter parses the name of a filter and its arguments.
func (p *parser) filter(operand expression) expression {
	n := &filterNode{pos: pos(p.current().line), operand: operand, name: p.dottedName()}
	if p.is("(") {
		n.args = p.arguments()
	}
	return n
}

func (p *parser) dottedName() string {
	name := p.expect(tokenName).text
	for p.skip(".") {
		name += "." + p.expect(tokenName).text
	}
	return name
}

func (p *parser) test(operand expression) expression {
	line := pos(p.next().line)
	negated := p.skipName("not")
	n := &testNode{pos: line, operand: operand, name: p.dottedName()}
	switch p.current().kind {
	case "(":
		n.args = p.arguments()
	case tokenName, tokenString, tokenInteger, tokenFloat, "[", "{":
		if p.isName("else", "or", "and") {
			break
		}
		if p.isName("is") {
			p.fail("a test is not tested: is … is")
		}
		n.args.positional = []expression{p.postfix(p.primary(false))}
	}
	if negated {
		return &unary{line, "not", n}
	}
	return n
}
