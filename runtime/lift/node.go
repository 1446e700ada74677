package lift

import (
	"fmt"
	"reflect"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// chain lifts the instructions of a chain in order.
func (l *lifter) chain(b *ir.Builder, chain uint32, s *state, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("chains are nested more than %d deep", maxDepth)
	}
	for i, in := range l.graph.InstructionChains[chain].Instructions {
		if l.ops++; l.ops > maxOps {
			return fmt.Errorf("the chains unfold to more than %d instructions", maxOps)
		}
		var err error
		if caught := ir.Build(func() { err = l.instruction(b, in, s, depth) }); caught != nil {
			err = caught
		}
		if err != nil {
			return fmt.Errorf("chain %d, instruction %d (%s): %w", chain, i, in.Op.Type, err)
		}
	}
	return nil
}

func (l *lifter) instruction(b *ir.Builder, in *mlxgraph.InstructionT, s *state, depth int) error {
	switch n := in.Op.Value.(type) {
	case *mlxgraph.NoopNodeT:
		return nil
	case *mlxgraph.IfNodeT:
		return l.branch(b, n, l.live[in], s, depth)
	case *mlxgraph.ScanNodeT:
		return l.scan(b, n, l.live[in], s, depth)
	case *mlxgraph.IdCopyNodeT:
		if buffer := l.buffers[n.Out.Idx]; buffer != nil {
			v, err := l.readTensor(b, s, n.X.Idx)
			if err != nil {
				return err
			}
			return l.write(b, s, buffer, "store", nil, v)
		}
	case *mlxgraph.SliceUpdateNodeT:
		if buffer := l.buffers[n.Out.Idx]; buffer != nil && n.Dst.Idx == n.Out.Idx {
			update, err := l.readTensor(b, s, n.Update.Idx)
			if err != nil {
				return err
			}
			var ints [3][]ir.Arg
			for i, x := range []*mlxgraph.IntOrVidT{n.Axis, n.Start, n.Stop} {
				if ints[i], err = l.args(b, s, reflect.ValueOf(x)); err != nil {
					return err
				}
			}
			return l.write(b, s, buffer, "buffer_slice_update", &ir.StepAttrs{Step: int(n.Step)}, update,
				ints[0], ints[1], ints[2])
		}
	case *mlxgraph.IndexCopyNodeT:
		if buffer := l.buffers[n.Out.Idx]; buffer != nil && n.Dst.Idx == n.Out.Idx {
			update, err := l.readTensor(b, s, n.Update.Idx)
			if err != nil {
				return err
			}
			indices, err := l.readTensor(b, s, n.Indices.Idx)
			if err != nil {
				return err
			}
			return l.write(b, s, buffer, "buffer_index_copy", &ir.AxisAttrs{Axis: int(n.Axis)}, update, indices)
		}
	}
	return l.node(b, in, s)
}

// write appends a write of a buffer, after which its loads are stale.
func (l *lifter) write(b *ir.Builder, s *state, buffer *ir.Buffer, op string, attrs any, operands ...any) error {
	if l.init {
		return fmt.Errorf("the init chain writes mutable buffer %q", buffer.Name)
	}
	b.BufferOp(op, buffer, attrs, operands...)
	delete(s.loads, buffer)
	return nil
}

// node lifts a node to the op of its name: operands and attributes have the names of its fields.
func (l *lifter) node(b *ir.Builder, in *mlxgraph.InstructionT, s *state) error {
	def := ir.OpOfNode(in.Op.Type.String())
	if def == nil {
		return fmt.Errorf("the op table has no operation for this node")
	}
	v := reflect.ValueOf(in.Op.Value).Elem()
	fields := make(map[string]reflect.Value, v.NumField())
	for i := range v.NumField() {
		fields[v.Type().Field(i).Tag.Get("json")] = v.Field(i)
	}
	op := &ir.Op{Def: def, Args: make([][]ir.Arg, len(def.Operands)), Attrs: def.NewAttrs()}
	for i, o := range def.Operands {
		var err error
		if op.Args[i], err = l.args(b, s, fields[o.Name]); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	if op.Attrs != nil {
		attrs := reflect.ValueOf(op.Attrs).Elem()
		for i := range attrs.NumField() {
			setAttr(attrs.Field(i), v.FieldByName(attrs.Type().Field(i).Name))
		}
	}
	b.Append(op)
	return l.results(b, s, op, in.Op.Value)
}

// results records what a node has written, in the order of its result fields.
func (l *lifter) results(b *ir.Builder, s *state, op *ir.Op, node any) error {
	_, writes := slotsOf(node)
	if len(writes) != len(op.Results) {
		return fmt.Errorf("writes %d slots, computes %d results", len(writes), len(op.Results))
	}
	for i, id := range writes {
		if err := l.set(b, s, id, op.Results[i]); err != nil {
			return err
		}
	}
	return nil
}

// set records that a slot has been written.
func (l *lifter) set(b *ir.Builder, s *state, id slotID, v *ir.Value) error {
	if id.isInt != (v.Type.Kind == ir.IntKind) {
		return fmt.Errorf("a value of type %s is written to slot %d of the other kind", v.Type, id.idx)
	}
	if id.isInt {
		s.ints[id.idx] = v
		return nil
	}
	if buffer := l.buffers[id.idx]; buffer != nil {
		return l.write(b, s, buffer, "store", nil, v)
	}
	if cell := l.cells[id.idx]; cell != nil && !l.init {
		return fmt.Errorf("writes constant %q; only the init chain may", cell.Name)
	}
	s.tensors[id.idx] = v
	return nil
}

func (l *lifter) readTensor(b *ir.Builder, s *state, slot uint32) (*ir.Value, error) {
	if buffer := l.buffers[slot]; buffer != nil {
		if l.init {
			return nil, fmt.Errorf("the init chain reads mutable buffer %q", buffer.Name)
		}
		if s.loads[buffer] == nil {
			s.loads[buffer] = b.Load(buffer)
		}
		return s.loads[buffer], nil
	}
	if v := s.tensors[slot]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("tensor slot %d is read before it is written", slot)
}

func (l *lifter) readInt(s *state, slot uint32) (*ir.Value, error) {
	if v := s.ints[slot]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("integer slot %d is read before it is written", slot)
}

// args reads the arguments in a field of a node. It is long because it is one switch over the types that a field can
// have.
func (l *lifter) args(b *ir.Builder, s *state, field reflect.Value) ([]ir.Arg, error) {
	if field.Kind() == reflect.Slice {
		out := make([]ir.Arg, 0, field.Len())
		for i := range field.Len() {
			one, err := l.args(b, s, field.Index(i))
			if err != nil {
				return nil, err
			}
			if len(one) == 0 {
				return nil, fmt.Errorf("element %d is absent", i)
			}
			out = append(out, one...)
		}
		return out, nil
	}
	if field.IsNil() {
		return nil, nil
	}
	var tid *mlxgraph.TidT
	var vid *mlxgraph.VidT
	switch x := field.Interface().(type) {
	case *mlxgraph.TidT:
		tid = x
	case *mlxgraph.VidT:
		vid = x
	case *mlxgraph.IntOrVidT:
		if !x.IsVid {
			return []ir.Arg{ir.Int(x.Literal)}, nil
		}
		vid = x.Vid
	case *mlxgraph.FloatOrVidT:
		if !x.IsVid {
			return []ir.Arg{ir.Float(x.Literal)}, nil
		}
		vid = x.Vid
	case *mlxgraph.VidOrTidT:
		if x.IsVid {
			vid = x.Vid
		} else {
			tid = x.Tid
		}
	case *mlxgraph.IntOrVidOrTidT:
		switch x.Kind {
		case 0:
			return []ir.Arg{ir.Int(x.Literal)}, nil
		case 1:
			vid = x.Vid
		case 2:
			tid = x.Tid
		default:
			return nil, fmt.Errorf("kind %d, want 0 (literal), 1 (integer slot) or 2 (tensor slot)", x.Kind)
		}
	}
	var v *ir.Value
	var err error
	switch {
	case tid != nil:
		v, err = l.readTensor(b, s, tid.Idx)
	case vid != nil:
		v, err = l.readInt(s, vid.Idx)
	default:
		err = fmt.Errorf("names no slot")
	}
	if err != nil {
		return nil, err
	}
	return []ir.Arg{ir.Use(v)}, nil
}

// setAttr copies a scalar field of a node to the attribute of its name. The attribute types are wider
// (int for int32 and the like); an empty list and an absent one are the same.
func setAttr(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
			setAttr(to.Elem(), from.Elem())
		}
	case to.Kind() == reflect.Slice:
		for i := range from.Len() {
			item := reflect.New(to.Type().Elem()).Elem()
			setAttr(item, from.Index(i))
			to.Set(reflect.Append(to, item))
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}
