package template

func (n *forNode) exec(in *interp, act *activation, out *output) signal {
	in.line = n.position()
	iterable := n.iterable.eval(in, act)
	if !n.recursive {
		return n.iterate(in, act, act, iterable, 0, nil, out)
	}
	out.write(in.str(n.render(in, act, iterable, 0)))
	return finished
}

// render runs a recursive loop over iterable, and gives what it prints.
func (n *forNode) render(in *interp, outer *activation, iterable Value, depth int) Value {
	in.enter()
	defer in.leave()
	out := &output{in: in}
	recurse := func(v Value, depth int) Value { return n.render(in, outer, v, depth) }
	n.iterate(in, newActivation(n.layout, outer), outer, iterable, depth, recurse, out)
	return Str(out.String())
}

// iterate runs the loop: the body's variables are in act, those of the place where the loop stands in outer.
func (n *forNode) iterate(in *interp, act, outer *activation, iterable Value, depth int, recurse func(Value, int) Value,
	out *output) signal {
	in.line = n.position()
	if n.test != nil {
		iterable = n.filtered(in, outer, iterable)
	}
	next := in.iterate(iterable)
	var loop *loopContext
	if n.loopRef != nil {
		loop = &loopContext{in: in, iterable: iterable, iterator: next, index0: -1, size: -1,
			depth0: depth, recurse: recurse}
		next = loop.next
	}
	// jinja2 notes that there was an iteration at the end of the body, which continue and break skip.
	empty := true
	for {
		v, ok := next()
		if !ok {
			break
		}
		in.step(1)
		in.line = n.position()
		in.assign(n.to, v, act)
		if loop != nil {
			*act.at(*n.loopRef) = loop
		}
		in.enterScope(n.scope, act)
		sig := in.run(n.body, act, out)
		if sig == broke {
			break
		}
		if sig == finished {
			empty = false
		}
	}
	in.leaveScope(n.scope, act)
	if !empty || len(n.otherwise) == 0 {
		return finished
	}
	in.enterScope(n.elseScope, act)
	if sig := in.run(n.otherwise, act, out); sig != finished {
		return sig
	}
	in.leaveScope(n.elseScope, act)
	return finished
}

// filtered returns a generator of those elements of iterable that pass the loop's test.
func (n *forNode) filtered(in *interp, outer *activation, iterable Value) Value {
	var act *activation
	var next iterator
	return newGenerator(func() (Value, bool) {
		if act == nil {
			act = newActivation(n.testLayout, outer)
			in.enterScope(n.testScope, act)
			next = in.iterate(iterable)
		}
		for {
			v, ok := next()
			if !ok {
				return nil, false
			}
			in.line = n.position()
			in.assign(n.testTarget, v, act)
			if truthOf(in, n.test, act) {
				return in.targetValue(n.testTarget, act), true
			}
		}
	})
}

// loopContext is the variable loop.
type loopContext struct {
	in       *interp
	iterable Value
	iterator iterator
	// index0 is the number of the iteration from 0, size the number of all once known, else -1.
	index0, size    int
	before, current Value
	// after is the next element if it has been asked for.
	after   Value
	changed Value
	depth0  int
	recurse func(iterable Value, depth int) Value
}

// TypeName implements Value.
func (*loopContext) TypeName() string { return "LoopContext" }

func (l *loopContext) next() (Value, bool) {
	v, ok := l.after, true
	if v == nil {
		v, ok = l.iterator()
	}
	l.after = nil
	if !ok {
		return nil, false
	}
	l.index0++
	l.before, l.current = l.current, v
	return v, true
}

// peek returns the next element, or nil at the end.
func (l *loopContext) peek() Value {
	if l.after == nil {
		if v, ok := l.iterator(); ok {
			l.after = v
		}
	}
	return l.after
}

func (l *loopContext) length(in *interp) int {
	if l.size >= 0 {
		return l.size
	}
	n, ok := in.tryLength(l.iterable)
	if !ok {
		rest := in.drain(l.iterator)
		l.iterator = iterateValues(rest)
		n = len(rest) + l.index0 + 1
		if l.after != nil {
			n++
		}
	}
	l.size = n
	return n
}

func (l *loopContext) repr(in *interp) string {
	return "<LoopContext " + in.repr(Int(l.index0+1)) + "/" + in.repr(Int(l.length(in))) + ">"
}

// attribute returns an attribute of the variable loop.
func (l *loopContext) attribute(in *interp, name string) (Value, bool) {
	switch name {
	case "index":
		return Int(l.index0 + 1), true
	case "index0":
		return Int(l.index0), true
	case "revindex":
		return Int(l.length(in) - l.index0), true
	case "revindex0":
		return Int(l.length(in) - l.index0 - 1), true
	case "first":
		return Bool(l.index0 == 0), true
	case "last":
		return Bool(l.peek() == nil), true
	case "length":
		return Int(l.length(in)), true
	case "depth":
		return Int(l.depth0 + 1), true
	case "depth0":
		return Int(l.depth0), true
	case "previtem":
		if l.index0 == 0 {
			return undefinedHint("there is no previous item"), true
		}
		return l.before, true
	case "nextitem":
		if v := l.peek(); v != nil {
			return v, true
		}
		return undefinedHint("there is no next item"), true
	}
	if m := loopMethods[name]; m != nil {
		return &method{l, name, m}, true
	}
	return nil, false
}

// call renders the loop's body for another iterable.
func (l *loopContext) call(in *interp, args []Value) Value {
	if l.recurse == nil {
		in.fail(TypeError, "The loop must have the 'recursive' marker to be called recursively.")
	}
	return l.recurse(args[0], l.depth0+1)
}

func loopCycle(in *interp, self Value, args callArgs) Value {
	in.noNames("cycle", args)
	if len(args.positional) == 0 {
		in.fail(TypeError, "no items for cycling given")
	}
	return args.positional[self.(*loopContext).index0%len(args.positional)]
}

func loopChanged(in *interp, self Value, args callArgs) Value {
	in.noNames("changed", args)
	l := self.(*loopContext)
	v := newTuple(args.positional...)
	if l.changed != nil && in.equal(l.changed, v) {
		return Bool(false)
	}
	l.changed = v
	return Bool(true)
}
