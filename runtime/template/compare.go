package template

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// equal returns a == b.
func (in *interp) equal(a, b Value) bool { return in.equalAt(a, b, 0) }

func (in *interp) equalAt(a, b Value, depth nested) bool {
	switch x := a.(type) {
	case Str, markup:
		s, _ := asString(x)
		t, ok := asString(b)
		if ok && len(s) == len(t) {
			in.look(len(s))
			return s == t
		}
		return false
	case None:
		_, ok := b.(None)
		return ok
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *List:
		y, ok := b.(*List)
		return ok && in.equalValues(x.items, y.items, depth)
	case *tuple:
		y, ok := b.(*tuple)
		return ok && in.equalValues(x.items, y.items, depth)
	case *Dict:
		y, ok := b.(*Dict)
		return ok && in.equalDicts(x, y, depth)
	case *view:
		y, ok := b.(*view)
		return ok && (x == y || in.equalViews(x, y, depth))
	case rangeValue:
		y, ok := b.(rangeValue)
		if !ok || x.len() != y.len() {
			return false
		}
		n := x.len()
		return n == 0 || x.start == y.start && (n == 1 || x.step == y.step)
	}
	if isNumber(a) && isNumber(b) {
		c, ordered := compareNumbers(a, b)
		return ordered && c == 0
	}
	return a == b // pointers: identity
}

// identity names a value that is equal only to itself.
func identity(v Value) string { return fmt.Sprintf("%p", v) }

// same is the comparison that containers make: the same object, or equal.
func (in *interp) same(a, b Value, depth nested) bool {
	if x, ok := a.(Float); ok && math.IsNaN(float64(x)) {
		y, ok := b.(Float)
		return ok && math.IsNaN(float64(y))
	}
	switch a.(type) {
	case *List, *tuple, *Dict:
		if a == b {
			return true
		}
	}
	return in.equalAt(a, b, depth)
}

func (in *interp) equalValues(a, b []Value, depth nested) bool {
	if len(a) != len(b) {
		return false
	}
	depth = in.deeper(depth)
	for i := range a {
		in.step(1)
		if !in.same(a[i], b[i], depth) {
			return false
		}
	}
	return true
}

func (in *interp) equalDicts(a, b *Dict, depth nested) bool {
	if a.Len() != b.Len() {
		return false
	}
	depth = in.deeper(depth)
	for i, k := range a.keys {
		in.step(1)
		v, ok := b.get(in.hash(k, depth))
		if !ok || !in.same(a.values[i], v, depth) {
			return false
		}
	}
	return true
}

// equalViews compares views of keys and of items, which are sets.
func (in *interp) equalViews(a, b *view, depth nested) bool {
	if a.part == viewValues || b.part == viewValues || a.dict.Len() != b.dict.Len() {
		return false
	}
	depth = in.deeper(depth)
	for i := range a.dict.keys {
		if !in.inView(a.at(i), b, depth) {
			return false
		}
	}
	return true
}

func (in *interp) inView(v Value, w *view, depth nested) bool {
	in.step(1)
	switch w.part {
	case viewKeys:
		_, ok := w.dict.get(in.hash(v, depth))
		return ok
	case viewItems:
		pair, ok := v.(*tuple)
		if !ok || len(pair.items) != 2 {
			return false
		}
		x, ok := w.dict.get(in.hash(pair.items[0], depth))
		return ok && in.same(x, pair.items[1], depth)
	}
	for _, x := range w.dict.values {
		in.step(1)
		if in.same(x, v, depth) {
			return true
		}
	}
	return false
}

// less returns a < b for op "<", and likewise for ">", "<=" and ">=".
func (in *interp) less(op string, a, b Value) bool { return in.lessAt(op, a, b, 0) }

func (in *interp) lessAt(op string, a, b Value, depth nested) bool {
	if isNumber(a) && isNumber(b) {
		c, ordered := compareNumbers(a, b)
		return ordered && holds(op, c)
	}
	if s, ok := asString(a); ok {
		if t, ok := asString(b); ok {
			in.look(min(len(s), len(t)))
			return holds(op, strings.Compare(s, t)) // UTF-8 sorts like code points
		}
	}
	switch x := a.(type) {
	case *List:
		if y, ok := b.(*List); ok {
			return in.lessValues(op, x.items, y.items, depth)
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			return in.lessValues(op, x.items, y.items, depth)
		}
	case *view:
		if y, ok := b.(*view); ok && x.part != viewValues && y.part != viewValues {
			return in.subset(op, x, y, depth)
		}
	}
	in.checkDefined(a, b)
	in.fail(TypeError, "'%s' not supported between instances of '%s' and '%s'", op, a.TypeName(), b.TypeName())
	return false
}

// holds says whether a comparison that gave c satisfies the operator.
func holds(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func (in *interp) lessValues(op string, a, b []Value, depth nested) bool {
	depth = in.deeper(depth)
	for i := range min(len(a), len(b)) {
		in.step(1)
		if !in.same(a[i], b[i], depth) {
			return in.lessAt(op, a[i], b[i], depth)
		}
	}
	return holds(op, cmp.Compare(len(a), len(b)))
}

// subset compares views as sets.
func (in *interp) subset(op string, a, b *view, depth nested) bool {
	if op[0] == '>' {
		a, b = b, a
	}
	if a.dict.Len() > b.dict.Len() || len(op) == 1 && a.dict.Len() == b.dict.Len() {
		return false
	}
	depth = in.deeper(depth)
	for i := range a.dict.keys {
		if !in.inView(a.at(i), b, depth) {
			return false
		}
	}
	return true
}

// contains is v in container.
func (in *interp) contains(container, v Value) bool {
	switch c := container.(type) {
	case Str, markup:
		s, _ := asString(c)
		sub, ok := asString(v)
		if !ok {
			in.fail(TypeError, "'in <string>' requires string as left operand, not %s", v.TypeName())
		}
		in.look(len(s))
		return strings.Contains(s, sub)
	case *Dict:
		_, ok := in.lookup(c, v)
		return ok
	case *view:
		return in.inView(v, c, 0)
	case rangeValue:
		if isNumber(v) {
			i, ok := exactInt(v)
			return ok && c.indexOf(i) >= 0
		}
	}
	next := in.tryIterate(container)
	if next == nil {
		in.fail(TypeError, "argument of type '%s' is not iterable", container.TypeName())
	}
	for {
		x, ok := next()
		if !ok {
			return false
		}
		if in.same(x, v, 0) {
			return true
		}
	}
}

// isNumber says whether v is an int, a bool or a float.
func isNumber(v Value) bool {
	switch v.(type) {
	case Int, Bool, Float, *bigInt:
		return true
	}
	return false
}

// exactInt returns the integer that a number equals, if it fits 64 bits.
func exactInt(v Value) (int64, bool) {
	switch h := hashNumber(v).(type) {
	case int64:
		return h, true
	}
	return 0, false
}

func hashNumber(v Value) any {
	switch v := v.(type) {
	case Int:
		return int64(v)
	case Bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case Float:
		return hashFloat(float64(v))
	}
	return nil
}

// compareNumbers compares two numbers exactly; ordered is false if one is a NaN.
func compareNumbers(a, b Value) (c int, ordered bool) {
	x, xFloat := a.(Float)
	y, yFloat := b.(Float)
	switch {
	case xFloat && yFloat:
		if math.IsNaN(float64(x)) || math.IsNaN(float64(y)) {
			return 0, false
		}
		return cmp.Compare(x, y), true
	case xFloat:
		c, ordered = compareIntFloat(b, float64(x))
		return -c, ordered
	case yFloat:
		return compareIntFloat(a, float64(y))
	}
	i, iSmall := smallInt(a)
	j, jSmall := smallInt(b)
	if iSmall && jSmall {
		return cmp.Compare(i, j), true
	}
	return asBig(a).Cmp(asBig(b)), true
}

func compareIntFloat(a Value, f float64) (int, bool) {
	if math.IsNaN(f) {
		return 0, false
	}
	if math.IsInf(f, 0) {
		return -int(math.Copysign(1, f)), true
	}
	return new(big.Float).SetInt(asBig(a)).Cmp(big.NewFloat(f)), true
}
