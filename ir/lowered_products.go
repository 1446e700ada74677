package ir

// The operations in this file are products and normalizations of the GPU engine, together with the operations before
// and after them that the same kernel computes. A function expand… defines what such an operation computes: it writes
// the same in simpler operations, which the reference engine runs.

// MatvecAttrs are the attributes of a product of a few rows. With Norm, rows are normalized first: x/√(mean(x²) + Eps)
// · weight, where weight is the operand norm, if there is one. If Cap is not 0, results are soft-capped: Cap·tanh(y /
// Cap).
type MatvecAttrs struct {
	Norm bool
	Eps  float32
	Cap  float32
}

// MatvecConvAttrs are the attributes of products of one row whose first Channels results of the first weight are
// convolved; with the operands entries and writes (ir/ragged.go) the state lies in a slot, and the row is the only one
// of a call. If Activation, one of [Activations], is not empty, results First to First+Rows-1 of weight number Of are
// also written after that activation. Early says that no earlier operation writes the state and reset, so that a kernel
// may read them while earlier kernels run.
type MatvecConvAttrs struct {
	Norm           bool
	Eps            float32
	Channels       int
	ConvActivation string
	ChannelFirst   bool
	Activation     string
	Of, First      int
	Rows           int
	Early          bool
}

// MatvecGLUAttrs are the attributes of a gated pair of products of a few rows. Activation, one of [Activations], is
// applied to the gate.
type MatvecGLUAttrs struct {
	Norm       bool
	Eps        float32
	Activation string
}

// MatvecHeadsAttrs are the attributes of a product of one row. The row is first normalized in heads of Head elements,
// each on its own, and multiplied by a gate, to which an activation may be applied, one of [Activations].
type MatvecHeadsAttrs struct {
	Head       int
	Eps        float32
	Activation string
	Cap        float32
}

// SumAttrs are the attributes of a residual sum, scale·(x + residual). x may be normalized before it is added; PreEps
// is the epsilon of that norm.
type SumAttrs struct {
	PreEps float32
}

// AddNormAttrs are the attributes of the norm of a residual sum. PreEps is that of [SumAttrs], Eps the epsilon of the
// norm of the sum. Kept says that the sum is a result too. Prepared says that the first result is in the form that
// tiled products read, which the operation prepare gives; Packed is that of [PrepareAttrs].
type AddNormAttrs struct {
	PreEps   float32
	Eps      float32
	Kept     bool
	Prepared bool
	Packed   int
}

// MatvecSumAttrs are the attributes of a product, or a gated pair of products, of the norm of a residual sum.
// Activation is applied to the gate of a pair.
type MatvecSumAttrs struct {
	PreEps     float32
	Eps        float32
	Kept       bool
	Cap        float32
	Activation string
}

// GatedNormAttrs are the attributes of a norm that is multiplied by an activation of a gate, one of [Activations].
// Prepared says that the result is in the form that tiled products read, which the operation prepare gives; Packed is
// that of [PrepareAttrs].
type GatedNormAttrs struct {
	Eps        float32
	Activation string
	Prepared   bool
	Packed     int
}

// PrepareAttrs say how rows are brought into the form that tiled products take: normalized where Norm is set, and
// rounded to bf16 unless they are Exact. If Packed is not 0, they are packed for products with the same Packed
// (kernels.Matrices).
type PrepareAttrs struct {
	Norm   bool
	Eps    float32
	Exact  bool
	Packed int
}

// MatmulAttrs are the attributes of a tiled product. Exact computes in f32 throughout. If Cap is not 0, results are
// soft-capped: Cap·tanh(y / Cap). Packed is that of the operation prepare that gives x.
type MatmulAttrs struct {
	Exact  bool
	Cap    float32
	Packed int
}

// MatmulGLUAttrs are the attributes of a gated pair of tiled products. Activation, one of [Activations], is applied to
// the gate. Packed is that of the operation prepare that gives x. Prepared says that the result is for tiled products,
// rounded to bf16 as that of prepare; ResultPacked is Packed there.
type MatmulGLUAttrs struct {
	Exact        bool
	Activation   string
	Packed       int
	Prepared     bool
	ResultPacked int
}

// ended returns what a kernel makes of a product y: y + extra where there is an extra, y soft-capped by limit where
// that is not 0, else y.
func ended(b *Builder, y, extra *Value, limit float32) *Value {
	switch {
	case extra != nil:
		return b.Value("add", nil, y, extra)
	case limit != 0:
		return b.Value("softcap", nil, y, b.Value("full", &DTypeAttrs{F32}, []int64{}, float64(limit)))
	}
	return y
}

// columns returns columns first to first+n-1 of x.
func columns(b *Builder, x *Value, first, n int) *Value {
	return b.Value("slice", nil, x, x.Type.Rank()-1, first, first+n)
}

// shaped returns v in the shape of t, which has to be known.
func shaped(b *Builder, v *Value, t Type) *Value {
	dims, ok := t.Static()
	if !ok {
		b.Fail("a value of type %s, want a shape that is known", t)
	}
	return b.Value("reshape", nil, v, dims)
}

// expandMatvec gives the products of normalized rows with weights, linear(x, weight, bias). The product with a single
// weight may have extra added to it, or be soft-capped.
func expandMatvec(b *Builder, op *Op) []*Value {
	a := Attrs[MatvecAttrs](op)
	x, weights := normed(b, op.Input("x"), op.Input("norm"), a.Eps, a.Norm), op.Operand("weights")
	if len(weights) != 1 {
		return b.Op("linears", nil, x, weights).Results
	}
	return []*Value{ended(b, b.Value("linear", nil, x, weights[0].Value, op.Input("bias")), op.Input("extra"), a.Cap)}
}

// expandMatvecConv gives the products of normalized rows with weights, then the convolution of the first Channels
// columns of the first product, and, if there is an Activation, the activation of Rows columns of product number Of.
// The state of the convolution is a buffer; with the operand entries, a slot of one.
func expandMatvecConv(b *Builder, op *Op) []*Value {
	a := Attrs[MatvecConvAttrs](op)
	x := normed(b, op.Input("x"), op.Input("norm"), a.Eps, a.Norm)
	out := append([]*Value{}, b.Op("linears", nil, x, op.Operand("weights")).Results...)
	token := b.Value("reshape", nil, columns(b, out[0], 0, a.Channels), []int64{1, 1, int64(a.Channels)})
	attrs := &BufferConvAttrs{a.ConvActivation, a.ChannelFirst}
	if entries := op.Input("entries"); entries != nil {
		out = append(out, b.BufferOp("slot_conv", op.Buffer, attrs, token, op.Input("w"), entries,
			op.Input("writes")).Result())
	} else {
		out = append(out, b.BufferOp("buffer_conv", op.Buffer, attrs, token, op.Input("w"),
			op.Input("reset")).Result())
	}
	if a.Activation != "" {
		out = append(out, activated(b, a.Activation, columns(b, out[a.Of], a.First, a.Rows)))
	}
	return out
}

// activated returns the activation function of this name, one of [Activations], of x.
func activated(b *Builder, name string, x *Value) *Value {
	switch name {
	case "gelu_tanh":
		return b.Value("gelu", &GeluAttrs{Approximate: "tanh"}, x)
	case "gelu":
		return b.Value("gelu", &GeluAttrs{Approximate: "none"}, x)
	}
	return b.Value(name, nil, x)
}

// pair returns glu(linear(x, gate), linear(x, up)). Without the operand up, gate is one weight for both: the first half
// of its results is the gate, the second half is up.
func pair(b *Builder, op *Op, x *Value, activation string) *Value {
	gate, up := b.Value("linear", nil, x, op.Input("gate")), (*Value)(nil)
	if w := op.Input("up"); w != nil {
		up = b.Value("linear", nil, x, w)
	} else {
		both := gate
		n, ok := both.Type.Shape[both.Type.Rank()-1].Const()
		if !ok {
			b.Fail("%s: results %s, want a known number of columns", op.Def.Name, both.Type)
		}
		gate, up = columns(b, both, 0, int(n/2)), columns(b, both, int(n/2), int(n/2))
	}
	return b.Value("glu", &GLUAttrs{activation}, gate, up)
}

// expandMatvecGLU gives activation(x·gateᵀ) · x·upᵀ of normalized rows.
func expandMatvecGLU(b *Builder, op *Op) []*Value {
	a := Attrs[MatvecGLUAttrs](op)
	return []*Value{pair(b, op, normed(b, op.Input("x"), op.Input("norm"), a.Eps, a.Norm), a.Activation)}
}

// expandMatvecHeads gives a product of the heads of x, normalized and multiplied by a gate.
func expandMatvecHeads(b *Builder, op *Op) []*Value {
	a, x := Attrs[MatvecHeadsAttrs](op), op.Input("x")
	heads := b.Value("reshape", nil, x, []int64{-1, int64(a.Head)})
	gate := shaped(b, op.Input("gate"), heads.Type)
	heads = normed(b, heads, op.Input("norm"), a.Eps, true)
	if a.Activation == "" {
		heads = b.Value("multiply", nil, gate, heads)
	} else {
		heads = b.Value("glu", &GLUAttrs{a.Activation}, gate, heads)
	}
	return []*Value{ended(b, b.Value("linear", nil, shaped(b, heads, x.Type), op.Input("weight")), op.Input("extra"),
		a.Cap)}
}

// residualSum returns (x + residual) · scale. With the operand pre, a weight, x is normalized first. Without the
// operand scale, the factor is 1.
func residualSum(b *Builder, op *Op, eps float32) *Value {
	x := op.Input("x")
	if pre := op.Input("pre"); pre != nil {
		x = normed(b, x, pre, eps, true)
	}
	x = b.Value("add", nil, x, op.Input("residual"))
	if scale := op.Input("scale"); scale != nil {
		x = b.Value("multiply", nil, x, scale)
	}
	return x
}

// expandSum gives a residual sum: see residualSum.
func expandSum(b *Builder, op *Op) []*Value {
	return []*Value{residualSum(b, op, Attrs[SumAttrs](op).PreEps)}
}

// expandAddNorm gives the norm of a residual sum, and the sum where it is kept.
func expandAddNorm(b *Builder, op *Op) []*Value {
	a := Attrs[AddNormAttrs](op)
	s := residualSum(b, op, a.PreEps)
	return kept(s, a.Kept, normed(b, s, op.Input("norm"), a.Eps, true))
}

// kept returns the results of an operation that reads a residual sum: results, and then the sum if the attribute Kept
// is set.
func kept(sum *Value, kept bool, results ...*Value) []*Value {
	if kept {
		results = append(results, sum)
	}
	return results
}

// expandMatvecSum gives the product of a weight with one row, the norm of a residual sum, and the sum where it is kept.
func expandMatvecSum(b *Builder, op *Op) []*Value {
	a := Attrs[MatvecSumAttrs](op)
	s := residualSum(b, op, a.PreEps)
	x := normed(b, s, op.Input("norm"), a.Eps, true)
	return kept(s, a.Kept, ended(b, b.Value("linear", nil, x, op.Input("weight")), nil, a.Cap))
}

// expandMatvecGLUSum gives a gated pair of products of one row, the norm of a residual sum, and the sum where it is
// kept.
func expandMatvecGLUSum(b *Builder, op *Op) []*Value {
	a := Attrs[MatvecSumAttrs](op)
	s := residualSum(b, op, a.PreEps)
	return kept(s, a.Kept, pair(b, op, normed(b, s, op.Input("norm"), a.Eps, true), a.Activation))
}

// expandGatedNorm gives glu(gate, rms_norm(x, norm)).
func expandGatedNorm(b *Builder, op *Op) []*Value {
	a, gate := Attrs[GatedNormAttrs](op), op.Input("gate")
	x := shaped(b, normed(b, op.Input("x"), op.Input("norm"), a.Eps, true), gate.Type)
	return []*Value{b.Value("glu", &GLUAttrs{a.Activation}, gate, x)}
}

// expandPrepare gives rows, normalized with Norm. It does not round them: a kernel may do that in precision mixed, as a
// part of the product that reads them.
func expandPrepare(b *Builder, op *Op) []*Value {
	a := Attrs[PrepareAttrs](op)
	if !a.Norm {
		return []*Value{b.Value("id_copy", nil, op.Input("x"))}
	}
	return []*Value{normed(b, op.Input("x"), op.Input("norm"), a.Eps, a.Norm)}
}

// expandMatmul gives linear(x, weight, bias), with extra added to it or soft-capped.
func expandMatmul(b *Builder, op *Op) []*Value {
	y := b.Value("linear", nil, op.Input("x"), op.Input("weight"), op.Input("bias"))
	return []*Value{ended(b, y, op.Input("extra"), Attrs[MatmulAttrs](op).Cap)}
}

// expandMatmulGLU gives activation(x·gateᵀ) · x·upᵀ.
func expandMatmulGLU(b *Builder, op *Op) []*Value {
	return []*Value{pair(b, op, op.Input("x"), Attrs[MatmulGLUAttrs](op).Activation)}
}

// expandDenseWeight gives the matrix that a weight stands for, in bf16.
func expandDenseWeight(b *Builder, op *Op) []*Value {
	w, bf16 := op.Input("weight"), BF16
	if w.Type.Kind != QuantizedKind {
		return []*Value{b.Value("astype", &DTypeAttrs{BF16}, w)}
	}
	if w.Def == nil || w.Def.Def.Name != "quantized" {
		b.Fail("dense_weight: a weight of type %s, want one that an operation quantized gives", w.Type)
	}
	a, scales, biases := Attrs[QuantizedAttrs](w.Def), w.Def.Input("scales"), w.Def.Input("biases")
	if biases == nil && a.Mode == Affine { // the code in the middle stands for 0
		middle := float64(int(1) << (a.Bits - 1))
		biases = b.Value("multiply", nil, scales, b.Value("full", &DTypeAttrs{scales.Type.DType}, []int64{}, -middle))
	}
	return []*Value{b.Value("dequantize", &DequantizeAttrs{GroupSize: a.GroupSize, Bits: a.Bits, Mode: a.Mode.String(),
		Dtype: &bf16},
		w.Def.Input("packed"), scales, biases)}
}

// expandLibraryProduct gives linear(x, weight) by the device's library of matrix products.
func expandLibraryProduct(b *Builder, op *Op) []*Value {
	return []*Value{b.Value("linear", nil, op.Input("x"), op.Input("weight"))}
}
