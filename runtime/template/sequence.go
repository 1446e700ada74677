package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// List is a Python list. Templates cannot change it.
type List struct{ items []Value }

// NewList makes a list of values.
func NewList(items ...Value) *List { return &List{items} }

// TypeName implements Value.
func (*List) TypeName() string { return "list" }

// Items returns the elements of the list; they must not be changed.
func (l *List) Items() []Value { return l.items }

// tuple is a Python tuple. names are the attributes of the elements of a named tuple, which groupby makes.
type tuple struct {
	items []Value
	names []string
}

func newTuple(items ...Value) *tuple { return &tuple{items: items} }

// TypeName implements Value.
func (t *tuple) TypeName() string {
	if t.names != nil {
		return "_GroupTuple"
	}
	return "tuple"
}

// rangeValue is a Python range; the sandbox bounds its length by maxRange.
type rangeValue struct{ start, stop, step int64 }

// TypeName implements Value.
func (rangeValue) TypeName() string { return "range" }

// len returns the number of elements; the bounds are such that nothing overflows.
func (r rangeValue) len() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return int((r.stop-r.start-1)/r.step + 1)
	case r.step < 0 && r.start > r.stop:
		return int((r.start-r.stop-1)/-r.step + 1)
	}
	return 0
}

func (r rangeValue) at(i int) Value { return Int(r.start + int64(i)*r.step) }

// indexOf returns the index of an integer in the range, or -1.
func (r rangeValue) indexOf(x int64) int {
	n := r.len()
	if n == 0 || (x-r.start)%r.step != 0 {
		return -1
	}
	i := (x - r.start) / r.step
	if i < 0 || i >= int64(n) {
		return -1
	}
	return int(i)
}

func (r rangeValue) repr() string {
	if r.step == 1 {
		return fmt.Sprintf("range(%d, %d)", r.start, r.stop)
	}
	return fmt.Sprintf("range(%d, %d, %d)", r.start, r.stop, r.step)
}

// sliceValue is the argument of a subscript with colons.
type sliceValue struct{ start, stop, step Value }

// TypeName implements Value.
func (sliceValue) TypeName() string { return "slice" }

// indices gives the first index, the step and the number of elements that the slice takes of n.
func (in *interp) sliceIndices(s sliceValue, n int) (start, step, count int) {
	bound := func(v Value, fallback int) (int, bool) {
		if _, ok := v.(None); ok {
			return fallback, false
		}
		i, ok := in.clampedIndex(v)
		if !ok {
			in.fail(TypeError, "slice indices must be integers or None or have an __index__ method")
		}
		return i, true
	}
	step, _ = bound(s.step, 1)
	if step == 0 {
		in.fail(ValueError, "slice step cannot be zero")
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	place := func(v Value, fallback int) int {
		i, given := bound(v, fallback)
		if !given {
			return fallback
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	first, last := low, high
	if step < 0 {
		first, last = high, low
	}
	start, stop := place(s.start, first), place(s.stop, last)
	switch {
	case step > 0 && start < stop:
		count = (stop-start-1)/step + 1
	case step < 0 && start > stop:
		count = (start-stop-1)/-step + 1
	}
	return start, step, count
}

// slice is v[s].
func (in *interp) slice(v Value, s sliceValue) Value {
	switch v := v.(type) {
	case Str, markup:
		text, _ := asString(v)
		return like(v, in.sliceString(text, s))
	case *List:
		return &List{in.sliceValues(v.items, s)}
	case *tuple:
		return newTuple(in.sliceValues(v.items, s)...)
	case rangeValue:
		start, step, count := in.sliceIndices(s, v.len())
		if count < 2 {
			step = 1 // it may be huge, and does not matter
		}
		first := v.start + int64(start)*v.step
		return rangeValue{first, first + int64(count)*v.step*int64(step), v.step * int64(step)}
	case *Dict:
		in.fail(TypeError, "unhashable type: 'slice'")
	}
	in.checkDefined(v)
	in.fail(TypeError, "'%s' object is not subscriptable", v.TypeName())
	return nil
}

func (in *interp) sliceValues(items []Value, s sliceValue) []Value {
	start, step, count := in.sliceIndices(s, len(items))
	in.allocValues(count)
	out := make([]Value, count)
	for i := range out {
		out[i] = items[start+i*step]
	}
	return out
}

func (in *interp) sliceString(s string, by sliceValue) string {
	n := in.runes(s)
	start, step, count := in.sliceIndices(by, n)
	if count == 0 {
		return ""
	}
	if step == 1 {
		from := byteOffset(s, start)
		return s[from : from+byteOffset(s[from:], count)]
	}
	if len(s) == n {
		in.alloc(count)
		out := make([]byte, count)
		for i := range out {
			out[i] = s[start+i*step]
		}
		return string(out)
	}
	in.alloc(4*n + 4*count)
	all, out := []rune(s), make([]rune, count)
	for i := range out {
		out[i] = all[start+i*step]
	}
	return string(out)
}

// runes returns the length of a string in code points.
func (in *interp) runes(s string) int {
	in.look(len(s))
	return utf8.RuneCountInString(s)
}

// byteOffset is where the i-th code point of s starts; i is at most the number of code points.
func byteOffset(s string, i int) int {
	for at := range s {
		if i == 0 {
			return at
		}
		i--
	}
	return len(s)
}

// concat joins parts into a new string.
func (in *interp) concat(parts ...string) string {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	in.allocString(n)
	return strings.Join(parts, "")
}

// repeatString is s * n.
func (in *interp) repeatString(s string, n int) string {
	if n <= 0 || s == "" {
		return ""
	}
	if int64(n) > in.opts.MaxOutput/int64(len(s)) {
		in.fail(LimitError, "a string of %s bytes is too long", bigProduct(len(s), n))
	}
	in.alloc(len(s) * n)
	return strings.Repeat(s, n)
}

// repeatValues is items * n.
func (in *interp) repeatValues(items []Value, n int) []Value {
	if n <= 0 || len(items) == 0 {
		return nil
	}
	if n > int(in.opts.MaxMemory)/len(items) {
		in.fail(LimitError, "a list of %s elements is too long", bigProduct(len(items), n))
	}
	in.allocValues(len(items) * n)
	out := make([]Value, 0, len(items)*n)
	for range n {
		out = append(out, items...)
	}
	return out
}

// bigProduct writes a product that may not fit an int.
func bigProduct(a, b int) string {
	if a == 1 {
		return strconv.Itoa(b)
	}
	return fmt.Sprintf("%d times %d", a, b)
}
