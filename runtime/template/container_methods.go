package template

import "math"

var listMethods, tupleMethods, dictMethods, viewMethods, rangeMethods map[string]*builtin

func init() {
	tupleMethods = map[string]*builtin{
		"count": define("/ value", countMethod),
		"index": define("/ value start? stop?", indexMethod),
	}
	rangeMethods = map[string]*builtin{
		"count": define("/ value", countMethod),
		"index": define("/ value", indexMethod),
	}
	listMethods = map[string]*builtin{
		"count": tupleMethods["count"],
		"index": tupleMethods["index"],
		"copy":  define("", func(in *interp, self Value, _ []Value) Value { return NewList(in.collect(self)...) }),
	}
	part := func(p viewPart) *builtin {
		return define("", func(_ *interp, self Value, _ []Value) Value { return &view{self.(*Dict), p} })
	}
	dictMethods = map[string]*builtin{
		"keys":   part(viewKeys),
		"values": part(viewValues),
		"items":  part(viewItems),
		"get": define("/ key default?", func(in *interp, self Value, a []Value) Value {
			if v, ok := in.lookup(self.(*Dict), a[0]); ok {
				return v
			}
			if a[1] == nil {
				return None{}
			}
			return a[1]
		}),
		"copy": define("", func(in *interp, self Value, _ []Value) Value {
			d := self.(*Dict)
			in.alloc(96 * d.Len())
			return d.Clone()
		}),
		"fromkeys": define("/ iterable value?", func(in *interp, _ Value, a []Value) Value {
			d := &Dict{}
			var v Value = None{}
			if a[1] != nil {
				v = a[1]
			}
			next := in.iterate(a[0])
			for k, ok := next(); ok; k, ok = next() {
				in.insert(d, k, v)
			}
			return d
		}),
	}
	viewMethods = map[string]*builtin{
		"isdisjoint": define("/ other", func(in *interp, self Value, a []Value) Value {
			next := in.iterate(a[0])
			for v, ok := next(); ok; v, ok = next() {
				if in.contains(self, v) {
					return Bool(false)
				}
			}
			return Bool(true)
		}),
	}
}

// countMethod returns the method count of lists, tuples and ranges.
func countMethod(in *interp, self Value, a []Value) Value {
	next := in.iterate(self)
	n := 0
	for v, ok := next(); ok; v, ok = next() {
		if in.same(v, a[0], 0) {
			n++
		}
	}
	return Int(n)
}

// indexMethod returns the method index of lists, tuples and ranges.
func indexMethod(in *interp, self Value, a []Value) Value {
	n := in.length(self)
	bound := func(i, fallback int) int {
		if i >= len(a) || a[i] == nil {
			return fallback
		}
		at, ok := in.clampedIndex(a[i])
		if !ok {
			in.fail(TypeError, "slice indices must be integers or have an __index__ method")
		}
		if at < 0 {
			at = max(at+n, 0)
		}
		return at
	}
	start, stop := bound(1, 0), bound(2, math.MaxInt)
	next := in.iterate(self)
	i := 0
	for v, ok := next(); ok; v, ok = next() {
		if start <= i && i < stop && in.same(v, a[0], 0) {
			return Int(i)
		}
		i++
	}
	in.fail(ValueError, "%s is not in %s", in.repr(a[0]), self.TypeName())
	return nil
}
