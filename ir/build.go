package ir

import "fmt"

// BuildError is the panic of a [Builder] when the types of an operation do not fit. [Build] turns it into an error.
type BuildError struct{ Err error }

func (e BuildError) Error() string { return e.Err.Error() }

// Unwrap returns the type rule's error.
func (e BuildError) Unwrap() error { return e.Err }

// Build calls f. If f panics with a [BuildError], Build returns it as an error. Code that builds graphs is a long chain
// of operations that cannot continue after the first error; so the error travels as a panic up to here, and never
// further.
func Build(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case BuildError:
			err = r.Err
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Builder appends operations to a region. Its methods panic with [BuildError]; use it inside [Build].
type Builder struct {
	Module *Module
	Region *Region
	// Insert is called with every operation that the builder makes, instead of appending it, where it is set.
	Insert func(*Op)
}

// Fail panics with a [BuildError].
func (b *Builder) Fail(format string, args ...any) { panic(BuildError{fmt.Errorf(format, args...)}) }

// Op appends an operation. attrs points to its attribute struct; nil stands for the defaults. The operands come in the
// order of the definition. A plain operand is a *Value, Arg, int, int64 or float64. A list is a []*Value, []Arg,
// []int64, or []any of plain operands. nil stands for an absent optional operand. The caller may leave out optional
// operands at the end. Op panics with a [BuildError] where the operands do not fit.
func (b *Builder) Op(name string, attrs any, operands ...any) *Op {
	return b.BufferOp(name, nil, attrs, operands...)
}

// BufferOp appends an operation on a buffer: load, store or an in-place update.
func (b *Builder) BufferOp(name string, buffer *Buffer, attrs any, operands ...any) *Op {
	def := LookupOp(name)
	if def == nil {
		b.Fail("no op is named %q", name)
	}
	if attrs == nil {
		attrs = def.NewAttrs()
	}
	op := &Op{Def: def, Attrs: attrs, Buffer: buffer, Args: make([][]Arg, len(def.Operands))}
	if len(operands) > len(def.Operands) {
		b.Fail("%s: %d operands, it has %d", name, len(operands), len(def.Operands))
	}
	for i, o := range operands {
		op.Args[i] = toArgs(o)
	}
	return b.Append(op)
}

// Append checks op's arguments, infers its result types and appends it.
func (b *Builder) Append(op *Op) *Op {
	if err := checkArgs(op); err != nil {
		panic(BuildError{err})
	}
	if err := Infer(op); err != nil {
		panic(BuildError{err})
	}
	if b.Insert != nil {
		b.Insert(op)
	} else {
		b.Region.Ops = append(b.Region.Ops, op)
	}
	return op
}

// Value appends an operation with one result and gives that.
func (b *Builder) Value(name string, attrs any, operands ...any) *Value {
	return b.Op(name, attrs, operands...).Result()
}

func toArgs(o any) []Arg {
	switch o := o.(type) {
	case nil:
		return nil
	case *Value:
		if o == nil {
			return nil
		}
		return []Arg{Use(o)}
	case Arg:
		return []Arg{o}
	case int:
		return []Arg{Int(int64(o))}
	case int64:
		return []Arg{Int(o)}
	case float64:
		return []Arg{Float(o)}
	case []*Value:
		out := make([]Arg, len(o))
		for i, v := range o {
			out[i] = Use(v)
		}
		return out
	case []Arg:
		return o
	case []int64:
		out := make([]Arg, len(o))
		for i, v := range o {
			out[i] = Int(v)
		}
		return out
	case []any:
		var out []Arg
		for _, x := range o {
			out = append(out, toArgs(x)...)
		}
		return out
	}
	panic(BuildError{fmt.Errorf("an operand of Go type %T", o)})
}

// If appends an if. Each arm builds its region with the builder that it gets and returns its results.
func (b *Builder) If(cond any, then, otherwise func(*Builder) []*Value) []*Value {
	op := &Op{Def: LookupOp("if"), Args: [][]Arg{toArgs(cond)}}
	for _, arm := range []func(*Builder) []*Value{then, otherwise} {
		inner := &Builder{Module: b.Module, Region: &Region{}}
		inner.Region.Results = arm(inner)
		op.Regions = append(op.Regions, inner.Region)
	}
	return b.Append(op).Results
}

// Scan appends a scan over axis of the originals. body gets the slices and the carries and returns
// the outputs of the step and the new carries; Scan gives the stacked outputs and the last carries.
func (b *Builder) Scan(axis int, originals, carry []*Value,
	body func(b *Builder, slices, carry []*Value) (outputs, next []*Value)) (outputs, last []*Value) {
	op := &Op{Def: LookupOp("scan"), Args: [][]Arg{toArgs(originals), toArgs(carry)}, Attrs: &ScanAttrs{ScanAxis: axis}}
	inner := &Builder{Module: b.Module, Region: &Region{}}
	for _, v := range originals {
		a := axis
		if a < 0 {
			a += v.Type.Rank()
		}
		if a < 0 || a >= v.Type.Rank() {
			b.Fail("scan: axis %d is out of range for %s", axis, v.Type)
		}
		shape := append(append([]*Expr{}, v.Type.Shape[:a]...), v.Type.Shape[a+1:]...)
		inner.Region.NewArg(TensorType(v.Type.DType, shape...))
	}
	for _, v := range carry {
		inner.Region.NewArg(v.Type)
	}
	n := len(originals)
	out, next := body(inner, inner.Region.Args[:n:n], inner.Region.Args[n:])
	inner.Region.Results = append(append([]*Value{}, out...), next...)
	op.Regions = []*Region{inner.Region}
	b.Append(op)
	return op.Results[:len(out):len(out)], op.Results[len(out):]
}

// Load appends a load of a buffer.
func (b *Builder) Load(buffer *Buffer) *Value {
	return b.BufferOp("load", buffer, nil).Result()
}

// checkArgs checks the number and kinds of op's arguments against its definition.
func checkArgs(op *Op) error {
	for i, o := range op.Def.Operands {
		args := op.Args[i]
		if !o.Kind.IsList() {
			if len(args) == 0 && !o.Optional {
				return fmt.Errorf("%s: operand %s is missing", op.Def.Name, o.Name)
			}
			if len(args) > 1 {
				return fmt.Errorf("%s: operand %s has %d arguments, want one", op.Def.Name, o.Name, len(args))
			}
		}
		for _, a := range args {
			if !o.Kind.accepts(a) {
				return fmt.Errorf("%s: operand %s is %s, want %s", op.Def.Name, o.Name, describeArg(a), o.Kind)
			}
		}
	}
	return nil
}

func (k OperandKind) accepts(a Arg) bool {
	kind := Kind(255)
	if a.Kind == ValueArg {
		if a.Value == nil {
			return false
		}
		kind = a.Value.Type.Kind
	}
	switch k {
	case TensorOperand, TensorsOperand:
		return kind == TensorKind
	case IntOperand, IntsOperand:
		return kind == IntKind || a.Kind == IntArg
	case IntValueOperand:
		return kind == IntKind
	case FloatOperand:
		return kind == IntKind || a.Kind == FloatArg
	case IntOrTensorOperand:
		return kind == IntKind || kind == TensorKind
	case AnyOperand:
		return kind == IntKind || kind == TensorKind || a.Kind == IntArg
	case WeightOperand, WeightsOperand:
		return kind == TensorKind || kind == QuantizedKind
	}
	return false
}

func describeArg(a Arg) string {
	switch a.Kind {
	case IntArg:
		return fmt.Sprintf("the literal %d", a.Int)
	case FloatArg:
		return fmt.Sprintf("the literal %g", a.Float)
	}
	if a.Value == nil {
		return "nothing"
	}
	return "a value of type " + a.Value.Type.String()
}
