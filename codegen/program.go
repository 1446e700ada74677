package codegen

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/program"
)

const (
	delegateID = "MLXBackend"
	// outputAlignment is the alignment of planned outputs in their arena.
	outputAlignment = 16
	// maxTensorBytes bounds an input or output at its largest, more than any machine has.
	maxTensorBytes = 1 << 48
)

// entryPlan returns the execution plan of the method: inputs, outputs and one call of the delegate, whose
// payload is in the given segment.
func entryPlan(f *ir.Func, payload int) (*program.ExecutionPlanT, error) {
	plan := newPlan(f.Name)
	plan.Delegates = []*program.BackendDelegateT{{
		Id: delegateID,
		Processed: &program.BackendDelegateDataReferenceT{Location: program.DataLocationSEGMENT,
			Index: uint32(payload)},
		CompileSpecs: []*program.CompileSpecT{},
	}}
	call := &program.DelegateCallT{}
	add := func(kind program.KernelTypes, value any) int32 {
		plan.Values = append(plan.Values, &program.EValueT{Val: &program.KernelTypesT{Type: kind, Value: value}})
		n := int32(len(plan.Values) - 1)
		call.Args = append(call.Args, n)
		return n
	}
	for i, p := range f.Params {
		if p.Type.Kind == ir.IntKind {
			plan.Inputs = append(plan.Inputs, add(program.KernelTypesInt, &program.IntT{}))
			continue
		}
		t, _, err := planTensor(p.Type)
		if err != nil {
			return nil, fmt.Errorf("input %d (%s): %w", i, p.Param, err)
		}
		plan.Inputs = append(plan.Inputs, add(program.KernelTypesTensor, t))
	}
	arena := int64(0)
	for i, o := range f.Outputs {
		if o.Kind == ir.IntKind {
			plan.Outputs = append(plan.Outputs, add(program.KernelTypesInt, &program.IntT{}))
			continue
		}
		t, size, err := planTensor(o)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		// Outputs are planned: runners that set no output buffers of their own would crash otherwise.
		t.AllocationInfo = &program.AllocationDetailsT{MemoryId: 1, MemoryOffsetLow: uint32(arena),
			MemoryOffsetHigh: uint32(arena >> 32)}
		arena += align(size, outputAlignment)
		plan.Outputs = append(plan.Outputs, add(program.KernelTypesTensor, t))
	}
	plan.NonConstBufferSizes = append(plan.NonConstBufferSizes, arena)
	plan.Chains[0].Instructions = []*program.InstructionT{{InstrArgs: &program.InstructionArgumentsT{
		Type: program.InstructionArgumentsDelegateCall, Value: call}}}
	return plan, nil
}

// newPlan returns a plan with what every plan must have: a chain, the delegates' list and the reserved
// entry of the buffer sizes.
func newPlan(name string) *program.ExecutionPlanT {
	return &program.ExecutionPlanT{
		Name:              name,
		ContainerMetaType: &program.ContainerMetadataT{},
		Values:            []*program.EValueT{},
		Inputs:            []int32{},
		Outputs:           []int32{},
		Chains: []*program.ChainT{{Inputs: []int32{}, Outputs: []int32{},
			Instructions: []*program.InstructionT{}}},
		Operators:           []*program.OperatorT{},
		Delegates:           []*program.BackendDelegateT{},
		NonConstBufferSizes: []int64{0},
	}
}

// planTensor describes a tensor input or output and gives the bytes that its largest size takes.
func planTensor(t ir.Type) (*program.TensorT, int64, error) {
	out := &program.TensorT{ScalarType: program.ScalarType(t.DType), Sizes: []int32{}, DimOrder: []byte{}}
	size := int64(t.DType.Size())
	for i, d := range t.Shape {
		_, hi := d.Bounds()
		if hi > math.MaxInt32 {
			return nil, 0, fmt.Errorf("dim %d of %s has no upper bound, which a program needs to plan its memory", i, t)
		}
		if _, static := d.Const(); !static {
			out.ShapeDynamism = program.TensorShapeDynamismDYNAMIC_BOUND
		}
		out.Sizes = append(out.Sizes, int32(hi))
		out.DimOrder = append(out.DimOrder, byte(i))
		if hi > 0 && size > maxTensorBytes/hi {
			return nil, 0, fmt.Errorf("%s has more than %d bytes at its largest", t, int64(maxTensorBytes))
		}
		size *= hi
	}
	return out, size, nil
}

// methodPlan returns the execution plan of a constant method.
func methodPlan(m ir.Method) (*program.ExecutionPlanT, error) {
	plan := newPlan(m.Name)
	for i, v := range m.Values {
		val := &program.KernelTypesT{}
		switch v := v.(type) {
		case int64:
			val.Type, val.Value = program.KernelTypesInt, &program.IntT{IntVal: v}
		case bool:
			val.Type, val.Value = program.KernelTypesBool, &program.BoolT{BoolVal: v}
		case float64:
			val.Type, val.Value = program.KernelTypesDouble, &program.DoubleT{DoubleVal: v}
		default:
			return nil, fmt.Errorf("constant method %s: value %d is a %T, want int64, bool or float64", m.Name, i, v)
		}
		plan.Values = append(plan.Values, &program.EValueT{Val: val})
		plan.Outputs = append(plan.Outputs, int32(i))
	}
	return plan, nil
}

func align(n, to int64) int64 { return (n + to - 1) / to * to }
