package ir

import (
	"fmt"
	"reflect"
	"slices"
)

// ArgKind tells what an argument is.
type ArgKind uint8

const (
	// ValueArg is a value: of an earlier operation, a parameter or a constant.
	ValueArg ArgKind = iota
	// IntArg is an integer literal.
	IntArg
	// FloatArg is a floating-point literal.
	FloatArg
)

// Arg is one argument of an operation: a value or a literal.
type Arg struct {
	Kind  ArgKind
	Value *Value
	Int   int64
	Float float64
}

// Use makes an argument of a value.
func Use(v *Value) Arg { return Arg{Value: v} }

// Int makes an integer literal.
func Int(v int64) Arg { return Arg{Kind: IntArg, Int: v} }

// Float makes a floating-point literal.
func Float(v float64) Arg { return Arg{Kind: FloatArg, Float: v} }

// Value is an SSA value: the result of an operation, a parameter of the entry function, an argument
// of a region, or a constant. Exactly one of Def, Param, Region and Constant tells which.
type Value struct {
	Type Type
	// Def is the operation whose result the value is; nil for other values.
	Def *Op
	// Index is the value's number among the results of Def, the parameters, or the arguments of Region.
	Index int
	// Param is the parameter's name, for a parameter of the entry function; "" for other values.
	Param string
	// Region is the region whose argument the value is; nil for other values.
	Region *Region
	// Constant is the constant whose value this is; nil for other values.
	Constant *Constant
}

// Op is an operation: an entry of the op table with arguments, attributes and results.
type Op struct {
	Def *OpDef
	// Args holds the arguments by operand of the definition, in its order. A plain operand has one,
	// an absent optional operand none, a list any number.
	Args [][]Arg
	// Attrs points to the attribute struct of the definition; nil where that has none.
	Attrs any
	// Buffer is the buffer that a load, store or in-place update works on.
	Buffer *Buffer
	// Second is the second buffer of an operation that works on two, as on keys and values; nil for others.
	Second *Buffer
	// Results are the values that the operation defines.
	Results []*Value
	// Regions are the bodies of if (then, else) and scan (one).
	Regions []*Region
}

// Result returns the only result of an operation that has one.
func (op *Op) Result() *Value { return op.Results[0] }

// Operand returns the arguments of the operand with that name; it panics where the definition has no
// such operand, which is a mistake in the caller.
func (op *Op) Operand(name string) []Arg {
	for i := range op.Def.Operands {
		if op.Def.Operands[i].Name == name {
			return op.Args[i]
		}
	}
	panic(fmt.Sprintf("ir: op %s has no operand %q", op.Def.Name, name))
}

// Arg returns the only argument of the operand with that name, or false where it is absent.
func (op *Op) Arg(name string) (Arg, bool) {
	args := op.Operand(name)
	if len(args) == 0 {
		return Arg{}, false
	}
	return args[0], true
}

// Input returns the value of the operand with that name, or nil where it is absent or a literal.
func (op *Op) Input(name string) *Value {
	a, _ := op.Arg(name)
	return a.Value
}

// Like makes an operation with the definition, attributes, buffers and a copy of the arguments of op, without results
// and regions.
func (op *Op) Like() *Op {
	n := &Op{Def: op.Def, Attrs: op.Attrs, Buffer: op.Buffer, Second: op.Second, Args: make([][]Arg, len(op.Args))}
	for i, args := range op.Args {
		n.Args[i] = slices.Clone(args)
	}
	return n
}

// EachArg calls f with a pointer to every argument, so that f can replace it.
func (op *Op) EachArg(f func(*Arg)) {
	for i := range op.Args {
		for j := range op.Args[i] {
			f(&op.Args[i][j])
		}
	}
}

// Buffers returns the buffers that op works on, none, one or two.
func (op *Op) Buffers() []*Buffer {
	switch {
	case op.Buffer == nil:
		return nil
	case op.Second == nil:
		return []*Buffer{op.Buffer}
	}
	return []*Buffer{op.Buffer, op.Second}
}

// Region is a list of operations with arguments and results: the body of a function, an arm of an If,
// the body of a Scan.
type Region struct {
	Args    []*Value
	Ops     []*Op
	Results []*Value
}

// Walk calls f for every operation of r and its nested regions, outer before inner, in list order.
func (r *Region) Walk(f func(*Op)) {
	for _, op := range r.Ops {
		f(op)
		for _, n := range op.Regions {
			n.Walk(f)
		}
	}
}

// OperandKind is the kind of argument that an operand takes.
type OperandKind uint8

const (
	// TensorOperand takes a tensor.
	TensorOperand OperandKind = iota
	// TensorsOperand takes any number of tensors.
	TensorsOperand
	// IntOperand takes an int value or a literal.
	IntOperand
	// IntsOperand takes any number of int values and literals.
	IntsOperand
	// IntValueOperand takes an int value, no literal.
	IntValueOperand
	// FloatOperand takes an int value or a floating-point literal.
	FloatOperand
	// IntOrTensorOperand takes an int value or a tensor.
	IntOrTensorOperand
	// AnyOperand takes a literal, an int value or a tensor.
	AnyOperand
	// WeightOperand takes a tensor or a quantized weight.
	WeightOperand
	// WeightsOperand takes any number of tensors and quantized weights.
	WeightsOperand
)

var operandKindNames = [...]string{"tensor", "tensors", "int", "ints", "int value", "float", "int value or tensor",
	"int or tensor", "tensor or quantized weight", "tensors or quantized weights"}

func (k OperandKind) String() string { return operandKindNames[k] }

// IsList reports whether an operand of this kind takes any number of arguments.
func (k OperandKind) IsList() bool {
	return k == TensorsOperand || k == IntsOperand || k == WeightsOperand
}

// Operand is one operand of an op definition. Its name is the field's name in the MLX delegate's schema.
type Operand struct {
	Name     string
	Kind     OperandKind
	Optional bool
	// Shared operands are the same for all rows of the others ([LastAxis]): weights, and matrices in the place of one.
	Shared bool
}

// Effect is what an operation does in addition to computing its results.
type Effect uint8

const (
	// Pure operations only compute.
	Pure Effect = iota
	// Reads marks a load of a buffer.
	Reads
	// Writes marks a store to a buffer or an in-place update.
	Writes
	// Draws marks an operation whose result differs from call to call (unseeded random bits).
	Draws
	// Undefined marks undef, whose result is equal to nothing, not even to itself.
	Undefined
	// Control marks if and scan, whose effects are the effects of their regions.
	Control
)

// OpDef is a row of the op table.
type OpDef struct {
	// Name is the op's name in the text form: snake case of the node's name.
	Name string
	// Node is the member of the MLX delegate's OpNode union that the op is written as; empty for
	// composite ops, which passes decompose, and for ops that need no instruction (load, quantized).
	Node string
	// Operands in the order of the schema's fields.
	Operands []Operand
	// Attrs is the attribute struct with its default values; nil for an op without attributes.
	Attrs any
	// Results is the number of results; -1 where arguments or attributes decide.
	Results int
	// Effect is what the operation does in addition to computing its results.
	Effect Effect
	// State is what the op does to its buffer. It is set exactly where Effect is Reads or Writes.
	State StateUse
	// Rows says which rows of the operands a row of the results needs.
	Rows RowRule
	// View says how the elements of the result lie among those of the operand x.
	View ViewKind
	// Regions is the number of regions.
	Regions int
	// SecondBuffer says that the op works on two buffers.
	SecondBuffer bool
	// Expand builds what the op stands for in operations that every engine knows and gives the values that stand for
	// its results. It is set for the ops of one engine; see expand.go. The builder has no module, so Expand makes no
	// constants.
	Expand func(b *Builder, op *Op) []*Value
	// Infer derives the types of the results. It reports a wrong argument as an error that says what
	// was expected and what was found; the caller adds the operation.
	Infer func(*Inference) ([]Type, error)
}

// NewAttrs makes a copy of the attribute struct with the default values, as a pointer; nil for an op without
// attributes.
func (d *OpDef) NewAttrs() any {
	if d.Attrs == nil {
		return nil
	}
	p := reflect.New(reflect.TypeOf(d.Attrs))
	p.Elem().Set(reflect.ValueOf(d.Attrs))
	return p.Interface()
}

var opsByName, opsByNode = map[string]*OpDef{}, map[string]*OpDef{}

func init() { // package variables, Ops among them, are initialised before
	for i := range Ops {
		d := &Ops[i]
		if d.Infer == nil && d.Expand != nil {
			d.Infer = new(expansionTypes).infer
		}
		opsByName[d.Name] = d
		if d.Node != "" && opsByNode[d.Node] == nil { // the first row of a node is its plain form
			opsByNode[d.Node] = d
		}
	}
}

// LookupOp finds an op by its name in the text form; nil where there is none.
func LookupOp(name string) *OpDef { return opsByName[name] }

// OpOfNode finds the op that a member of the OpNode union is lifted to; nil where there is none.
func OpOfNode(node string) *OpDef { return opsByNode[node] }
