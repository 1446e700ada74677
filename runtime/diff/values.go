package diff

import (
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// pieceElements bounds the values of a weight that are in memory at a time, a single row aside.
const pieceElements = 1 << 18

// relativeRMS returns the root of Σ(b-a)²/Σa² over the values of two weights, summed in float64 in the order of
// the elements; nil where they cannot be compared.
func relativeRMS(a, b *weight) (*float64, error) {
	if !slices.Equal(a.shape, b.shape) || !a.hasValues() || !b.hasValues() || ir.Elements(a.shape) == 0 {
		return nil, nil
	}
	columns := int64(1)
	if n := len(a.shape); n > 0 {
		columns = a.shape[n-1]
	}
	rows := ir.Elements(a.shape) / columns
	step := min(max(1, pieceElements/columns), rows)
	ra, err := newReader(a, rows, columns)
	if err != nil {
		return nil, err
	}
	rb, err := newReader(b, rows, columns)
	if err != nil {
		return nil, err
	}
	var difference, square float64
	for at := int64(0); at < rows; at += step {
		n := min(step, rows-at)
		x, err := ra.read(at, n)
		if err != nil {
			return nil, err
		}
		y, err := rb.read(at, n)
		if err != nil {
			return nil, err
		}
		for i := range x {
			d, v := float64(y[i])-float64(x[i]), float64(x[i])
			difference += float64(d * d)
			square += float64(v * v)
		}
	}
	out := math.Sqrt(difference / square)
	switch {
	case difference == 0:
		out = 0 // other bits of the same values
	case math.IsNaN(out) || math.IsInf(out, 0):
		return nil, nil
	}
	return &out, nil
}

// hasValues reports whether a weight stands for floating-point numbers: modes without biases have scales in bytes.
func (w *weight) hasValues() bool { return w.dtype.IsFloat() || w.codes.Mode != ir.Affine }

// reader gives the values of a weight row by row.
type reader struct {
	weight        *weight
	rows, columns int64
	machine       *eval.Machine // dequantizes; nil for a dense weight
}

func newReader(w *weight, rows, columns int64) (*reader, error) {
	r := &reader{weight: w, rows: rows, columns: columns}
	if w.codes == (ir.WeightForm{}) {
		return r, nil
	}
	// forward(codes, scales[, biases]) -> dequantize of any number of rows, by the reference semantics.
	f := &ir.Func{Name: "dequantize", Body: &ir.Region{}}
	m := &ir.Module{Entry: f}
	n := ir.Sym(&ir.Symbol{Lo: 1, Hi: rows})
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		var operands []any
		for i, p := range w.parts {
			v := f.NewParam([]string{"w", "scales", "biases"}[i],
				ir.TensorType(p.dtype, n, ir.Const(p.shape[len(p.shape)-1])))
			operands = append(operands, v)
		}
		v := b.Value("dequantize", &ir.DequantizeAttrs{GroupSize: w.codes.Group, Bits: w.codes.Bits,
			Mode: w.codes.Mode.String()}, operands...)
		f.Body.Results = []*ir.Value{v}
		f.Outputs = []ir.Type{ir.TensorType(ir.F32, n, ir.Const(columns))}
	})
	if err != nil {
		return nil, err
	}
	r.machine, err = eval.NewMachine(m, eval.FP32, nil)
	return r, err
}

// read gives the values of rows [at, at+n).
func (r *reader) read(at, n int64) ([]float32, error) {
	inputs := make([]eval.Value, len(r.weight.parts))
	for i, p := range r.weight.parts {
		width := int64(len(p.bytes)) / r.rows
		t, err := eval.Decode(p.dtype, []int{int(n), int(width) / p.dtype.Size()}, p.bytes[at*width:(at+n)*width])
		if err != nil {
			return nil, err
		}
		inputs[i].Tensor = t
	}
	if r.machine == nil {
		return inputs[0].Tensor.F, nil
	}
	out, err := r.machine.Run(inputs)
	if err != nil {
		return nil, err
	}
	return out[0].Tensor.F, nil
}

// derivedPart computes a derived constant: the operations of the init chain that it needs, rounded as the
// program's runtime does.
func derivedPart(m *ir.Module, v *ir.Value) (part, error) {
	var from *ir.Value
	for _, d := range m.Derived {
		if d.Value == v {
			from = d.From
		}
	}
	needed := map[*ir.Value]bool{from: true}
	var ops []*ir.Op
	for _, op := range slices.Backward(m.Init.Ops) {
		if !slices.ContainsFunc(op.Results, func(v *ir.Value) bool { return needed[v] }) {
			continue
		}
		(&ir.Region{Ops: []*ir.Op{op}}).Walk(func(op *ir.Op) {
			op.EachArg(func(a *ir.Arg) {
				if a.Kind == ir.ValueArg {
					needed[a.Value] = true
				}
			})
			for _, r := range op.Regions {
				for _, v := range r.Results {
					needed[v] = true
				}
			}
		})
		ops = append(ops, op)
	}
	slices.Reverse(ops)
	machine, err := eval.NewMachine(&ir.Module{Constants: m.Constants, Entry: &ir.Func{
		Name: "init", Body: &ir.Region{Ops: ops, Results: []*ir.Value{from}}, Outputs: []ir.Type{v.Type}}}, eval.Strict,
		nil)
	if err != nil {
		return part{}, err
	}
	out, err := machine.Run(nil)
	if err != nil {
		return part{}, err
	}
	t := out[0].Tensor
	p := part{dtype: t.DType, bytes: t.Encode()}
	for _, n := range t.Shape {
		p.shape = append(p.shape, int64(n))
	}
	return p, nil
}
