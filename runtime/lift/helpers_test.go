package lift

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// graph describes a delegate graph. Tensor slots are numbered constants, inputs, outputs, buffers, then
// temporaries, all of f32[2] unless types says otherwise by slot; chain 0 is the main one.
type graph struct {
	constants, inputs, outputs, buffers int
	types                               map[uint32]ir.Type
	names                               map[slotID]string
	chains                              [][]any
	init                                int // chain; 0 for none
	outputMap                           []*mlxgraph.SlotVariantT
	intInputs                           int // integer slots from 0 on that are inputs, after the tensors
}

func tid(i uint32) *mlxgraph.TidT { return &mlxgraph.TidT{Idx: i} }
func vid(i uint32) *mlxgraph.VidT { return &mlxgraph.VidT{Idx: i} }
func reg(i uint32) *mlxgraph.IntOrVidT {
	return &mlxgraph.IntOrVidT{IsVid: true, Vid: vid(i)}
}
func lit(v int64) *mlxgraph.IntOrVidT { return &mlxgraph.IntOrVidT{Literal: v} }
func tids(ids ...uint32) (out []*mlxgraph.TidT) {
	for _, i := range ids {
		out = append(out, tid(i))
	}
	return out
}
func tensorSlot(i uint32) *mlxgraph.SlotVariantT { return &mlxgraph.SlotVariantT{Idx: i} }
func intSlot(i uint32) *mlxgraph.SlotVariantT {
	return &mlxgraph.SlotVariantT{Idx: i, SlotType: mlxgraph.SlotTypeIntValueSlot}
}

func neg(out, x uint32) any    { return &mlxgraph.NegNodeT{X: tid(x), Out: tid(out)} }
func exp(out, x uint32) any    { return &mlxgraph.ExpNodeT{X: tid(x), Out: tid(out)} }
func idCopy(out, x uint32) any { return &mlxgraph.IdCopyNodeT{X: tid(x), Out: tid(out)} }
func add(out, a, b uint32) any { return &mlxgraph.AddNodeT{A: tid(a), B: tid(b), Out: tid(out)} }
func item(out, x uint32) any   { return &mlxgraph.ItemIntNodeT{X: tid(x), Out: vid(out)} }
func branch(cond *mlxgraph.IntOrVidT, then, otherwise uint32) any {
	return &mlxgraph.IfNodeT{Cond: cond, ThenChainIdx: then, ElseChainIdx: otherwise}
}
func addInt(out uint32, a, b *mlxgraph.IntOrVidT) any {
	return &mlxgraph.AddIntNodeT{A: a, B: b, Out: vid(out)}
}
func full(out uint32, v float64, shape ...*mlxgraph.IntOrVidT) any {
	return &mlxgraph.FullNodeT{Out: tid(out), Shape: shape, V: &mlxgraph.FloatOrVidT{Literal: v},
		ScalarType: int8(ir.F32)}
}
func scan(body int32, originals, sliced, outputs, carry []*mlxgraph.TidT) any {
	return &mlxgraph.ScanNodeT{BodyChainIdx: body, Originals: originals, Sliced: sliced, Outputs: outputs, Carry: carry}
}

// f32 is a type of constant dims.
func f32(dims ...int64) ir.Type { return ir.StaticType(ir.F32, dims...) }

// method makes the method that has the graph: its inputs and outputs are the graph's, in order.
func (g graph) method() Method {
	out := &mlxgraph.MLXGraphT{Version: "1", InitChainIdx: -1, NumConstantTensors: uint32(g.constants),
		NumInputTensors:  uint32(g.inputs),
		NumOutputTensors: uint32(g.outputs), NumMutableBufferTensors: uint32(g.buffers), OutputMap: g.outputMap}
	if g.init > 0 {
		out.InitChainIdx = int32(g.init)
	}
	permanent := g.constants + g.inputs + g.outputs + g.buffers
	for slot := range uint32(permanent) {
		t, ok := g.types[slot]
		if !ok {
			t = f32(2)
		}
		meta := &mlxgraph.TensorMetaT{ScalarType: int8(t.DType)}
		for _, d := range t.Shape {
			v, fixed := d.Const()
			dim := &mlxgraph.ShapeDimT{Value: int32(v), MaxValue: -1}
			if !fixed {
				lo, hi := d.Bounds()
				dim = &mlxgraph.ShapeDimT{Value: -1, MinValue: int32(lo), MaxValue: int32(hi)}
			}
			meta.Shape = append(meta.Shape, dim)
		}
		out.TensorMeta = append(out.TensorMeta, meta)
	}
	m := Method{Name: "forward", Graph: out, InputCount: g.inputs + g.intInputs}
	for i := range g.constants {
		out.NamedSlots = append(out.NamedSlots,
			&mlxgraph.NamedSlotT{Name: fmt.Sprintf("c%d", i), Slot: tensorSlot(uint32(i))})
	}
	for id, name := range g.names {
		slot := tensorSlot(id.idx)
		if id.isInt {
			slot = intSlot(id.idx)
		}
		out.NamedSlots = append(out.NamedSlots, &mlxgraph.NamedSlotT{Name: name, Slot: slot})
	}
	for i := range g.inputs {
		out.InputMap = append(out.InputMap, tensorSlot(uint32(g.constants+i)))
		m.Inputs = append(m.Inputs, i)
	}
	for i := range g.intInputs {
		out.InputMap = append(out.InputMap, intSlot(uint32(i)))
		m.Inputs = append(m.Inputs, g.inputs+i)
	}
	if g.outputMap == nil {
		for i := range g.outputs {
			out.OutputMap = append(out.OutputMap, tensorSlot(uint32(g.constants+g.inputs+i)))
		}
	}
	for i, o := range out.OutputMap {
		m.Outputs = append(m.Outputs, Output{Result: i, DType: ir.F32})
		if o.SlotType == mlxgraph.SlotTypeTensorSlot && g.types[o.Idx].Kind == ir.TensorKind &&
			g.types[o.Idx].Shape != nil {
			m.Outputs[i].DType = g.types[o.Idx].DType
		}
	}
	for i := range g.buffers {
		out.MutableBufferMap = append(out.MutableBufferMap, tensorSlot(uint32(g.constants+g.inputs+g.outputs+i)))
	}
	for _, nodes := range g.chains {
		c := &mlxgraph.InstructionChainT{}
		for _, n := range nodes {
			op, ok := mlxgraph.NodeOp(n)
			if !ok {
				panic(fmt.Sprintf("%T is no node", n))
			}
			c.Instructions = append(c.Instructions, &mlxgraph.InstructionT{Op: &mlxgraph.OpNodeT{Type: op, Value: n}})
		}
		out.InstructionChains = append(out.InstructionChains, c)
	}
	m.Constant = func(name string) (ir.Data, error) { return nil, nil }
	return m
}

// requireLifts compares the text of what a graph lifts to, without the lines around the entry's operations.
func requireLifts(t *testing.T, g graph, want string) {
	t.Helper()
	m, err := Lift(g.method())
	require.NoError(t, err)
	require.Equal(t, want, m.String())
	again, err := ir.Parse(m.String())
	require.NoError(t, err)
	require.Equal(t, want, again.String())
}
