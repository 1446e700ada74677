package inspect

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
)

// Weight is a constant of a graph.
type Weight struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Size  int64  `json:"size"`
	// Offset is that in the file; weights of equal bytes may share it.
	Offset int64 `json:"offset"`
	// Alignment is the largest power of two, up to 64 KiB, that divides the offset.
	Alignment int64 `json:"alignment"`
	// Part is "codes", "scales" or "biases" where the constant is a part of a quantized weight.
	Part string `json:"part,omitempty"`
	// Bits, Group and Mode of the quantized weight.
	Bits  int    `json:"bits,omitempty"`
	Group int    `json:"group_size,omitempty"`
	Mode  string `json:"mode,omitempty"`
}

// Storage is a way of storing weights, and what is stored so.
type Storage struct {
	// Format is a dtype, or mode, bits and group of quantized weights.
	Format string `json:"format"`
	// Tensors counts weights; codes, scales and biases count as one. Elements counts the elements of the weights.
	Tensors  int   `json:"tensors"`
	Elements int64 `json:"elements"`
	Size     int64 `json:"size"`
	// BitsPerWeight counts scales and biases too.
	BitsPerWeight float64 `json:"bits_per_weight"`
}

// readWeights lists the constants in the order of their slots. module may be nil: then nothing is known of
// quantization.
func readWeights(f *container.File, mlx *container.MLX, module *ir.Module) []Weight {
	offsets := map[string]int64{}
	for _, n := range f.NamedData() {
		if _, twice := offsets[n.Key]; !twice {
			offsets[n.Key] = f.Segments()[n.Segment].Offset
		}
	}
	parts := quantizedParts(module)
	out := make([]Weight, len(mlx.Constants))
	for i, c := range mlx.Constants {
		w := parts[c.Name]
		w.Name, w.DType, w.Shape, w.Size = c.Name, ir.DType(c.ScalarType).String(), c.Shape, int64(len(c.Data))
		w.Offset = offsets[c.Name]
		w.Alignment = alignmentOf(w.Offset)
		out[i] = w
	}
	return out
}

// quantizedParts finds the constants that are parts of quantized weights: the operands of the nodes that
// take such weights, directly or through nodes that only choose or arrange elements.
func quantizedParts(m *ir.Module) map[string]Weight {
	parts := map[string]Weight{}
	if m == nil {
		return parts
	}
	cells := map[*ir.Value]*ir.Constant{}
	for _, d := range m.Derived {
		cells[d.Value] = d.Cell
	}
	m.Entry.Body.Walk(func(op *ir.Op) {
		form, ok := ir.FormOf(op)
		if !ok || op.Def.Name == "quantized" {
			return // has no operand w
		}
		w := Weight{Bits: form.Bits, Group: form.Group, Mode: form.Mode.String()}
		for _, part := range []struct{ operand, name string }{{"w", "codes"}, {"scales", "scales"},
			{"biases", "biases"}} {
			if c := source(op.Input(part.operand), cells); c != nil {
				w.Part = part.name
				parts[c.Name] = w
			}
		}
	})
	return parts
}

// source finds the constant that a value is made of, or nil.
func source(v *ir.Value, cells map[*ir.Value]*ir.Constant) *ir.Constant {
	for v != nil {
		if c := cells[v]; c != nil {
			return c
		}
		if v.Constant != nil {
			return v.Constant
		}
		if v.Def == nil {
			return nil
		}
		if !v.Def.Def.IsView() || v.Def.Def.View == ir.CastView {
			return nil
		}
		v = v.Def.Input("x")
	}
	return nil
}

// sumUp fills the sums over the weights. Bytes that several names share count once.
func (g *Graph) sumUp() {
	groups := map[string]*Storage{}
	seen := map[int64]bool{}
	elements := int64(0)
	for _, w := range g.Weights {
		if w.Size > 0 && seen[w.Offset] {
			continue
		}
		seen[w.Offset] = true
		format := w.DType
		if w.Part != "" {
			format = fmt.Sprintf("%s %d-bit g%d", w.Mode, w.Bits, w.Group)
		}
		s := groups[format]
		if s == nil {
			s = &Storage{Format: format}
			groups[format] = s
		}
		s.Size += w.Size
		if w.Part == "" || w.Part == "codes" {
			s.Tensors++
			s.Elements += elementsOf(w)
			elements += elementsOf(w)
		}
		g.WeightSize += w.Size
	}
	g.Storage = make([]Storage, 0, len(groups))
	for _, s := range groups {
		s.BitsPerWeight = perWeight(s.Size, s.Elements)
		g.Storage = append(g.Storage, *s)
	}
	slices.SortFunc(g.Storage, func(a, b Storage) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Format, b.Format))
	})
	g.BitsPerWeight = perWeight(g.WeightSize, elements)
}

// elementsOf returns the number of elements of the weight that a constant is, or whose codes it is.
func elementsOf(w Weight) int64 {
	n := int64(1)
	for _, d := range w.Shape {
		n *= int64(d)
	}
	if w.Part == "codes" && w.Bits > 0 {
		return w.Size * 8 / int64(w.Bits)
	}
	return n
}

func perWeight(size, elements int64) float64 {
	if elements == 0 {
		return 0
	}
	return float64(size*8) / float64(elements)
}
