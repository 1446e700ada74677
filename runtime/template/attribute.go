package template

import (
	"slices"
	"strings"
)

// getAttribute is object.name: the attribute of the Python object or, if it has none, the item.
func (in *interp) getAttribute(object Value, name string) Value {
	in.checkDefined(object)
	if v, ok := in.attribute(object, name); ok {
		return v
	}
	if v, ok := in.item(object, Str(name)); ok {
		return v
	}
	return undefinedItem(object, Str(name))
}

// getItem is object[key]: the item or, if there is none and the key is a string, the attribute.
func (in *interp) getItem(object, key Value) Value {
	in.checkDefined(object)
	if v, ok := in.item(object, key); ok {
		return v
	}
	if name, ok := asString(key); ok {
		if v, ok := in.attribute(object, name); ok {
			return v
		}
	}
	return undefinedItem(object, key)
}

// attribute returns the attribute of an object, undefined if the sandbox hides it; ok is false if Python has none.
func (in *interp) attribute(object Value, name string) (v Value, ok bool) {
	if v, ok = in.rawAttribute(object, name); !ok {
		return nil, false
	}
	if strings.HasPrefix(name, "_") || mutates(object, name) {
		return unsafeAttribute(object, name), true
	}
	return v, true
}

// mutates says whether a method changes a list or dict.
func mutates(object Value, name string) bool {
	switch object.(type) {
	case *List:
		return slices.Contains(listMutators, name)
	case *Dict:
		return slices.Contains(dictMutators, name)
	}
	return false
}

var (
	listMutators = []string{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
	// objectAttributes are what every Python object has; the sandbox hides them.
	objectAttributes = strings.Fields(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__
		__getattribute__ __getstate__ __gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__
		__reduce__ __reduce_ex__ __repr__ __setattr__ __sizeof__ __str__ __subclasshook__`)
)

func (in *interp) rawAttribute(object Value, name string) (Value, bool) {
	if ns, ok := object.(*namespace); ok {
		if name == "__class__" {
			return None{}, true
		}
		return ns.attributes.Get(name)
	}
	if strings.HasPrefix(name, "__") && (slices.Contains(objectAttributes, name) || hiddenMethod(object, name)) {
		return None{}, true
	}
	switch o := object.(type) {
	case *List, *Dict:
		if mutates(object, name) {
			return None{}, true
		}
	case *tuple:
		if i := slices.Index(o.names, name); i >= 0 {
			return o.items[i], true
		}
	case rangeValue:
		switch name {
		case "start":
			return Int(o.start), true
		case "stop":
			return Int(o.stop), true
		case "step":
			return Int(o.step), true
		}
	case Bool, Int, *bigInt, Float:
		return in.numberAttribute(object, name)
	case *loopContext:
		return o.attribute(in, name)
	case *macro:
		return o.attribute(name)
	case *blockReference:
		return o.attribute(name)
	case *cycler:
		return o.attribute(name)
	case *joiner:
		return o.attribute(name)
	case *function:
		if o == dictClass && name == "fromkeys" {
			return &method{object, name, dictMethods[name]}, true
		}
		return nil, false
	}
	if m := methodOf(object, name); m != nil {
		return &method{object, name, m}, true
	}
	return nil, false
}

// methodOf returns the method of that name that values of an object's type have; nil where there is none.
func methodOf(object Value, name string) *builtin {
	switch object.(type) {
	case Str:
		return stringMethods[name]
	case markup:
		if m := markupMethods[name]; m != nil {
			return m
		}
		return stringMethods[name]
	case *List:
		return listMethods[name]
	case *Dict:
		return dictMethods[name]
	case *tuple:
		return tupleMethods[name]
	case *view:
		return viewMethods[name]
	case rangeValue:
		return rangeMethods[name]
	}
	return nil
}

// hiddenMethod says whether a container has a special method of the name.
func hiddenMethod(object Value, name string) bool {
	switch object.(type) {
	case Str, markup, *List, *tuple, *Dict, rangeValue:
		return slices.Contains([]string{"__contains__", "__getitem__", "__iter__", "__len__"}, name)
	}
	return false
}

// item is object[key]; ok is false where Python raises a TypeError or a LookupError.
func (in *interp) item(object, key Value) (v Value, ok bool) {
	switch o := object.(type) {
	case *Dict:
		switch key.(type) {
		case *List, *Dict, sliceValue:
			return nil, false
		case *tuple, *view:
			if try(func() { v, ok = in.lookup(o, key) }, func(k Kind) bool { return k == TypeError }) != nil {
				return nil, false
			}
			return v, ok
		}
		return in.lookup(o, key)
	case *List:
		if i, ok := in.index(key, len(o.items)); ok {
			return o.items[i], true
		}
	case *tuple:
		if i, ok := in.index(key, len(o.items)); ok {
			return o.items[i], true
		}
	case rangeValue:
		if i, ok := in.index(key, o.len()); ok {
			return o.at(i), true
		}
	case Str, markup:
		if _, isIndex := in.clampedIndex(key); !isIndex {
			return nil, false
		}
		s, _ := asString(o)
		if i, ok := in.index(key, in.runes(s)); ok {
			from := byteOffset(s, i)
			return like(o, s[from:from+byteOffset(s[from:], 1)]), true
		}
	case *templateReference:
		if name, ok := asString(key); ok {
			if b := o.blocks[name]; b != nil {
				return &blockReference{b, o.context}, true
			}
		}
	}
	return nil, false
}

// index returns a subscript of n elements, where negative ones count from the end.
func (in *interp) index(key Value, n int) (int, bool) {
	i, ok := in.clampedIndex(key)
	if !ok {
		return 0, false
	}
	if i < 0 {
		i += n
	}
	return i, 0 <= i && i < n
}
