package template

// tests are the tests by name, what follows "is".
var tests map[string]*builtin

// The tests by name, with their parameters. It is long because it is a table.
func init() {
	check := func(f func(in *interp, v Value) bool) *builtin {
		return define("", func(in *interp, v Value, _ []Value) Value { return Bool(f(in, v)) })
	}
	compare := func(op string) *builtin {
		return define("/ other", func(in *interp, v Value, a []Value) Value { return Bool(in.compare(op, v, a[0])) })
	}
	divisible := func(in *interp, v, by Value, rest int) Value {
		return Bool(in.equal(in.binary("%", v, by), Int(rest)))
	}
	isDefined := func(v Value) bool { _, ok := v.(*undefined); return !ok }
	isBool := func(v Value, want ...bool) bool {
		b, ok := v.(Bool)
		for _, w := range want {
			if ok && bool(b) == w {
				return true
			}
		}
		return false
	}
	named := func(table func() map[string]*builtin) *builtin {
		return check(func(in *interp, v Value) bool {
			s, ok := asString(v)
			if !ok {
				in.hash(v, 0) // a value that cannot be a key is an error
				return false
			}
			return table()[s] != nil
		})
	}
	tests = map[string]*builtin{
		"boolean":  check(func(_ *interp, v Value) bool { return isBool(v, true, false) }),
		"callable": define("/", func(_ *interp, v Value, _ []Value) Value { return Bool(isCallable(v)) }),
		"defined":  check(func(_ *interp, v Value) bool { return isDefined(v) }),
		"divisibleby": define("num", func(in *interp, v Value, a []Value) Value {
			return divisible(in, v, a[0], 0)
		}),
		"escaped": check(func(_ *interp, v Value) bool { _, ok := v.(markup); return ok }),
		"even":    check(func(in *interp, v Value) bool { return truth(divisible(in, v, Int(2), 0)) }),
		"false":   check(func(_ *interp, v Value) bool { return isBool(v, false) }),
		"filter":  named(func() map[string]*builtin { return filters }),
		"float":   check(func(_ *interp, v Value) bool { _, ok := v.(Float); return ok }),
		"in": define("seq", func(in *interp, v Value, a []Value) Value {
			return Bool(in.contains(a[0], v))
		}),
		"integer": check(func(_ *interp, v Value) bool { return isInt(v) && !isBool(v, true, false) }),
		"iterable": check(func(in *interp, v Value) bool {
			_, isSelf := v.(*templateReference)
			return isSelf || in.rawIterate(v) != nil
		}),
		"lower":   check(func(in *interp, v Value) bool { return isLowerString(in.str(v)) }),
		"mapping": check(func(_ *interp, v Value) bool { _, ok := v.(*Dict); return ok }),
		"none":    check(func(_ *interp, v Value) bool { _, ok := v.(None); return ok }),
		"number":  check(func(_ *interp, v Value) bool { return isNumber(v) }),
		"odd":     check(func(in *interp, v Value) bool { return truth(divisible(in, v, Int(2), 1)) }),
		"sameas": define("other", func(_ *interp, v Value, a []Value) Value {
			return Bool(isSame(v, a[0]))
		}),
		"sequence": check(func(in *interp, v Value) bool {
			switch v.(type) {
			case Str, markup, *List, *tuple, *Dict, rangeValue, *undefined:
				return true
			}
			return false
		}),
		"string":    check(func(_ *interp, v Value) bool { _, ok := asString(v); return ok }),
		"test":      named(func() map[string]*builtin { return tests }),
		"true":      check(func(_ *interp, v Value) bool { return isBool(v, true) }),
		"undefined": check(func(_ *interp, v Value) bool { return !isDefined(v) }),
		"upper":     check(func(in *interp, v Value) bool { return isUpperString(in.str(v)) }),
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"},
		">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
	} {
		for _, name := range names {
			tests[name] = compare(op)
		}
	}
}

// isSame is v is other, where numbers and strings of one type are the same if they are equal.
func isSame(v, other Value) bool {
	if a, ok := v.(*bigInt); ok {
		b, ok := other.(*bigInt)
		return ok && a.z.Cmp(b.z) == 0
	}
	return v == other
}
