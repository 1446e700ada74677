package eval

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Machine runs a module with the reference kernels. It owns the module's state: one machine is one
// session. A machine is not safe for concurrent use; machines of one module share nothing but constants.
type Machine struct {
	module    *ir.Module
	precision Precision
	constants *Constants
	derived   map[*ir.Value]Value
	buffers   map[*ir.Buffer]*Tensor
	uses      map[*ir.Region][][]*ir.Value // values that end with each operation
	bits      func(n int) []uint32
	env       map[*ir.Value]Value
	ctx       context.Context // of the call that runs
	// Trace is called after every operation, where it is set, with the values of its results.
	Trace func(op *ir.Op, results []Value)
}

// NewMachine prepares m, which must be verified, for execution and runs its init function. constants
// may be shared by machines of the same module; nil makes a store of its own.
func NewMachine(m *ir.Module, precision Precision, constants *Constants) (*Machine, error) {
	if constants == nil {
		constants = NewConstants()
	}
	m, err := ir.Expanded(m)
	if err != nil {
		return nil, err
	}
	x := &Machine{module: m, precision: precision, constants: constants, derived: map[*ir.Value]Value{},
		ctx:  context.Background(),
		uses: map[*ir.Region][][]*ir.Value{}, bits: UnseededBits()}
	if err := x.Reset(); err != nil {
		return nil, err
	}
	if m.Init != nil {
		keep := make([]*ir.Value, len(m.Derived))
		for i, d := range m.Derived {
			keep[i] = d.From
		}
		x.env = map[*ir.Value]Value{}
		if err := x.run(m.Init, keep); err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
		for _, d := range m.Derived {
			x.derived[d.Value] = x.env[d.From]
		}
		x.env = nil
	}
	return x, nil
}

// UnseededBits draws from a sequence of keys that differs from run to run, as MLX does without a seed.
func UnseededBits() func(n int) []uint32 {
	keys := numeric.NewUnseededKeySequence()
	return func(n int) []uint32 {
		out := make([]uint32, n)
		p, err := numeric.Bits(keys.Next(), n, 4)
		if err != nil {
			return out // n is the size of a tensor that has been allocated; Bits refuses only sizes beyond that
		}
		for i := range out {
			out[i] = binary.LittleEndian.Uint32(p[4*i:])
		}
		return out
	}
}

// Reset sets every buffer to zeros.
func (x *Machine) Reset() error {
	x.buffers = map[*ir.Buffer]*Tensor{}
	for _, b := range x.module.Buffers {
		dims, _ := b.Type.Static()
		t, err := NewTensor(b.Type.DType, ints(dims)...)
		if err != nil {
			return fmt.Errorf("buffer @%s: %w", b.Name, err)
		}
		x.buffers[b] = t
	}
	return nil
}

// Buffer returns the present content of a buffer.
func (x *Machine) Buffer(b *ir.Buffer) *Tensor { return x.buffers[b] }

// SetBuffer sets the content of a buffer, which must have the buffer's dtype and shape. The machine owns t
// from then on.
func (x *Machine) SetBuffer(b *ir.Buffer, t *Tensor) { x.buffers[b] = t }

// Module returns the module that the machine runs.
func (x *Machine) Module() *ir.Module { return x.module }

// Precision is what the machine was made for.
func (x *Machine) Precision() Precision { return x.precision }

// Run calls the entry function. Inputs must have the dtypes of the parameters and dims that their
// types admit; outputs are converted to the declared dtypes. After an error the buffers hold what the
// operations before it wrote.
func (x *Machine) Run(inputs []Value) ([]Value, error) {
	return x.Call(context.Background(), "", inputs)
}

// Call is Run of the entry of that name, of the main one where the name is empty, that a context ends, between
// operations and inside long ones: the error is then the context's, and the buffers hold what the operations before
// that wrote, and perhaps a part of what one more was to write.
func (x *Machine) Call(ctx context.Context, entry string, inputs []Value) ([]Value, error) {
	f := x.module.Entry
	if entry != "" {
		if f = x.module.Named(entry); f == nil {
			return nil, fmt.Errorf("the module has no entry %q", entry)
		}
	}
	if err := CheckInputs(f, inputs); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.env, x.ctx = map[*ir.Value]Value{}, ctx
	defer func() { x.env, x.ctx = nil, context.Background() }()
	for i, p := range f.Params {
		x.env[p] = inputs[i]
	}
	if err := x.run(f.Body, f.Body.Results); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	out := make([]Value, len(f.Outputs))
	for i, r := range f.Body.Results {
		v, err := x.value(r)
		if err == nil && v.Undefined {
			err = errUndefined
		}
		if err != nil {
			return nil, fmt.Errorf("%s: output %d: %w", f.Name, i, err)
		}
		if t := v.Tensor; t != nil {
			if t = convert(t, f.Outputs[i].DType, x.precision); sameStorage(t, v.Tensor) {
				t = t.Clone() // never the storage of a buffer or a constant
			}
			v.Tensor = t
		}
		out[i] = v
	}
	return out, nil
}

// checkInput checks an input against its parameter's type: dtype, rank, constant dims, upper bounds of
// symbolic dims. Lower bounds are not checked: exporters write 2 for a sequence dim that may be 1.
func checkInput(t ir.Type, v Value) error {
	if t.Kind == ir.IntKind {
		return nil
	}
	if v.Tensor == nil {
		return fmt.Errorf("an int, want a tensor %s", t)
	}
	if v.Tensor.DType != t.DType || len(v.Tensor.Shape) != len(t.Shape) {
		return fmt.Errorf("%s%v, want %s", v.Tensor.DType, v.Tensor.Shape, t)
	}
	for i, d := range t.Shape {
		have := int64(v.Tensor.Shape[i])
		if c, ok := d.Const(); ok && c != have {
			return fmt.Errorf("%s%v, want %s", v.Tensor.DType, v.Tensor.Shape, t)
		}
		if _, hi := d.Bounds(); have > hi {
			return fmt.Errorf("dim %d is %d, at most %d is allowed", i, have, hi)
		}
	}
	return nil
}

func (x *Machine) run(r *ir.Region, keep []*ir.Value) error {
	uses, ok := x.uses[r]
	if !ok {
		uses = ir.LastUses(r, keep)
		x.uses[r] = uses
	}
	for i, op := range r.Ops {
		results, err := x.op(op)
		if ended := x.ctx.Err(); ended != nil {
			return ended // an operation that was cut short may have seen an error where there is none
		}
		if err != nil {
			return fmt.Errorf("%w\n\tin %s", err, ir.Describe(x.module, op))
		}
		for j, v := range op.Results {
			x.env[v] = results[j]
		}
		if x.Trace != nil {
			x.Trace(op, results)
		}
		for _, v := range uses[i] {
			delete(x.env, v)
		}
	}
	return nil
}

func (x *Machine) value(v *ir.Value) (Value, error) {
	if d, ok := x.derived[v]; ok {
		return d, nil
	}
	if v.Constant != nil {
		t, err := x.constants.get(v.Constant)
		return Value{Tensor: t}, err
	}
	r, ok := x.env[v]
	if !ok {
		return Value{}, fmt.Errorf("a value is used where no operation that ran has defined it")
	}
	return r, nil
}

// errUndefined is the error of a value that is read and holds nothing. A verifier cannot tell: which arm of an If runs
// is known when it runs, and two Ifs may have one condition.
var errUndefined = errors.New("nothing has been written there: it is a result of an if, and the arm that ran does " +
	"not write it")

// operand returns a value as op takes it.
func (x *Machine) operand(op *ir.Op, name string, v *ir.Value) (Value, error) {
	if c := v.Constant; c != nil && c.Data != nil && c.Data.DType() == ir.U32 && packedOperands[op.Def.Name] == name {
		t, err := x.constants.packed(c)
		return Value{Tensor: t}, err
	}
	return x.value(v)
}

func (x *Machine) args(op *ir.Op) ([][]Value, error) {
	out := make([][]Value, len(op.Args))
	for i, args := range op.Args {
		out[i] = make([]Value, len(args))
		for j, a := range args {
			if a.Kind != ir.ValueArg {
				out[i][j].Int = a.Int
				continue
			}
			v, err := x.operand(op, op.Def.Operands[i].Name, a.Value)
			if err == nil && v.Undefined && op.Def.Name != "scan" {
				err = errUndefined
			}
			if err != nil {
				return nil, fmt.Errorf("%s: operand %s: %w", op.Def.Name, op.Def.Operands[i].Name, err)
			}
			out[i][j] = v
		}
	}
	return out, nil
}

// op executes an operation. Should a kernel panic, which no program may make it do, the error is a [*fault.Error], and
// the caller says in which operation.
func (x *Machine) op(op *ir.Op) (out []Value, err error) {
	defer fault.Recover(op.Def.Name, &err)
	switch op.Def.Name {
	case "if":
		return x.branch(op)
	case "scan":
		return x.scan(op)
	case "load":
		return []Value{{Tensor: x.buffers[op.Buffer]}}, nil
	case "undef":
		return []Value{{Undefined: true}}, nil
	}
	args, err := x.args(op)
	if err != nil {
		return nil, err
	}
	c := &Call{Op: op, Precision: x.precision, Args: args, Bits: x.bits, Done: x.ctx.Done()}
	if op.Def.Effect == ir.Writes {
		return x.write(c)
	}
	return Run(c)
}

func (x *Machine) branch(op *ir.Op) ([]Value, error) {
	args, err := x.args(op)
	if err != nil {
		return nil, err
	}
	r := op.Regions[0]
	if args[0][0].Int == 0 {
		r = op.Regions[1]
	}
	if err := x.run(r, r.Results); err != nil {
		return nil, err
	}
	return x.results(r)
}

func (x *Machine) results(r *ir.Region) ([]Value, error) {
	out := make([]Value, len(r.Results))
	for i, v := range r.Results {
		var err error
		if out[i], err = x.value(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scan runs the body once for every index of the scanned axis, in order.
func (x *Machine) scan(op *ir.Op) ([]Value, error) {
	args, err := x.args(op)
	if err != nil {
		return nil, err
	}
	originals, carry, body := args[0], args[1], op.Regions[0]
	stacked, last, err := Scan(ir.Attrs[ir.ScanAttrs](op).ScanAxis, originals, carry, len(body.Results)-len(carry),
		func(args []Value) ([]Value, error) {
			for i, v := range args {
				x.env[body.Args[i]] = v
			}
			if err := x.run(body, body.Results); err != nil {
				return nil, err
			}
			return x.results(body)
		})
	if err != nil {
		return nil, err
	}
	return append(stacked, last...), nil
}

// Scan calls body once for every index of an axis of the originals, in order. Its arguments are the slices
// there, without the axis, and the carried values; its results are outputs, which are stacked along the
// axis, and what is carried on.
func Scan(axis int, originals, carry []Value, outputs int, body func(args []Value) ([]Value, error)) (stacked,
	last []Value, err error) {
	if len(originals) == 0 {
		return nil, nil, fmt.Errorf("scan: no tensor to scan over")
	}
	parts := make([][]*Tensor, outputs)
	for i, o := range originals {
		if o.Undefined {
			return nil, nil, fmt.Errorf("scan: original %d: %w", i, errUndefined)
		}
	}
	first := originals[0].Tensor
	if axis < 0 {
		axis += len(first.Shape)
	}
	steps := first.Shape[axis]
	for step := range steps {
		args := make([]Value, 0, len(originals)+len(carry))
		for i, o := range originals {
			if axis >= len(o.Tensor.Shape) || o.Tensor.Shape[axis] != steps {
				return nil, nil, fmt.Errorf("scan: original %d has shape %v, want %d along axis %d", i,
					o.Tensor.Shape, steps, axis)
			}
			args = append(args, Value{Tensor: takeSlice(o.Tensor, axis, step)})
		}
		results, err := body(append(args, carry...))
		if err != nil {
			return nil, nil, err
		}
		for i := range parts {
			if results[i].Undefined {
				return nil, nil, fmt.Errorf("scan: output %d of step %d: %w", i, step, errUndefined)
			}
			parts[i] = append(parts[i], results[i].Tensor)
		}
		carry = results[outputs:]
	}
	for i := range parts {
		t, err := stackSlices(parts[i], axis)
		if err != nil {
			return nil, nil, fmt.Errorf("scan: output %d: %w", i, err)
		}
		stacked = append(stacked, Value{Tensor: t})
	}
	return stacked, carry, nil
}

// takeSlice copies index number at of axis, dropping the axis.
func takeSlice(t *Tensor, axis, at int) *Tensor {
	outer, inner := 1, 1
	for _, d := range t.Shape[:axis] {
		outer *= d
	}
	for _, d := range t.Shape[axis+1:] {
		inner *= d
	}
	out := &Tensor{DType: t.DType, Shape: append(append([]int{}, t.Shape[:axis]...), t.Shape[axis+1:]...)}
	for o := range outer {
		from := (o*t.Shape[axis] + at) * inner
		if t.F != nil {
			out.F = append(out.F, t.F[from:from+inner]...)
		} else {
			out.I = append(out.I, t.I[from:from+inner]...)
		}
	}
	return out
}

// stackSlices joins equal shapes along a new axis.
func stackSlices(slices []*Tensor, axis int) (*Tensor, error) {
	if len(slices) == 0 {
		return nil, fmt.Errorf("no steps were run")
	}
	first := slices[0]
	shape := append(append(append([]int{}, first.Shape[:axis]...), len(slices)), first.Shape[axis:]...)
	out, err := NewTensor(first.DType, shape...)
	if err != nil {
		return nil, err
	}
	inner := 1
	for _, d := range first.Shape[axis:] {
		inner *= d
	}
	for i, s := range slices {
		if s.Len() != first.Len() {
			return nil, fmt.Errorf("step %d has shape %v, the first %v", i, s.Shape, first.Shape)
		}
		for o := 0; o*inner < s.Len(); o++ {
			to := (o*len(slices) + i) * inner
			if s.F != nil {
				copy(out.F[to:to+inner], s.F[o*inner:])
			} else {
				copy(out.I[to:to+inner], s.I[o*inner:])
			}
		}
	}
	return out, nil
}

// write executes a store or an in-place update of a buffer.
func (x *Machine) write(c *Call) ([]Value, error) {
	b := c.Op.Buffer
	target := x.buffers[b]
	if c.Op.Def.State == ir.ReplacesState {
		v := c.Tensor("x")
		if !equalInts(v.Shape, target.Shape) {
			return nil, fmt.Errorf("store @%s: shape %v, want %v", b.Name, v.Shape, target.Shape)
		}
		v = convert(v, target.DType, c.bufferPrecision())
		if v == c.Tensor("x") {
			v = v.Clone()
		}
		x.buffers[b] = v
		return nil, nil
	}
	if x.aliased(target) {
		target = target.Clone()
		x.buffers[b] = target
	}
	return Update(c, target)
}

// Update executes an operation that changes its buffer in place, whose content is state.
func Update(c *Call, state *Tensor) (out []Value, err error) {
	switch c.Op.Def.Name {
	case "buffer_slice_update":
		err = updateSlice(state, c, c.bufferPrecision())
	case "buffer_index_copy":
		err = updateIndices(state, c, c.bufferPrecision())
	default:
		f := updates[c.Op.Def.Name]
		if f == nil {
			return nil, fmt.Errorf("%s: the reference engine has no kernel for this operation", c.Op.Def.Name)
		}
		out, err = f(c, state)
	}
	if err != nil {
		return nil, fmt.Errorf("%s @%s: %w", c.Op.Def.Name, c.Op.Buffer.Name, err)
	}
	return out, nil
}

// bufferPrecision returns the precision of what is written to state: mixed rounds there, and only there.
func (c *Call) bufferPrecision() Precision {
	if c.Precision == Mixed {
		return Strict
	}
	return c.Precision
}

// aliased reports whether a value that is still needed shares the storage of t.
func (x *Machine) aliased(t *Tensor) bool {
	for _, v := range x.env {
		if v.Tensor != nil && sameStorage(v.Tensor, t) {
			return true
		}
	}
	return false
}

func sameStorage(a, b *Tensor) bool {
	return len(a.F) > 0 && len(b.F) > 0 && &a.F[0] == &b.F[0] || len(a.I) > 0 && len(b.I) > 0 && &a.I[0] == &b.I[0]
}

func equalInts(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// convert returns t in dtype d; it may be t itself. A float dtype rounds only under Strict.
func convert(t *Tensor, d ir.DType, p Precision) *Tensor {
	if t.DType == d && (p != Strict || !d.IsFloat() || d == ir.F32) {
		return t
	}
	out := &Tensor{DType: d, Shape: t.Shape}
	switch {
	case t.DType.IsFloat() && d.IsFloat():
		if p != Strict || d == ir.F32 || d == ir.F64 {
			out.F = t.F
			return out
		}
		out.F = make([]float32, len(t.F))
		for i, v := range t.F {
			out.F[i] = round(d, v)
		}
	case d.IsFloat():
		out.F = make([]float32, len(t.I))
		for i, v := range t.I {
			f := float32(v)
			if t.DType == ir.U64 {
				f = float32(uint64(v))
			}
			if p == Strict {
				f = round(d, f)
			}
			out.F[i] = f
		}
	case t.DType.IsFloat():
		out.I = make([]int64, len(t.F))
		for i, v := range t.F {
			out.I[i] = toInteger(d, v)
		}
	default:
		out.I = make([]int64, len(t.I))
		for i, v := range t.I {
			out.I[i] = wrap(d, v)
		}
	}
	return out
}
