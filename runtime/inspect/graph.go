package inspect

import (
	"cmp"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// Graph is what etc inspect reports of the graph of an MLX delegate: numbers of nodes, weights and buffers.
type Graph struct {
	// Nodes counts the instructions of all chains; a chain that several nodes run counts once.
	Nodes     int    `json:"nodes"`
	Chains    int    `json:"chains"`
	Constants int    `json:"constants"`
	Temps     uint32 `json:"temps"`
	Registers uint32 `json:"registers"`
	// NodeCounts is the number of nodes of each type, most frequent first, then by name.
	NodeCounts []Count `json:"node_counts"`
	// Storage is the sum of the weights of each form (bits, group size), largest first.
	Storage []Storage `json:"storage"`
	// WeightSize is the size of the weights in the file. BitsPerWeight is that divided by their number of elements.
	WeightSize    int64    `json:"weight_size"`
	BitsPerWeight float64  `json:"bits_per_weight"`
	Weights       []Weight `json:"weights"`
	Buffers       []Buffer `json:"buffers"`
	BufferSize    int64    `json:"buffer_size"`
}

// Count is a type of node and how many there are.
type Count struct {
	Node  string `json:"node"`
	Count int    `json:"count"`
}

// Buffer is state that lives from call to call.
type Buffer struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Size  int64  `json:"size"`
}

// readGraph reports on a graph. module is the graph after lifting, or nil where it could not be lifted.
func readGraph(f *container.File, mlx *container.MLX, module *ir.Module) *Graph {
	g := mlx.Graph
	out := &Graph{Chains: len(g.InstructionChains), Constants: len(mlx.Constants), Temps: g.NumTempTensors,
		Registers: g.NumValues, NodeCounts: countNodes(g), Buffers: []Buffer{}}
	for _, c := range out.NodeCounts {
		out.Nodes += c.Count
	}
	names := slotNames(g)
	for _, s := range g.MutableBufferMap {
		meta := g.TensorMeta[s.Idx]
		b := Buffer{Name: names[s.Idx], DType: ir.DType(meta.ScalarType).String(), Shape: []int{},
			Size: int64(ir.DType(meta.ScalarType).Size())}
		for _, d := range meta.Shape {
			b.Shape = append(b.Shape, int(d.Value))
			b.Size *= int64(d.Value)
		}
		out.BufferSize += b.Size
		out.Buffers = append(out.Buffers, b)
	}
	out.Weights = readWeights(f, mlx, module)
	out.sumUp()
	return out
}

// countNodes counts the nodes of all chains by type.
func countNodes(g *mlxgraph.MLXGraphT) []Count {
	counts := map[string]int{}
	for _, chain := range g.InstructionChains {
		for _, in := range chain.Instructions {
			counts[in.Op.Type.String()]++
		}
	}
	out := make([]Count, 0, len(counts))
	for node, n := range counts {
		out = append(out, Count{node, n})
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// slotNames returns the names of tensor slots. Of several names of a slot the last counts, as for the
// container, which finds the bytes of constants so.
func slotNames(g *mlxgraph.MLXGraphT) map[uint32]string {
	names := map[uint32]string{}
	for _, n := range g.NamedSlots {
		if n.Slot.SlotType == mlxgraph.SlotTypeTensorSlot {
			names[n.Slot.Idx] = n.Name
		}
	}
	return names
}

// minShape returns the smallest dims that a slot's metadata admits; false where there is none.
func minShape(meta *mlxgraph.TensorMetaT) ([]int, bool) {
	if meta == nil {
		return nil, false
	}
	out := make([]int, len(meta.Shape))
	for i, d := range meta.Shape {
		out[i] = int(d.Value)
		if d.Value < 0 {
			out[i] = int(d.MinValue)
		}
	}
	return out, true
}
