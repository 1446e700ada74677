package ir

import "fmt"

// inferNorm infers the types of rms_norm and layer_norm over the last dim. The weight's dtype promotes x, the bias's
// only beside a weight (mlx/fast.cpp).
func inferNorm(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 1)
	if err != nil {
		return nil, err
	}
	d := x.DType
	for _, operand := range c.Op.Def.Operands[1:] {
		if !c.Has(operand.Name) {
			continue
		}
		t, err := c.rank(operand.Name, 1)
		if err != nil {
			return nil, err
		}
		if _, ok := unify(t.Shape[0], x.Shape[x.Rank()-1]); !ok {
			return nil, fmt.Errorf("%s %s must be as long as the last dim of x %s", operand.Name, t, x)
		}
		if c.Has("weight") {
			d = Promote(d, t.DType)
		}
	}
	if err := needFloat("the promoted dtype of the operands", d); err != nil {
		return nil, err
	}
	return single(like(x, d))
}

// inferRope infers the type of rope. The first dims of D of x [B, ..., T, D] are rotated. offset is the start position:
// an int, or a tensor with one or B elements; freqs is [dims/2].
func inferRope(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 3)
	if err != nil {
		return nil, err
	}
	if err := needFloat("x", x.DType); err != nil {
		return nil, err
	}
	dims := Attrs[RopeAttrs](c.Op).Dims
	if dims <= 0 || dims%2 != 0 {
		return nil, fmt.Errorf("dims must be positive and even, found %d", dims)
	}
	if less(x.Shape[x.Rank()-1], Const(int64(dims))) {
		return nil, fmt.Errorf("dims %d is larger than the last dim of x %s", dims, x)
	}
	if offset := c.Type("offset"); offset.Kind == TensorKind {
		if err := needInteger("offset", offset.DType); err != nil {
			return nil, err
		}
		if offset.Rank() > 1 || offset.Rank() == 1 && differ(offset.Shape[0], x.Shape[0]) &&
			!canBe(offset.Shape[0], 1) {
			return nil, fmt.Errorf("offset must have one element or one for each of the %s rows of x, found %s",
				x.Shape[0], offset)
		}
	}
	if c.Has("freqs") {
		freqs := c.Type("freqs")
		if freqs.Rank() != 1 || differ(freqs.Shape[0], Const(int64(dims/2))) {
			return nil, fmt.Errorf("freqs must have %d elements for dims %d, found %s", dims/2, dims, freqs)
		}
	}
	return single(like(x, x.DType))
}

// attention checks q [B, H, L, D], k [B, Hkv, Lk, D] and v [B, Hkv, Lk, Dv], Hkv a divisor of H, and gives
// the shape of the scores [B, H, L, Lk] and of the result [B, H, L, Dv].
func (c *Inference) attention() (scores, out []*Expr, err error) {
	q, err := c.rank("q", 4)
	if err != nil {
		return nil, nil, err
	}
	k, err := c.rank("k", 4)
	if err != nil {
		return nil, nil, err
	}
	v, err := c.rank("v", 4)
	if err != nil {
		return nil, nil, err
	}
	for _, pair := range []struct {
		what string
		a, b *Expr
	}{
		{"batch of q and k", q.Shape[0], k.Shape[0]},
		{"batch of q and v", q.Shape[0], v.Shape[0]},
		{"head dim of q and k", q.Shape[3], k.Shape[3]},
		{"heads of k and v", k.Shape[1], v.Shape[1]},
		{"length of k and v", k.Shape[2], v.Shape[2]},
	} {
		if _, err := agree(pair.what, pair.a, pair.b); err != nil {
			return nil, nil, fmt.Errorf("q %s, k %s, v %s: %w", q, k, v, err)
		}
	}
	if k.Shape[1].IsConst(0) {
		return nil, nil, fmt.Errorf("k %s has no heads", k)
	}
	if r, ok := q.Shape[1].Mod(k.Shape[1]).Const(); ok && r != 0 {
		return nil, nil, fmt.Errorf("the %s heads of k must divide the %s heads of q", k.Shape[1], q.Shape[1])
	}
	length, _ := unify(k.Shape[2], v.Shape[2])
	scores = []*Expr{q.Shape[0], q.Shape[1], q.Shape[2], length}
	return scores, []*Expr{q.Shape[0], q.Shape[1], q.Shape[2], v.Shape[3]}, nil
}

// inferSdpa infers the type of sdpa, softmax(scale q kᵀ + mask) v. A mask broadcasts to [B, H, L, Lk]; bool masks
// select, others are added. A mask beside causal is refused, as MLX does.
func inferSdpa(c *Inference) ([]Type, error) {
	scores, out, err := c.attention()
	if err != nil {
		return nil, err
	}
	d := Promote(Promote(c.Type("q").DType, c.Type("k").DType), c.Type("v").DType)
	if err := needFloat("the promoted dtype of q, k and v", d); err != nil {
		return nil, err
	}
	if c.Has("mask") {
		if Attrs[SdpaAttrs](c.Op).Causal {
			return nil, fmt.Errorf("takes a mask or causal, found both")
		}
		if err := broadcastsTo("mask", c.Type("mask").Shape, scores); err != nil {
			return nil, err
		}
	}
	return single(TensorType(d, out...))
}

// inferUpdateAndAttend infers the type of update_and_attend, attention over a cache that the runtime keeps. k and v are
// of the new positions.
func inferUpdateAndAttend(c *Inference) ([]Type, error) {
	_, out, err := c.attention()
	if err != nil {
		return nil, err
	}
	attrs, q, position := Attrs[UpdateAndAttendAttrs](c.Op), c.Type("q"), c.Type("position")
	if attrs.LayerId == nil || attrs.Scale == nil {
		return nil, fmt.Errorf("layer_id and scale must be given")
	}
	if err := needFloat("q", q.DType); err != nil {
		return nil, err
	}
	if position.DType != I32 && position.DType != I64 {
		return nil, fmt.Errorf("position must be i32 or i64, found %s", position)
	}
	d := q.DType
	if attrs.OutDtype != nil {
		d = *attrs.OutDtype
	}
	if err := checkDType("out_dtype", d); err != nil {
		return nil, err
	}
	return single(TensorType(d, out...))
}
