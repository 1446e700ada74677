package template

// namespace is what namespace() makes: an object whose attributes a set can change.
type namespace struct{ attributes *Dict }

// TypeName implements Value.
func (*namespace) TypeName() string { return "Namespace" }

// cycler gives values in turn.
type cycler struct {
	items []Value
	next  int
}

// TypeName implements Value.
func (*cycler) TypeName() string { return "Cycler" }

func (c *cycler) attribute(name string) (Value, bool) {
	switch name {
	case "items":
		return newTuple(c.items...), true
	case "pos":
		return Int(c.next), true
	case "current":
		return c.items[c.next], true
	}
	if m := cyclerMethods[name]; m != nil {
		return &method{c, name, m}, true
	}
	return nil, false
}

// joiner gives nothing when it is called first, and its separator from then on.
type joiner struct {
	separator Value
	used      bool
}

// TypeName implements Value.
func (*joiner) TypeName() string { return "Joiner" }

func (j *joiner) attribute(name string) (Value, bool) {
	switch name {
	case "sep":
		return j.separator, true
	case "used":
		return Bool(j.used), true
	}
	return nil, false
}

var (
	loopMethods, cyclerMethods      map[string]*builtin
	loopCall, joinerCall, blockCall *builtin
)

func init() {
	loopMethods = map[string]*builtin{"cycle": variadic(loopCycle), "changed": variadic(loopChanged)}
	loopCall = define("iterable", func(in *interp, self Value, a []Value) Value {
		return self.(*loopContext).call(in, a)
	})
	cyclerMethods = map[string]*builtin{
		"next": define("", func(_ *interp, self Value, _ []Value) Value {
			c := self.(*cycler)
			v := c.items[c.next]
			c.next = (c.next + 1) % len(c.items)
			return v
		}),
		"reset": define("", func(_ *interp, self Value, _ []Value) Value {
			self.(*cycler).next = 0
			return None{}
		}),
	}
	joinerCall = define("", func(_ *interp, self Value, _ []Value) Value {
		j := self.(*joiner)
		if j.used {
			return j.separator
		}
		j.used = true
		return Str("")
	})
	blockCall = define("", func(in *interp, self Value, _ []Value) Value { return self.(*blockReference).call(in) })
}
