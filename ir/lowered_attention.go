package ir

// The operations in this file are parts of attention: rotations by a table of angles, writes of keys and values, and
// what is attended to.

// RopeAnglesAttrs are the attributes of rope_angles.
type RopeAnglesAttrs struct {
	// Tokens is the number of positions, Dims twice the number of angles of each.
	Tokens, Dims int
	// Base and Scale are as in rope (see [RopeAttrs]). Without freqs the frequencies follow from Base.
	Base, Scale float32
}

// RopeHeadsAttrs are the attributes of rope_heads.
type RopeHeadsAttrs struct {
	// Traditional says that pairs are (2i, 2i+1), not (i, i+Dims/2).
	Traditional bool
	// Norm says that heads are normalized first, as rms_norm does with Eps.
	Norm bool
	Eps  float32
}

// RopeWriteAttrs are the attributes of rope_write.
type RopeWriteAttrs struct {
	// Traditional says that pairs are (2i, 2i+1), not (i, i+Dims/2).
	Traditional bool
	// QNorm, KNorm and VNorm say which heads are normalized first, as rms_norm does with Eps.
	QNorm, KNorm, VNorm bool
	Eps                 float32
}

// AttentionAttrs are the attributes of attention.
type AttentionAttrs struct {
	// Scale and Window are as in cached_attention.
	Scale  float32
	Window int
	// Tiles says that scores are tiled products in bfloat16. In rows_attention it applies to rows that are among many
	// neighbouring rows of one sequence.
	Tiles bool
	// First is as in block_attention; only rows_attention has it.
	First int
	// Prepared says that the result is in the form that tiled products read, which the operation prepare gives; Packed
	// is that of PrepareAttrs. Only rows_attention without Tiles has them.
	Prepared bool
	Packed   int
}

// AttentionStepAttrs are the attributes of attention_step, those of rope_write and of attention together, and of
// rows_attention_step.
type AttentionStepAttrs struct {
	Traditional         bool
	QNorm, KNorm, VNorm bool
	Eps                 float32
	Scale               float32
	Window              int
	// Early says that no operation before this one writes the caches.
	Early bool
	// Prepared and Packed are as in AttentionAttrs. Only rows_attention_step has them.
	Prepared bool
	Packed   int
}

func (a *AttentionStepAttrs) write() *RopeWriteAttrs {
	return &RopeWriteAttrs{Traditional: a.Traditional, QNorm: a.QNorm, KNorm: a.KNorm, VNorm: a.VNorm, Eps: a.Eps}
}

// expandRopeAngles gives cos and sin of (position + t)·scale/freqs[i], f32 [tokens, dims/2, 2].
func expandRopeAngles(b *Builder, op *Op) []*Value {
	start, _ := op.Arg("position")
	return []*Value{angles(b, op, arange(b, start, sumOf(b, start, Attrs[RopeAnglesAttrs](op).Tokens)))}
}

// expandRopeRowAngles gives rope_angles of rows that have a position each, positions [tokens].
func expandRopeRowAngles(b *Builder, op *Op) []*Value {
	return []*Value{angles(b, op, b.Value("astype", &DTypeAttrs{ScalarType: F32}, op.Input("positions")))}
}

// arange returns the numbers from start on before stop, in float32.
func arange(b *Builder, start, stop any) *Value {
	f32 := F32
	return b.Value("arange", &OptionalDTypeAttrs{ScalarType: &f32}, start, stop, 1)
}

// angles returns the table of op for positions f32 [tokens].
func angles(b *Builder, op *Op, positions *Value) *Value {
	attrs := Attrs[RopeAnglesAttrs](op)
	half := attrs.Dims / 2
	number := func(x float32) *Value {
		return b.Value("full", &DTypeAttrs{ScalarType: F32}, []any{1}, Float(float64(x)))
	}
	var inverse *Value
	if freqs := op.Input("freqs"); freqs != nil {
		if freqs.Type.Rank() != 1 || !freqs.Type.Shape[0].IsConst(int64(half)) {
			b.Fail("freqs %s, want %d, half of dims", freqs.Type, half)
		}
		inverse = b.Value("reciprocal", nil, b.Value("astype", &DTypeAttrs{ScalarType: F32}, freqs))
	} else {
		step := b.Value("divide", nil, b.Value("log", nil, number(attrs.Base)), number(float32(half)))
		inverse = b.Value("exp", nil, b.Value("neg", nil, b.Value("multiply", nil, arange(b, 0, half), step)))
	}
	at := b.Value("multiply", nil, positions, number(attrs.Scale))
	turned := b.Value("multiply", nil, b.Value("expand_dims", &AxisAttrs{Axis: 1}, at), inverse)
	return b.Value("stack", &AxisAttrs{Axis: 2}, []*Value{b.Value("cos", nil, turned), b.Value("sin", nil, turned)})
}

// sumOf returns an int operand plus a number.
func sumOf(b *Builder, a Arg, n int) Arg {
	if a.Kind == IntArg {
		return Int(a.Int + int64(n))
	}
	return Use(b.Value("add_int", nil, a, n))
}

// rotate turns the first dims of x [B, H, T, D] by angles as rope_angles gives them, in x's dtype.
func rotate(b *Builder, x, angles *Value, traditional bool) *Value {
	if angles.Type.Rank() != 3 || x.Type.Rank() != 4 {
		b.Fail("x %s and angles %s, want four and three dims", x.Type, angles.Type)
	}
	half, known := angles.Type.Shape[1].Const()
	width, known2 := x.Type.Shape[3].Const()
	if !known || !known2 || 2*half > width {
		b.Fail("%s angles of a token for heads of %s elements", angles.Type.Shape[1], x.Type.Shape[3])
	}
	cos := b.Value("take", &AxisAttrs{Axis: 2}, angles, 0)
	sin := b.Value("take", &AxisAttrs{Axis: 2}, angles, 1)
	part := func(start, stop int64, step int) *Value {
		return b.Value("slice", &StepAttrs{Step: step}, x, 3, start, stop)
	}
	first, second := part(0, half, 1), part(half, 2*half, 1)
	if traditional {
		first, second = part(0, 2*half, 2), part(1, 2*half, 2)
	}
	product := func(a, c *Value) *Value { return b.Value("multiply", nil, a, c) }
	turned := []*Value{
		b.Value("subtract", nil, product(first, cos), product(second, sin)),
		b.Value("add", nil, product(first, sin), product(second, cos)),
	}
	if traditional {
		shape := append([]any{}, sizesOf(b, x.Type, 3)...)
		turned = []*Value{b.Value("reshape", nil, b.Value("stack", &AxisAttrs{Axis: 4}, turned), append(shape, 2*half))}
	}
	if 2*half < width {
		turned = append(turned, b.Value("astype", &DTypeAttrs{ScalarType: turned[0].Type.DType},
			part(2*half, width, 1)))
	}
	y := turned[0]
	if len(turned) > 1 {
		y = b.Value("concatenate", &AxisAttrs{Axis: 3}, turned)
	}
	return b.Value("astype", &DTypeAttrs{ScalarType: x.Type.DType}, y)
}

// sizesOf returns the first n dims of a type, which are constant, as operands.
func sizesOf(b *Builder, t Type, n int) []any {
	out := make([]any, n)
	for i := range out {
		size, ok := t.Shape[i].Const()
		if !ok {
			b.Fail("dim %d of %s is not constant", i, t)
		}
		out[i] = size
	}
	return out
}

// normed is rms_norm of x with the weight, which may be nil, where that is asked for.
func normed(b *Builder, x, weight *Value, eps float32, asked bool) *Value {
	if !asked {
		return x
	}
	return b.Value("rms_norm", &NormAttrs{Eps: eps}, x, weight)
}

// expandRopeHeads gives heads x [B, H, T, D], normalized or not, rotated by angles.
func expandRopeHeads(b *Builder, op *Op) []*Value {
	attrs := Attrs[RopeHeadsAttrs](op)
	x := normed(b, op.Input("x"), op.Input("weight"), attrs.Eps, attrs.Norm)
	return []*Value{rotate(b, x, op.Input("angles"), attrs.Traditional)}
}

// expandRopeWrite gives queries q [1, H, T, D], normalized if there is a norm, and rotated. It does the same with keys
// k [1, Hkv, T, D], and writes keys and values v to the caches, from slot start on. With stop, slots start to stop are
// written; without, the cache is a ring buffer.
func expandRopeWrite(b *Builder, op *Op) []*Value {
	return []*Value{ropeWrite(b, op, Attrs[RopeWriteAttrs](op))}
}

func ropeWrite(b *Builder, op *Op, attrs *RopeWriteAttrs) *Value {
	start, _ := op.Arg("start")
	return rotateAndWrite(b, op, attrs, func(buffer *Buffer, x *Value) {
		if stop, ok := op.Arg("stop"); ok {
			b.BufferOp("buffer_slice_update", buffer, nil, x, 2, start, stop)
			return
		}
		b.BufferOp("buffer_ring_update", buffer, &AxisAttrs{Axis: 2}, x, start)
	})
}

// rotateAndWrite rotates queries, which it gives, and keys, and has keys and values written.
func rotateAndWrite(b *Builder, op *Op, attrs *RopeWriteAttrs, write func(buffer *Buffer, x *Value)) *Value {
	angles := op.Input("angles")
	head := func(x, weight string, norm bool) *Value {
		return rotate(b, normed(b, op.Input(x), op.Input(weight), attrs.Eps, norm), angles, attrs.Traditional)
	}
	q := head("q", "q_weight", attrs.QNorm)
	write(op.Buffer, head("k", "k_weight", attrs.KNorm))
	write(op.Second, normed(b, op.Input("v"), nil, attrs.Eps, attrs.VNorm))
	return q
}

// expandRopeRowsWrite gives what rope_write gives, for rows of many sequences, [1, H, R, D]. Their keys and values are
// written to blocks.
func expandRopeRowsWrite(b *Builder, op *Op) []*Value {
	return []*Value{ropeRowsWrite(b, op, Attrs[RopeWriteAttrs](op))}
}

func ropeRowsWrite(b *Builder, op *Op, attrs *RopeWriteAttrs) *Value {
	return rotateAndWrite(b, op, attrs, func(buffer *Buffer, x *Value) {
		b.BufferOp("block_write", buffer, nil, x, op.Input("positions"), op.Input("sequences"), op.Input("blocks"))
	})
}

// expandAttention gives cached_attention, [B, H, T, D]. With a gate, which has as many elements for each token as the
// result, it gives the heads of a token one after the other, times sigmoid(gate), in the gate's shape.
func expandAttention(b *Builder, op *Op) []*Value {
	attrs := Attrs[AttentionAttrs](op)
	position, _ := op.Arg("position")
	y := b.Value("cached_attention", &CachedAttentionAttrs{Scale: attrs.Scale, Window: attrs.Window}, op.Input("q"),
		op.Input("k"), op.Input("v"), position)
	return []*Value{gated(b, y, op.Input("gate"))}
}

// expandRowsAttention expands rows_attention to block_attention, whose result is [1, H, R, D], and the gate.
func expandRowsAttention(b *Builder, op *Op) []*Value {
	attrs := Attrs[AttentionAttrs](op)
	y := b.Value("block_attention", &CachedAttentionAttrs{Scale: attrs.Scale, Window: attrs.Window, First: attrs.First},
		op.Input("q"), op.Input("k"), op.Input("v"), op.Input("positions"), op.Input("sequences"),
		op.Input("blocks"))
	return []*Value{gated(b, y, op.Input("gate"))}
}

// gated gives y [B, H, T, D] where gate is nil.
func gated(b *Builder, y, gate *Value) *Value {
	if gate == nil {
		return y
	}
	y = b.Value("transpose", &TransposeAttrs{Perm: []int{0, 2, 1, 3}}, y)
	y = b.Value("reshape", nil, y, sizesOf(b, gate.Type, gate.Type.Rank()))
	return b.Value("glu", &GLUAttrs{Activation: "sigmoid"}, gate, y)
}

// expandAttentionStep gives rope_write, then attention of q to what the caches hold.
func expandAttentionStep(b *Builder, op *Op) []*Value {
	attrs := Attrs[AttentionStepAttrs](op)
	q := ropeWrite(b, op, attrs.write())
	k, v := b.Load(op.Buffer), b.Load(op.Second)
	position, _ := op.Arg("position")
	y := b.Value("cached_attention", &CachedAttentionAttrs{Scale: attrs.Scale, Window: attrs.Window}, q, k, v, position)
	return []*Value{gated(b, y, op.Input("gate"))}
}

// expandRowsAttentionStep gives rope_rows_write, then attention of q over the blocks.
func expandRowsAttentionStep(b *Builder, op *Op) []*Value {
	attrs := Attrs[AttentionStepAttrs](op)
	q := ropeRowsWrite(b, op, attrs.write())
	y := b.Value("block_attention", &CachedAttentionAttrs{Scale: attrs.Scale, Window: attrs.Window}, q,
		b.Load(op.Buffer), b.Load(op.Second), op.Input("positions"), op.Input("sequences"), op.Input("blocks"))
	return []*Value{gated(b, y, op.Input("gate"))}
}
