package template

import "strings"

// filters are the filters by name, each with its parameters after the value.
var filters map[string]*builtin

// The filters by name, with their parameters. It is long because it is a table.
func init() {
	refused := func(why string) *builtin {
		return variadic(func(in *interp, _ Value, _ callArgs) Value {
			in.fail(NotSupported, "%s", why)
			return nil
		})
	}
	text := func(f func(in *interp, s string) string) *builtin {
		return define("", func(in *interp, v Value, _ []Value) Value {
			v = in.softString(v)
			s, _ := asString(v)
			return like(v, f(in, s))
		})
	}
	length := define("/", func(in *interp, v Value, _ []Value) Value { return Int(in.length(v)) })
	fallback := define("default_value? boolean?", filterDefault)
	escape := define("/", func(in *interp, v Value, _ []Value) Value { return in.escapeValue(v) })
	filters = map[string]*builtin{
		"abs": define("/", func(in *interp, v Value, _ []Value) Value {
			in.checkDefined(v)
			return in.absolute(v)
		}),
		"attr":           define("name", filterAttr),
		"batch":          define("linecount fill_with?", filterBatch),
		"capitalize":     text((*interp).capitalize),
		"center":         define("width?", filterCenter),
		"count":          length,
		"d":              fallback,
		"default":        fallback,
		"dictsort":       define("case_sensitive? by? reverse?", filterDictSort),
		"e":              escape,
		"escape":         escape,
		"filesizeformat": define("binary?", filterFileSize),
		"first":          define("", filterFirst),
		"float":          define("default?", filterFloat),
		"forceescape":    define("", func(in *interp, v Value, _ []Value) Value { return markup(in.escape(in.str(v))) }),
		"format":         variadic(filterFormat),
		"groupby":        define("attribute default? case_sensitive?", filterGroupBy),
		"indent":         define("width? first? blank?", filterIndent),
		"int":            define("default? base?", filterInt),
		"items":          define("", filterItems),
		"join":           define("d? attribute?", filterJoin),
		"last":           define("", filterLast),
		"length":         length,
		"list":           define("", func(in *interp, v Value, _ []Value) Value { return NewList(in.collect(v)...) }),
		"lower":          text((*interp).lower),
		"map":            variadic(filterMap),
		"max":            define("case_sensitive? attribute?", filterExtreme(">")),
		"min":            define("case_sensitive? attribute?", filterExtreme("<")),
		"pprint":         refused("the filter pprint is not supported; tojson(indent=…) prints values readably"),
		"random":         refused("the filter random is not supported: a prompt is not random"),
		"reject":         variadic(filterSelect(false, false)),
		"rejectattr":     variadic(filterSelect(false, true)),
		"replace":        define("old new count?", filterReplace),
		"reverse":        define("", filterReverse),
		"round":          define("precision? method?", filterRound),
		"safe":           define("", func(in *interp, v Value, _ []Value) Value { return markup(in.str(v)) }),
		"select":         variadic(filterSelect(true, false)),
		"selectattr":     variadic(filterSelect(true, true)),
		"slice":          define("slices fill_with?", filterSlice),
		"sort":           define("reverse? case_sensitive? attribute?", filterSort),
		"string":         define("/", func(in *interp, v Value, _ []Value) Value { return in.softString(v) }),
		"striptags":      define("", func(in *interp, v Value, _ []Value) Value { return Str(in.stripTags(in.str(v))) }),
		"sum":            define("attribute? start?", filterSum),
		"title":          text((*interp).titleFilter),
		"tojson":         define("ensure_ascii? indent? separators? sort_keys?", filterToJSON),
		"trim":           define("chars?", filterTrim),
		"truncate":       define("length? killwords? end? leeway?", filterTruncate),
		"unique":         define("case_sensitive? attribute?", filterUnique),
		"upper":          text((*interp).upper),
		"urlencode":      define("", filterURLEncode),
		"urlize":         refused("the filter urlize is not supported: a prompt is not HTML"),
		"wordcount":      define("", filterWordCount),
		"wordwrap":       define("width? break_long_words? wrapstring? break_on_hyphens?", filterWordWrap),
		"xmlattr":        define("autospace?", filterXMLAttr),
	}
}

// absent says whether an argument was not given, or is None.
func absent(v Value) bool {
	if v == nil {
		return true
	}
	_, none := v.(None)
	return none
}

// softString returns a string as it is, and str of anything else.
func (in *interp) softString(v Value) Value {
	if _, ok := asString(v); ok {
		return v
	}
	return Str(in.str(v))
}

func filterDefault(_ *interp, v Value, a []Value) Value {
	if _, ok := v.(*undefined); ok || boolArg(a[1]) && !truth(v) {
		if a[0] == nil {
			return Str("")
		}
		return a[0]
	}
	return v
}

func filterAttr(in *interp, v Value, a []Value) Value {
	in.checkDefined(v)
	name := in.mustText("the name of an attribute", a[0])
	if x, ok := in.attribute(v, name); ok {
		return x
	}
	return undefinedItem(v, a[0])
}

func filterFirst(in *interp, v Value, _ []Value) Value {
	if x, ok := in.iterate(v)(); ok {
		return x
	}
	return undefinedHint("No first item, sequence was empty.")
}

func filterLast(in *interp, v Value, _ []Value) Value {
	r := in.reversed(v)
	if r == nil {
		in.fail(TypeError, "'%s' object is not reversible", v.TypeName())
	}
	if x, ok := r.next(); ok {
		return x
	}
	return undefinedHint("No last item, sequence was empty.")
}

func filterReverse(in *interp, v Value, _ []Value) Value {
	if _, ok := asString(v); ok {
		return in.slice(v, sliceValue{None{}, None{}, Int(-1)})
	}
	if r := in.reversed(v); r != nil {
		return r
	}
	next := in.tryIterate(v)
	if next == nil {
		in.fail(FilterError, "argument must be iterable")
	}
	items := in.drain(next)
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
	return NewList(items...)
}

func filterItems(in *interp, v Value, _ []Value) Value {
	started := false
	var next iterator
	return newGenerator(func() (Value, bool) {
		if !started {
			started = true
			switch d := v.(type) {
			case *undefined:
			case *Dict:
				next = in.iterate(&view{d, viewItems})
			default:
				in.fail(TypeError, "Can only get item pairs from a mapping.")
			}
		}
		if next == nil {
			return nil, false
		}
		return next()
	})
}

func filterJoin(in *interp, v Value, a []Value) Value {
	separator := ""
	if a[0] != nil {
		separator = in.str(a[0])
	}
	getter := in.getter(a[1], nil, false)
	next := in.tryIterate(v)
	if next == nil {
		in.fail(TypeError, "can only join an iterable")
	}
	var parts []string
	size := 0
	for x, ok := next(); ok; x, ok = next() {
		s := in.str(getter(x))
		in.alloc(16)
		size += len(s) + len(separator)
		parts = append(parts, s)
	}
	in.allocString(size)
	return Str(strings.Join(parts, separator))
}

func filterBatch(in *interp, v Value, a []Value) Value {
	var next iterator
	var held Value // the element that did not fit the row before
	done := false
	return newGenerator(func() (Value, bool) {
		if done {
			return nil, false
		}
		if next == nil {
			next = in.iterate(v)
		}
		var row []Value
		if held != nil {
			row, held = append(row, held), nil
		}
		for {
			x, ok := next()
			if !ok {
				break
			}
			in.allocValues(1)
			if in.equal(Int(len(row)), a[0]) {
				held = x
				return NewList(row...), true
			}
			row = append(row, x)
		}
		done = true
		if len(row) == 0 {
			return nil, false
		}
		if fill := a[1]; !absent(fill) && in.less("<", Int(len(row)), a[0]) {
			row = append(row, in.repeatValues([]Value{fill}, in.argInt(a[0])-len(row))...)
		}
		return NewList(row...), true
	})
}

func filterSlice(in *interp, v Value, a []Value) Value {
	var items []Value
	started := false
	offset, number, slices := 0, 0, 0
	return newGenerator(func() (Value, bool) {
		if !started {
			started = true
			items = in.collect(v)
			in.checkDefined(a[0])
			slices = in.argInt(a[0])
			if slices == 0 {
				in.fail(ZeroDivisionError, "integer division or modulo by zero")
			}
		}
		if number >= slices {
			return nil, false
		}
		in.step(1)
		each, extra := len(items)/slices, len(items)%slices
		start := offset + number*each
		if number < extra {
			offset++
		}
		end := offset + (number+1)*each
		in.allocValues(end - start + 1)
		part := append([]Value(nil), items[start:end]...)
		if fill := a[1]; !absent(fill) && number >= extra {
			part = append(part, fill)
		}
		number++
		return NewList(part...), true
	})
}
