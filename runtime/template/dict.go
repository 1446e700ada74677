package template

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Dict is a Python dict: it maps hashable values to values and keeps the order in which keys were added.
// The zero value is an empty dict.
type Dict struct {
	keys   []Value
	values []Value
	index  map[any]int
}

// TypeName implements Value.
func (*Dict) TypeName() string { return "dict" }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set adds or replaces the value of a key.
func (d *Dict) Set(key string, value Value) { d.set(Str(key), key, value) }

// Get returns the value of a key; ok is false if there is none.
func (d *Dict) Get(key string) (value Value, ok bool) { return d.get(key) }

// Keys returns the keys that are strings, in order.
func (d *Dict) Keys() []string {
	var keys []string
	for _, k := range d.keys {
		if s, ok := asString(k); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

// Clone returns a dict with the same keys and values.
func (d *Dict) Clone() *Dict {
	c := &Dict{keys: slices.Clone(d.keys), values: slices.Clone(d.values), index: make(map[any]int, len(d.keys))}
	for k, i := range d.index {
		c.index[k] = i
	}
	return c
}

func (d *Dict) get(hash any) (Value, bool) {
	if i, ok := d.index[hash]; ok {
		return d.values[i], true
	}
	return nil, false
}

func (d *Dict) set(key Value, hash any, value Value) {
	if i, ok := d.index[hash]; ok {
		d.values[i] = value
		return
	}
	if d.index == nil {
		d.index = map[any]int{}
	}
	d.index[hash] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, value)
}

// insert sets a key of a dict that a render makes.
func (in *interp) insert(d *Dict, key, value Value) {
	hash := in.hash(key, 0)
	in.alloc(96)
	d.set(key, hash, value)
}

// lookup is d[key].
func (in *interp) lookup(d *Dict, key Value) (Value, bool) { return d.get(in.hash(key, 0)) }

// Keys of Go's maps that stand for values of Python; strings, int64 and float64 stand for themselves.
type (
	hashNone      struct{}
	hashUndefined struct{}
	hashBig       string
	hashTuple     string
)

// hash returns equal map keys for exactly those values that are equal in Python. It fails for values that Python
// does not hash.
func (in *interp) hash(v Value, depth nested) any {
	switch v := v.(type) {
	case Str:
		return string(v)
	case markup:
		return string(v)
	case Int:
		return int64(v)
	case Bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case Float:
		return hashFloat(float64(v))
	case *bigInt:
		return hashBig(v.z.Text(62))
	case None:
		return hashNone{}
	case *undefined:
		return hashUndefined{}
	case rangeValue:
		return v
	case *tuple:
		depth = in.deeper(depth)
		var b strings.Builder
		for _, x := range v.items {
			text := hashText(in.hash(x, depth))
			in.alloc(len(text))
			b.WriteString(strconv.Itoa(len(text)))
			b.WriteString(text)
		}
		return hashTuple(b.String())
	case *List, *Dict, sliceValue:
		in.fail(TypeError, "unhashable type: '%s'", v.TypeName())
	case *view:
		if v.part != viewValues {
			in.fail(TypeError, "unhashable type: '%s'", v.TypeName())
		}
	}
	return v // a pointer: identity
}

func hashFloat(f float64) any {
	if f == math.Trunc(f) && !math.IsInf(f, 0) {
		if math.Abs(f) < 1<<63 {
			return int64(f)
		}
		z, _ := big.NewFloat(f).Int(nil)
		if z.IsInt64() {
			return z.Int64()
		}
		return hashBig(z.Text(62))
	}
	return f
}

// hashText writes a hash as text, different for different hashes, as a part of a tuple's.
func hashText(h any) string {
	switch h := h.(type) {
	case string:
		return ":s" + h
	case int64:
		return ":i" + strconv.FormatInt(h, 10)
	case float64:
		return ":f" + strconv.FormatFloat(h, 'g', -1, 64)
	case hashBig:
		return ":b" + string(h)
	case hashNone:
		return ":n"
	case hashUndefined:
		return ":u"
	case hashTuple:
		return ":t" + string(h)
	case rangeValue:
		return ":r" + h.repr()
	case Value:
		return ":p" + identity(h)
	}
	return ""
}

// viewPart says what a view of a dict shows.
type viewPart int

const (
	viewKeys viewPart = iota
	viewValues
	viewItems
)

// view is what the methods keys, values and items of a dict give.
type view struct {
	dict *Dict
	part viewPart
}

// TypeName implements Value.
func (v *view) TypeName() string {
	return [...]string{"dict_keys", "dict_values", "dict_items"}[v.part]
}

// at returns the i-th element of a view.
func (v *view) at(i int) Value {
	switch v.part {
	case viewKeys:
		return v.dict.keys[i]
	case viewValues:
		return v.dict.values[i]
	}
	return newTuple(v.dict.keys[i], v.dict.values[i])
}
