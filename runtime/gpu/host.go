package gpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/strided"
)

// This file binds work of the host: values that follow from the inputs alone, computed before the first kernel, and
// operations without a kernel, which run on their reference kernel between two sequences of kernels.

// cheap are the operations on one or two numbers that a model has once or twice for a call.
var cheap = map[string]bool{"item_int": true, "sym_size": true, "add_int": true, "subtract_int": true,
	"multiply_int": true, "floor_divide_int": true,
	"mod_int": true, "equal": true, "take": true, "astype": true, "full": true, "greater": true, "less": true,
	"logical_and": true, "reshape": true,
	"expand_dims": true, "squeeze": true, "slice": true, "broadcast_to": true, "id_copy": true, "contiguous": true,
	"transpose": true, "undef": true, "load": true}

// reference binds the operation to its reference kernel. If all operands are host values, its results are host values;
// else it becomes a step of the plan.
func (b *binder) reference() error {
	op := b.Op
	if len(op.Results) == 1 && op.Result().Type.Kind == ir.IntKind {
		if n, ok := b.Sizes.Number(op.Result().Type.Int); ok {
			b.Values[op.Result()] = &value{place: onHost,
				hostValue: &hostValue{constant: true, content: eval.Value{Int: int64(n)}}}
			return nil
		}
	}
	of, err := b.referenceOperands(op)
	if err != nil {
		return err
	}
	if of.step && (!cheap[op.Def.Name] || op.Buffer == nil) && !b.slow(op) {
		b.x.exe.note(op)
	}
	evaluate := b.evaluator(of.args)
	if of.step {
		return b.referenceStep(of.uses, evaluate)
	}
	b.hostResults(of, evaluate)
	return nil
}

// referenceOperands are the operands of an operation as its reference kernel reads them.
type referenceOperands struct {
	args     [][]*value // one list for each argument; nil where an argument is not a value
	uses     []*hostValue
	step     bool // some operand is on the device, so the kernel runs between two sequences
	constant bool // every operand is the same for every call
}

func (b *binder) referenceOperands(op *ir.Op) (referenceOperands, error) {
	of := referenceOperands{args: make([][]*value, len(op.Args)), step: op.Buffer != nil}
	of.constant = !of.step && op.Def.Name != "random_bits" && op.Def.Name != "sample"
	for i, list := range op.Args {
		of.args[i] = make([]*value, len(list))
		for j, a := range list {
			if a.Kind != ir.ValueArg {
				continue
			}
			v, err := b.Value(a.Value)
			if err != nil {
				return of, err
			}
			of.args[i][j] = v
			switch v.place {
			case onHost:
				of.uses = append(of.uses, v.hostValue)
				of.step = of.step || v.hostValue.step
				of.constant = of.constant && v.hostValue.constant
			case onDevice:
				of.step, of.constant = true, false
			}
		}
	}
	return of, nil
}

// hostResults makes host values of the operation's results. Computing the first computes them all.
func (b *binder) hostResults(of referenceOperands, evaluate func() ([]eval.Value, error)) {
	op := b.Op
	var first *hostValue
	for i, r := range op.Results {
		c := &hostValue{constant: of.constant, uses: of.uses}
		shape, known := b.Dims(r.Type)
		if !known || r.Type.Kind == ir.IntKind {
			shape = nil
		}
		if i == 0 {
			first = c
		} else {
			c.uses = []*hostValue{first}
		}
		b.Values[r] = &value{place: onHost, dtype: r.Type.DType, shape: shape, hostValue: c}
		b.plan.hostValues = append(b.plan.hostValues, c)
	}
	if first == nil {
		return
	}
	if !b.meant() && !b.slow(op) {
		first.slow = op
	}
	results := b.cellsOf(op)
	first.run = func() error {
		out, err := evaluate()
		if err != nil {
			return err
		}
		for i, r := range out {
			if err := results[i].hostValue.set(r, results[i].shape); err != nil {
				return fmt.Errorf("%s: %w", op.Def.Name, err)
			}
		}
		return nil
	}
}

// The number of elements up to which the host computes an operation without a warning: where no kernel exists for it,
// and where one does.
const (
	fewElements  = 1 << 10
	someElements = 1 << 16
)

// meant reports whether it is by design that the host computes this operation on host values: it is a cheap one, or it
// has few elements.
func (b *binder) meant() bool {
	name, most := b.Op.Def.Name, fewElements
	if kernelBinders[name] != nil && b.onlyHost() {
		most = someElements
	}
	small := func(v *ir.Value) bool {
		shape, known := b.Dims(v.Type)
		return known && strided.Elements(shape) <= most
	}
	all := true
	b.Op.EachArg(func(a *ir.Arg) { all = all && (a.Kind != ir.ValueArg || small(a.Value)) })
	return cheap[name] || all && !slices.ContainsFunc(b.Op.Results, func(r *ir.Value) bool { return !small(r) })
}

func (b *binder) cellsOf(op *ir.Op) []*value {
	out := make([]*value, len(op.Results))
	for i, r := range op.Results {
		out[i] = b.Values[r]
	}
	return out
}

// referenceStep adds a step that copies the arguments from the device, runs the reference kernel, and copies float
// results back. Integer results stay on the host.
func (b *binder) referenceStep(uses []*hostValue, evaluate func() ([]eval.Value, error)) error {
	op := b.Op
	for _, c := range uses {
		c.need()
	}
	results := make([]*value, len(op.Results))
	for i, r := range op.Results {
		shape, known := b.Dims(r.Type)
		if known && r.Type.Kind == ir.TensorKind && r.Type.DType.IsFloat() && strided.Elements(shape) > 0 {
			results[i] = b.result(i, nil)
			continue
		}
		results[i] = &value{place: onHost, dtype: r.Type.DType, hostValue: &hostValue{step: true}}
		if known && r.Type.Kind == ir.TensorKind {
			results[i].shape = shape
		}
		b.Values[r] = results[i]
	}
	x := b.x
	for _, v := range results {
		if v.place == onDevice {
			v.slot.First = len(b.plan.steps)
		}
	}
	b.plan.steps = append(b.plan.steps, step{op: op, kind: "reference", host: func() error {
		out, err := evaluate()
		if err != nil {
			return err
		}
		for i, r := range out {
			v := results[i]
			if v.place == onHost {
				err = v.hostValue.set(r, v.shape)
			} else if r.Tensor == nil || !slices.Equal(r.Tensor.Shape, v.shape) {
				err = fmt.Errorf("gives %v where the shape %v follows from the types", r.Tensor, v.shape)
			} else {
				err = x.write(v, r.Tensor)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", op.Def.Name, err)
			}
		}
		return nil
	}})
	return nil
}

// evaluator returns a function that runs the operation's reference kernel on these arguments.
func (b *binder) evaluator(args [][]*value) func() ([]eval.Value, error) {
	op, x := b.Op, b.x
	call := &eval.Call{Op: op, Precision: x.exe.precision, Args: make([][]eval.Value, len(args)), Bits: x.bits}
	for i := range args {
		call.Args[i] = make([]eval.Value, len(args[i]))
	}
	state := x.states[op.Buffer]
	return func() ([]eval.Value, error) {
		for i, list := range args {
			for j, v := range list {
				if v == nil {
					call.Args[i][j] = eval.Value{Int: op.Args[i][j].Int}
					continue
				}
				var err error
				if call.Args[i][j], err = x.content(op.Args[i][j].Value, v); err != nil {
					return nil, err
				}
			}
		}
		switch {
		case op.Def.Name == "load":
			t, err := x.readState(state)
			return []eval.Value{{Tensor: t}}, err
		case op.Def.Effect == ir.Writes:
			return x.updateState(state, call)
		}
		return eval.Run(call)
	}
}

// content returns v as reference kernels take it, copied from the device where it is there.
func (x *instance) content(of *ir.Value, v *value) (eval.Value, error) {
	switch v.place {
	case onHost:
		if v.hostValue.constant {
			return v.hostValue.fixed()
		}
		return v.hostValue.content, nil
	case joined:
		return x.exe.constants.Joined(of)
	}
	t, err := x.read(v)
	return eval.Value{Tensor: t}, err
}

// fixed returns the content of a host value that is the same for every call. It is computed on first use.
func (c *hostValue) fixed() (eval.Value, error) {
	if c.content.Tensor == nil && c.content.Quantized == nil {
		for _, u := range c.uses {
			if _, err := u.fixed(); err != nil {
				return eval.Value{}, err
			}
		}
		if c.run != nil {
			if err := c.run(); err != nil {
				return eval.Value{}, err
			}
		}
	}
	return c.content, nil
}
