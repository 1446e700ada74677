package cpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/strided"
)

// This file has operations that run on reference kernels, and control flow.

// BindReference binds an operation to its reference kernel.
func (b *binder) BindReference() error {
	op := b.Op
	run, err := b.evaluator(op)
	if err != nil {
		return err
	}
	if cheap[op.Def.Name] {
		b.step("numbers", run)
		return nil
	}
	b.step("reference", run)
	b.x.exe.note(op)
	return nil
}

// evaluator returns a function that runs an operation's reference kernel, and makes the values of the results. Where
// the shape is known, a result's memory is the tensor that the kernel makes; other results are stored as boxed values.
func (b *binder) evaluator(op *ir.Op) (func() error, error) {
	args := make([][]*value, len(op.Args))
	for i, list := range op.Args {
		args[i] = make([]*value, len(list))
		for j, a := range list {
			if a.Kind != ir.ValueArg {
				continue
			}
			v, err := b.Value(a.Value)
			if err != nil {
				return nil, err
			}
			args[i][j] = v
		}
	}
	results := make([]*value, len(op.Results))
	for i, r := range op.Results {
		results[i] = b.ownMemory(r)
	}
	call := &eval.Call{Op: op, Precision: b.x.exe.precision, Args: make([][]eval.Value, len(args)), Bits: b.x.bits}
	for i := range args {
		call.Args[i] = make([]eval.Value, len(args[i]))
	}
	buffer := b.x.states[op.Buffer]
	return func() error {
		if err := b.x.setArgs(call, args); err != nil {
			return err
		}
		call.Done = b.x.done
		var out []eval.Value
		var err error
		switch {
		case op.Def.Name == "load":
			t := (&value{dtype: buffer.dtype, slot: buffer.slot, shape: buffer.shape,
				stride: strided.RowMajor(buffer.shape)}).tensor()
			out = []eval.Value{{Tensor: t.Clone()}}
		case op.Def.Effect == ir.Writes:
			out, err = buffer.update(call)
		default:
			out, err = eval.Run(call)
		}
		if err != nil {
			return err
		}
		for i, r := range out {
			if t := r.Tensor; t != nil && aliasesArgs(t, call.Args) {
				r.Tensor = t.Clone()
			}
			if err := results[i].set(r); err != nil {
				return fmt.Errorf("%s: %w", op.Def.Name, err)
			}
		}
		return nil
	}, nil
}

// setArgs sets the arguments of a call to the content of values; a nil value stands for a literal.
func (x *instance) setArgs(call *eval.Call, args [][]*value) (err error) {
	for i, list := range args {
		for j, v := range list {
			arg := call.Op.Args[i][j]
			if v == nil {
				call.Args[i][j] = eval.Value{Int: arg.Int}
			} else if call.Args[i][j], err = x.content(arg.Value, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// cheap are the operations on one or two numbers that a model has once or twice for a call. They need no kernel.
var cheap = map[string]bool{"load": true, "item_int": true, "sym_size": true, "add_int": true, "subtract_int": true,
	"multiply_int": true, "floor_divide_int": true,
	"mod_int": true, "equal": true, "take": true, "astype": true, "full": true, "greater": true, "less": true,
	"argmax": true, "logical_and": true}

// aliasesArgs reports whether t shares memory with an argument, which later steps may overwrite.
func aliasesArgs(t *eval.Tensor, args [][]eval.Value) bool {
	for _, list := range args {
		for _, a := range list {
			if a.Tensor != nil && (shares(t.F, a.Tensor.F) || shares(t.I, a.Tensor.I)) {
				return true
			}
		}
	}
	return false
}

// ownMemory makes a value with memory of its own for a result that a step sets.
func (b *binder) ownMemory(r *ir.Value) *value {
	v := &value{dtype: r.Type.DType, slot: &slot{}}
	if r.Type.Kind == ir.IntKind {
		v.kind = register
	} else if shape, ok := b.Dims(r.Type); ok {
		v.shape, v.stride = shape, strided.RowMajor(shape)
	} else {
		v.kind = boxed
	}
	b.Values[r] = v
	return v
}

// set copies an evaluated value into v, which has memory of its own.
func (v *value) set(r eval.Value) error {
	switch {
	case v.kind == register:
		v.slot.n = r.Int
	case v.kind == boxed:
		v.slot.box = r
	default:
		if r.Tensor == nil || !slices.Equal(r.Tensor.Shape, v.shape) {
			return fmt.Errorf("gives %v where the shape %v follows from the types", r.Tensor, v.shape)
		}
		v.slot.f, v.slot.i = r.Tensor.F, r.Tensor.I
	}
	return nil
}

// content returns v as reference kernels take it.
func (x *instance) content(of *ir.Value, v *value) (eval.Value, error) {
	switch v.kind {
	case register:
		return eval.Value{Int: v.slot.n}, nil
	case boxed:
		return v.slot.box, nil
	case joined:
		return x.exe.constants.Joined(of)
	}
	return eval.Value{Tensor: v.tensor()}, nil
}

// nested binds the operations of a region to a list of steps of its own. Their slots are in use as long as the
// operation that contains the region.
func (b *binder) nested(r *ir.Region) ([]step, error) {
	first, slots := len(b.plan.steps), len(b.Slots)
	outer := b.ropes // tables of an arm exist only where the arm runs
	b.ropes = map[ropeKey]*ropeTable{}
	if err := b.Bind(r); err != nil {
		return nil, err
	}
	b.ropes = outer
	steps := slices.Clone(b.plan.steps[first:])
	b.plan.steps = b.plan.steps[:first]
	for _, s := range b.Slots[slots:] {
		s.First, s.Last = first, first
	}
	return steps, nil
}

// move returns a function that copies the content of one value to another.
func (b *binder) move(to *value, from *ir.Value) (func() error, error) {
	v, err := b.Value(from)
	if err != nil {
		return nil, err
	}
	if from.Def != nil && from.Def.Def.Name == "undef" {
		return func() error { return nil }, nil // nothing uses it after this arm
	}
	if to.kind == dense && v.kind == dense && v.isFloats() && slices.Equal(to.shape, v.shape) {
		own := make([]float32, v.len())
		return func() error {
			copyStrided(own, strided.RowMajor(v.shape), v.floats(), v.stride, v.shape)
			to.slot.f = own
			return nil
		}, nil
	}
	return func() error {
		c, err := b.x.content(from, v)
		if err != nil {
			return err
		}
		if c.Tensor != nil {
			c.Tensor = c.Tensor.Clone()
		}
		return to.set(c)
	}, nil
}

func (x *instance) runAll(steps []step) error {
	for i := range steps {
		if err := steps[i].run(); err != nil {
			return fmt.Errorf("%w (%s)", err, steps[i].op.Def.Name)
		}
		if x.ended() {
			return errEnded
		}
	}
	return nil
}

// branch binds an if: it runs the arm that is taken and copies its results.
func (b *binder) branch(op *ir.Op) error {
	condition, _ := op.Arg("cond")
	cond := &value{slot: &slot{n: condition.Int}}
	if condition.Kind == ir.ValueArg {
		var err error
		if cond, err = b.Value(condition.Value); err != nil {
			return err
		}
	}
	results := make([]*value, len(op.Results))
	for i, r := range op.Results {
		results[i] = b.ownMemory(r)
	}
	var arms [2]struct {
		steps []step
		moves []func() error
	}
	for i, r := range op.Regions {
		var err error
		if arms[i].steps, err = b.nested(r); err != nil {
			return err
		}
		for j, v := range r.Results {
			move, err := b.move(results[j], v)
			if err != nil {
				return err
			}
			arms[i].moves = append(arms[i].moves, move)
		}
	}
	b.Op = op
	b.step("if", func() error {
		arm := &arms[0]
		if cond.slot.n == 0 {
			arm = &arms[1]
		}
		if err := b.x.runAll(arm.steps); err != nil {
			return err
		}
		for _, move := range arm.moves {
			if err := move(); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// scan binds a loop over the slices of an axis. Reference kernels copy the slices out and join the results.
func (b *binder) scan(op *ir.Op) error {
	axis, body := ir.Attrs[ir.ScanAttrs](op).ScanAxis, op.Regions[0]
	var originals, carry []*value
	for i, list := range []*[]*value{&originals, &carry} {
		for _, a := range op.Args[i] {
			v, err := b.Value(a.Value)
			if err != nil {
				return err
			}
			*list = append(*list, v)
		}
	}
	if len(originals) == 0 {
		return fmt.Errorf("scan: no tensor to scan over")
	}
	args := make([]*value, len(body.Args))
	for i, a := range body.Args {
		args[i] = b.ownMemory(a)
	}
	results := make([]*value, len(op.Results))
	for i, r := range op.Results {
		results[i] = b.ownMemory(r)
	}
	steps, err := b.nested(body)
	if err != nil {
		return err
	}
	inner := make([]*value, len(body.Results))
	for i, r := range body.Results {
		if inner[i], err = b.Value(r); err != nil {
			return err
		}
	}
	outputs := len(body.Results) - len(carry)
	b.Op = op
	b.x.exe.note(op)
	b.step("scan", func() error {
		sources, err := b.x.contents(op.Args[0], originals)
		if err != nil {
			return err
		}
		state, err := b.x.contents(op.Args[1], carry)
		if err != nil {
			return err
		}
		joined, last, err := eval.Scan(axis, sources, state, outputs, func(slices []eval.Value) ([]eval.Value, error) {
			return b.x.iterate(slices, args, steps, body.Results, inner)
		})
		if err != nil {
			return err
		}
		for i, r := range append(joined, last...) {
			if err := results[i].set(r); err != nil {
				return fmt.Errorf("scan: %w", err)
			}
		}
		return nil
	})
	return nil
}

// contents returns the content of the values of a list of arguments.
func (x *instance) contents(of []ir.Arg, values []*value) (out []eval.Value, err error) {
	out = make([]eval.Value, len(values))
	for i, v := range values {
		if out[i], err = x.content(of[i].Value, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// iterate runs the steps of a scan's body once: args get the slices, and the contents of inner, which are bound to
// results, are copied.
func (x *instance) iterate(slices []eval.Value, args []*value, steps []step, results []*ir.Value,
	inner []*value) ([]eval.Value, error) {
	for i, s := range slices {
		if err := args[i].set(s); err != nil {
			return nil, err
		}
	}
	if err := x.runAll(steps); err != nil {
		return nil, err
	}
	out := make([]eval.Value, len(inner))
	for i, v := range inner {
		c, err := x.content(results[i], v)
		if err != nil {
			return nil, err
		}
		if c.Tensor != nil {
			c.Tensor = c.Tensor.Clone() // the next iteration overwrites it
		}
		out[i] = c
	}
	return out, nil
}
