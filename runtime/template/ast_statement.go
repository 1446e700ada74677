package template

// Statements.
type (
	// textNode prints a part of the source.
	textNode struct{ text string }
	// printNode prints the value of an expression.
	printNode struct{ value expression }
	// setNode assigns a value.
	setNode struct {
		pos
		target expression
		value  expression

		to      target
		exports []export
	}
	// setBlock assigns the text that its body prints.
	setBlock struct {
		pos
		target expression
		filter expression // of filterNodes, the innermost without operand; or nil
		body   []statement

		to      target
		exports []export
		scope   scope
	}
	ifNode struct {
		pos
		test      expression
		body      []statement
		elifs     []*ifNode
		otherwise []statement
	}
	// forNode is a loop. The names below the blank line are the resolver's.
	forNode struct {
		pos
		target    expression
		iterable  expression
		test      expression // the filter, or nil
		recursive bool
		body      []statement
		otherwise []statement

		to         target
		loopRef    *ref // the variable loop, if the body uses it
		layout     *layout
		scope      scope
		elseScope  scope
		testLayout *layout
		testScope  scope
		testTarget target
	}
	breakNode    struct{ pos }
	continueNode struct{ pos }
	// withNode gives names to values for its body.
	withNode struct {
		pos
		targets []expression
		values  []expression
		body    []statement

		to    []target
		scope scope
	}
	// filterBlock prints the text that its body prints, filtered.
	filterBlock struct {
		pos
		filter expression
		body   []statement
		scope  scope
	}
	// autoescapeNode switches the escaping of HTML, which is refused unless it is switched off.
	autoescapeNode struct {
		pos
		value expression
		body  []statement
		scope scope
	}
	// procedure is what macros and call blocks share: parameters and a body.
	procedure struct {
		name     string // empty for a call block
		params   []*nameNode
		defaults []expression // of the last params
		body     []statement

		layout                *layout
		scope                 scope
		slots                 []int // of params
		caller, kwargs, extra int   // slots of the parameters that the body implies, or -1
		takesCaller           bool  // the body uses caller
		explicitCaller        bool  // caller is one of params
	}
	macroNode struct {
		pos
		procedure
		to      target
		exports []export
	}
	// callBlock passes its body as caller to a call; the generation tag has no call and prints its body.
	callBlock struct {
		pos
		procedure
		call *callNode
	}
	// blockNode is a named part that inheriting templates could replace.
	blockNode struct {
		pos
		name             string
		scoped, required bool
		body             []statement

		block *block
		place frame // whose variables a scoped block sees
	}
	// refusedNode is an include, import or extends: it parses, and is an error when it runs.
	refusedNode struct {
		pos
		tag      string
		template expression
		names    []*nameNode // that an import binds
	}
)

func (n *textNode) children() []node  { return nil }
func (n *printNode) children() []node { return nodes(n.value) }
func (n *setNode) children() []node   { return nodes(n.target, n.value) }
func (n *setBlock) children() []node {
	return join(nodes(n.target), optional(n.filter), nodes(n.body...))
}
func (n *ifNode) children() []node {
	return join(nodes(n.test), nodes(n.body...), nodes(n.elifs...), nodes(n.otherwise...))
}
func (n *forNode) children() []node {
	return join(nodes(n.target, n.iterable), nodes(n.body...), nodes(n.otherwise...), optional(n.test))
}
func (n *breakNode) children() []node    { return nil }
func (n *continueNode) children() []node { return nil }
func (n *withNode) children() []node {
	return join(nodes(n.targets...), nodes(n.values...), nodes(n.body...))
}
func (n *filterBlock) children() []node    { return join(nodes(n.body...), nodes(n.filter)) }
func (n *autoescapeNode) children() []node { return join(nodes(n.value), nodes(n.body...)) }
func (n *macroNode) children() []node {
	return join(nodes(n.params...), nodes(n.defaults...), nodes(n.body...))
}
func (n *callBlock) children() []node {
	var call []node
	if n.call != nil {
		call = nodes(n.call)
	}
	return join(call, nodes(n.params...), nodes(n.defaults...), nodes(n.body...))
}
func (n *blockNode) children() []node   { return nodes(n.body...) }
func (n *refusedNode) children() []node { return optional(n.template) }
