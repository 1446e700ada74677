package template

import "slices"

// signal says how a statement ended.
type signal int

const (
	finished  signal = iota
	broke            // break: the innermost loop ends
	continued        // continue: the iteration ends
)

// run runs statements.
func (in *interp) run(list []statement, act *activation, out *output) signal {
	for _, s := range list {
		in.step(1)
		if sig := s.exec(in, act, out); sig != finished {
			return sig
		}
	}
	return finished
}

// capture runs statements and gives what they print.
func (in *interp) capture(list []statement, act *activation) (string, signal) {
	out := &output{in: in}
	sig := in.run(list, act, out)
	return out.String(), sig
}

func (n *textNode) exec(_ *interp, _ *activation, out *output) signal {
	out.write(n.text)
	return finished
}

func (n *printNode) exec(in *interp, act *activation, out *output) signal {
	in.line = n.value.position()
	out.write(in.str(n.value.eval(in, act)))
	return finished
}

func (n *setNode) exec(in *interp, act *activation, _ *output) signal {
	in.line = n.position()
	in.checkNamespaces(n.to, act)
	v := n.value.eval(in, act)
	in.line = n.position()
	in.assign(n.to, v, act)
	in.export(n.exports, act)
	return finished
}

func (n *setBlock) exec(in *interp, act *activation, _ *output) signal {
	in.enterScope(n.scope, act)
	text, sig := in.capture(n.body, act)
	if sig != finished {
		return sig
	}
	in.line = n.position()
	var v Value = Str(text)
	if n.filter != nil {
		v = in.filterText(n.filter, text, act)
	}
	in.assign(n.to, v, act)
	in.export(n.exports, act)
	in.leaveScope(n.scope, act)
	return finished
}

// export makes variables visible to blocks.
func (in *interp) export(list []export, act *activation) {
	for _, e := range list {
		if v := *act.at(e.ref); v != nil {
			act.context.set(e.name, v)
		}
	}
}

func (n *ifNode) exec(in *interp, act *activation, out *output) signal {
	if truthOf(in, n.test, act) {
		return in.run(n.body, act, out)
	}
	for _, e := range n.elifs {
		if truthOf(in, e.test, act) {
			return in.run(e.body, act, out)
		}
	}
	return in.run(n.otherwise, act, out)
}

func truthOf(in *interp, e expression, act *activation) bool {
	in.line = e.position()
	return truth(e.eval(in, act))
}

func (n *breakNode) exec(*interp, *activation, *output) signal { return broke }

func (n *continueNode) exec(*interp, *activation, *output) signal { return continued }

func (n *withNode) exec(in *interp, act *activation, out *output) signal {
	in.enterScope(n.scope, act)
	for i, t := range n.to {
		v := n.values[i].eval(in, act)
		in.line = n.position()
		in.assign(t, v, act)
	}
	if sig := in.run(n.body, act, out); sig != finished {
		return sig
	}
	in.leaveScope(n.scope, act)
	return finished
}

func (n *filterBlock) exec(in *interp, act *activation, out *output) signal {
	in.enterScope(n.scope, act)
	text, sig := in.capture(n.body, act)
	if sig != finished {
		return sig
	}
	in.line = n.position()
	out.write(in.printable(in.filterText(n.filter, text, act)))
	in.leaveScope(n.scope, act)
	return finished
}

// printable returns the text of a value that jinja2 prints without making it a string.
func (in *interp) printable(v Value) string {
	s, ok := asString(v)
	if !ok {
		in.fail(TypeError, "expected str instance, %s found: the result of a filter or call block is printed as it is",
			v.TypeName())
	}
	return s
}

func (n *autoescapeNode) exec(in *interp, act *activation, out *output) signal {
	in.enterScope(n.scope, act)
	if truthOf(in, n.value, act) {
		in.fail(NotSupported, "autoescape is not supported: a prompt is not HTML")
	}
	if sig := in.run(n.body, act, out); sig != finished {
		return sig
	}
	in.leaveScope(n.scope, act)
	return finished
}

func (n *refusedNode) exec(in *interp, _ *activation, _ *output) signal {
	in.line = n.position()
	in.fail(RuntimeError, "%s is refused: a template reads no other templates or files", n.tag)
	return finished
}

func (n *macroNode) exec(in *interp, act *activation, _ *output) signal {
	*act.at(n.to.ref) = &macro{&n.procedure, act}
	in.export(n.exports, act)
	return finished
}

func (n *callBlock) exec(in *interp, act *activation, out *output) signal {
	in.line = n.position()
	caller := &macro{&n.procedure, act}
	if n.call == nil { // the generation tag
		out.write(in.str(in.callMacro(caller, callArgs{})))
		return finished
	}
	function := n.call.function.eval(in, act)
	args := n.call.args.eval(in, act)
	if slices.Contains(args.names, "caller") {
		in.fail(TypeError, "got multiple values for keyword argument 'caller'")
	}
	args.names = append(args.names, "caller")
	args.named = append(args.named, caller)
	in.line = n.position()
	out.write(in.printable(in.call(function, args)))
	return finished
}

func (n *blockNode) exec(in *interp, act *activation, out *output) signal {
	in.line = n.position()
	if n.required {
		in.fail(RuntimeError, "Required block %s not found", quote(n.name))
	}
	c := act.context
	if n.scoped {
		c = &context{outer: c, place: &n.place, around: act}
	}
	in.runBlock(n.block, c, out)
	return finished
}

func (in *interp) runBlock(b *block, c *context, out *output) {
	in.enter()
	defer in.leave()
	act := newActivation(b.layout, nil)
	act.context = c
	if b.selfSlot >= 0 {
		act.variables[b.selfSlot] = &templateReference{c, in.program.blocks}
	}
	if b.supSlot >= 0 {
		act.variables[b.supSlot] = undefinedHint("there is no parent block called " + quote(b.name) + ".")
	}
	in.enterScope(b.scope, act)
	in.run(b.body, act, out)
}
