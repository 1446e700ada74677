package mlxgraph_test

import (
	"reflect"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// members is the number of nodes of the delegate's version 1.
const members = 134

func TestNewNodeHasEveryMember(t *testing.T) {
	require.Len(t, mlxgraph.EnumNamesOpNode, members+1)
	for op, name := range mlxgraph.EnumNamesOpNode {
		node, ok := mlxgraph.NewNode(name)
		if op == mlxgraph.OpNodeNONE {
			require.False(t, ok)
			continue
		}
		require.True(t, ok, name)
		require.Equal(t, "*mlxgraph."+name+"T", reflect.TypeOf(node).String())
		got, ok := mlxgraph.NodeOp(node)
		require.True(t, ok, name)
		require.Equal(t, op, got)
	}
}

func TestNewNodeUnknown(t *testing.T) {
	for _, name := range []string{"", "NONE", "Rope", "ropeNode", "RopeNodeT", "Tid"} {
		node, ok := mlxgraph.NewNode(name)
		require.False(t, ok, name)
		require.Nil(t, node, name)
	}
	for _, value := range []any{nil, 1, "RopeNode", mlxgraph.RopeNodeT{}, &mlxgraph.TidT{},
		&mlxgraph.RopeNode{}, new(int)} {
		_, ok := mlxgraph.NodeOp(value)
		require.False(t, ok, "%T", value)
	}
}

// TestNewNodeDefaults pins the defaults that are easy to get wrong: they are left out on the wire, so a
// reader that has others reads other graphs.
func TestNewNodeDefaults(t *testing.T) {
	for _, want := range []any{
		&mlxgraph.RopeNodeT{Base: 500000, Scale: 1},
		&mlxgraph.AddmmNodeT{Alpha: 1, Beta: 1},
		&mlxgraph.QuantizedMatmulNodeT{Transpose: true},
		&mlxgraph.GatherQmmNodeT{Transpose: true},
		&mlxgraph.CumsumNodeT{Inclusive: true},
		&mlxgraph.ScanNodeT{ScanAxis: 1, Originals: []*mlxgraph.TidT{}, Sliced: []*mlxgraph.TidT{},
			Outputs: []*mlxgraph.TidT{}, Carry: []*mlxgraph.TidT{}},
		&mlxgraph.RandomBitsNodeT{Width: 4, Shape: []*mlxgraph.IntOrVidT{}},
		&mlxgraph.SliceNodeT{Step: 1},
		&mlxgraph.Conv1DNodeT{Stride: 1, Dilation: 1, Groups: 1},
		&mlxgraph.SdpaNodeT{},
		&mlxgraph.ARangeNodeT{}, // ScalarType nil, not BYTE
	} {
		op, ok := mlxgraph.NodeOp(want)
		require.True(t, ok)
		got, ok := mlxgraph.NewNode(op.String())
		require.True(t, ok)
		require.Empty(t, cmp.Diff(want, got))
	}
}

// TestRoundTrip writes and reads a graph of one node, for every node with every field set to something that
// is not its default and so is on the wire.
func TestRoundTrip(t *testing.T) {
	for op, name := range mlxgraph.EnumNamesOpNode {
		if op == mlxgraph.OpNodeNONE {
			continue
		}
		t.Run(name, func(t *testing.T) {
			node, _ := mlxgraph.NewNode(name)
			f := filler{}
			f.fill(reflect.ValueOf(node).Elem())
			want := graphOf(op, node)
			buf, err := schema.Marshal(schema.MLXGraph(), want)
			require.NoError(t, err)
			require.NoError(t, schema.Verify(schema.MLXGraph(), buf, ""))
			graph := mlxgraph.GetRootAsMLXGraph(buf, 0)
			require.Empty(t, cmp.Diff(want, graph.UnPack()))

			var chain mlxgraph.InstructionChain
			var instruction mlxgraph.Instruction
			var table flatbuffers.Table
			graph.InstructionChains(&chain, 0)
			chain.Instructions(&instruction, 0)
			require.True(t, instruction.Op(&table))
			for i := range reflect.TypeOf(node).Elem().NumField() {
				require.NotZero(t, table.Offset(flatbuffers.VOffsetT(4+2*i)), "field %d is on the wire", i)
			}
		})
	}
}

// TestRoundTripSparse does the same with only the required fields set: what is left out must come back as
// the default, not as zero.
func TestRoundTripSparse(t *testing.T) {
	for op, name := range mlxgraph.EnumNamesOpNode {
		if op == mlxgraph.OpNodeNONE {
			continue
		}
		t.Run(name, func(t *testing.T) {
			node, _ := mlxgraph.NewNode(name)
			v := reflect.ValueOf(node).Elem()
			for {
				buf, err := schema.Marshal(schema.MLXGraph(), graphOf(op, node))
				if err == nil {
					require.Empty(t, cmp.Diff(graphOf(op, node), mlxgraph.GetRootAsMLXGraph(buf, 0).UnPack()))
					return
				}
				missing, ok := err.(*schema.Error)
				require.True(t, ok, "%v", err)
				require.Equal(t, name, missing.Table)
				require.Equal(t, "required field is missing", missing.Problem)
				field := fieldByTag(v, missing.Field)
				require.True(t, field.IsZero(), missing.Field)
				field.Set(reflect.New(field.Type().Elem()))
			}
		})
	}
}

func graphOf(op mlxgraph.OpNode, node any) *mlxgraph.MLXGraphT {
	empty := mlxgraph.GetRootAsMLXGraph([]byte{8, 0, 0, 0, 4, 0, 4, 0, 4, 0, 0, 0}, 0).UnPack()
	empty.Version = "1"
	empty.NumTempTensors = 1000
	empty.InstructionChains = []*mlxgraph.InstructionChainT{{
		Instructions: []*mlxgraph.InstructionT{{Op: &mlxgraph.OpNodeT{Type: op, Value: node}}},
	}}
	return empty
}

// fieldByTag finds a field of the object API by its name in the schema, which the json tag holds.
func fieldByTag(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("json") == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// filler sets every field of a node, and of what the node points to, to a value that occurs nowhere else in
// it and is not a default.
type filler struct{ n int64 }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString("s" + string(rune('a'+f.n%26)))
	case reflect.Int8:
		v.SetInt(5 + f.n%100)
	case reflect.Int32, reflect.Int64:
		v.SetInt(-1000 - f.n)
	case reflect.Uint8:
		v.SetUint(uint64(5 + f.n%100))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(1000 + f.n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.n) + 0.25)
	default:
		panic("the object API has no " + v.Kind().String())
	}
}
