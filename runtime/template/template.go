package template

import (
	"fmt"
	"unicode/utf8"
)

// Template is a parsed template. It may be rendered by many goroutines at once.
type Template struct {
	name    string
	program *program
}

// program is a resolved template.
type program struct {
	body     []statement
	blocks   map[string]*block
	layout   *layout
	scope    scope
	selfSlot int
}

// Parse parses the source of a template. Errors give name, which is mostly the name of a file, and the line; they
// are of type *Error.
func Parse(name, source string) (t *Template, err error) {
	defer catchError(name, &err)
	if len(source) > maxSource {
		failAt(1, "the template has %d bytes, at most %d are allowed", len(source), maxSource)
	}
	if !utf8.ValidString(source) {
		failAt(1, "the template is not UTF-8")
	}
	p := &parser{tokens: tokenize(source)}
	return &Template{name, resolve(p.statements(nil))}, nil
}

// Name returns the name given to Parse.
func (t *Template) Name() string { return t.name }

// Render returns the text that the template makes of a context, whose keys are the variables of the template; nil
// is an empty context. Errors are of type *Error: they give the template and the line, and for one that the
// template raised itself its message.
func (t *Template) Render(ctx *Dict, opts Options) (text string, err error) {
	defer catchError(t.name, &err)
	if ctx == nil {
		ctx = &Dict{}
	}
	in := &interp{opts: opts.withDefaults(), program: t.program, variables: ctx, line: 1}
	act := newActivation(t.program.layout, nil)
	act.context = &context{}
	if t.program.selfSlot >= 0 {
		act.variables[t.program.selfSlot] = &templateReference{act.context, t.program.blocks}
	}
	out := &output{in: in}
	in.enterScope(t.program.scope, act)
	in.run(t.program.body, act, out)
	return out.String(), nil
}

// interp is the state of a render.
type interp struct {
	opts      Options
	program   *program
	variables *Dict
	// line is the line that is being evaluated.
	line   int
	steps  int64
	memory int64
	depth  int
}

// activation holds the variables of a call of a function; nil is a variable without a value.
type activation struct {
	variables []Value
	outer     *activation
	context   *context
}

func newActivation(l *layout, outer *activation) *activation {
	a := &activation{variables: make([]Value, len(l.slots)), outer: outer}
	if outer != nil {
		a.context = outer.context
	}
	return a
}

// at is where a variable is held.
func (a *activation) at(r ref) *Value {
	for range r.hops {
		a = a.outer
	}
	return &a.variables[r.slot]
}

// context is where names are looked up that no function has a variable for: in the variables that the template
// sets at its top level, those that a scoped block sees, and those that the caller of Render gave.
type context struct {
	local map[string]Value
	outer *context
	// place and around are where a scoped block stands; they are nil in the context of the template.
	place  *frame
	around *activation
}

func (c *context) set(name string, v Value) {
	if c.local == nil {
		c.local = map[string]Value{}
	}
	c.local[name] = v
}

// resolve looks a name up, and gives nil if it is not there.
func (in *interp) resolve(c *context, name string) Value {
	for ; c != nil; c = c.outer {
		if v, ok := c.local[name]; ok {
			return v
		}
		if c.place == nil {
			continue
		}
		if at, ok := c.place.assigned(name); ok {
			if v := *c.around.at(at); v != nil {
				return v
			}
		}
	}
	if v, ok := in.variables.Get(name); ok {
		return v
	}
	if v, ok := globals[name]; ok {
		return v
	}
	return nil
}

// enterScope gives the variables of a scope their first values.
func (in *interp) enterScope(s scope, act *activation) {
	in.step(len(s.enter))
	for _, e := range s.enter {
		var v Value
		switch e.origin {
		case fromContext:
			v = in.resolve(act.context, e.name)
		case fromOuter:
			v = *act.at(e.from)
		}
		act.variables[e.slot] = v
	}
}

func (in *interp) leaveScope(s scope, act *activation) {
	for _, slot := range s.clear {
		act.variables[slot] = nil
	}
}

// assign gives a target a value.
func (in *interp) assign(t target, v Value, act *activation) {
	switch {
	case t.attribute != "":
		ns := in.namespaceAt(t, act)
		in.insert(ns.attributes, Str(t.attribute), v)
	case t.isTuple:
		for i, x := range in.unpack(v, len(t.items)) {
			in.assign(t.items[i], x, act)
		}
	default:
		*act.at(t.ref) = v
	}
}

// checkNamespaces fails if a target is an attribute of what is not a namespace; the value is not evaluated then.
func (in *interp) checkNamespaces(t target, act *activation) {
	if t.attribute != "" {
		in.namespaceAt(t, act)
	}
	for _, x := range t.items {
		in.checkNamespaces(x, act)
	}
}

func (in *interp) namespaceAt(t target, act *activation) *namespace {
	v := *act.at(t.ref)
	ns, ok := v.(*namespace)
	if !ok {
		found := "an undefined value"
		if v != nil {
			found = fmt.Sprintf("a value of type %s", v.TypeName())
		}
		in.fail(RuntimeError, "cannot assign attribute on non-namespace object: .%s of %s", t.attribute, found)
	}
	return ns
}

// unpack returns the n values of an iterable.
func (in *interp) unpack(v Value, n int) []Value {
	next := in.tryIterate(v)
	if next == nil {
		in.fail(TypeError, "cannot unpack non-iterable %s object", v.TypeName())
	}
	values := make([]Value, 0, n)
	for {
		x, ok := next()
		if !ok {
			break
		}
		if len(values) == n {
			in.fail(ValueError, "too many values to unpack (expected %d)", n)
		}
		values = append(values, x)
	}
	if len(values) < n {
		in.fail(ValueError, "not enough values to unpack (expected %d, got %d)", n, len(values))
	}
	return values
}

// targetValue returns the value of a target after it has been assigned to.
func (in *interp) targetValue(t target, act *activation) Value {
	if !t.isTuple {
		return *act.at(t.ref)
	}
	items := make([]Value, len(t.items))
	for i, x := range t.items {
		items[i] = in.targetValue(x, act)
	}
	return newTuple(items...)
}
