package codegen

import (
	"fmt"
	"math"
	"reflect"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// graphVersion is the version of the MLX delegate's graph format.
const graphVersion = "1"

// Encode returns the delegate's graph of a legal module of one entry. The error quotes the operation that the wire
// cannot hold.
func Encode(m *ir.Module) (*mlxgraph.MLXGraphT, error) {
	if len(m.More) > 0 {
		return nil, fmt.Errorf("a module of %d entries has a graph for each of them; encode its parts",
			len(m.Entries()))
	}
	e := &encoder{module: m, slots: newSlots(), uses: m.CountUses(),
		graph: &mlxgraph.MLXGraphT{Version: graphVersion, InitChainIdx: -1}}
	if err := e.run(); err != nil {
		return nil, fmt.Errorf("method %s: %w", m.Entry.Name, err)
	}
	return e.graph, nil
}

type encoder struct {
	module    *ir.Module
	slots     *slots
	uses      map[*ir.Value]int
	graph     *mlxgraph.MLXGraphT
	firstTemp uint32
}

func (e *encoder) run() error {
	if err := e.number(); err != nil {
		return err
	}
	if err := e.chains(); err != nil {
		return err
	}
	m, g, s := e.module, e.graph, e.slots
	for i, v := range m.Entry.Body.Results {
		switch {
		case v.Type.Kind == ir.IntKind:
			g.OutputMap = append(g.OutputMap, slot(mlxgraph.SlotTypeIntValueSlot, s.ints[v]))
		case v.Type.Kind == ir.TensorKind:
			g.OutputMap = append(g.OutputMap, slot(mlxgraph.SlotTypeTensorSlot, s.tensors[v]))
		default:
			return fmt.Errorf("output %d has type %s, want a tensor or an int", i, v.Type)
		}
	}
	g.NumTempTensors = s.temps.used - e.firstTemp
	g.NumValues = s.values.used
	return nil
}

// number gives slots to constants, inputs, outputs and buffers, in this order; temporaries follow them. It is long
// because it is one list of what gets a slot.
func (e *encoder) number() error {
	m, g, s := e.module, e.graph, e.slots
	next := uint32(0)
	name := func(name string, kind mlxgraph.SlotType, idx uint32) {
		g.NamedSlots = append(g.NamedSlots, &mlxgraph.NamedSlotT{Name: name, Slot: slot(kind, idx)})
	}
	tensor := func(n string, t ir.Type) (uint32, error) {
		meta, err := tensorMeta(t)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", n, err)
		}
		g.TensorMeta = append(g.TensorMeta, meta)
		name(n, mlxgraph.SlotTypeTensorSlot, next)
		next++
		return next - 1, nil
	}
	var err error
	for _, c := range m.Constants {
		if s.tensors[c.Value], err = tensor(c.Name, c.Value.Type); err != nil {
			return err
		}
	}
	for _, d := range m.Derived {
		s.tensors[d.Value] = s.tensors[d.Cell.Value]
		s.tensors[d.From], s.owned[d.From] = s.tensors[d.Cell.Value], true
	}
	g.NumConstantTensors = next
	for _, p := range m.Entry.Params {
		if p.Type.Kind == ir.IntKind {
			s.ints[p] = s.values.take()
			g.InputMap = append(g.InputMap, slot(mlxgraph.SlotTypeIntValueSlot, s.ints[p]))
			name(p.Param, mlxgraph.SlotTypeIntValueSlot, s.ints[p])
			continue
		}
		if s.tensors[p], err = tensor(p.Param, p.Type); err != nil {
			return err
		}
		g.InputMap = append(g.InputMap, slot(mlxgraph.SlotTypeTensorSlot, s.tensors[p]))
	}
	g.NumInputTensors = next - g.NumConstantTensors
	// An output that an operation computes has a slot of its own; another value's slot is used where it lies.
	for i, v := range m.Entry.Body.Results {
		if _, taken := s.tensors[v]; taken || !ownsOutput(v) {
			continue
		}
		if s.tensors[v], err = tensor(fmt.Sprintf("output_%d", i), m.Entry.Outputs[i]); err != nil {
			return err
		}
		s.owned[v] = true
	}
	g.NumOutputTensors = next - g.NumConstantTensors - g.NumInputTensors
	for _, b := range m.Buffers {
		if s.buffers[b], err = tensor(b.Name, b.Type); err != nil {
			return err
		}
		g.MutableBufferMap = append(g.MutableBufferMap, slot(mlxgraph.SlotTypeTensorSlot, s.buffers[b]))
	}
	g.NumMutableBufferTensors = uint32(len(m.Buffers))
	e.firstTemp = next
	s.temps.next, s.temps.used = next, next
	return nil
}

// chains encodes the operations of the entry, and those of init in a chain of their own.
func (e *encoder) chains() error {
	m, g := e.module, e.graph
	main := &mlxgraph.InstructionChainT{}
	g.InstructionChains = append(g.InstructionChains, main)
	if m.Init != nil {
		g.InitChainIdx = 1
		init := &mlxgraph.InstructionChainT{}
		g.InstructionChains = append(g.InstructionChains, init)
		var keep []*ir.Value
		for _, d := range m.Derived {
			if d.From.Def == nil {
				return fmt.Errorf("derive ^%s: its value is not the result of an operation", d.Cell.Name)
			}
			keep = append(keep, d.From)
		}
		if err := e.region(init, m.Init, keep); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	return e.region(main, m.Entry.Body, m.Entry.Body.Results)
}

// ownsOutput reports whether an output value can be computed straight into an output slot: it is the
// result of an operation, but not of a load (that is the buffer's slot) nor a carry of a scan (that is
// the carry's slot).
func ownsOutput(v *ir.Value) bool {
	if v.Type.Kind != ir.TensorKind || v.Def == nil || v.Def.Def.Effect == ir.Reads {
		return false
	}
	return v.Def.Def.Name != "scan" || v.Index < len(v.Def.Results)-len(v.Def.Operand("carry"))
}

func slot(kind mlxgraph.SlotType, idx uint32) *mlxgraph.SlotVariantT {
	return &mlxgraph.SlotVariantT{Idx: idx, SlotType: kind}
}

func tensorMeta(t ir.Type) (*mlxgraph.TensorMetaT, error) {
	meta := &mlxgraph.TensorMetaT{ScalarType: int8(t.DType), Shape: []*mlxgraph.ShapeDimT{}}
	for i, d := range t.Shape {
		dim := &mlxgraph.ShapeDimT{Value: -1, MaxValue: -1}
		lo, hi := d.Bounds()
		if v, ok := d.Const(); ok {
			if v < 0 || v > math.MaxInt32 {
				return nil, fmt.Errorf("dim %d is %d, the wire holds 0 to %d", i, v, math.MaxInt32)
			}
			dim.Value = int32(v)
		} else {
			dim.MinValue = int32(min(max(lo, 0), math.MaxInt32))
			if hi <= math.MaxInt32 {
				dim.MaxValue = int32(hi)
			}
		}
		meta.Shape = append(meta.Shape, dim)
		meta.DimOrder = append(meta.DimOrder, byte(i))
	}
	return meta, nil
}

// region appends the operations of a region to a chain. The values in keep stay in their slots at its end.
func (e *encoder) region(chain *mlxgraph.InstructionChainT, r *ir.Region, keep []*ir.Value) error {
	chain.Instructions = []*mlxgraph.InstructionT{}
	ends := ir.LastUses(r, keep)
	for i, op := range r.Ops {
		if err := e.op(chain, op, ends[i]); err != nil {
			return fmt.Errorf("%w\n\tin %s", err, ir.Describe(e.module, op))
		}
	}
	return nil
}

// op encodes an operation as an instruction. It is long because it is one switch over the kinds, with a short case for
// each.
func (e *encoder) op(chain *mlxgraph.InstructionChainT, op *ir.Op, ends []*ir.Value) error {
	end := func() {
		for _, v := range ends {
			e.slots.end(v)
		}
	}
	emit := func(node any) error {
		kind, ok := mlxgraph.NodeOp(node)
		if !ok {
			return fmt.Errorf("%T is no node of the delegate", node)
		}
		chain.Instructions = append(chain.Instructions,
			&mlxgraph.InstructionT{Op: &mlxgraph.OpNodeT{Type: kind, Value: node}})
		return nil
	}
	switch op.Def.Name {
	case "load":
		e.slots.tensors[op.Result()] = e.slots.buffers[op.Buffer]
		end()
		return nil
	case "undef":
		if !e.slots.owned[op.Result()] {
			return fmt.Errorf("undef is legal only as the result of an arm of an if")
		}
		return nil
	case "if":
		node, err := e.branch(op)
		if err != nil {
			return err
		}
		end()
		return emit(node)
	case "scan":
		node, err := e.scan(op)
		if err != nil {
			return err
		}
		end()
		return emit(node)
	}
	node, err := e.node(op)
	if err != nil {
		return err
	}
	fields := reflect.ValueOf(node).Elem()
	// A node reads before it writes, so a result may take the slot of an argument that ends here.
	var results []*ir.Value
	for _, v := range ends {
		if v.Def == op {
			results = append(results, v)
		} else {
			e.slots.end(v)
		}
	}
	if err := e.results(op, fields); err != nil {
		return err
	}
	for _, v := range results {
		e.slots.end(v)
	}
	return emit(node)
}

// node makes the node of an operation, its results aside: fields have the names of operands and attributes.
func (e *encoder) node(op *ir.Op) (any, error) {
	if op.Def.Node == "" {
		return nil, fmt.Errorf("%s has no node; it must be decomposed before it is written", op.Def.Name)
	}
	node, ok := mlxgraph.NewNode(op.Def.Node)
	if !ok {
		return nil, fmt.Errorf("the schema has no node %s", op.Def.Node)
	}
	v := reflect.ValueOf(node).Elem()
	for i, o := range op.Def.Operands {
		field, ok := fieldByTag(v, o.Name)
		if !ok {
			return nil, fmt.Errorf("%s has no field %s", op.Def.Node, o.Name)
		}
		if err := e.setArgs(field, op.Args[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	if op.Attrs != nil {
		attrs := reflect.ValueOf(op.Attrs).Elem()
		for i := range attrs.NumField() {
			name := attrs.Type().Field(i).Name
			if err := setField(v.FieldByName(name), attrs.Field(i)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return node, nil
}

func fieldByTag(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("json") == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// results gives the results their slots and names them in the node.
func (e *encoder) results(op *ir.Op, v reflect.Value) error {
	if op.Buffer != nil {
		out := &mlxgraph.TidT{Idx: e.slots.buffers[op.Buffer]}
		v.FieldByName("Out").Set(reflect.ValueOf(out))
		if dst, ok := fieldByTag(v, "dst"); ok {
			dst.Set(reflect.ValueOf(out))
		}
		return nil
	}
	for _, r := range op.Results {
		e.slots.define(r)
	}
	if f, ok := fieldByTag(v, "out"); ok {
		if op.Result().Type.Kind == ir.IntKind {
			f.Set(reflect.ValueOf(&mlxgraph.VidT{Idx: e.slots.ints[op.Result()]}))
		} else {
			f.Set(reflect.ValueOf(&mlxgraph.TidT{Idx: e.slots.tensors[op.Result()]}))
		}
		return nil
	}
	for _, name := range []string{"outs", "outputs"} {
		if f, ok := fieldByTag(v, name); ok {
			f.Set(reflect.ValueOf(e.tids(op.Results)))
		}
	}
	return nil
}

func (e *encoder) tids(values []*ir.Value) []*mlxgraph.TidT {
	out := make([]*mlxgraph.TidT, len(values))
	for i, v := range values {
		out[i] = &mlxgraph.TidT{Idx: e.slots.tensors[v]}
	}
	return out
}

func (e *encoder) setArgs(field reflect.Value, args []ir.Arg) error {
	if field.Kind() == reflect.Slice {
		list := reflect.MakeSlice(field.Type(), len(args), len(args))
		for i, a := range args {
			if err := e.setArg(list.Index(i), a); err != nil {
				return err
			}
		}
		field.Set(list)
		return nil
	}
	if len(args) == 0 {
		return nil
	}
	return e.setArg(field, args[0])
}

func (e *encoder) setArg(field reflect.Value, a ir.Arg) error {
	var tid *mlxgraph.TidT
	var vid *mlxgraph.VidT
	if a.Kind == ir.ValueArg {
		switch a.Value.Type.Kind {
		case ir.IntKind:
			idx, ok := e.slots.ints[a.Value]
			if !ok {
				return fmt.Errorf("an int without a slot")
			}
			vid = &mlxgraph.VidT{Idx: idx}
		case ir.TensorKind:
			idx, ok := e.slots.tensors[a.Value]
			if !ok {
				return fmt.Errorf("a tensor without a slot")
			}
			tid = &mlxgraph.TidT{Idx: idx}
		default:
			return fmt.Errorf("a value of type %s", a.Value.Type)
		}
	}
	var x any
	switch field.Interface().(type) {
	case *mlxgraph.TidT:
		x = tid
	case *mlxgraph.VidT:
		x = vid
	case *mlxgraph.IntOrVidT:
		x = &mlxgraph.IntOrVidT{Literal: a.Int, Vid: vid, IsVid: vid != nil}
	case *mlxgraph.FloatOrVidT:
		x = &mlxgraph.FloatOrVidT{Literal: a.Float, Vid: vid, IsVid: vid != nil}
	case *mlxgraph.VidOrTidT:
		x = &mlxgraph.VidOrTidT{Vid: vid, Tid: tid, IsVid: vid != nil}
	case *mlxgraph.IntOrVidOrTidT:
		y := &mlxgraph.IntOrVidOrTidT{Literal: a.Int, Vid: vid, Tid: tid}
		if vid != nil {
			y.Kind = 1
		} else if tid != nil {
			y.Kind = 2
		}
		x = y
	default:
		return fmt.Errorf("a field of type %s", field.Type())
	}
	field.Set(reflect.ValueOf(x))
	return nil
}

// setField copies an attribute to the field of its name, which may be narrower.
func setField(to, from reflect.Value) error {
	switch from.Kind() {
	case reflect.Pointer:
		if from.IsNil() {
			return nil
		}
		to.Set(reflect.New(to.Type().Elem()))
		return setField(to.Elem(), from.Elem())
	case reflect.Slice:
		list := reflect.MakeSlice(to.Type(), from.Len(), from.Len())
		for i := range from.Len() {
			if err := setField(list.Index(i), from.Index(i)); err != nil {
				return err
			}
		}
		to.Set(list)
		return nil
	}
	converted := from.Convert(to.Type())
	if from.CanInt() && converted.Convert(from.Type()).Int() != from.Int() {
		return fmt.Errorf("%d does not fit the wire's %s", from.Int(), to.Type())
	}
	to.Set(converted)
	return nil
}
