package template

import "slices"

// macro is a macro, or the body of a call block, with the variables around it.
type macro struct {
	*procedure
	outer *activation
}

// TypeName implements Value.
func (*macro) TypeName() string { return "Macro" }

func (m *macro) repr(*interp) string {
	if m.name == "" {
		return "<Macro anonymous>"
	}
	return "<Macro " + quote(m.name) + ">"
}

func (m *macro) attribute(name string) (Value, bool) {
	switch name {
	case "name":
		if m.name == "" {
			return None{}, true
		}
		return Str(m.name), true
	case "arguments":
		t := newTuple()
		for _, p := range m.params {
			t.items = append(t.items, Str(p.name))
		}
		return t, true
	case "catch_kwargs":
		return Bool(m.kwargs >= 0), true
	case "catch_varargs":
		return Bool(m.extra >= 0), true
	case "caller":
		return Bool(m.takesCaller), true
	case "explicit_caller":
		return Bool(m.explicitCaller), true
	}
	return nil, false
}

// callMacro binds the arguments of a call to the parameters and gives what the body prints.
func (in *interp) callMacro(m *macro, args callArgs) Value {
	in.enter()
	defer in.leave()
	act := newActivation(m.layout, m.outer)
	in.bindMacro(m, act, args)
	in.enterScope(m.scope, act)
	first := len(m.params) - len(m.defaults)
	for i, slot := range m.slots {
		if act.variables[slot] != nil {
			continue
		}
		if i < first {
			name := m.params[i].name
			u := undefinedName(name)
			u.hint = "parameter " + quote(name) + " was not provided"
			act.variables[slot] = u
			continue
		}
		act.variables[slot] = m.defaults[i-first].eval(in, act)
	}
	text, _ := in.capture(m.body, act)
	return Str(text)
}

func (in *interp) bindMacro(m *macro, act *activation, args callArgs) {
	take := min(len(args.positional), len(m.slots))
	for i := range take {
		act.variables[m.slots[i]] = args.positional[i]
	}
	names, named := slices.Clone(args.names), slices.Clone(args.named)
	pop := func(name string) Value {
		in.step(1 + len(names)/16)
		i := slices.Index(names, name)
		if i < 0 {
			return nil
		}
		v := named[i]
		names, named = slices.Delete(names, i, i+1), slices.Delete(named, i, i+1)
		return v
	}
	foundCaller := m.explicitCaller && take == len(m.slots)
	for i := take; i < len(m.slots); i++ {
		name := m.params[i].name
		act.variables[m.slots[i]] = pop(name)
		foundCaller = foundCaller || name == "caller"
	}
	if m.takesCaller && !foundCaller {
		caller := pop("caller")
		if _, none := caller.(None); none || caller == nil {
			caller = undefinedHint("No caller defined")
		}
		if m.caller < 0 {
			in.fail(TypeError, "macro %s got its caller twice", quote(m.name))
		}
		act.variables[m.caller] = caller
	}
	switch {
	case m.kwargs >= 0:
		d := &Dict{}
		for i, name := range names {
			in.insert(d, Str(name), named[i])
		}
		act.variables[m.kwargs] = d
	case slices.Contains(names, "caller"):
		in.fail(TypeError, "macro %s was invoked with two values for the special caller argument. This is most "+
			"likely a bug.", quote(m.name))
	case len(names) > 0:
		in.fail(TypeError, "macro %s takes no keyword argument %s", quote(m.name), quote(names[0]))
	}
	if m.extra >= 0 {
		act.variables[m.extra] = newTuple(args.positional[take:]...)
	} else if len(args.positional) > take {
		in.fail(TypeError, "macro %s takes not more than %d argument(s)", quote(m.name), len(m.params))
	}
}

// templateReference is the variable self, whose items are the blocks.
type templateReference struct {
	context *context
	blocks  map[string]*block
}

// TypeName implements Value.
func (*templateReference) TypeName() string { return "TemplateReference" }

func (*templateReference) repr(*interp) string { return "<TemplateReference None>" }

// blockReference renders a block when it is called.
type blockReference struct {
	block   *block
	context *context
}

// TypeName implements Value.
func (*blockReference) TypeName() string { return "BlockReference" }

func (b *blockReference) attribute(name string) (Value, bool) {
	switch name {
	case "name":
		return Str(b.block.name), true
	case "super":
		return undefinedHint("there is no parent block called " + quote(b.block.name) + "."), true
	}
	return nil, false
}

func (b *blockReference) call(in *interp) Value {
	out := &output{in: in}
	in.runBlock(b.block, b.context, out)
	return Str(out.String())
}
