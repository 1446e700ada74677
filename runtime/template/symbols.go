package template

// jinja2 compiles a template to Python functions and gives every name a Python variable. The rules by which it
// does so decide which assignments a reader sees, so they are followed here: symbols analyses the names of one
// scope, resolve.go turns the result into slots.

// symbol is a variable: a name at a level of nested scopes.
type symbol struct {
	level int
	name  string
}

// origin says what a variable holds when its scope is entered.
type origin int

const (
	fromParameter origin = iota // what the caller or the loop puts there
	fromContext                 // the value in the context
	fromOuter                   // the value of the variable of an outer scope
	fromNothing                 // nothing, until it is assigned
)

type initial struct {
	origin origin
	outer  symbol // for fromOuter
}

// symbols are the names of a scope: macro bodies, loops, with and set blocks have one each. The branches of an if
// share the scope they are in, but what they do to it is collected apart and merged.
type symbols struct {
	level  int
	parent *symbols
	// base is the scope that a branch of an if belongs to; the branch has only what it adds.
	base    *symbols
	refs    map[string]bool
	initial map[string]initial
	order   []string // the keys of initial
	stores  map[string]bool
	stored  []string // the keys of stores
}

func newSymbols(parent *symbols) *symbols {
	s := &symbols{parent: parent, refs: map[string]bool{}, initial: map[string]initial{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

func (s *symbols) branch() *symbols {
	b := newSymbols(s.parent)
	b.level, b.base = s.level, s
	return b
}

// own says whether the scope itself has a variable of the name.
func (s *symbols) own(name string) bool {
	for b := s; b != nil; b = b.base {
		if b.refs[name] {
			return true
		}
	}
	return false
}

func (s *symbols) assigns(name string) bool {
	for b := s; b != nil; b = b.base {
		if b.stores[name] {
			return true
		}
	}
	return false
}

// find returns the variable that the name means in the scope.
func (s *symbols) find(name string) (symbol, bool) {
	for ; s != nil; s = s.parent {
		if s.own(name) {
			return symbol{s.level, name}, true
		}
	}
	return symbol{}, false
}

func (s *symbols) define(name string, i initial) {
	s.refs[name] = true
	if _, ok := s.initial[name]; !ok {
		s.order = append(s.order, name)
	}
	s.initial[name] = i
}

// assign notes that the scope assigns a name.
func (s *symbols) assign(name string) {
	if !s.stores[name] {
		s.stores[name] = true
		s.stored = append(s.stored, name)
	}
}

// load notes that the value of a name is used.
func (s *symbols) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, initial{origin: fromContext})
	}
}

// store notes that a name is assigned. An outer variable of the name is not changed: the scope has a copy.
func (s *symbols) store(name string) {
	s.assign(name)
	if s.own(name) {
		return
	}
	if outer, ok := s.parent.find(name); ok {
		s.define(name, initial{fromOuter, outer})
		return
	}
	s.define(name, initial{origin: fromNothing})
}

// parameter notes that the caller or the loop gives a name its value.
func (s *symbols) parameter(name string) {
	s.assign(name)
	s.define(name, initial{origin: fromParameter})
}

// merge adds what the branches of an if do. A name that only branches assign may be unassigned after them; then
// it has the value that it has outside.
func (s *symbols) merge(branches ...*symbols) {
	var only []string
	for _, b := range branches {
		for _, name := range b.stored {
			if !s.assigns(name) {
				only = append(only, name)
			}
		}
	}
	for _, b := range branches {
		for _, name := range b.order {
			s.define(name, b.initial[name])
		}
		for _, name := range b.stored {
			s.assign(name)
		}
	}
	for _, name := range only {
		if outer, ok := s.parent.find(name); ok {
			s.define(name, initial{fromOuter, outer})
		} else {
			s.define(name, initial{origin: fromContext})
		}
	}
}

// analyze notes the names of a node that is in the scope. Inner scopes are not visited, but what they take from
// this one at their start is.
func (s *symbols) analyze(n node) {
	switch n := n.(type) {
	case *nameNode:
		switch n.use {
		case param:
			s.parameter(n.name)
		case store:
			s.store(n.name)
		default:
			s.load(n.name)
		}
	case *attributeTarget:
		s.load(n.name)
	case *ifNode:
		s.analyze(n.test)
		branches := []*symbols{s.branch(), s.branch(), s.branch()}
		analyzeAll(branches[0], n.body)
		analyzeAll(branches[1], n.elifs)
		analyzeAll(branches[2], n.otherwise)
		s.merge(branches...)
	case *setNode:
		s.analyze(n.value)
		s.analyze(n.target)
	case *setBlock:
		s.analyze(n.target)
	case *forNode:
		s.analyze(n.iterable)
	case *withNode:
		analyzeAll(s, n.values)
	case *macroNode:
		s.store(n.name)
	case *callBlock:
		if n.call != nil {
			s.analyze(n.call)
		}
	case *filterBlock:
		s.analyze(n.filter)
	case *autoescapeNode, *blockNode:
	case *refusedNode:
		analyzeAll(s, n.children())
		for _, name := range n.names {
			s.store(name.name)
		}
	default:
		analyzeAll(s, n.children())
	}
}

func analyzeAll[N node](s *symbols, list []N) {
	for _, n := range list {
		s.analyze(n)
	}
}

// undeclared returns those of the names that nodes use before they assign them, inner scopes included. As in
// jinja2, an assignment anywhere before counts, whatever its scope.
func undeclared[N node](list []N, names ...string) map[string]bool {
	active, found := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		active[name] = true
	}
	var visit func(n node)
	visit = func(n node) {
		switch n := n.(type) {
		case *nameNode:
			if n.use == load && active[n.name] {
				found[n.name] = true
			} else {
				delete(active, n.name)
			}
		case *blockNode:
		default:
			for _, c := range n.children() {
				visit(c)
			}
		}
	}
	for _, n := range list {
		visit(n)
	}
	return found
}
