package template

import "unicode/utf8"

// iterator gives values one by one; ok is false at the end.
type iterator func() (v Value, ok bool)

// generator is an iterator as a value: what generators, map, select and the like give in Python. It is
// consumed by whoever asks for its values first.
type generator struct {
	name string
	next iterator
}

// TypeName implements Value.
func (g *generator) TypeName() string { return g.name }

func newGenerator(next iterator) *generator { return &generator{"generator", next} }

func iterateValues(items []Value) iterator {
	i := 0
	return func() (Value, bool) {
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}
}

func iterateIndexed(n int, at func(int) Value) iterator {
	i := 0
	return func() (Value, bool) {
		if i >= n {
			return nil, false
		}
		i++
		return at(i - 1), true
	}
}

// tryIterate is iter(v), or nil where Python raises a TypeError. Every value it gives counts as a step.
func (in *interp) tryIterate(v Value) iterator {
	next := in.rawIterate(v)
	if next == nil {
		return nil
	}
	return func() (Value, bool) {
		in.step(1)
		return next()
	}
}

func (in *interp) rawIterate(v Value) iterator {
	switch v := v.(type) {
	case *List:
		return iterateValues(v.items)
	case *tuple:
		return iterateValues(v.items)
	case *Dict:
		return iterateIndexed(v.Len(), (&view{v, viewKeys}).at)
	case *view:
		return iterateIndexed(v.dict.Len(), v.at)
	case rangeValue:
		return iterateIndexed(v.len(), v.at)
	case Str, markup:
		s, _ := asString(v)
		return func() (Value, bool) {
			if s == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			return Str(c), true
		}
	case *undefined:
		return func() (Value, bool) { return nil, false }
	case *generator:
		return v.next
	case *loopContext:
		return func() (Value, bool) {
			x, ok := v.next()
			if !ok {
				return nil, false
			}
			return newTuple(x, v), true
		}
	}
	return nil
}

// iterate is iter(v).
func (in *interp) iterate(v Value) iterator {
	next := in.tryIterate(v)
	if next == nil {
		in.fail(TypeError, "'%s' object is not iterable", v.TypeName())
	}
	return next
}

// collect is list(v).
func (in *interp) collect(v Value) []Value {
	switch v := v.(type) {
	case *List:
		in.allocValues(len(v.items))
		return append([]Value(nil), v.items...)
	case *tuple:
		in.allocValues(len(v.items))
		return append([]Value(nil), v.items...)
	}
	return in.drain(in.iterate(v))
}

func (in *interp) drain(next iterator) []Value {
	var out []Value
	for {
		x, ok := next()
		if !ok {
			return out
		}
		in.allocValues(1)
		out = append(out, x)
	}
}

// reversed is reversed(v), or nil where Python raises a TypeError.
func (in *interp) reversed(v Value) *generator {
	back := func(name string, n int, at func(int) Value) *generator {
		return &generator{name, iterateIndexed(n, func(i int) Value {
			in.step(1)
			return at(n - 1 - i)
		})}
	}
	element := func(items []Value) func(int) Value { return func(i int) Value { return items[i] } }
	switch v := v.(type) {
	case *List:
		return back("list_reverseiterator", len(v.items), element(v.items))
	case *tuple:
		return back("reversed", len(v.items), element(v.items))
	case *Dict:
		return back("dict_reversekeyiterator", v.Len(), element(v.keys))
	case *view:
		name := [...]string{"dict_reversekeyiterator", "dict_reversevalueiterator", "dict_reverseitemiterator"}[v.part]
		return back(name, v.dict.Len(), v.at)
	case rangeValue:
		return back("range_iterator", v.len(), v.at)
	case Str, markup:
		s, _ := asString(v)
		return &generator{"reversed", func() (Value, bool) {
			in.step(1)
			if s == "" {
				return nil, false
			}
			_, n := utf8.DecodeLastRuneInString(s)
			c := s[len(s)-n:]
			s = s[:len(s)-n]
			return like(v, c), true
		}}
	case *undefined:
		return back("reversed", 0, nil)
	}
	return nil
}
