package ir

import (
	"fmt"
	"slices"
)

// dimCheck is a pair of dims that must be equal.
type dimCheck struct {
	what string
	a, b *Expr
}

func checkDims(checks ...dimCheck) error {
	for _, d := range checks {
		if _, err := agree(d.what, d.a, d.b); err != nil {
			return err
		}
	}
	return nil
}

// inferLinear infers the type of linear, x [..., K] × weightᵀ with weight [N, K], plus bias [N]. The dtypes promote.
func inferLinear(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 1)
	if err != nil {
		return nil, err
	}
	w, err := c.rank("weight", 2)
	if err != nil {
		return nil, err
	}
	if _, ok := unify(x.Shape[x.Rank()-1], w.Shape[1]); !ok {
		return nil, fmt.Errorf("the last dim of x %s must be that of weight %s", x, w)
	}
	d := Promote(x.DType, w.DType)
	if c.Has("bias") {
		bias, err := c.rank("bias", 1)
		if err != nil {
			return nil, err
		}
		if _, ok := unify(bias.Shape[0], w.Shape[0]); !ok {
			return nil, fmt.Errorf("bias %s must be as long as the first dim of weight %s", bias, w)
		}
		d = Promote(d, bias.DType)
	}
	if err := needFloat("the promoted dtype of the operands", d); err != nil {
		return nil, err
	}
	shape := slices.Clone(x.Shape)
	shape[len(shape)-1] = w.Shape[0]
	return single(TensorType(d, shape...))
}

// inferEmbedding infers the type of embedding: the rows of weight [V, H] at indices [...], in the dtype of weight.
func inferEmbedding(c *Inference) ([]Type, error) {
	indices := c.Type("indices")
	if err := needInteger("indices", indices.DType); err != nil {
		return nil, err
	}
	w, err := c.rank("weight", 2)
	if err != nil {
		return nil, err
	}
	return single(TensorType(w.DType, append(slices.Clone(indices.Shape), w.Shape[1])...))
}

// inferTopK infers the type of top_k: the k largest of the last dim in descending order, and their positions in u32.
func inferTopK(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 1)
	if err != nil {
		return nil, err
	}
	k, last := Attrs[TopKAttrs](c.Op).K, x.Rank()-1
	if k < 1 || less(x.Shape[last], Const(int64(k))) {
		return nil, fmt.Errorf("k must be between 1 and the last dim of x %s, found %d", x, k)
	}
	shape := slices.Clone(x.Shape)
	shape[last] = Const(int64(k))
	return []Type{TensorType(x.DType, shape...), TensorType(U32, shape...)}, nil
}

// inferSwitchMLP infers the types of switch_mlp and switch_geglu. x [B, S, H] goes through the experts that indices [B,
// S, k] name, weighted by scores [B, S, k]; gate and up are [E, I, H], down is [E, H, I]. The result has the shape of
// x, in its dtype promoted with those of the weights.
func inferSwitchMLP(c *Inference) ([]Type, error) {
	types := map[string]Type{}
	for _, operand := range c.Op.Def.Operands {
		t, err := c.rank(operand.Name, 3)
		if err != nil {
			return nil, err
		}
		types[operand.Name] = t
	}
	x, gate, up, down, indices, scores := types["x"], types["gate"], types["up"], types["down"],
		types["indices"], types["scores"]
	if err := checkDims(
		dimCheck{"experts of gate and up", gate.Shape[0], up.Shape[0]},
		dimCheck{"experts of gate and down", gate.Shape[0], down.Shape[0]},
		dimCheck{"rows of gate and up", gate.Shape[1], up.Shape[1]},
		dimCheck{"rows of gate and columns of down", gate.Shape[1], down.Shape[2]},
		dimCheck{"columns of x and gate", x.Shape[2], gate.Shape[2]},
		dimCheck{"columns of x and up", x.Shape[2], up.Shape[2]},
		dimCheck{"columns of x and rows of down", x.Shape[2], down.Shape[1]},
		dimCheck{"batch of x and indices", x.Shape[0], indices.Shape[0]},
		dimCheck{"tokens of x and indices", x.Shape[1], indices.Shape[1]},
	); err != nil {
		return nil, err
	}
	if _, err := matchShapes("indices and scores", indices.Shape, scores.Shape); err != nil {
		return nil, err
	}
	if err := needInteger("indices", indices.DType); err != nil {
		return nil, err
	}
	if err := needFloat("scores", scores.DType); err != nil {
		return nil, err
	}
	d := x.DType
	for _, w := range []Type{gate, up, down} {
		d = Promote(d, w.DType)
	}
	if err := needFloat("the promoted dtype of x and the weights", d); err != nil {
		return nil, err
	}
	return single(like(x, d))
}

// inferGatedDeltaRule infers the type of gated_delta_rule. q, k [B, T, Hk, Dk], v [B, T, Hv, Dv], g, beta [B, T, Hv]
// and state [B, Hv, Dv, Dk] give y [B, T, Hv, Dv] in the dtype of q, and the new state; Hk divides Hv.
func inferGatedDeltaRule(c *Inference) ([]Type, error) {
	types := map[string]Type{}
	for _, operand := range c.Op.Def.Operands {
		dims := 4
		if operand.Name == "g" || operand.Name == "beta" {
			dims = 3
		}
		t, err := c.rank(operand.Name, dims)
		if err != nil {
			return nil, err
		}
		if err := needFloat(operand.Name, t.DType); err != nil {
			return nil, err
		}
		types[operand.Name] = t
	}
	q, k, v, g, beta, state := types["q"], types["k"], types["v"], types["g"], types["beta"], types["state"]
	if _, err := matchShapes("q and k", q.Shape, k.Shape); err != nil {
		return nil, err
	}
	if _, err := matchShapes("g and beta", g.Shape, beta.Shape); err != nil {
		return nil, err
	}
	if err := checkDims(
		dimCheck{"batch of q and v", q.Shape[0], v.Shape[0]},
		dimCheck{"batch of q and g", q.Shape[0], g.Shape[0]},
		dimCheck{"batch of q and state", q.Shape[0], state.Shape[0]},
		dimCheck{"tokens of q and v", q.Shape[1], v.Shape[1]},
		dimCheck{"tokens of q and g", q.Shape[1], g.Shape[1]},
		dimCheck{"heads of v and g", v.Shape[2], g.Shape[2]},
		dimCheck{"heads of v and state", v.Shape[2], state.Shape[1]},
		dimCheck{"value dim of v and state", v.Shape[3], state.Shape[2]},
		dimCheck{"key dim of q and state", q.Shape[3], state.Shape[3]},
	); err != nil {
		return nil, err
	}
	if q.Shape[2].IsConst(0) {
		return nil, fmt.Errorf("q %s has no heads", q)
	}
	if r, ok := v.Shape[2].Mod(q.Shape[2]).Const(); ok && r != 0 {
		return nil, fmt.Errorf("the %s heads of q must divide the %s heads of v", q.Shape[2], v.Shape[2])
	}
	return []Type{like(v, q.DType), like(state, state.DType)}, nil
}

// inferSample infers the type of sample: for each row of logits [B, V] one token, i64. temperature is f32 with one
// element; top_k i64, top_p f32 and seed i64 have no dims.
func inferSample(c *Inference) ([]Type, error) {
	logits := c.Type("logits")
	if logits.Rank() == 3 {
		return nil, fmt.Errorf("logits must be [B, V], found %s: take the last token first (slice before lm_head)",
			logits)
	}
	if _, err := c.rank("logits", 2); err != nil {
		return nil, err
	}
	if err := needFloat("logits", logits.DType); err != nil {
		return nil, err
	}
	if t := c.Type("temperature"); t.DType != F32 || t.Rank() > 1 || !oneElement(t) {
		return nil, fmt.Errorf("temperature must be f32[] or f32[1], found %s", t)
	}
	for _, scalar := range []struct {
		operand string
		dtype   DType
	}{{"top_k", I64}, {"top_p", F32}, {"seed", I64}} {
		if !c.Has(scalar.operand) {
			continue
		}
		if t := c.Type(scalar.operand); t.DType != scalar.dtype || t.Rank() != 0 {
			return nil, fmt.Errorf("%s must be %s[], found %s", scalar.operand, scalar.dtype, t)
		}
	}
	return single(TensorType(I64, logits.Shape[0]))
}
