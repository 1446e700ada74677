package template

import (
	"slices"
	"strings"
)

// parser makes the syntax tree from tokens.
type parser struct {
	tokens []token
	at     int
	// tags are the tags that are open, ends the tags that each of them looks for.
	tags []string
	ends [][]string
	// depth is the nesting of expressions.
	depth int
}

func (p *parser) current() token { return p.tokens[p.at] }

// look returns the token after the current one.
func (p *parser) look() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

// next returns the current token and moves on.
func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

func (p *parser) is(kind tokenKind) bool { return p.current().kind == kind }

func (p *parser) isName(names ...string) bool {
	return p.is(tokenName) && slices.Contains(names, p.current().text)
}

func (p *parser) skip(kind tokenKind) bool {
	if p.is(kind) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) fail(format string, args ...any) { failAt(p.current().line, format, args...) }

func (p *parser) expect(kind tokenKind) token {
	if !p.is(kind) {
		p.fail("expected %q, found %s", kind, p.current().describe())
	}
	return p.next()
}

func (p *parser) expectName(name string) token {
	if !p.isName(name) {
		p.fail("expected %q, found %s", name, p.current().describe())
	}
	return p.next()
}

// body parses statements up to one of the tags in ends, which stays the current token unless it is dropped.
func (p *parser) body(drop bool, ends ...string) []statement {
	p.skip(":")
	p.expect(tokenCloseTag)
	statements := p.statements(ends)
	if p.is(tokenEnd) {
		p.fail("the template ends where one of the tags %s is missing%s", strings.Join(ends, ", "), p.innermost())
	}
	if drop {
		p.next()
	}
	return statements
}

func (p *parser) innermost() string {
	if len(p.tags) == 0 {
		return ""
	}
	return "; the innermost open tag is " + p.tags[len(p.tags)-1]
}

// statements parses up to one of the tags in ends, or to the end of the template.
func (p *parser) statements(ends []string) []statement {
	p.ends = append(p.ends, ends)
	defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	if len(p.ends) > maxStatementDepth {
		p.fail("tags are nested more than %d deep", maxStatementDepth)
	}
	var list []statement
	for {
		switch t := p.current(); t.kind {
		case tokenEnd:
			return list
		case tokenData:
			p.next()
			list = append(list, &textNode{t.text})
		case tokenOpen:
			p.next()
			list = append(list, &printNode{p.tuple(tupleOptions{condition: true})})
			p.expect(tokenClose)
		case tokenOpenTag:
			p.next()
			if len(ends) > 0 && p.isName(ends...) {
				return list
			}
			list = append(list, p.statement()...)
			p.expect(tokenCloseTag)
		default:
			p.fail("unexpected %s", t.describe())
		}
	}
}

func (p *parser) statement() []statement {
	t := p.current()
	if t.kind != tokenName {
		p.fail("expected the name of a tag, found %s", t.describe())
	}
	parse := map[string]func() statement{
		"for": p.forTag, "if": p.ifTag, "block": p.blockTag, "macro": p.macroTag, "set": p.setTag,
		"with": p.withTag, "autoescape": p.autoescapeTag, "call": p.callTag, "filter": p.filterTag,
		"generation": p.generationTag, "break": p.breakTag, "continue": p.continueTag,
		"extends": p.refusedTag, "include": p.refusedTag, "import": p.refusedTag, "from": p.fromTag,
	}[t.text]
	if parse == nil && t.text != "print" {
		p.unknownTag(t)
	}
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	if t.text == "print" {
		return p.printTag()
	}
	return []statement{parse()}
}

func (p *parser) unknownTag(t token) {
	last := p.ends[len(p.ends)-1]
	for _, ends := range p.ends {
		if slices.Contains(ends, t.text) {
			failAt(t.line, "the tag %q is not nested well: %s comes first", t.text, strings.Join(last, " or "))
		}
	}
	failAt(t.line, "unknown tag %q%s", t.text, p.innermost())
}

func (p *parser) setTag() statement {
	line := pos(p.next().line)
	target := p.target(targetOptions{namespace: true})
	if p.skip("=") {
		return &setNode{pos: line, target: target, value: p.tuple(tupleOptions{condition: true})}
	}
	filter := p.filters(nil)
	return &setBlock{pos: line, target: target, filter: filter, body: p.body(true, "endset")}
}

func (p *parser) forTag() statement {
	n := &forNode{pos: pos(p.next().line)}
	n.target = p.target(targetOptions{end: "in"})
	p.expectName("in")
	n.iterable = p.tuple(tupleOptions{end: "recursive"})
	if p.skipName("if") {
		n.test = p.expression(true)
	}
	n.recursive = p.skipName("recursive")
	n.body = p.body(false, "endfor", "else")
	if p.next().text == "else" {
		n.otherwise = p.body(true, "endfor")
	}
	return n
}

func (p *parser) ifTag() statement {
	first := &ifNode{pos: pos(p.next().line)}
	for n := first; ; {
		n.test = p.tuple(tupleOptions{})
		n.body = p.body(false, "elif", "else", "endif")
		switch p.next().text {
		case "elif":
			n = &ifNode{pos: pos(p.current().line)}
			first.elifs = append(first.elifs, n)
			continue
		case "else":
			first.otherwise = p.body(true, "endif")
		}
		return first
	}
}

func (p *parser) withTag() statement {
	n := &withNode{pos: pos(p.next().line)}
	for !p.is(tokenCloseTag) && !p.is(tokenEnd) {
		if len(n.targets) > 0 {
			p.expect(",")
		}
		target := p.target(targetOptions{})
		setUse(target, param)
		n.targets = append(n.targets, target)
		p.expect("=")
		n.values = append(n.values, p.expression(true))
	}
	n.body = p.body(true, "endwith")
	return n
}

func (p *parser) autoescapeTag() statement {
	n := &autoescapeNode{pos: pos(p.next().line), value: p.expression(true)}
	n.body = p.body(true, "endautoescape")
	return n
}

func (p *parser) blockTag() statement {
	n := &blockNode{pos: pos(p.next().line), name: p.expect(tokenName).text}
	n.scoped = p.skipName("scoped")
	n.required = p.skipName("required")
	if p.is("-") {
		p.fail("the name of a block holds no hyphen")
	}
	n.body = p.body(true, "endblock")
	for _, s := range n.body {
		if text, ok := s.(*textNode); n.required && (!ok || strings.TrimLeftFunc(text.text, isSpace) != "") {
			p.fail("a required block holds only white space and comments")
		}
	}
	p.skipName(n.name)
	return n
}

// signature parses the parameters of a macro or a call block.
func (p *parser) signature(d *procedure) {
	p.expect("(")
	for !p.is(")") {
		if len(d.params) > 0 {
			p.expect(",")
		}
		name := p.nameTarget()
		name.use = param
		if slices.ContainsFunc(d.params, func(n *nameNode) bool { return n.name == name.name }) {
			p.fail("the parameter %q is there twice", name.name)
		}
		if p.skip("=") {
			d.defaults = append(d.defaults, p.expression(true))
		} else if len(d.defaults) > 0 {
			p.fail("the parameter %q without a default follows one that has a default", name.name)
		}
		d.params = append(d.params, name)
		p.count(len(d.params))
	}
	p.next()
}

// count bounds the number of arguments.
func (p *parser) count(n int) {
	if n > maxArguments {
		p.fail("there are more than %d arguments", maxArguments)
	}
}

func (p *parser) macroTag() statement {
	n := &macroNode{pos: pos(p.next().line)}
	n.name = p.nameTarget().name
	p.signature(&n.procedure)
	n.procedure.body = p.body(true, "endmacro")
	return n
}

func (p *parser) callTag() statement {
	n := &callBlock{pos: pos(p.next().line)}
	if p.is("(") {
		p.signature(&n.procedure)
	}
	call, ok := p.expression(true).(*callNode)
	if !ok {
		failAt(int(n.pos), "the tag call wants the call of a macro")
	}
	if slices.Contains(call.args.names, "caller") {
		failAt(int(n.pos), "the call of a call block has caller as an argument already")
	}
	n.call = call
	n.procedure.body = p.body(true, "endcall")
	return n
}

func (p *parser) generationTag() statement {
	n := &callBlock{pos: pos(p.next().line)}
	n.procedure.body = p.body(true, "endgeneration")
	return n
}

func (p *parser) filterTag() statement {
	n := &filterBlock{pos: pos(p.next().line)}
	n.filter = p.filters(p.filter(nil))
	n.body = p.body(true, "endfilter")
	return n
}

func (p *parser) breakTag() statement { return &breakNode{pos(p.next().line)} }

func (p *parser) continueTag() statement { return &continueNode{pos(p.next().line)} }

func (p *parser) printTag() []statement {
	p.next()
	var list []statement
	for !p.is(tokenCloseTag) && !p.is(tokenEnd) {
		if len(list) > 0 {
			p.expect(",")
		}
		list = append(list, &printNode{p.expression(true)})
	}
	return list
}

// refusedTag parses extends, include and import.
func (p *parser) refusedTag() statement {
	t := p.next()
	n := &refusedNode{pos: pos(t.line), tag: t.text, template: p.expression(true)}
	switch t.text {
	case "include":
		if p.isName("ignore") && p.look().kind == tokenName && p.look().text == "missing" {
			p.next()
			p.next()
		}
		p.importContext()
	case "import":
		p.expectName("as")
		n.names = append(n.names, p.nameTarget())
		p.importContext()
	}
	return n
}

func (p *parser) importContext() bool {
	if p.isName("with", "without") && p.look().kind == tokenName && p.look().text == "context" {
		p.next()
		p.next()
		return true
	}
	return false
}

func (p *parser) fromTag() statement {
	n := &refusedNode{pos: pos(p.next().line), tag: "import", template: p.expression(true)}
	p.expectName("import")
	for {
		if len(n.names) > 0 {
			p.expect(",")
		}
		if p.importContext() {
			return n
		}
		name := p.nameTarget()
		if strings.HasPrefix(name.name, "_") {
			p.fail("the name %q starts with an underscore and is not imported", name.name)
		}
		if p.skipName("as") {
			name = p.nameTarget()
		}
		n.names = append(n.names, name)
		if p.importContext() || !p.is(",") {
			return n
		}
	}
}
