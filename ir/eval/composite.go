package eval

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"linear":     linear,
		"embedding":  embedding,
		"top_k":      topK,
		"switch_mlp": switchMLP, "switch_geglu": switchMLP,
	})
}

// weight is a weight operand: a tensor or quantized codes, with the dtype that it counts as.
type weight struct {
	shape []int
	dtype ir.DType
	dense *Tensor
	codes *codes
}

// weight opens the weight in an operand.
func (c *Call) weight(operand string) (*weight, error) {
	return c.openWeight(c.Args[c.index(operand)][0], operand)
}

func (c *Call) openWeight(v Value, operand string) (*weight, error) {
	if v.Quantized == nil {
		if !v.Tensor.DType.IsFloat() {
			return nil, fmt.Errorf("%s is %s, want a floating-point dtype or a quantized weight",
				operand, v.Tensor.DType)
		}
		return &weight{v.Tensor.Shape, v.Tensor.DType, v.Tensor, nil}, nil
	}
	q, err := c.open(v.Quantized)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operand, err)
	}
	return &weight{append(slices.Clone(q.batch), q.rows, q.inner), v.Quantized.DType, nil, q}, nil
}

// matrices reads a weight [..., N, K] by rows.
func (w *weight) matrices() *matrices {
	if w.codes != nil {
		return w.codes.matrices(true)
	}
	return denseRows(w.dense.F, w.shape)
}

// linear is x·Wᵀ + bias for x [..., K], W [N, K] and bias [N]. Under Strict the product with a quantized
// weight is rounded before the bias is added, as the node for it has no bias.
func linear(c *Call) ([]Value, error) {
	w, err := c.weight("weight")
	if err != nil {
		return nil, err
	}
	if len(w.shape) != 2 {
		return nil, fmt.Errorf("weight has shape %v, want two dims, [N, K]", w.shape)
	}
	x, d := c.Tensor("x"), c.Result(0).DType
	shape, out, err := c.multiplyRows(c.as(x, d), x.Shape, w.matrices())
	if err != nil {
		return nil, err
	}
	if bias := c.Tensor("bias"); bias != nil {
		if w.codes != nil {
			c.roundAll(ir.Promote(x.DType, w.dtype), out)
		}
		if err := addBias(out, shape, c.as(bias, d), bias.Shape, 1, 1); err != nil {
			return nil, err
		}
	}
	return one(c.floatResult(0, shape, out))
}

// embedding takes the rows of a weight [V, K] that indices name; negative indices count from the end.
func embedding(c *Call) ([]Value, error) {
	w, err := c.weight("weight")
	if err != nil {
		return nil, err
	}
	indices := c.Tensor("indices")
	if len(w.shape) != 2 || indices.DType.IsFloat() {
		return nil, fmt.Errorf("weight has shape %v and indices are %s, want [V, K] and an integer dtype",
			w.shape, indices.DType)
	}
	rows, n := w.shape[0], w.shape[1]
	shape := append(slices.Clone(indices.Shape), n)
	if _, err := elements(shape); err != nil {
		return nil, err
	}
	list := make([]int, len(indices.I))
	for i, at := range indices.I {
		if at < -int64(rows) || at >= int64(rows) {
			return nil, fmt.Errorf("indices[%d] is %d, the weight has %d rows", i, at, rows)
		}
		if list[i] = int(at); at < 0 {
			list[i] += rows
		}
	}
	if w.codes != nil {
		return one(c.floatResult(0, shape, w.codes.rounded(c, list, w.dtype)))
	}
	out := make([]float32, len(list)*n)
	for i, at := range list {
		copy(out[i*n:(i+1)*n], w.dense.F[at*n:(at+1)*n])
	}
	return one(c.floatResult(0, shape, out))
}

// topK returns the K largest elements along the last axis, largest first, and their indices. Of equal
// elements the later ones are chosen and come first, as where MLX sorts fully (on a GPU; on a CPU it
// chooses the same elements, and equal ones among them may change places). A NaN is larger than all.
func topK(c *Call) ([]Value, error) {
	x, k := c.Tensor("x"), ir.Attrs[ir.TopKAttrs](c.Op).K
	if len(x.Shape) == 0 || k < 1 || k > x.Shape[len(x.Shape)-1] {
		return nil, fmt.Errorf("the %d largest along the last axis of shape %v: want 1 to its size", k, x.Shape)
	}
	n := x.Shape[len(x.Shape)-1]
	shape := withDim(x.Shape, len(x.Shape)-1, k)
	values, err := NewTensor(x.DType, shape...)
	if err != nil {
		return nil, err
	}
	indices, err := NewTensor(ir.U32, shape...)
	if err != nil {
		return nil, err
	}
	for r := range x.Len() / n {
		at, order := r*k, []int(nil)
		if x.DType.IsFloat() {
			order = largest(x.F[r*n:(r+1)*n], k)
		} else {
			order = largest(x.I[r*n:(r+1)*n], k)
		}
		for i, from := range order {
			indices.I[at+i] = int64(from)
			if x.DType.IsFloat() {
				values.F[at+i] = x.F[r*n+from]
			} else {
				values.I[at+i] = x.I[r*n+from]
			}
		}
	}
	return []Value{{Tensor: values}, {Tensor: c.cast(indices, c.Result(1).DType)}}, nil
}

// largest returns the positions of the k largest elements of x in the order of topK.
func largest[T int64 | float32](x []T, k int) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := x[i], x[j]
		switch {
		case a > b || a != a && b == b:
			return -1
		case a < b || b != b && a == a:
			return 1
		}
		return j - i
	})
	return order[:k]
}

// switchMLP is a mixture of experts: Σ_j scores[j] · down[e]·(a(gate[e]·x) ⊙ up[e]·x) with e = indices[j], where a is
// silu, or in switch_geglu the tanh form of gelu, for x [..., H], indices and scores [..., k], gate and up [E, I, H],
// down [E, H, I]. Under Strict every step is rounded as the operations that it is decomposed into are. SortCutoff only
// says when sorting tokens by expert pays, so it changes nothing here. It is long because it is one sequence of steps,
// each of which needs what those before it made.
func switchMLP(c *Call) ([]Value, error) {
	experts, err := c.experts()
	if err != nil {
		return nil, err
	}
	gate, up, down := experts[0], experts[1], experts[2]
	x, indices, scores := c.Tensor("x"), c.Tensor("indices"), c.Tensor("scores")
	rank := len(x.Shape)
	perToken := indices.Shape[rank-1]
	tokens, expert := make([]int, len(indices.I)), make([]int, len(indices.I))
	for i, e := range indices.I {
		if e < 0 || e >= int64(gate.shape[0]) {
			return nil, fmt.Errorf("indices[%d] is %d, there are %d experts", i, e, gate.shape[0])
		}
		tokens[i], expert[i] = i/perToken, int(e)
	}
	apply := func(w *weight, v []float32, rows []int, d ir.DType) ([]float32, error) {
		out, err := room([]int{len(rows), w.shape[1]})
		if err == nil {
			m := w.matrices()
			m.multiply(c.Done, products(v, 1, m, out, rows, expert))
			c.roundAll(d, out)
		}
		return out, err
	}
	gateType, upType := ir.Promote(x.DType, gate.dtype), ir.Promote(x.DType, up.dtype)
	hiddenType := ir.Promote(gateType, upType)
	downType := ir.Promote(hiddenType, down.dtype)
	hidden, err := apply(gate, c.as(x, gateType), tokens, gateType)
	if err != nil {
		return nil, err
	}
	lifted, err := apply(up, c.as(x, upType), tokens, upType)
	if err != nil {
		return nil, err
	}
	if err := c.gateExperts(gateType, hiddenType, hidden, lifted); err != nil {
		return nil, err
	}
	pairs := make([]int, len(expert))
	for i := range pairs {
		pairs[i] = i
	}
	outputs, err := apply(down, hidden, pairs, downType)
	if err != nil {
		return nil, err
	}
	out, err := room(x.Shape)
	if err != nil {
		return nil, err
	}
	n, sumType := x.Shape[rank-1], ir.Promote(downType, scores.DType)
	share, sums := c.as(scores, sumType), make([]float64, n)
	for i, token := range tokens {
		for k, v := range outputs[i*n : (i+1)*n] {
			sums[k] += float64(c.Round(sumType, float32(v*share[i])))
		}
		if (i+1)%perToken == 0 {
			for k, s := range sums {
				out[token*n+k] = float32(s)
			}
			clear(sums)
		}
	}
	return one(c.floatResult(0, x.Shape, out))
}

// experts are the weights gate, up and down of a mixture of experts, whose operands fit each other.
func (c *Call) experts() (experts [3]*weight, err error) {
	for i, operand := range []string{"gate", "up", "down"} {
		w, err := c.weight(operand)
		if err != nil {
			return experts, err
		}
		if len(w.shape) != 3 {
			return experts, fmt.Errorf("%s has shape %v, want three dims, [experts, out, in]", operand, w.shape)
		}
		experts[i] = w
	}
	gate, up, down := experts[0], experts[1], experts[2]
	x, indices, scores := c.Tensor("x"), c.Tensor("indices"), c.Tensor("scores")
	rank := len(x.Shape)
	switch {
	case !slices.Equal(gate.shape, up.shape) ||
		!slices.Equal(down.shape, []int{gate.shape[0], gate.shape[2], gate.shape[1]}):
		err = fmt.Errorf("gate %v, up %v and down %v: want [E, I, H] twice and [E, H, I]",
			gate.shape, up.shape, down.shape)
	case rank == 0 || x.Shape[rank-1] != gate.shape[2]:
		err = fmt.Errorf("x has shape %v, its last dim must be %d", x.Shape, gate.shape[2])
	case len(indices.Shape) != rank || !slices.Equal(indices.Shape[:rank-1], x.Shape[:rank-1]) ||
		!slices.Equal(indices.Shape, scores.Shape):
		err = fmt.Errorf("indices %v and scores %v for x %v: want x's dims with the last one the number of "+
			"experts per token", indices.Shape, scores.Shape, x.Shape)
	case indices.DType.IsFloat():
		err = fmt.Errorf("indices are %s, want an integer dtype", indices.DType)
	}
	return experts, err
}

// GateExperts sets gate to the input of the down projections of a mixture of experts op, a(gate) ⊙ up in float32.
func GateExperts(op *ir.Op, gate, up []float32) error {
	c := &Call{Op: op}
	return c.gateExperts(ir.F32, ir.F32, gate, up)
}

// gateExperts sets gate, of dtype gateType, to a(gate) ⊙ up.
func (c *Call) gateExperts(gateType, hiddenType ir.DType, gate, up []float32) error {
	if err := c.activateExperts(gateType, gate); err != nil {
		return err
	}
	for i, g := range gate {
		gate[i] = c.Round(hiddenType, g*up[i])
	}
	return nil
}

// activateExperts applies the activation of a mixture of experts to what gates give, of dtype d.
func (c *Call) activateExperts(d ir.DType, v []float32) error {
	if c.Op.Def.Name == "switch_geglu" {
		t, err := c.activate("gelu_tanh", Floats(d, []int{len(v)}, v))
		if err == nil {
			copy(v, t.F)
		}
		return err
	}
	for i, g := range v {
		v[i] = c.Round(d, g*c.Round(d, sigmoid(g)))
	}
	return nil
}
