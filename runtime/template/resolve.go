package template

import "strings"

// ref is where a variable is: in a slot of the activation that is hops outwards.
type ref struct{ hops, slot int }

// layout gives the variables of a function slots. The functions are the template, its blocks, macro bodies,
// filters of loops and recursive loops; each call of one has an activation.
type layout struct {
	outer *layout
	// base is the least level of the variables that are the function's own.
	base  int
	slots map[symbol]int
}

func newLayout(outer *layout, base int) *layout { return &layout{outer, base, map[symbol]int{}} }

func (l *layout) slot(s symbol) int {
	i, ok := l.slots[s]
	if !ok {
		i = len(l.slots)
		l.slots[s] = i
	}
	return i
}

func (l *layout) ref(s symbol) ref {
	hops := 0
	for ; s.level < l.base; l = l.outer {
		hops++
	}
	return ref{hops, l.slot(s)}
}

// scope says what to do with the variables of a scope when it is entered; clear are their slots.
type scope struct {
	enter []entry
	clear []int
}

type entry struct {
	slot   int
	origin origin
	name   string // for fromContext
	from   ref    // for fromOuter
}

// target is the target of an assignment: a variable, an attribute of a namespace, or a tuple of targets.
type target struct {
	ref       ref
	attribute string
	isTuple   bool
	items     []target
}

// export is a variable that blocks see in the context.
type export struct {
	name string
	ref  ref
}

// block is a named part of the template.
type block struct {
	name              string
	body              []statement
	layout            *layout
	scope             scope
	selfSlot, supSlot int // of the variables self and super, or -1
}

// frame is the place in the template that the resolver is at.
type frame struct {
	symbols *symbols
	layout  *layout
	// toplevel says that assignments are visible to blocks.
	toplevel bool
	// soft says that the place is directly in an if, where a missing filter is no error until it is used.
	soft bool
	// loops is the number of loops around the place, up to the macro or block that it is in.
	loops int
}

func (f frame) inner() frame {
	return frame{symbols: newSymbols(f.symbols), layout: f.layout, loops: f.loops}
}

// softened returns the frame for the parts of an if.
func (f frame) softened() frame {
	f.soft = true
	return f
}

// scope is how the frame's scope is entered, once all its names are known.
func (f frame) scope() scope {
	var s scope
	for _, name := range f.symbols.order {
		i := f.symbols.initial[name]
		e := entry{slot: f.layout.slot(symbol{f.symbols.level, name}), origin: i.origin, name: name}
		s.clear = append(s.clear, e.slot)
		switch i.origin {
		case fromParameter:
			continue
		case fromOuter:
			e.from = f.layout.ref(i.outer)
		}
		s.enter = append(s.enter, e)
	}
	return s
}

func (f frame) ref(name string, line int) ref {
	s, ok := f.symbols.find(name)
	if !ok {
		failAt(line, "the name %q is known nowhere outside the filter of this set block", name)
	}
	return f.layout.ref(s)
}

// assigned is where the variable of a name is, if the frame or one around it assigns the name.
func (f frame) assigned(name string) (ref, bool) {
	for s := f.symbols; s != nil; s = s.parent {
		if !s.assigns(name) {
			continue
		}
		at, _ := f.symbols.find(name)
		l, hops := f.layout, 0
		for ; at.level < l.base; l = l.outer {
			hops++
		}
		slot, ok := l.slots[at]
		return ref{hops, slot}, ok
	}
	return ref{}, false
}

// own returns the slot of a variable of the frame's own scope.
func (f frame) own(name string) int { return f.layout.slot(symbol{f.symbols.level, name}) }

// resolver finds the variables, filters and tests of a template.
type resolver struct {
	blocks map[string]*block
}

// resolve prepares a parsed template for rendering.
func resolve(body []statement) *program {
	r := &resolver{blocks: map[string]*block{}}
	all := &ifNode{otherwise: body, test: &constant{}}
	var blocks []*blockNode
	descend(all, func(n node) bool {
		if b, ok := n.(*blockNode); ok {
			if r.blocks[b.name] != nil {
				failAt(int(b.pos), "there are two blocks %q", b.name)
			}
			r.blocks[b.name] = &block{name: b.name, body: b.body}
			blocks = append(blocks, b)
		}
		return true
	})
	p := &program{body: body, blocks: r.blocks, selfSlot: -1}
	f := frame{symbols: newSymbols(nil), layout: newLayout(nil, 0), toplevel: true}
	if undeclared(body, "self")["self"] {
		f.symbols.parameter("self")
		p.selfSlot = f.own("self")
	}
	analyzeAll(f.symbols, body)
	p.scope, p.layout = f.scope(), f.layout
	r.statements(body, f)
	for _, b := range blocks {
		r.block(r.blocks[b.name])
	}
	return p
}

func (r *resolver) block(b *block) {
	f := frame{symbols: newSymbols(nil), layout: newLayout(nil, 0)}
	b.selfSlot, b.supSlot = -1, -1
	names := undeclared(b.body, "self", "super")
	if names["self"] {
		f.symbols.parameter("self")
		b.selfSlot = f.own("self")
	}
	if names["super"] {
		f.symbols.parameter("super")
		b.supSlot = f.own("super")
	}
	analyzeAll(f.symbols, b.body)
	b.scope, b.layout = f.scope(), f.layout
	r.statements(b.body, f)
}

func (r *resolver) statements(list []statement, f frame) {
	for _, s := range list {
		r.statement(s, f)
	}
}

// statement resolves the names in a statement. It is long because it is one switch over the kinds, with a short case
// for each.
func (r *resolver) statement(s statement, f frame) {
	switch n := s.(type) {
	case *printNode:
		r.expression(n.value, f)
	case *setNode:
		r.expression(n.value, f)
		n.to = r.target(n.target, f)
		n.exports = r.exports(n.target, f)
	case *setBlock:
		inner := f.inner()
		analyzeAll(inner.symbols, n.body)
		n.scope = inner.scope()
		r.statements(n.body, inner)
		n.to = r.target(n.target, f)
		n.exports = r.exports(n.target, f)
		if n.filter != nil {
			r.expression(n.filter, inner)
		}
	case *ifNode:
		r.ifNode(n, f.softened())
	case *forNode:
		r.forNode(n, f)
	case *breakNode:
		r.inLoop("break", int(n.pos), f)
	case *continueNode:
		r.inLoop("continue", int(n.pos), f)
	case *withNode:
		inner := f.inner()
		analyzeAll(inner.symbols, n.targets)
		analyzeAll(inner.symbols, n.body)
		n.scope = inner.scope()
		for i, t := range n.targets {
			n.to = append(n.to, r.target(t, inner))
			r.expression(n.values[i], f)
		}
		r.statements(n.body, inner)
	case *filterBlock:
		inner := f.inner()
		analyzeAll(inner.symbols, n.children())
		n.scope = inner.scope()
		r.statements(n.body, inner)
		r.expression(n.filter, inner)
	case *autoescapeNode:
		inner := f.inner()
		analyzeAll(inner.symbols, n.children())
		n.scope = inner.scope()
		r.expression(n.value, inner)
		r.statements(n.body, inner)
	case *macroNode:
		r.procedure(&n.procedure, int(n.pos), f)
		n.to = target{ref: f.ref(n.name, int(n.pos))}
		if f.toplevel {
			n.exports = []export{{n.name, n.to.ref}}
		}
	case *callBlock:
		r.procedure(&n.procedure, int(n.pos), f)
		if n.call != nil {
			r.expression(n.call, f)
		}
	case *blockNode:
		n.block = r.blocks[n.name]
		n.place = f
	case *refusedNode:
		if n.tag == "extends" && !f.toplevel {
			failAt(int(n.pos), "extends is only allowed at the top level of a template")
		}
		r.expression(n.template, f)
	}
}

func (r *resolver) ifNode(n *ifNode, f frame) {
	r.expression(n.test, f)
	r.statements(n.body, f)
	for _, e := range n.elifs {
		r.ifNode(e, f)
	}
	r.statements(n.otherwise, f)
}

func (r *resolver) inLoop(tag string, line int, f frame) {
	if f.loops == 0 {
		failAt(line, "%s is outside of a loop", tag)
	}
}

// maxLoops is how many loops of a function Python allows to be nested.
const maxLoops = 20

func (r *resolver) forNode(n *forNode, f frame) {
	loop, otherwise := f.inner(), f.inner()
	scoped := false
	descend(n, func(c node) bool {
		switch c := c.(type) {
		case *blockNode:
			scoped = scoped || c.scoped
		case *nameNode:
			if c.use == store && c.name == "loop" {
				failAt(int(c.pos), "the variable loop of a for loop cannot be assigned to")
			}
		}
		return true
	})
	extended := n.recursive || scoped || undeclared(n.body, "loop")["loop"]
	if extended {
		loop.symbols.parameter("loop")
	}
	asParameters(n.target, loop.symbols)
	analyzeAll(loop.symbols, n.body)
	analyzeAll(otherwise.symbols, n.otherwise)

	if n.test != nil {
		test := f.inner()
		test.loops = 0
		asParameters(n.target, test.symbols)
		test.symbols.analyze(n.test)
		test.layout = newLayout(f.layout, test.symbols.level)
		n.testLayout, n.testScope = test.layout, test.scope()
		n.testTarget = r.target(n.target, test)
		r.expression(n.test, test)
	}
	if n.recursive {
		n.layout = newLayout(f.layout, loop.symbols.level)
		loop.layout, otherwise.layout = n.layout, n.layout
		loop.loops, otherwise.loops = 0, 0
	}
	if loop.loops++; loop.loops > maxLoops {
		failAt(int(n.pos), "loops are nested more than %d deep", maxLoops)
	}
	if extended {
		loopRef := ref{0, loop.own("loop")}
		n.loopRef = &loopRef
	}
	n.to = r.target(n.target, loop)
	r.expression(n.iterable, f)
	n.scope = loop.scope()
	r.statements(n.body, loop)
	n.elseScope = otherwise.scope()
	r.statements(n.otherwise, otherwise)
}

// asParameters declares the names of a loop's target.
func asParameters(e expression, s *symbols) {
	declare := func(n node) bool {
		if name, ok := n.(*nameNode); ok {
			s.parameter(name.name)
		}
		return true
	}
	declare(e)
	descend(e, declare)
}

// procedure resolves a macro or the body of a call block.
func (r *resolver) procedure(d *procedure, line int, f frame) {
	inner := f.inner()
	inner.loops = 0
	inner.layout = newLayout(f.layout, inner.symbols.level)
	analyze := func() {
		analyzeAll(inner.symbols, d.params)
		analyzeAll(inner.symbols, d.defaults)
		analyzeAll(inner.symbols, d.body)
	}
	analyze()
	names := undeclared(d.body, "caller", "kwargs", "varargs")
	d.caller, d.kwargs, d.extra = -1, -1, -1
	for i, p := range d.params {
		switch p.name {
		case "caller":
			d.explicitCaller = true
			if names["caller"] && i < len(d.params)-len(d.defaults) {
				failAt(line, "the parameter caller needs a default")
			}
		case "kwargs", "varargs":
			delete(names, p.name)
		}
		d.slots = append(d.slots, inner.own(p.name))
	}
	imply := func(name string) int {
		inner.symbols.parameter(name)
		return inner.own(name)
	}
	if d.takesCaller = names["caller"]; d.takesCaller && !d.explicitCaller {
		d.caller = imply("caller")
	}
	if names["kwargs"] {
		d.kwargs = imply("kwargs")
	}
	if names["varargs"] {
		d.extra = imply("varargs")
	}
	analyze()
	d.layout, d.scope = inner.layout, inner.scope()
	for _, e := range d.defaults {
		r.expression(e, inner)
	}
	r.statements(d.body, inner)
}

// target resolves what is assigned to.
func (r *resolver) target(e expression, f frame) target {
	switch e := e.(type) {
	case *nameNode:
		return target{ref: f.ref(e.name, int(e.pos))}
	case *attributeTarget:
		return target{ref: f.ref(e.name, int(e.pos)), attribute: e.attribute}
	}
	t := target{isTuple: true}
	for _, x := range e.(*tupleNode).items {
		t.items = append(t.items, r.target(x, f))
	}
	return t
}

// exports returns the variables that a {% set %} at the top level assigns, which blocks can read. e is what is assigned
// to.
func (r *resolver) exports(e expression, f frame) []export {
	if !f.toplevel || len(r.blocks) == 0 {
		return nil
	}
	var list []export
	add := func(n node) bool {
		if name, ok := n.(*nameNode); ok {
			list = append(list, export{name.name, f.ref(name.name, int(name.pos))})
		}
		return true
	}
	add(e)
	descend(e, add)
	return list
}

// expression resolves the names, filters and tests of an expression.
func (r *resolver) expression(e expression, f frame) {
	switch n := e.(type) {
	case *nameNode:
		n.ref = f.ref(n.name, int(n.pos))
		return
	case *conditional:
		f = f.softened()
	case *filterNode:
		if n.filter = filters[n.name]; n.filter == nil && !f.soft {
			failAt(int(n.pos), "there is no filter %q%s", n.name, similar(n.name, filters))
		}
	case *testNode:
		if n.test = tests[n.name]; n.test == nil && !f.soft {
			failAt(int(n.pos), "there is no test %q%s", n.name, similar(n.name, tests))
		}
	}
	for _, c := range e.children() {
		r.expression(c.(expression), f)
	}
}

// similar suggests a name that differs in case only.
func similar(name string, table map[string]*builtin) string {
	if lower := strings.ToLower(name); table[lower] != nil {
		return ", but " + lower
	}
	return ""
}
