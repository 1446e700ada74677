package template

// node is a part of the syntax tree.
type node interface {
	// children are the nodes directly below, in the order in which jinja2 visits them; the scoping rules
	// depend on it.
	children() []node
}

// statement is a node that a body is made of.
type statement interface {
	node
	// exec runs the statement and writes what it prints.
	exec(in *interp, act *activation, out *output) signal
}

// expression is a node that has a value.
type expression interface {
	node
	eval(in *interp, act *activation) Value
	position() int
}

// pos is the line of a node.
type pos int

func (p pos) position() int { return int(p) }

// nodes returns expressions as nodes.
func nodes[N node](list ...N) []node {
	out := make([]node, 0, len(list))
	for _, n := range list {
		out = append(out, n)
	}
	return out
}

// join concatenates children.
func join(lists ...[]node) []node {
	var out []node
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// optional returns a node that may be absent.
func optional(e expression) []node {
	if e == nil {
		return nil
	}
	return []node{e}
}

// descend calls visit for all nodes below n, in order, until it returns false.
func descend(n node, visit func(node) bool) bool {
	for _, c := range n.children() {
		if !visit(c) || !descend(c, visit) {
			return false
		}
	}
	return true
}

// nameUse says what a name in the source is for.
type nameUse int

const (
	load  nameUse = iota // its value
	store                // a target of set, for, macro or import
	param                // an argument of a macro, or a target of with
)

// Expressions.
type (
	// nameNode is a name.
	nameNode struct {
		pos
		name string
		use  nameUse
		ref  ref
	}
	// attributeTarget is the target ns.attribute of a set.
	attributeTarget struct {
		pos
		name, attribute string
	}
	constant struct {
		pos
		value Value
	}
	tupleNode struct {
		pos
		items []expression
	}
	listNode struct {
		pos
		items []expression
	}
	dictNode struct {
		pos
		keys, values []expression
	}
	// conditional is then if test else otherwise; otherwise may be nil.
	conditional struct {
		pos
		test, then, otherwise expression
	}
	// binaryNode is an arithmetic operation.
	binaryNode struct {
		pos
		op          string
		left, right expression
	}
	// logical is left and right, or left or right.
	logical struct {
		pos
		or          bool
		left, right expression
	}
	// unary is "not", "-" or "+".
	unary struct {
		pos
		op      string
		operand expression
	}
	// compareNode is a chain of comparisons: first ops[0] rest[0] ops[1] rest[1] …
	compareNode struct {
		pos
		first expression
		ops   []string
		rest  []expression
	}
	// concatNode joins the strings of its parts.
	concatNode struct {
		pos
		parts []expression
	}
	attributeNode struct {
		pos
		object expression
		name   string
	}
	subscript struct {
		pos
		object, index expression
	}
	// sliceNode is start:stop:step; each may be nil.
	sliceNode struct {
		pos
		start, stop, step expression
	}
	// callNode calls a function. The forwarded caller of a call block is one more named argument.
	callNode struct {
		pos
		function expression
		args     arguments
	}
	// filterNode applies a filter; operand is nil in a filter block, where it is the block's text.
	filterNode struct {
		pos
		name    string
		operand expression
		args    arguments
		filter  *builtin
	}
	testNode struct {
		pos
		name    string
		operand expression
		args    arguments
		test    *builtin
	}
	// arguments are the arguments of a call: positional, named, *list and **dict.
	arguments struct {
		positional []expression
		names      []string
		named      []expression
		list, dict expression
	}
)

func (n *nameNode) children() []node        { return nil }
func (n *attributeTarget) children() []node { return nil }
func (n *constant) children() []node        { return nil }
func (n *tupleNode) children() []node       { return nodes(n.items...) }
func (n *listNode) children() []node        { return nodes(n.items...) }
func (n *dictNode) children() []node {
	var out []node
	for i, k := range n.keys {
		out = append(out, k, n.values[i])
	}
	return out
}
func (n *conditional) children() []node {
	return join(nodes(n.test, n.then), optional(n.otherwise))
}
func (n *binaryNode) children() []node    { return nodes(n.left, n.right) }
func (n *logical) children() []node       { return nodes(n.left, n.right) }
func (n *unary) children() []node         { return nodes(n.operand) }
func (n *compareNode) children() []node   { return join(nodes(n.first), nodes(n.rest...)) }
func (n *concatNode) children() []node    { return nodes(n.parts...) }
func (n *attributeNode) children() []node { return nodes(n.object) }
func (n *subscript) children() []node     { return nodes(n.object, n.index) }
func (n *sliceNode) children() []node {
	return join(optional(n.start), optional(n.stop), optional(n.step))
}
func (n *callNode) children() []node   { return join(nodes(n.function), n.args.children()) }
func (n *filterNode) children() []node { return join(optional(n.operand), n.args.children()) }
func (n *testNode) children() []node   { return join(nodes(n.operand), n.args.children()) }
func (a *arguments) children() []node {
	return join(nodes(a.positional...), nodes(a.named...), optional(a.list), optional(a.dict))
}
