package container

import (
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/etc-ml/etc/schema/program"
)

// Method is a method of a program: values, and calls over them.
type Method struct {
	Name      string
	Values    []Value
	Inputs    []int // indices of the values that the caller sets, in argument order
	Outputs   []int // indices of the values that the caller gets, in result order
	Delegates []Delegate
	Calls     []DelegateCall // in the order of the instructions

	// Others names the instructions that are not delegate calls, e.g. "kernel aten::add.out". They stand
	// between the calls; what runs delegates only must refuse a method that has some.
	Others []string

	// Arenas are the bytes of planned memory; entry 0 is reserved.
	Arenas []int64
}

// Delegate is a part of a method that a backend runs.
type Delegate struct {
	ID      string // of the backend, e.g. "MLXBackend"
	Payload []byte // a view of the file
	Offset  int64  // of the payload in the file
	Inline  bool   // in the program, not in a segment
	Specs   []CompileSpec
}

// CompileSpec is an option that the exporter left for a delegate.
type CompileSpec struct {
	Key   string
	Value []byte
}

// DelegateCall runs a delegate over values.
type DelegateCall struct {
	Delegate int   // index into Method.Delegates
	Args     []int // indices of values: the delegate's inputs, then its outputs
}

// parseMethods decodes every execution plan.
func (f *File) parseMethods() error {
	n := f.program.ExecutionPlanLength()
	if n == 0 {
		return f.wrong(-1, "execution_plan", "the program has no methods")
	}
	f.methods = make([]*Method, n)
	var plan program.ExecutionPlan
	for i := range f.methods {
		f.program.ExecutionPlan(&plan, i)
		m, err := f.parseMethod(&plan, fmt.Sprintf("execution_plan[%d]", i))
		if err != nil {
			return err
		}
		f.methods[i] = m
	}
	return nil
}

func (f *File) parseMethod(plan *program.ExecutionPlan, field string) (*Method, error) {
	offset := int64(plan.Table().Pos)
	m := &Method{
		Name:   string(plan.Name()),
		Values: make([]Value, plan.ValuesLength()),
		Arenas: collect(plan.NonConstBufferSizesLength(), plan.NonConstBufferSizes),
	}
	if m.Name == "" {
		return nil, f.wrong(offset, field, "name is missing")
	}
	var err error
	var v program.EValue
	for i := range m.Values {
		plan.Values(&v, i)
		if m.Values[i], err = f.parseValue(&v, fmt.Sprintf("%s.values[%d]", field, i), len(m.Values)); err != nil {
			return nil, err
		}
	}
	if m.Inputs, err = f.indices(m, plan.InputsLength(), plan.Inputs, offset, field+".inputs"); err != nil {
		return nil, err
	}
	if m.Outputs, err = f.indices(m, plan.OutputsLength(), plan.Outputs, offset, field+".outputs"); err != nil {
		return nil, err
	}
	m.Delegates = make([]Delegate, plan.DelegatesLength())
	var d program.BackendDelegate
	for i := range m.Delegates {
		plan.Delegates(&d, i)
		if m.Delegates[i], err = f.parseDelegate(&d, fmt.Sprintf("%s.delegates[%d]", field, i)); err != nil {
			return nil, err
		}
	}
	if plan.ChainsLength() == 0 {
		return nil, f.wrong(offset, field+".chains",
			"method %q has no chain, it needs one even when it has no instructions", m.Name)
	}
	var c program.Chain
	var in program.Instruction
	for i := range plan.ChainsLength() {
		plan.Chains(&c, i)
		for j := range c.InstructionsLength() {
			c.Instructions(&in, j)
			if err := f.parseInstruction(m, plan, &in,
				fmt.Sprintf("%s.chains[%d].instructions[%d]", field, i, j)); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// indices reads a vector of indices of values.
func (f *File) indices(m *Method, n int, item func(int) int32, offset int64, field string) ([]int, error) {
	out := make([]int, n)
	for i := range out {
		index := item(i)
		if index < 0 || int64(index) >= int64(len(m.Values)) {
			return nil, f.wrong(offset, fmt.Sprintf("%s[%d]", field, i), "value %d, method %q has %d values",
				index, m.Name, len(m.Values))
		}
		out[i] = int(index)
	}
	return out, nil
}

// parseDelegate finds the payload of a delegate.
func (f *File) parseDelegate(x *program.BackendDelegate, field string) (Delegate, error) {
	wrong := func(part, format string, args ...any) (Delegate, error) {
		return Delegate{}, f.wrong(int64(x.Table().Pos), field+part, format, args...)
	}
	d := Delegate{ID: string(x.Id()), Specs: make([]CompileSpec, x.CompileSpecsLength())}
	if d.ID == "" {
		return wrong("", "id is missing")
	}
	var s program.CompileSpec
	for i := range d.Specs {
		x.CompileSpecs(&s, i)
		d.Specs[i] = CompileSpec{Key: string(s.Key()), Value: s.ValueBytes()}
	}
	data := x.Processed(nil)
	if data == nil {
		return wrong("", "processed is missing")
	}
	switch index := int64(data.Index()); data.Location() {
	case program.DataLocationSEGMENT:
		if index >= int64(len(f.segments)) {
			return wrong(".processed", "segment %d, the program has %d", index, len(f.segments))
		}
		d.Payload, d.Offset = f.SegmentBytes(int(index)), f.segments[index].Offset
	case program.DataLocationINLINE:
		if index >= int64(f.program.BackendDelegateDataLength()) {
			return wrong(".processed", "entry %d of backend_delegate_data, the program has %d", index,
				f.program.BackendDelegateDataLength())
		}
		var inline program.BackendDelegateInlineData
		f.program.BackendDelegateData(&inline, int(index))
		d.Inline, d.Payload = true, inline.DataBytes()
		if slot := inline.Table(); len(d.Payload) > 0 {
			d.Offset = int64(slot.Vector(flatbuffers.UOffsetT(slot.Offset(4)))) // data is the table's first field
		}
	default:
		return wrong(".processed", "%v, expected INLINE or SEGMENT", data.Location())
	}
	return d, nil
}

// parseInstruction adds an instruction to a method.
func (f *File) parseInstruction(m *Method, plan *program.ExecutionPlan, in *program.Instruction, field string) error {
	var t flatbuffers.Table
	if !in.InstrArgs(&t) {
		return f.wrong(int64(in.Table().Pos), field, "an instruction without arguments")
	}
	offset := int64(t.Pos)
	switch in.InstrArgsType() {
	case program.InstructionArgumentsDelegateCall:
		var x program.DelegateCall
		x.Init(t.Bytes, t.Pos)
		if i := x.DelegateIndex(); i < 0 || int64(i) >= int64(len(m.Delegates)) {
			return f.wrong(offset, field, "delegate %d, method %q has %d", i, m.Name, len(m.Delegates))
		}
		args, err := f.indices(m, x.ArgsLength(), x.Args, offset, field+".args")
		if err != nil {
			return err
		}
		m.Calls = append(m.Calls, DelegateCall{Delegate: int(x.DelegateIndex()), Args: args})
	case program.InstructionArgumentsKernelCall:
		var x program.KernelCall
		x.Init(t.Bytes, t.Pos)
		if i := x.OpIndex(); i < 0 || int64(i) >= int64(plan.OperatorsLength()) {
			return f.wrong(offset, field, "operator %d, method %q has %d", i, m.Name, plan.OperatorsLength())
		}
		var op program.Operator
		plan.Operators(&op, int(x.OpIndex()))
		name := string(op.Name())
		if overload := string(op.Overload()); overload != "" {
			name += "." + overload
		}
		m.Others = append(m.Others, "kernel "+name)
	case program.InstructionArgumentsMoveCall:
		m.Others = append(m.Others, "move")
	case program.InstructionArgumentsJumpFalseCall:
		m.Others = append(m.Others, "jump")
	case program.InstructionArgumentsFreeCall:
		m.Others = append(m.Others, "free")
	}
	return nil
}
