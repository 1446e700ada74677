package passes

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// quantizeWeights replaces weight constants by quantized weights as the recipe says. Bytes are computed
// when the file is written.
func quantizeWeights(m *ir.Module, o *Options) error {
	q := &weightQuantizer{module: m, recipe: o.Recipe, report: o.Report, calibration: o.Calibration,
		main: mainWeights(m), done: map[weightUse]*quantizedConstant{}, kept: map[*ir.Constant]bool{}}
	return ir.Build(func() {
		rewriteEntries(m, func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			kind := kindOf(op)
			changed := false
			for i, o := range op.Def.Operands {
				if o.Kind != ir.WeightOperand {
					continue
				}
				if v := q.weight(b, kind, op.Args[i][0].Value); v != nil {
					op.Args[i] = []ir.Arg{ir.Use(v)}
					changed = true
				}
			}
			if changed {
				b.Append(op)
				return op.Results, true
			}
			return nil, false
		})
	})
}

// mainWeights returns the weights that the main method uses, by the constants that hold them.
func mainWeights(m *ir.Module) map[*ir.Constant]bool {
	out := map[*ir.Constant]bool{}
	for c := range usesOf(m.Entry.Body).weights {
		out[c] = true
	}
	return out
}

// kindOf returns the kind of the weights of an operation.
func kindOf(op *ir.Op) WeightKind {
	if op.Def.Name == "embedding" {
		return EmbeddingWeight
	}
	return LinearWeight
}

// isWeight reports whether a weight operand is a matrix of the checkpoint, or a stack of them, in floating point.
func isWeight(w *ir.Value) bool {
	return w.Constant != nil && w.Constant.Data != nil && w.Type.Kind == ir.TensorKind && w.Type.Rank() >= 2
}

// eachWeight calls f for every weight that an operation of r, or of a region in it, uses.
func eachWeight(r *ir.Region, f func(kind WeightKind, c *ir.Constant) error) error {
	for _, op := range r.Ops {
		for i, o := range op.Def.Operands {
			if o.Kind != ir.WeightOperand {
				continue
			}
			for _, a := range op.Args[i] {
				if a.Kind == ir.ValueArg && isWeight(a.Value) {
					if err := f(kindOf(op), a.Value.Constant); err != nil {
						return err
					}
				}
			}
		}
		for _, n := range op.Regions {
			if err := eachWeight(n, f); err != nil {
				return err
			}
		}
	}
	return nil
}

type weightUse struct {
	constant *ir.Constant
	scheme   quantize.Scheme
}

type quantizedConstant struct{ packed, scales, biases *ir.Value }

type weightQuantizer struct {
	module      *ir.Module
	recipe      Recipe
	report      *Report
	calibration Calibration
	main        map[*ir.Constant]bool // the constants that the main method uses
	done        map[weightUse]*quantizedConstant
	kept        map[*ir.Constant]bool // the weights that stay as they are and are in the report already
}

// weight returns the quantized form of a weight, or nil where the weight stays as it is.
func (q *weightQuantizer) weight(b *ir.Builder, kind WeightKind, w *ir.Value) *ir.Value {
	if stored := storedIn(w); kind == LinearWeight && stored != nil && !q.main[stored] {
		kind = DraftWeight
	}
	if !isWeight(w) {
		if d := w.Def; d != nil && d.Def.Name == "quantized" {
			if packed := d.Input("packed").Constant; packed != nil && packed.Data != nil && !q.kept[packed] {
				q.kept[packed] = true
				q.report.add(givenWeight(kind, d))
			}
		}
		return nil
	}
	c := w.Constant
	scheme := q.recipe.match(kind, c.Name)
	if scheme == nil {
		if !q.kept[c] {
			q.kept[c] = true
			q.report.add(plainWeight(kind, c.Name, c.Data))
		}
		return nil
	}
	shape := c.Data.Shape()
	cols := int(shape[len(shape)-1])
	if err := scheme.Check(cols); err != nil {
		b.Fail("%w", &SchemeError{c.Name, shape, err})
	}
	if kind == DraftWeight && scheme.Method.Calibrated() { // a text shows what the main method's weights get
		plain := *scheme
		plain.Method = quantize.Best
		scheme = &plain
	}
	use := q.use(kind, c, *scheme)
	k := q.done[use]
	if k == nil {
		k = q.constants(b, kind, c, use.scheme)
		q.done[use] = k
	}
	var biases any // none where there are none, not a nil value
	if k.biases != nil {
		biases = k.biases
	}
	d := ir.BF16 // of what other modes than affine dequantize to, whose scales have no such dtype: see use
	if kind == EmbeddingWeight && c.Data.DType() == ir.F32 {
		d = ir.F32
	}
	return b.Value("quantized", ir.NewQuantizedAttrs(scheme.Form(cols), d), k.packed, k.scales, biases)
}

// use returns a weight with its scheme. A row of an embedding becomes an activation, whose dtype is the dtype of the
// scales; so scales of a float32 checkpoint stay float32, like the rest of its graph. lm_head uses the same bytes if it
// is the same matrix.
func (q *weightQuantizer) use(kind WeightKind, c *ir.Constant, s quantize.Scheme) weightUse {
	exact := weightUse{c, s}
	exact.scheme.Params = quantize.F32
	if c.Data.DType() != ir.F32 || s.Mode != ir.Affine || s.Method == quantize.TorchAOAsymmetric ||
		s.Method == quantize.TorchAOSymmetric {
		return weightUse{c, s}
	}
	if kind == EmbeddingWeight || q.done[exact] != nil {
		return exact
	}
	return weightUse{c, s}
}

// constants makes the constants of a quantized weight.
func (q *weightQuantizer) constants(b *ir.Builder, kind WeightKind, c *ir.Constant,
	s quantize.Scheme) *quantizedConstant {
	name := c.Name
	for n := 2; slices.ContainsFunc(q.module.Constants,
		func(o *ir.Constant) bool { return o.Name == name+".packed" }); n++ {
		name = fmt.Sprintf("%s.%d", c.Name, n) // a tied weight that is quantized in two ways
	}
	k := &quantizedConstant{}
	report := &Weight{Name: c.Name, Kind: kind, Elements: ir.Elements(c.Data.Shape()), Mode: s.Mode, Bits: s.Bits}
	parts, err := q.parts(c, s, report)
	if err != nil {
		b.Fail("%w", err)
	}
	for i, part := range []struct {
		suffix string
		value  **ir.Value
	}{{".packed", &k.packed}, {".scales", &k.scales}, {".biases", &k.biases}}[:len(parts)] {
		d := parts[i]
		report.Bytes += ir.DataSize(d)
		*part.value = insertConstant(q.module, c, name+part.suffix, ir.StaticType(d.DType(), d.Shape()...), d)
	}
	q.report.add(report)
	return k
}

// wideEmbedding returns an embedding whose rows become float32 activations, nil where activations are bf16. Rounding
// its constants would give a graph that begins in bf16 and goes on in float32.
func wideEmbedding(m *ir.Module) (found *ir.Value) {
	for _, f := range m.Entries() {
		narrowed := map[*ir.Value]bool{}
		f.Body.Walk(func(op *ir.Op) {
			if op.Def.Name == "astype" && ir.Attrs[ir.DTypeAttrs](op).ScalarType == ir.BF16 {
				narrowed[op.Input("x")] = true
			}
		})
		f.Body.Walk(func(op *ir.Op) {
			if op.Def.Name != "embedding" || found != nil {
				return
			}
			if w := op.Input("weight"); isWeight(w) && w.Type.DType != ir.BF16 && !narrowed[op.Result()] {
				found = w
			}
		})
	}
	return found
}

// roundConstants rounds floating-point constants to bf16, those aside that the authors keep in float32, and
// derives all types again.
func roundConstants(m *ir.Module, _ *Options) error {
	if w := wideEmbedding(m); w != nil {
		return &SchemeError{w.Constant.Name, w.Constant.Data.Shape(),
			fmt.Errorf("%s; ExecuTorch's exporter casts the whole model to bf16, caches too: cast the checkpoint to "+
				"bf16 first, or use --recipe default", w.Type.DType)}
	}
	for _, c := range m.Constants {
		if t := c.Value.Type; c.Data != nil && (t.DType == ir.F32 || t.DType == ir.F16) && !ir.IsExact(c.Data) {
			c.Data = toBF16(c.Data)
			c.Value.Type.DType = ir.BF16
		}
	}
	for _, f := range m.Entries() {
		if err := retype(f.Body); err != nil {
			return err
		}
	}
	return nil
}
