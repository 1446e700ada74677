package ir

import (
	"reflect"
	"slices"
	"sync/atomic"
)

// expansionTypes is the type rule of an operation with an expansion: its results have the types of what it stands for.
// The layers of a model have the same operations, and each is derived when it is built and when it is verified; so the
// rule remembers the results of the last different ones. It is safe for concurrent use.
type expansionTypes struct {
	known [8]atomic.Pointer[expansionType]
	next  atomic.Uint32
}

// expansionType holds the operands' types and the attributes that determine the result types of an operation (all
// static, except for ints), and those result types.
type expansionType struct {
	attrs   any
	args    [][]Arg // values have a type alone, weights an operation, too
	buffers []Type
	results []Type
}

func (x *expansionTypes) infer(c *Inference) ([]Type, error) {
	for i := range x.known {
		if k := x.known[i].Load(); k != nil && k.is(c.Op) {
			return slices.Clone(k.results), nil
		}
	}
	var types []Type
	err := Build(func() {
		b := &Builder{Insert: func(*Op) {}}
		for _, v := range c.Op.Def.Expand(b, c.Op) {
			types = append(types, v.Type)
		}
	})
	if err == nil {
		if k := newExpansionType(c.Op, types); k != nil {
			x.known[x.next.Add(1)%uint32(len(x.known))].Store(k)
		}
	}
	return types, err
}

// newExpansionType is nil for an operation whose operands or results have symbols in their shapes, which are none of
// another operation.
func newExpansionType(op *Op, results []Type) *expansionType {
	k := &expansionType{results: slices.Clone(results), args: make([][]Arg, len(op.Args))}
	for _, t := range results {
		if _, static := t.Static(); !static || t.Kind == IntKind {
			return nil
		}
	}
	for i, args := range op.Args {
		for _, a := range args {
			if a.Kind == ValueArg {
				if _, static := a.Value.Type.Static(); !static {
					return nil
				}
				v := &Value{Type: a.Value.Type}
				if def := weightDef(a.Value); def != nil {
					v.Def = &Op{Def: def}
				}
				a.Value = v
			}
			k.args[i] = append(k.args[i], a)
		}
	}
	for _, b := range op.Buffers() {
		k.buffers = append(k.buffers, b.Type)
	}
	if op.Attrs != nil {
		v := reflect.ValueOf(op.Attrs).Elem()
		if !v.Comparable() {
			return nil
		}
		attrs := reflect.New(v.Type())
		attrs.Elem().Set(v)
		k.attrs = attrs.Interface()
	}
	return k
}

// is reports whether the results of op have these types.
func (k *expansionType) is(op *Op) bool {
	for i, args := range op.Args {
		if len(args) != len(k.args[i]) {
			return false
		}
		for j, a := range args {
			switch o := k.args[i][j]; {
			case a.Kind != o.Kind || a.Int != o.Int || a.Float != o.Float:
				return false
			case a.Kind == ValueArg && (!a.Value.Type.Equal(o.Value.Type) || weightDef(a.Value) != weightDef(o.Value)):
				return false
			}
		}
	}
	for i, b := range op.Buffers() {
		if !b.Type.Equal(k.buffers[i]) {
			return false
		}
	}
	return op.Attrs == nil || reflect.ValueOf(op.Attrs).Elem().Equal(reflect.ValueOf(k.attrs).Elem())
}

// weightDef returns the definition of the operation that gives a quantized weight, which an expansion may take apart;
// nil for other values.
func weightDef(v *Value) *OpDef {
	if v.Type.Kind != QuantizedKind || v.Def == nil {
		return nil
	}
	return v.Def.Def
}
