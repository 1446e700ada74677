package template

import (
	"math/big"
)

// Value is a Python value. Those that a context is made of are None, Bool, Int, Float, Str, *List and *Dict;
// ParseJSON makes them. Values must not be changed while a template that was given them renders.
type Value interface {
	// TypeName is the name of the value's type in Python, for example "str" or "NoneType".
	TypeName() string
}

type (
	// None is Python's None, and JSON's null.
	None struct{}
	// Bool is a Python bool.
	Bool bool
	// Int is a Python int that fits 64 bits. Larger ones have a type of their own.
	Int int64
	// Float is a Python float.
	Float float64
	// Str is a Python str, in UTF-8. Its length and indices count code points.
	Str string

	// markup is a string that is safe as HTML (markupsafe's Markup). The filters safe and escape make it. A plain str
	// that is joined to it is escaped first.
	markup string
	// bigInt is an int that does not fit 64 bits.
	bigInt struct{ z *big.Int }
)

// TypeName implements Value.
func (None) TypeName() string { return "NoneType" }

// TypeName implements Value.
func (Bool) TypeName() string { return "bool" }

// TypeName implements Value.
func (Int) TypeName() string { return "int" }

// TypeName implements Value.
func (Float) TypeName() string { return "float" }

// TypeName implements Value.
func (Str) TypeName() string { return "str" }

func (markup) TypeName() string  { return "Markup" }
func (*bigInt) TypeName() string { return "int" }

// asString returns the text of a str or Markup.
func asString(v Value) (string, bool) {
	switch v := v.(type) {
	case Str:
		return string(v), true
	case markup:
		return string(v), true
	}
	return "", false
}

// like gives s the type of the string v: methods of a Markup make Markups.
func like(v Value, s string) Value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return Str(s)
}

// truth is bool(v).
func truth(v Value) bool {
	switch v := v.(type) {
	case None, *undefined:
		return false
	case Bool:
		return bool(v)
	case Int:
		return v != 0
	case Float:
		return v != 0
	case Str:
		return v != ""
	case markup:
		return v != ""
	case *List:
		return len(v.items) > 0
	case *tuple:
		return len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	case *view:
		return v.dict.Len() > 0
	case rangeValue:
		return v.len() > 0
	}
	return true
}

// sized is a value that has a length other than a string, list, tuple, dict, view or range.
type sized interface{ length(in *interp) int }

// length is len(v); ok is false where Python has none.
func (in *interp) tryLength(v Value) (n int, ok bool) {
	switch v := v.(type) {
	case Str:
		return in.runes(string(v)), true
	case markup:
		return in.runes(string(v)), true
	case *List:
		return len(v.items), true
	case *tuple:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *view:
		return v.dict.Len(), true
	case rangeValue:
		return v.len(), true
	case *undefined:
		return 0, true
	case sized:
		return v.length(in), true
	}
	return 0, false
}

// length is len(v).
func (in *interp) length(v Value) int {
	n, ok := in.tryLength(v)
	if !ok {
		in.fail(TypeError, "object of type '%s' has no len()", v.TypeName())
	}
	return n
}
