package inspect

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
	schema "github.com/etc-ml/etc/schema/program"
)

// Report is everything about a file that can be found without running it. Sizes and offsets are in bytes.
type Report struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	// ProgramSize is the size of the FlatBuffer at the head of the file, with its headers.
	ProgramSize int64 `json:"program_size"`
	Segments    int   `json:"segments"`
	// SegmentBase is the offset of the first segment, SegmentSize the size of all, without the gaps between them.
	SegmentBase int64    `json:"segment_base"`
	SegmentSize int64    `json:"segment_size"`
	Methods     []Method `json:"methods"`
	// Constants are the constant methods.
	Constants []Constant `json:"constant_methods"`
	// Metadata is the named data beside the weights: tokenizer, configuration, build record.
	Metadata []Named `json:"metadata"`
	// Shared is what several methods of the file use; nil where there is nothing.
	Shared *Shared `json:"shared,omitempty"`
}

// Shared has what several methods use. A weight is stored once. A buffer is shared in etc; ExecuTorch's runtime gives
// each method its own.
type Shared struct {
	// Weights is the number of constants that several methods use, WeightSize their size in the file.
	Weights    int   `json:"weights"`
	WeightSize int64 `json:"weight_size"`
	// Buffers are the names of the buffers that several methods use.
	Buffers []string `json:"buffers"`
}

// Method is a method of the file that computes something, such as forward; constant methods are in Report.Constants.
type Method struct {
	Name string `json:"name"`
	// Backends are the delegates' ids; Kernels the instructions that no delegate runs.
	Backends []string `json:"backends"`
	Kernels  []string `json:"kernels,omitempty"`
	Inputs   []Value  `json:"inputs"`
	Outputs  []Value  `json:"outputs"`
	// Graph is nil where the method is not one call of the MLX delegate.
	Graph *Graph `json:"graph,omitempty"`
	// Model is nil where the method is not a language model's forward.
	Model *Model `json:"language_model,omitempty"`
	// ModelProblem is why forward is not a language model's though constant methods of one are there.
	ModelProblem string `json:"language_model_problem,omitempty"`
	// Draft is the kind of draft of a method that drafts tokens, mtp or assistant; empty for other methods.
	Draft speculate.Kind `json:"draft,omitempty"`
	// Problem is why the method cannot be run; empty where it can.
	Problem string `json:"problem,omitempty"`
}

// Value is an input or an output of a method.
type Value struct {
	// Name of an input in the graph; outputs have none.
	Name string `json:"name,omitempty"`
	// DType is a dtype, or "int" for a register.
	DType string `json:"dtype"`
	// Shape has the largest dims, MinShape the smallest; the same slice where all are fixed.
	Shape    []int `json:"shape"`
	MinShape []int `json:"min_shape"`
}

// Model describes a method that is a language model.
type Model struct {
	// Form is "logits", "sampler" or "authors-sampler".
	Form          string `json:"form"`
	MaxSeqLen     int    `json:"max_seq_len"`
	MaxChunk      int    `json:"max_prefill_chunk"`
	DeclaredChunk int    `json:"declared_prefill_chunk,omitempty"`
	MinChunk      int    `json:"min_prefill_chunk"`
	Vocab         int    `json:"vocab_size"`
	Rings         []int  `json:"ring_slots,omitempty"`
}

// Constant is a constant method.
type Constant struct {
	Name   string `json:"name"`
	Values []any  `json:"values"`
}

// Named is a piece of named data.
type Named struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// Read gathers the report of a program.
func Read(p *program.Program) *Report {
	f := p.File
	r := &Report{File: f.Name(), Size: f.Size(), ProgramSize: f.Size(), Segments: len(f.Segments()),
		Methods: []Method{}, Constants: []Constant{}, Metadata: []Named{}}
	if h := f.Header(); h != nil {
		r.ProgramSize, r.SegmentBase = int64(h.ProgramSize), int64(h.SegmentBase)
	}
	for _, s := range f.Segments() {
		r.SegmentSize += s.Size
	}
	weights := map[string]bool{}
	for _, m := range f.Methods() {
		if len(m.Inputs) == 0 && len(m.Calls) == 0 && len(m.Others) == 0 {
			r.Constants = append(r.Constants, constantOf(m))
			continue
		}
		r.Methods = append(r.Methods, readMethod(p, m, weights))
	}
	for _, n := range f.NamedData() {
		if !weights[n.Key] {
			s := f.Segments()[n.Segment]
			r.Metadata = append(r.Metadata, Named{n.Key, s.Offset, s.Size})
		}
	}
	r.Shared = sharedBy(r.Methods)
	return r
}

// sharedBy finds the weights and buffers of more than one method.
func sharedBy(methods []Method) *Shared {
	s := &Shared{Buffers: []string{}}
	weights, buffers := map[string]int{}, map[string]int{}
	for _, m := range methods {
		if m.Graph == nil {
			continue
		}
		for _, w := range m.Graph.Weights {
			if weights[w.Name]++; weights[w.Name] == 2 {
				s.Weights++
				s.WeightSize += w.Size
			}
		}
		for _, b := range m.Graph.Buffers {
			if buffers[b.Name]++; buffers[b.Name] == 2 {
				s.Buffers = append(s.Buffers, b.Name)
			}
		}
	}
	if s.Weights+len(s.Buffers) == 0 {
		return nil
	}
	return s
}

// Method finds a method of the report by its name.
func (r *Report) Method(name string) (*Method, bool) {
	for i := range r.Methods {
		if r.Methods[i].Name == name {
			return &r.Methods[i], true
		}
	}
	return nil, false
}

// constantOf returns the values of a constant method. Lists count as their items, tensors by their type.
func constantOf(m *container.Method) Constant {
	c := Constant{Name: m.Name, Values: []any{}}
	var add func(v container.Value)
	add = func(v container.Value) {
		switch v.Kind {
		case schema.KernelTypesInt:
			c.Values = append(c.Values, v.Int)
		case schema.KernelTypesBool:
			c.Values = append(c.Values, v.Bool)
		case schema.KernelTypesDouble:
			c.Values = append(c.Values, jsonFloat(v.Double))
		case schema.KernelTypesString:
			c.Values = append(c.Values, v.String)
		case schema.KernelTypesIntList:
			for _, i := range v.Items {
				if item := m.Values[i]; item.Kind == schema.KernelTypesInt {
					add(item)
				}
			}
		case schema.KernelTypesDoubleList:
			for _, x := range v.Doubles {
				c.Values = append(c.Values, jsonFloat(x))
			}
		case schema.KernelTypesBoolList:
			for _, x := range v.Bools {
				c.Values = append(c.Values, x)
			}
		case schema.KernelTypesTensor:
			c.Values = append(c.Values, fmt.Sprintf("%s%v", ir.DType(v.Tensor.ScalarType), v.Tensor.Sizes))
		default:
			c.Values = append(c.Values, nil)
		}
	}
	for _, i := range m.Outputs {
		add(m.Values[i])
	}
	return c
}

// jsonFloat returns a number, or the name of what JSON has no number for.
func jsonFloat(v float64) any {
	if v-v != 0 { // infinite or NaN
		return fmt.Sprint(v)
	}
	return v
}

// readMethod reads a method that computes, and notes the names of its weights.
func readMethod(p *program.Program, m *container.Method, weights map[string]bool) Method {
	out := Method{Name: m.Name, Backends: []string{}, Kernels: m.Others, Inputs: []Value{}, Outputs: []Value{}}
	for _, d := range m.Delegates {
		out.Backends = append(out.Backends, d.ID)
	}
	for _, i := range m.Inputs {
		out.Inputs = append(out.Inputs, valueOf(m.Values[i]))
	}
	for _, i := range m.Outputs {
		out.Outputs = append(out.Outputs, valueOf(m.Values[i]))
	}
	module, err := p.Module(m.Name)
	if err != nil {
		out.Problem, module = err.Error(), nil
	}
	if len(m.Calls) == 1 && m.Delegates[m.Calls[0].Delegate].ID == container.MLXBackend {
		if mlx, err := p.File.MLX(m, 0); err == nil {
			out.Graph = readGraph(p.File, mlx, module)
			nameInputs(&out, m, mlx)
			for _, c := range mlx.Constants {
				weights[c.Name] = true
			}
		}
	}
	if module == nil {
		return out
	}
	d, err := session.Describe(module)
	switch {
	case err == nil:
		out.Model = &Model{d.Form.String(), d.MaxSeqLen, d.MaxChunk, d.DeclaredChunk, d.MinChunk, d.Vocab, d.Rings}
	case m.Name == "forward" && slices.ContainsFunc(p.Metadata,
		func(k ir.Method) bool { return slices.Contains(modelMethods, k.Name) }):
		out.ModelProblem = err.Error()
	default:
		out.Draft = speculate.KindOf(module.Entry)
	}
	return out
}

// modelMethods are constant methods that only a language model has a use for.
var modelMethods = []string{"get_max_seq_len", "get_vocab_size", "use_sampling"}

// valueOf describes a value of a method.
func valueOf(v container.Value) Value {
	switch v.Kind {
	case schema.KernelTypesInt:
		return Value{DType: "int", Shape: []int{}, MinShape: []int{}}
	case schema.KernelTypesTensor:
		out := Value{DType: ir.DType(v.Tensor.ScalarType).String(), Shape: v.Tensor.Sizes, MinShape: v.Tensor.Sizes}
		if v.Tensor.Dynamic {
			out.MinShape = make([]int, len(out.Shape)) // which dims are dynamic, only the graph says
		}
		return out
	}
	return Value{DType: v.Kind.String(), Shape: []int{}, MinShape: []int{}}
}

// nameInputs takes from the graph what the method does not say: the names of the inputs and the bounds of
// their dims.
func nameInputs(out *Method, m *container.Method, mlx *container.MLX) {
	names := slotNames(mlx.Graph)
	for i, v := range mlx.Inputs {
		slot := mlx.Graph.InputMap[i]
		for j, in := range m.Inputs {
			if in != v || out.Inputs[j].DType == "int" {
				continue
			}
			out.Inputs[j].Name = names[slot.Idx]
			if int64(slot.Idx) >= int64(len(mlx.Graph.TensorMeta)) {
				continue
			}
			if lo, ok := minShape(mlx.Graph.TensorMeta[slot.Idx]); ok && len(lo) == len(out.Inputs[j].Shape) {
				out.Inputs[j].MinShape = lo
			}
		}
	}
	for i, v := range mlx.Outputs {
		slot := mlx.Graph.OutputMap[i]
		for j, o := range m.Outputs {
			if o != v || out.Outputs[j].DType == "int" || int64(slot.Idx) >= int64(len(mlx.Graph.TensorMeta)) {
				continue
			}
			if lo, ok := minShape(mlx.Graph.TensorMeta[slot.Idx]); ok && len(lo) == len(out.Outputs[j].Shape) {
				out.Outputs[j].MinShape = lo
			}
		}
	}
}

// alignmentOf returns the largest power of two, up to 64 KiB, that an offset is a multiple of.
func alignmentOf(offset int64) int64 {
	const most = 16
	return 1 << min(bits.TrailingZeros64(uint64(offset)), most)
}
