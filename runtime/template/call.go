package template

import (
	"slices"
	"strings"
)

// callArgs are the values of the arguments of a call.
type callArgs struct {
	positional []Value
	names      []string
	named      []Value
}

func (a *arguments) eval(in *interp, act *activation) callArgs {
	var out callArgs
	if len(a.positional) > 0 {
		out.positional = evalAll(in, act, a.positional)
	}
	for i, e := range a.named {
		out.names = append(out.names, a.names[i])
		out.named = append(out.named, in.eval(e, act))
	}
	if a.list != nil {
		v := in.eval(a.list, act)
		in.line = a.list.position()
		next := in.tryIterate(v)
		if next == nil {
			in.fail(TypeError, "the argument after * must be an iterable, not %s", v.TypeName())
		}
		out.positional = append(out.positional, in.drain(next)...)
	}
	if a.dict != nil {
		v := in.eval(a.dict, act)
		in.line = a.dict.position()
		in.checkDefined(v)
		d, ok := v.(*Dict)
		if !ok {
			in.fail(TypeError, "the argument after ** must be a mapping, not %s", v.TypeName())
		}
		in.allocValues(d.Len())
		in.step(d.Len())
		for i, k := range d.keys {
			name, ok := asString(k)
			if !ok {
				in.fail(TypeError, "keywords must be strings, not %s", k.TypeName())
			}
			if slices.Contains(a.names, name) {
				in.fail(TypeError, "got multiple values for keyword argument %s", quote(name))
			}
			out.names = append(out.names, name)
			out.named = append(out.named, d.values[i])
		}
	}
	return out
}

// builtin is a function of the language: a filter, a test, a method or a global.
type builtin struct {
	// params are the names of the parameters after self; those from required on are optional.
	params   []string
	required int
	// positional says that parameters have no names for the caller.
	positional bool
	// fixed is called with a value for every parameter, nil for those that were not given.
	fixed func(in *interp, self Value, args []Value) Value
	// variadic, if not nil, is called with the arguments as they are.
	variadic func(in *interp, self Value, args callArgs) Value
}

// define makes a builtin from its parameters: names separated by blanks, optional ones with a question mark at the
// end; a slash first if all are positional only.
func define(params string, fixed func(in *interp, self Value, args []Value) Value) *builtin {
	b := &builtin{fixed: fixed}
	for _, p := range strings.Fields(params) {
		if p == "/" {
			b.positional = true
			continue
		}
		name, optional := strings.CutSuffix(p, "?")
		b.params = append(b.params, name)
		if !optional {
			b.required = len(b.params)
		}
	}
	return b
}

// variadic makes a builtin that takes any arguments.
func variadic(f func(in *interp, self Value, args callArgs) Value) *builtin {
	return &builtin{variadic: f}
}

// function is a global function or class.
type function struct {
	name  string
	class string // what repr says of a class
	*builtin
}

// TypeName implements Value.
func (f *function) TypeName() string {
	if f.class != "" {
		return "type"
	}
	return "function"
}

func (f *function) repr(*interp) string {
	if f.class != "" {
		return "<class '" + f.class + "'>"
	}
	return "<function " + f.name + ">"
}

// method is a method with the value that it belongs to.
type method struct {
	self Value
	name string
	*builtin
}

// TypeName implements Value.
func (*method) TypeName() string { return "builtin_function_or_method" }

func (m *method) repr(*interp) string {
	return "<built-in method " + m.name + " of " + m.self.TypeName() + " object>"
}

// invoke calls a builtin.
func (in *interp) invoke(name string, b *builtin, self Value, args callArgs) Value {
	if b.variadic != nil {
		return b.variadic(in, self, args)
	}
	if len(args.positional) > len(b.params) {
		in.fail(TypeError, "%s() takes at most %d arguments (%d given)", name, len(b.params), len(args.positional))
	}
	values := make([]Value, len(b.params))
	copy(values, args.positional)
	for i, key := range args.names {
		at := slices.Index(b.params, key)
		if at < 0 || b.positional {
			in.fail(TypeError, "%s() got an unexpected keyword argument %s", name, quote(key))
		}
		if values[at] != nil {
			in.fail(TypeError, "%s() got multiple values for argument %s", name, quote(key))
		}
		values[at] = args.named[i]
	}
	for i := range b.required {
		if values[i] == nil {
			in.fail(TypeError, "%s() missing the required argument %s", name, quote(b.params[i]))
		}
	}
	return b.fixed(in, self, values)
}

// call calls a value.
func (in *interp) call(f Value, args callArgs) Value {
	switch f := f.(type) {
	case *function:
		return in.invoke(f.name, f.builtin, nil, args)
	case *method:
		return in.invoke(f.name, f.builtin, f.self, args)
	case *macro:
		return in.callMacro(f, args)
	case *loopContext:
		return in.invoke("loop", loopCall, f, args)
	case *joiner:
		return in.invoke("joiner", joinerCall, f, args)
	case *blockReference:
		return in.invoke(f.block.name, blockCall, f, args)
	case *undefined:
		in.failUndefined(f)
	}
	in.fail(TypeError, "'%s' object is not callable", f.TypeName())
	return nil
}

// noNames fails if there are named arguments.
func (in *interp) noNames(name string, args callArgs) {
	if len(args.names) > 0 {
		in.fail(TypeError, "%s() got an unexpected keyword argument %s", name, quote(args.names[0]))
	}
}

// isCallable is callable(v).
func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *method, *macro, *loopContext, *joiner, *blockReference, *undefined:
		return true
	}
	return false
}
