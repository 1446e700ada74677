package lift

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// Method is a method of a program whose work is one call of an MLX delegate.
type Method struct {
	// Name of the method.
	Name string
	// Graph of the delegate, whose slot and chain numbers have been checked against their counts.
	Graph *mlxgraph.MLXGraphT
	// Inputs gives, for each entry of the graph's input map, the number of the method's input.
	Inputs []int
	// InputCount is the number of inputs of the method.
	InputCount int
	// Outputs of the method in order.
	Outputs []Output
	// Constant gives the bytes of a constant by its name in the graph.
	Constant func(name string) (ir.Data, error)
	// Metadata are the program's constant methods.
	Metadata []ir.Method
}

// Output is an output of a method.
type Output struct {
	// Result is the entry of the graph's output map that it is; -1 where it is an input of the method.
	Result int
	// Input is the number of the method's input, where Result is -1.
	Input int
	// DType is the declared dtype of a tensor output.
	DType ir.DType
}

const (
	// maxOps bounds a lifted module: chains may be shared, so a small file can unfold to a large program.
	maxOps = 1 << 20
	// maxDepth bounds nested chains, which a file may make cyclic.
	maxDepth = 32
	// maxHeld bounds the slots that hold something at an If or a Scan, counted for each: what lifting
	// keeps for them grows with the product. The largest real programs have a million.
	maxHeld = 1 << 22
)

// Lift returns the module of a method. The module is verified.
func Lift(method Method) (*ir.Module, error) {
	l := &lifter{method: method, graph: method.Graph, module: &ir.Module{Metadata: method.Metadata},
		writes: map[uint32]slotSet{}}
	if err := l.run(); err != nil {
		return nil, fmt.Errorf("method %s: %w", method.Name, err)
	}
	if err := ir.Verify(l.module); err != nil {
		return nil, fmt.Errorf("method %s: %w", method.Name, err)
	}
	return l.module, nil
}

type lifter struct {
	method  Method
	graph   *mlxgraph.MLXGraphT
	module  *ir.Module
	names   map[slotID]string
	buffers map[uint32]*ir.Buffer
	cells   map[uint32]*ir.Constant // constants by slot
	init    bool                    // the init chain is being lifted
	live    map[*mlxgraph.InstructionT]slotSet
	writes  map[uint32]slotSet // what each chain writes, with the chains inside of it
	ops     int
	held    int // slots counted by hold
}

// hold counts slots that hold something at an If or a Scan.
func (l *lifter) hold(slots int) error {
	if l.held += slots; l.held > maxHeld {
		return fmt.Errorf("more than %d slots live through its Ifs and Scans, counted for each", maxHeld)
	}
	return nil
}

// state is what the slots hold at one point of the execution.
type state struct {
	tensors map[uint32]*ir.Value
	ints    map[uint32]*ir.Value
	loads   map[*ir.Buffer]*ir.Value // loads that no write has made stale
}

func (s *state) clone() *state {
	c := &state{make(map[uint32]*ir.Value, len(s.tensors)), make(map[uint32]*ir.Value, len(s.ints)),
		make(map[*ir.Buffer]*ir.Value, len(s.loads))}
	for k, v := range s.tensors {
		c.tensors[k] = v
	}
	for k, v := range s.ints {
		c.ints[k] = v
	}
	for k, v := range s.loads {
		c.loads[k] = v
	}
	return c
}

func (l *lifter) run() error {
	g := l.graph
	l.names = map[slotID]string{}
	for _, n := range g.NamedSlots {
		l.names[slotOf(n.Slot)] = n.Name // of several the last counts, as in ExecuTorch's loader and the container
	}
	s := &state{map[uint32]*ir.Value{}, map[uint32]*ir.Value{}, map[*ir.Buffer]*ir.Value{}}
	if err := l.constants(s); err != nil {
		return err
	}
	if err := l.mutableBuffers(); err != nil {
		return err
	}
	if g.InitChainIdx >= 0 {
		if err := l.initChain(s); err != nil {
			return fmt.Errorf("init chain: %w", err)
		}
	}
	f := &ir.Func{Name: l.method.Name, Body: &ir.Region{}}
	l.module.Entry = f
	if err := l.params(f, s); err != nil {
		return err
	}
	var outputs slotSet
	for _, m := range g.OutputMap {
		outputs.add(slotOf(m))
	}
	if err := l.analyse(g.MainChainIdx, outputs); err != nil {
		return err
	}
	b := &ir.Builder{Module: l.module, Region: f.Body}
	if err := l.chain(b, g.MainChainIdx, s, 0); err != nil {
		return err
	}
	return l.outputs(b, f, s)
}

// meta returns the type of a slot that has tensor metadata. dynamic makes the expression of a dynamic dim.
func (l *lifter) meta(slot uint32, dynamic func(*mlxgraph.ShapeDimT) *ir.Expr) (ir.Type, error) {
	if int(slot) >= len(l.graph.TensorMeta) || l.graph.TensorMeta[slot] == nil {
		return ir.Type{}, fmt.Errorf("tensor slot %d has no metadata", slot)
	}
	m := l.graph.TensorMeta[slot]
	d := ir.DType(m.ScalarType)
	if !d.Valid() {
		return ir.Type{}, fmt.Errorf("tensor slot %d has scalar type %d, which the MLX delegate does not know", slot,
			m.ScalarType)
	}
	t := ir.TensorType(d)
	for i, dim := range m.Shape {
		switch {
		case dim.Value >= 0:
			t.Shape = append(t.Shape, ir.Const(int64(dim.Value)))
		case dynamic != nil:
			t.Shape = append(t.Shape, dynamic(dim))
		default:
			return ir.Type{}, fmt.Errorf("dim %d of tensor slot %d is dynamic, want a constant", i, slot)
		}
	}
	return t, nil
}

func (l *lifter) name(slot slotID, kind string) string {
	if n, ok := l.names[slot]; ok {
		return n
	}
	return fmt.Sprintf("%s%d", kind, slot.idx)
}

func (l *lifter) constants(s *state) error {
	l.cells = map[uint32]*ir.Constant{}
	for slot := range l.graph.NumConstantTensors {
		name, ok := l.names[slotID{false, slot}]
		if !ok {
			return fmt.Errorf("constant slot %d has no name, so its bytes are nowhere", slot)
		}
		t, err := l.meta(slot, nil)
		if err != nil {
			return fmt.Errorf("constant %q: %w", name, err)
		}
		data, err := l.method.Constant(name)
		if err != nil {
			return fmt.Errorf("constant %q: %w", name, err)
		}
		dims, _ := t.Static()
		if data != nil && (data.DType() != t.DType || !slices.Equal(data.Shape(), dims)) {
			// The container knows the bytes only; dtype and shape are the slot's.
			data = retyped{data, t.DType, dims}
		}
		s.tensors[slot] = l.module.NewConstant(name, t, data)
		l.cells[slot] = s.tensors[slot].Constant
	}
	return nil
}

// retyped gives the bytes of a segment the dtype and shape of its slot.
type retyped struct {
	ir.Data
	dtype ir.DType
	shape []int64
}

func (r retyped) DType() ir.DType { return r.dtype }
func (r retyped) Shape() []int64  { return r.shape }

func (l *lifter) mutableBuffers() error {
	g := l.graph
	l.buffers = map[uint32]*ir.Buffer{}
	first := g.NumConstantTensors + g.NumInputTensors + g.NumOutputTensors
	for slot := first; slot < first+g.NumMutableBufferTensors; slot++ {
		t, err := l.meta(slot, nil)
		if err != nil {
			return fmt.Errorf("mutable buffer: %w", err)
		}
		l.buffers[slot] = l.module.NewBuffer(l.name(slotID{false, slot}, "buffer"), t)
	}
	return nil
}

func (l *lifter) initChain(s *state) error {
	l.init = true
	l.module.Init = &ir.Region{}
	before := s.clone()
	var written slotSet
	for slot := range l.graph.NumConstantTensors {
		written.add(slotID{false, slot})
	}
	if err := l.analyse(uint32(l.graph.InitChainIdx), written); err != nil {
		return err
	}
	b := &ir.Builder{Module: l.module, Region: l.module.Init}
	if err := l.chain(b, uint32(l.graph.InitChainIdx), s, 0); err != nil {
		return err
	}
	for slot := range l.graph.NumConstantTensors {
		if v := s.tensors[slot]; v != before.tensors[slot] {
			d := &ir.Derived{Value: &ir.Value{Type: v.Type}, Cell: l.cells[slot], From: v}
			l.module.Derived = append(l.module.Derived, d)
			s.tensors[slot] = d.Value
		}
	}
	// Temporaries and integers end with the init chain.
	for slot := range s.tensors {
		if slot >= l.graph.NumConstantTensors {
			delete(s.tensors, slot)
		}
	}
	s.ints = map[uint32]*ir.Value{}
	l.init = false
	return nil
}

func (l *lifter) params(f *ir.Func, s *state) error {
	inputs := make([]*mlxgraph.SlotVariantT, l.method.InputCount)
	for i, m := range l.graph.InputMap {
		inputs[l.method.Inputs[i]] = m
	}
	for i, m := range inputs {
		switch {
		case m == nil:
			return fmt.Errorf("input %d is not used by the delegate", i)
		case m.SlotType == mlxgraph.SlotTypeIntValueSlot:
			v := f.NewParam(uniqueParam(f, l.name(slotOf(m), "int")),
				ir.IntType(ir.Sym(&ir.Symbol{Lo: -1 << 31, Hi: 1<<31 - 1})))
			s.ints[m.Idx] = v
		case m.SlotType != mlxgraph.SlotTypeTensorSlot:
			return fmt.Errorf("input %d is a float or bool slot, which ExecuTorch's MLX runtime does not support", i)
		default:
			t, err := l.meta(m.Idx, func(d *mlxgraph.ShapeDimT) *ir.Expr {
				// Exporters write 2 as the least length of a sequence (0 and 1 are special to torch.export), yet 1 is
				// legal.
				y := &ir.Symbol{Lo: min(int64(max(d.MinValue, 0)), 1), Hi: ir.Unbounded}
				if d.MaxValue >= 0 {
					y.Hi = max(int64(d.MaxValue), y.Lo)
				}
				return ir.Sym(y)
			})
			if err != nil {
				return fmt.Errorf("input %d: %w", i, err)
			}
			s.tensors[m.Idx] = f.NewParam(uniqueParam(f, l.name(slotOf(m), "input")), t)
		}
	}
	return nil
}

func uniqueParam(f *ir.Func, name string) string {
	for n, base := 2, name; slices.ContainsFunc(f.Params, func(v *ir.Value) bool { return v.Param == name }); n++ {
		name = fmt.Sprintf("%s.%d", base, n)
	}
	return name
}

func (l *lifter) outputs(b *ir.Builder, f *ir.Func, s *state) error {
	for i, o := range l.method.Outputs {
		var v *ir.Value
		var declared *ir.Type
		if o.Result < 0 {
			v = f.Params[o.Input]
		} else {
			m := l.graph.OutputMap[o.Result]
			var err error
			if m.SlotType == mlxgraph.SlotTypeTensorSlot {
				v, err = l.readTensor(b, s, m.Idx)
				if int(m.Idx) < len(l.graph.TensorMeta) {
					if t, err := l.meta(m.Idx, func(*mlxgraph.ShapeDimT) *ir.Expr { return nil }); err == nil {
						declared = &t
					}
				}
			} else {
				v, err = l.readInt(s, m.Idx)
			}
			if err != nil {
				return fmt.Errorf("output %d: %w", i, err)
			}
		}
		t := v.Type
		if t.Kind == ir.TensorKind {
			t = ir.TensorType(o.DType, v.Type.Shape...)
			if declared != nil && declared.Rank() == t.Rank() {
				t.Shape = slices.Clone(t.Shape)
				for j, d := range declared.Shape {
					if d != nil { // a dynamic dim is what the program computes
						t.Shape[j] = d
					}
				}
			}
		}
		f.Outputs = append(f.Outputs, t)
		f.Body.Results = append(f.Body.Results, v)
	}
	return nil
}
