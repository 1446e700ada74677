package template

func (n *nameNode) eval(_ *interp, act *activation) Value {
	if v := *act.at(n.ref); v != nil {
		return v
	}
	return undefinedName(n.name)
}

// eval is never called: the target of a set is not a value.
func (n *attributeTarget) eval(*interp, *activation) Value { return None{} }

func (n *constant) eval(*interp, *activation) Value { return n.value }

func evalAll(in *interp, act *activation, list []expression) []Value {
	in.allocValues(len(list))
	values := make([]Value, len(list))
	for i, e := range list {
		values[i] = in.eval(e, act)
	}
	return values
}

// eval is the value of an expression, and a step.
func (in *interp) eval(e expression, act *activation) Value {
	in.step(1)
	return e.eval(in, act)
}

func (n *tupleNode) eval(in *interp, act *activation) Value {
	return newTuple(evalAll(in, act, n.items)...)
}

func (n *listNode) eval(in *interp, act *activation) Value {
	return NewList(evalAll(in, act, n.items)...)
}

func (n *dictNode) eval(in *interp, act *activation) Value {
	d := &Dict{}
	for i, k := range n.keys {
		key := in.eval(k, act)
		value := in.eval(n.values[i], act)
		in.line = n.position()
		in.insert(d, key, value)
	}
	return d
}

func (n *conditional) eval(in *interp, act *activation) Value {
	if truth(in.eval(n.test, act)) {
		return in.eval(n.then, act)
	}
	if n.otherwise == nil {
		return undefinedHint("the inline if-expression on line " + in.repr(Int(n.pos)) +
			" evaluated to false and no else section was defined.")
	}
	return in.eval(n.otherwise, act)
}

func (n *binaryNode) eval(in *interp, act *activation) Value {
	left := in.eval(n.left, act)
	right := in.eval(n.right, act)
	in.line = n.position()
	if n.op == "**" && isLiteral(n.left) && !isLiteral(n.right) && isNumber(left) && in.less("<", left, Int(0)) {
		// jinja2 folds the base to a constant and writes it without parentheses, so that the sign comes last.
		return in.negate(in.binary(n.op, in.negate(left), right))
	}
	return in.binary(n.op, left, right)
}

// isLiteral says whether an expression is made of numbers and arithmetic only.
func isLiteral(e expression) bool {
	switch e := e.(type) {
	case *constant:
		return isNumber(e.value)
	case *unary:
		return e.op != "not" && isLiteral(e.operand)
	case *binaryNode:
		return isLiteral(e.left) && isLiteral(e.right)
	}
	return false
}

func (n *logical) eval(in *interp, act *activation) Value {
	left := in.eval(n.left, act)
	if truth(left) == n.or {
		return left
	}
	return in.eval(n.right, act)
}

func (n *unary) eval(in *interp, act *activation) Value {
	v := in.eval(n.operand, act)
	in.line = n.position()
	switch n.op {
	case "-":
		return in.negate(v)
	case "+":
		return in.positive(v)
	}
	return Bool(!truth(v))
}

func (n *compareNode) eval(in *interp, act *activation) Value {
	left := in.eval(n.first, act)
	for i, op := range n.ops {
		right := in.eval(n.rest[i], act)
		in.line = n.position()
		if !in.compare(op, left, right) {
			return Bool(false)
		}
		left = right
	}
	return Bool(true)
}

// compare is left op right for the operators of comparisons.
func (in *interp) compare(op string, left, right Value) bool {
	switch op {
	case "==":
		return in.equal(left, right)
	case "!=":
		return !in.equal(left, right)
	case "in":
		return in.contains(right, left)
	case "not in":
		return !in.contains(right, left)
	}
	return in.less(op, left, right)
}

func (n *concatNode) eval(in *interp, act *activation) Value {
	parts := make([]string, len(n.parts))
	for i, e := range n.parts {
		v := in.eval(e, act)
		in.line = n.position()
		parts[i] = in.str(v)
	}
	return Str(in.concat(parts...))
}

func (n *attributeNode) eval(in *interp, act *activation) Value {
	v := in.eval(n.object, act)
	in.line = n.position()
	return in.getAttribute(v, n.name)
}

func (n *subscript) eval(in *interp, act *activation) Value {
	v := in.eval(n.object, act)
	index := in.eval(n.index, act)
	in.line = n.position()
	if s, ok := index.(sliceValue); ok {
		return in.slice(v, s)
	}
	return in.getItem(v, index)
}

func (n *sliceNode) eval(in *interp, act *activation) Value {
	bound := func(e expression) Value {
		if e == nil {
			return None{}
		}
		return in.eval(e, act)
	}
	return sliceValue{bound(n.start), bound(n.stop), bound(n.step)}
}

func (n *callNode) eval(in *interp, act *activation) Value {
	function := in.eval(n.function, act)
	args := n.args.eval(in, act)
	in.line = n.position()
	return in.call(function, args)
}

func (n *filterNode) eval(in *interp, act *activation) Value {
	return n.apply(in, in.eval(n.operand, act), act)
}

func (n *filterNode) apply(in *interp, v Value, act *activation) Value {
	args := n.args.eval(in, act)
	in.line = n.position()
	if n.filter == nil {
		in.fail(RuntimeError, "No filter named %s found.", quote(n.name))
	}
	return in.invoke(n.name, n.filter, v, args)
}

// filterText applies the filters of a block to its text; the innermost has no operand.
func (in *interp) filterText(e expression, text string, act *activation) Value {
	n := e.(*filterNode)
	if n.operand == nil {
		return n.apply(in, Str(text), act)
	}
	return n.apply(in, in.filterText(n.operand, text, act), act)
}

func (n *testNode) eval(in *interp, act *activation) Value {
	v := in.eval(n.operand, act)
	args := n.args.eval(in, act)
	in.line = n.position()
	if n.test == nil {
		in.fail(RuntimeError, "No test named %s found.", quote(n.name))
	}
	return in.invoke(n.name, n.test, v, args)
}
