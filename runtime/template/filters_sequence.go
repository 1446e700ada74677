package template

import (
	"slices"
	"strings"
)

// getter looks up an attribute in every value that it is given: a path of names and indices separated by dots,
// or an index. Without an attribute it gives the value itself. fallback, if not nil, replaces what is undefined;
// lower makes strings lower case.
func (in *interp) getter(attribute, fallback Value, lower bool) func(Value) Value {
	var path []Value
	if !absent(attribute) {
		if s, ok := asString(attribute); ok {
			path = in.attributePath(s)
		} else {
			path = []Value{attribute}
		}
	}
	if absent(fallback) {
		fallback = nil
	}
	return func(v Value) Value {
		for _, key := range path {
			v = in.getItem(v, key)
			if _, missing := v.(*undefined); missing && fallback != nil {
				v = fallback
			}
		}
		if lower {
			v = in.ignoreCase(v)
		}
		return v
	}
}

func (in *interp) attributePath(s string) []Value {
	var path []Value
	for _, part := range strings.Split(s, ".") {
		if part != "" && strings.IndexFunc(part, func(c rune) bool { return !isDigit(c) }) < 0 {
			n, ok := in.parseInt(part, 10)
			if !ok {
				in.fail(ValueError, "invalid literal for int() with base 10: %s", quote(part))
			}
			path = append(path, n)
			continue
		}
		path = append(path, Str(part))
	}
	return path
}

// ignoreCase makes a string lower case and leaves other values.
func (in *interp) ignoreCase(v Value) Value {
	if s, ok := asString(v); ok {
		return like(v, in.lower(s))
	}
	return v
}

// sortBy is sorted(items, key=…, reverse=…): stable, and an error where two keys cannot be compared.
func (in *interp) sortBy(items []Value, key func(Value) Value, reverse bool) []Value {
	type keyed struct{ key, value Value }
	in.allocValues(2 * len(items))
	list := make([]keyed, len(items))
	for i, v := range items {
		list[i] = keyed{key(v), v}
	}
	if reverse {
		slices.Reverse(list)
	}
	slices.SortStableFunc(list, func(a, b keyed) int {
		in.step(1)
		if in.less("<", a.key, b.key) {
			return -1
		}
		if in.less("<", b.key, a.key) {
			return 1
		}
		return 0
	})
	if reverse {
		slices.Reverse(list)
	}
	out := make([]Value, len(list))
	for i, k := range list {
		out[i] = k.value
	}
	return out
}

func filterSort(in *interp, v Value, a []Value) Value {
	lower := !boolArg(a[1])
	var getters []func(Value) Value
	if s, ok := asString2(a[2]); ok {
		for _, part := range strings.Split(s, ",") {
			getters = append(getters, in.getter(Str(part), nil, lower))
		}
	} else {
		getters = append(getters, in.getter(a[2], nil, lower))
	}
	key := func(v Value) Value {
		keys := make([]Value, len(getters))
		for i, g := range getters {
			keys[i] = g(v)
		}
		return NewList(keys...)
	}
	return NewList(in.sortBy(in.collect(v), key, in.flagArg(a[0]))...)
}

func filterDictSort(in *interp, v Value, a []Value) Value {
	at := 0
	if a[1] != nil {
		switch by, _ := asString(a[1]); by {
		case "key":
		case "value":
			at = 1
		default:
			in.fail(FilterError, `You can only sort by either "key" or "value"`)
		}
	}
	in.checkDefined(v)
	d, ok := v.(*Dict)
	if !ok {
		in.fail(TypeError, "'%s' object has no attribute 'items'", v.TypeName())
	}
	caseSensitive := boolArg(a[0])
	return NewList(in.sortBy(in.collect(&view{d, viewItems}), func(pair Value) Value {
		k := pair.(*tuple).items[at]
		if caseSensitive {
			return k
		}
		return in.ignoreCase(k)
	}, in.flagArg(a[2]))...)
}

func filterGroupBy(in *interp, v Value, a []Value) Value {
	caseSensitive := boolArg(a[2])
	key, shown := in.getter(a[0], a[1], !caseSensitive), in.getter(a[0], a[1], false)
	var groups []Value
	var last Value
	var members *List
	for _, x := range in.sortBy(in.collect(v), key, false) {
		k := key(x)
		if members == nil || !in.equal(last, k) {
			last, members = k, &List{}
			groups = append(groups, &tuple{[]Value{shown(x), members}, []string{"grouper", "list"}})
		}
		members.items = append(members.items, x)
	}
	return NewList(groups...)
}

func filterUnique(in *interp, v Value, a []Value) Value {
	key := in.getter(a[1], nil, !boolArg(a[0]))
	seen := map[any]bool{}
	var next iterator
	return newGenerator(func() (Value, bool) {
		if next == nil {
			next = in.iterate(v)
		}
		for {
			x, ok := next()
			if !ok {
				return nil, false
			}
			in.alloc(48)
			if h := in.hash(key(x), 0); !seen[h] {
				seen[h] = true
				return x, true
			}
		}
	})
}

// filterExtreme is the filters min and max.
func filterExtreme(op string) func(in *interp, v Value, a []Value) Value {
	return func(in *interp, v Value, a []Value) Value {
		next := in.iterate(v)
		best, ok := next()
		if !ok {
			return undefinedHint("No aggregated item, sequence was empty.")
		}
		key := in.getter(a[1], nil, !boolArg(a[0]))
		bestKey := key(best)
		for x, ok := next(); ok; x, ok = next() {
			if k := key(x); in.less(op, k, bestKey) {
				best, bestKey = x, k
			}
		}
		return best
	}
}

func filterSum(in *interp, v Value, a []Value) Value {
	var total Value = Int(0)
	if a[1] != nil {
		total = a[1]
	}
	if _, ok := asString(total); ok {
		in.fail(TypeError, "sum() can't sum strings [use ''.join(seq) instead]")
	}
	key := in.getter(a[0], nil, false)
	next := in.iterate(v)
	for x, ok := next(); ok; x, ok = next() {
		total = in.binary("+", total, key(x))
	}
	return total
}

func filterRound(in *interp, v Value, a []Value) Value {
	method := "common"
	if a[1] != nil {
		method, _ = asString(a[1])
	}
	var precision Value = Int(0)
	if a[0] != nil {
		precision = a[0]
	}
	in.checkDefined(v, precision)
	switch method {
	case "common":
		return in.round(v, precision)
	case "ceil", "floor":
		factor := in.binary("**", Int(10), precision)
		scaled := in.binary("*", v, factor)
		if !isNumber(scaled) {
			in.fail(TypeError, "must be real number, not %s", scaled.TypeName())
		}
		return in.binary("/", in.floorOrCeil(scaled, method == "ceil"), factor)
	}
	in.fail(FilterError, "method must be common, ceil or floor")
	return nil
}

func filterMap(in *interp, v Value, args callArgs) Value {
	var apply func(Value) Value
	prepare := func() {
		if at := slices.Index(args.names, "attribute"); len(args.positional) == 0 && at >= 0 {
			var fallback Value
			for i, name := range args.names {
				switch name {
				case "attribute":
				case "default":
					fallback = args.named[i]
				default:
					in.fail(FilterError, "Unexpected keyword argument %s", quote(name))
				}
			}
			apply = in.getter(args.named[at], fallback, false)
			return
		}
		if len(args.positional) == 0 {
			in.fail(FilterError, "map requires a filter argument")
		}
		name, f := in.named("filter", args.positional[0], filters)
		rest := callArgs{args.positional[1:], args.names, args.named}
		apply = func(x Value) Value { return in.invoke(name, f(), x, rest) }
	}
	return in.lazy(v, prepare, func(x Value) (Value, bool) { return apply(x), true })
}

// lazy returns a generator over v: prepare runs once before the first value, each says what to do with a value. As in
// jinja2, there are no values where v is false.
func (in *interp) lazy(v Value, prepare func(), each func(Value) (Value, bool)) Value {
	var next iterator
	return newGenerator(func() (Value, bool) {
		if next == nil {
			if !truth(v) {
				return nil, false
			}
			prepare()
			next = in.iterate(v)
		}
		for {
			x, ok := next()
			if !ok {
				return nil, false
			}
			if y, keep := each(x); keep {
				return y, true
			}
		}
	})
}

// named finds a filter or test whose name is a value. The one that is missing is an error when it is used.
func (in *interp) named(what string, name Value, table map[string]*builtin) (string, func() *builtin) {
	s, _ := asString(name)
	return s, func() *builtin {
		if b := table[s]; b != nil {
			return b
		}
		if u, ok := name.(*undefined); ok {
			in.fail(RuntimeError, "No %s named Undefined. (%s; did you forget to quote the callable name?)", what,
				in.undefinedMessage(u))
		}
		in.fail(RuntimeError, "No %s named %s.", what, in.repr(name))
		return nil
	}
}

// filterSelect is select, reject, selectattr and rejectattr.
func filterSelect(want, byAttribute bool) func(in *interp, v Value, args callArgs) Value {
	return func(in *interp, v Value, args callArgs) Value {
		get := func(x Value) Value { return x }
		test := func(x Value) bool { return truth(x) }
		prepare := func() {
			positional := args.positional
			if byAttribute {
				if len(positional) == 0 {
					in.fail(FilterError, "Missing parameter for attribute name")
				}
				get = in.getter(positional[0], nil, false)
				positional = positional[1:]
			}
			if len(positional) > 0 {
				name, f := in.named("test", positional[0], tests)
				rest := callArgs{positional[1:], args.names, args.named}
				test = func(x Value) bool { return truth(in.invoke(name, f(), x, rest)) }
			}
		}
		return in.lazy(v, prepare, func(x Value) (Value, bool) { return x, test(get(x)) == want })
	}
}
