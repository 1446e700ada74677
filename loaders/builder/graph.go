package builder

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Decoder is what the graph of any decoder needs to know about its model.
type Decoder struct {
	DType      ir.DType // of activations and caches
	Vocabulary int
	Depth      int // decoder layers
	Limits     Limits
	Tokens     huggingface.Tokens
}

// ActivationDType returns the dtype of activations for weights of a dtype: bf16 for bf16, else float32.
func ActivationDType(weights ir.DType) ir.DType {
	if weights == ir.BF16 {
		return ir.BF16
	}
	return ir.F32
}

// Graph builds a forward for one row of tokens. Its embedded builder panics with [ir.BuildError]; so do
// its own methods.
type Graph struct {
	ir.Builder
	// DType is the dtype of activations and caches.
	DType ir.DType
	// Options are resolved: no defaults are left.
	Options Options
	// Func is the method that the graph is of.
	Func *ir.Func
	// Tokens i64[1,S] is the input.
	Tokens *ir.Value
	// Start i64[] and Position (int) are the position of the first token; Length (int) is S.
	Start, Position, Length *ir.Value
	// End (int) is the position after the last token.
	End *ir.Value

	constants map[string]*ir.Value
	ring      *ring
	past      *ir.Value // bool[1,slots], of PastWindow
	single    bool      // a call has one row
}

// Build makes the module of a decoder. forward builds everything between the inputs and the logits
// [1,S,V], which it returns. The module is
//
//	forward(tokens i64[1,S], input_pos i64[P], temperature f32[1]) → token i64[1]
//
// or, with NoSampler, forward(tokens, input_pos) → logits. Only input_pos[0] is read: the position of the
// first token. The sampler comes after everything else, so that taking it away leaves no trace.
//
// Further methods follow it in their order. They share the module's constants and buffers.
func Build(d Decoder, o Options, forward func(*Graph) *ir.Value, more ...Method) (*ir.Module, error) {
	o, err := o.resolve(d.Limits)
	if err != nil {
		return nil, err
	}
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}, Metadata: metadata(d, o)}
	g := &Graph{Builder: ir.Builder{Module: m, Region: m.Entry.Body}, DType: d.DType, Options: o, Func: m.Entry,
		constants: map[string]*ir.Value{}}
	err = ir.Build(func() {
		f := m.Entry
		g.inputs()
		result := forward(g)
		if !o.NoSampler {
			temperature := f.NewParam("temperature", ir.StaticType(ir.F32, 1))
			result = g.Value("sample", nil, g.Value("take", &ir.AxisAttrs{Axis: 1}, result, -1), temperature)
		}
		g.results(result)
		for _, method := range more {
			g.method(method)
		}
	})
	if err != nil {
		return nil, err
	}
	return m, ir.Verify(m)
}

// inputs declares tokens and input_pos, and computes what follows from them.
func (g *Graph) inputs() {
	g.Tokens = g.Func.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), g.rows()))
	inputPos := g.Func.NewParam("input_pos", ir.TensorType(ir.I64, g.rows()))
	g.Start = g.Value("take", nil, inputPos, 0)
	g.Position = g.Value("item_int", nil, g.Start)
	g.Length = g.Value("sym_size", &ir.SymSizeAttrs{Dim: 1}, g.Tokens)
	g.End = g.Value("add_int", nil, g.Position, g.Length)
}

// results sets what the method gives.
func (g *Graph) results(values ...*ir.Value) {
	g.Func.Body.Results, g.Func.Outputs = values, nil
	for _, v := range values {
		g.Func.Outputs = append(g.Func.Outputs, v.Type)
	}
}

// metadata lists the constant methods that ExecuTorch's runners read, in the order of its exporter.
func metadata(d Decoder, o Options) []ir.Method {
	one := func(name string, v any) ir.Method { return ir.Method{Name: name, Values: []any{v}} }
	out := []ir.Method{
		one("get_max_seq_len", int64(o.MaxSeqLen)),
		one("get_vocab_size", int64(d.Vocabulary)),
		one("get_n_layers", int64(d.Depth)),
		one("get_max_prefill_chunk", int64(o.MaxPrefillChunk)),
		one("use_kv_cache", true),
		one("use_sdpa_with_kv_cache", false),
		one("enable_dynamic_shape", true),
		one("use_sampling", false),
	}
	if d.Tokens.BOS != huggingface.NoToken {
		out = append(out, one("get_bos_id", int64(d.Tokens.BOS)))
	}
	if len(d.Tokens.EOS) > 0 {
		ids := ir.Method{Name: "get_eos_ids"}
		for _, id := range d.Tokens.EOS {
			ids.Values = append(ids.Values, int64(id))
		}
		out = append(out, ids)
	}
	return out
}

// Constant returns the constant of a weight, the same one for the same name, or joins the parts of a quantized one.
func (g *Graph) Constant(w Weight) *ir.Value {
	if q := w.Quantized; q != nil {
		part := func(suffix string, d ir.Data) *ir.Value { return g.Constant(Weight{Name: w.Name + suffix, Data: d}) }
		parts := []any{part(".packed", q.Packed), part(".scales", q.Scales)}
		if q.Biases != nil {
			parts = append(parts, part(".biases", q.Biases))
		}
		return g.Value("quantized", ir.NewQuantizedAttrs(q.WeightForm, w.DType()), parts...)
	}
	v := g.constants[w.Name]
	if v == nil {
		v = g.Module.NewConstant(w.Name, ir.StaticType(w.Data.DType(), w.Data.Shape()...), w.Data)
		g.constants[w.Name] = v
	}
	return v
}

// Scalar returns a 0-d constant; there is one for each value and dtype.
func (g *Graph) Scalar(d ir.DType, v float64) *ir.Value {
	return g.Constant(Weight{Name: fmt.Sprintf("scalar.%s.%g", d, v), Data: scalarData(d, v)})
}

// Cast converts x to a dtype, where it has another.
func (g *Graph) Cast(x *ir.Value, d ir.DType) *ir.Value {
	if x.Type.DType == d {
		return x
	}
	return g.Value("astype", &ir.DTypeAttrs{ScalarType: d}, x)
}

// Embed looks the tokens up: [1,S,H] in the dtype of activations.
func (g *Graph) Embed(table Weight) *ir.Value {
	return g.Cast(g.Value("embedding", nil, g.Tokens, g.Constant(table)), g.DType)
}

// Linear multiplies x [...,K] by the transpose of a matrix [N,K].
func (g *Graph) Linear(x *ir.Value, w Weight) *ir.Value {
	return g.Cast(g.Value("linear", nil, x, g.Constant(w)), g.DType)
}

// Projections multiplies x by several matrices, which may be fused to one of the given name: their rows
// in order. Matrices of different dtypes, or quantized in different ways, stay apart.
func (g *Graph) Projections(x *ir.Value, fused string, weights ...Weight) []*ir.Value {
	for _, w := range weights[1:] {
		if !sameForm(w, weights[0]) {
			fused = ""
		}
	}
	out := make([]*ir.Value, len(weights))
	for i, w := range weights {
		out[i] = g.Value("linear", &ir.LinearAttrs{Fuse: fused}, x, g.Constant(w))
	}
	for i := range out {
		out[i] = g.Cast(out[i], g.DType)
	}
	return out
}

// Norm is x/√(mean(x²)+eps)·w over the last dim (Zhang, Sennrich, Root Mean Square Layer Normalization,
// 2019), in the dtype of activations.
func (g *Graph) Norm(x *ir.Value, w Weight, eps float64) *ir.Value {
	return g.Cast(g.RawNorm(x, g.Constant(w), eps), g.DType)
}

// RawNorm is Norm without the conversion; w may be nil.
func (g *Graph) RawNorm(x, w *ir.Value, eps float64) *ir.Value {
	return g.Value("rms_norm", &ir.NormAttrs{Eps: float32(eps)}, x, w)
}

// Softcap is limit·tanh(x/limit); x where limit is 0.
func (g *Graph) Softcap(x *ir.Value, limit float64) *ir.Value {
	if limit == 0 {
		return x
	}
	c := g.Constant(Weight{Name: "logit_softcap", Data: ir.Exact(ir.Float32s(nil, float32(limit)))})
	return g.Multiply(g.Unary("tanh", g.Value("divide", nil, x, c)), c)
}

// Add, Multiply and their like promote as MLX does.

// Add is x + y.
func (g *Graph) Add(x, y *ir.Value) *ir.Value { return g.Value("add", nil, x, y) }

// Multiply is x·y.
func (g *Graph) Multiply(x, y *ir.Value) *ir.Value { return g.Value("multiply", nil, x, y) }

// Unary applies an operation without attributes.
func (g *Graph) Unary(name string, x *ir.Value) *ir.Value { return g.Value(name, nil, x) }

// Reshape gives x other dims; one may be -1.
func (g *Graph) Reshape(x *ir.Value, dims ...int) *ir.Value {
	return g.Value("reshape", nil, x, int64s(dims))
}

// Slice takes [start, stop) of an axis; start and stop are ints or int values.
func (g *Graph) Slice(x *ir.Value, axis int, start, stop any) *ir.Value {
	return g.Value("slice", nil, x, axis, start, stop)
}

// ToEnd is the stop of a slice that goes to the end.
const ToEnd = int64(math.MaxInt64)

// Heads turns [1,S,heads·dim] into [1,S,heads,dim].
func (g *Graph) Heads(x *ir.Value, heads, dim int) *ir.Value { return g.Reshape(x, 1, -1, heads, dim) }

// SwapHeads turns [1,S,heads,dim] into [1,heads,S,dim] and back.
func (g *Graph) SwapHeads(x *ir.Value) *ir.Value {
	return g.Value("transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1, 3}}, x)
}

// Rope rotates the first dims elements of the heads of x [1,heads,S,D] by their positions, in pairs
// (i, i+dims/2) with frequencies base^(-2i/dims) (Su et al., RoFormer, 2021).
func (g *Graph) Rope(x *ir.Value, dims int, base float64) *ir.Value {
	return g.Value("rope", &ir.RopeAttrs{Dims: dims, Base: float32(base), Scale: 1}, x, g.Position)
}

// RopeFreqs is Rope over the whole head with given divisors of the positions [D/2].
func (g *Graph) RopeFreqs(x *ir.Value, freqs Weight) *ir.Value {
	dims := 2 * int(freqs.Data.Shape()[0])
	return g.Value("rope", &ir.RopeAttrs{Dims: dims, Scale: 1}, x, g.Position, g.Constant(freqs))
}
