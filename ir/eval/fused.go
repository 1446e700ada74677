package eval

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"linears":          linears,
		"glu":              glu,
		"softcap":          softcap,
		"delta_decay":      deltaDecay,
		"cached_attention": cachedAttention,
	})
}

// updates are the kernels of operations that read and change their buffer, whose content they get.
var updates map[string]func(c *Call, state *Tensor) ([]Value, error)

func init() { // the kernels run operations themselves, which may be updates
	updates = map[string]func(c *Call, state *Tensor) ([]Value, error){
		"buffer_ring_update": ringUpdate,
		"buffer_conv":        convUpdate,
		"buffer_delta_rule":  deltaUpdate,
	}
}

// compose executes the operation of that name, as part of c, and gives its only result, of dtype d.
// Operands are *Tensor, int, []*Tensor or nil.
func (c *Call) compose(name string, d ir.DType, attrs any, operands ...any) (*Tensor, error) {
	def := ir.LookupOp(name)
	if attrs == nil {
		attrs = def.NewAttrs()
	}
	part := &Call{Op: &ir.Op{Def: def, Attrs: attrs, Args: make([][]ir.Arg, len(def.Operands)),
		Results: []*ir.Value{{Type: ir.Type{DType: d}}}},
		Precision: c.Precision, Args: make([][]Value, len(def.Operands)), Bits: c.Bits}
	for i, o := range operands {
		switch o := o.(type) {
		case *Tensor:
			part.Args[i] = []Value{{Tensor: o}}
		case int:
			part.Args[i] = []Value{{Int: int64(o)}}
		case []*Tensor:
			for _, t := range o {
				part.Args[i] = append(part.Args[i], Value{Tensor: t})
			}
		}
	}
	out, err := Run(part)
	if err != nil {
		return nil, err
	}
	return out[0].Tensor, nil
}

// linears multiplies x with every weight, as linear does.
func linears(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	var out []Value
	for i, v := range c.Args[c.index("weights")] {
		w, err := c.openWeight(v, fmt.Sprintf("weight %d", i))
		if err != nil {
			return nil, err
		}
		if len(w.shape) != 2 {
			return nil, fmt.Errorf("weight %d has shape %v, want two dims, [N, K]", i, w.shape)
		}
		shape, y, err := c.multiplyRows(c.as(x, c.Result(i).DType), x.Shape, w.matrices())
		if err != nil {
			return nil, err
		}
		t, err := c.floatResult(i, shape, y)
		if err != nil {
			return nil, err
		}
		out = append(out, Value{Tensor: t})
	}
	return out, nil
}

// activate applies an activation of glu.
func (c *Call) activate(name string, x *Tensor) (*Tensor, error) {
	switch name {
	case "gelu":
		return c.compose("gelu", x.DType, &ir.GeluAttrs{Approximate: "none"}, x)
	case "gelu_tanh":
		return c.compose("gelu", x.DType, &ir.GeluAttrs{Approximate: "tanh"}, x)
	}
	return c.compose(name, x.DType, nil, x)
}

// glu is activation(gate) · x (Dauphin et al., 2017; Shazeer, GLU Variants Improve Transformer, 2020).
func glu(c *Call) ([]Value, error) {
	gate, err := c.activate(ir.Attrs[ir.GLUAttrs](c.Op).Activation, c.Tensor("gate"))
	if err != nil {
		return nil, err
	}
	return one(c.compose("multiply", c.Result(0).DType, nil, gate, c.Tensor("x")))
}

// softcap is tanh(x / cap) · cap.
func softcap(c *Call) ([]Value, error) {
	d, x, limit := c.Result(0).DType, c.Tensor("x"), c.Tensor("cap")
	x, err := c.compose("divide", d, nil, x, limit)
	if err != nil {
		return nil, err
	}
	if x, err = c.compose("tanh", d, nil, x); err != nil {
		return nil, err
	}
	return one(c.compose("multiply", d, nil, x, limit))
}

// deltaDecay is exp(rate · log(1 + exp(x + bias))), the decay of the gated delta rule.
func deltaDecay(c *Call) ([]Value, error) {
	x, bias, rate := c.Tensor("x"), c.Tensor("bias"), c.Tensor("rate")
	sum := ir.Promote(x.DType, bias.DType)
	x, err := c.compose("add", sum, nil, x, bias)
	if err != nil {
		return nil, err
	}
	if x, err = c.compose("logaddexp", sum, nil, x, Floats(sum, nil, []float32{0})); err != nil {
		return nil, err
	}
	d := c.Result(0).DType
	if x, err = c.compose("multiply", d, nil, x, rate); err != nil {
		return nil, err
	}
	return one(c.compose("exp", d, nil, x))
}

// cachedAttention is sdpa over a cache that holds the S positions from position on beside earlier ones:
// position t lies in slot t mod R of the R slots of k and v. A query sees itself and what lies before it,
// in a window of that many positions where one is given. Without a window all positions must have a slot;
// with one, what a later position has overwritten is not seen.
func cachedAttention(c *Call) ([]Value, error) {
	attrs, q, k, v := ir.Attrs[ir.CachedAttentionAttrs](c.Op), c.Tensor("q"), c.Tensor("k"), c.Tensor("v")
	if len(q.Shape) != 4 || len(k.Shape) != 4 || len(v.Shape) != 4 {
		return nil, fmt.Errorf("q %v, k %v, v %v: want four dims, [B, H, S, D]", q.Shape, k.Shape, v.Shape)
	}
	position, queries, slots, d := int(c.int32("position")), q.Shape[2], k.Shape[2], c.Result(0).DType
	if err := CheckCache(position, queries, slots, attrs.Window); err != nil {
		return nil, err
	}
	if attrs.Window == 0 {
		var parts [2]*Tensor
		for i, t := range []*Tensor{k, v} {
			var err error
			if parts[i], err = c.compose("slice", t.DType, nil, t, 2, 0, position+queries); err != nil {
				return nil, err
			}
		}
		return one(c.compose("sdpa", d, &ir.SdpaAttrs{Scale: attrs.Scale, Causal: true}, q, parts[0], parts[1], nil))
	}
	mask, err := NewTensor(ir.Bool, queries, slots)
	if err != nil {
		return nil, err
	}
	last := position + queries - 1
	for i := range queries {
		for j := range slots {
			age := position + i - (last - floorMod(last-j, slots)) // of the position in slot j
			mask.I[i*slots+j] = int64(btoi(age >= 0 && age < attrs.Window && age <= position+i))
		}
	}
	return one(c.compose("sdpa", d, &ir.SdpaAttrs{Scale: attrs.Scale}, q, k, v, mask))
}

// CheckCache reports positions that a cache of a number of slots cannot hold: see cachedAttention.
func CheckCache(position, count, slots, window int) error {
	switch {
	case position < 0:
		return fmt.Errorf("position %d is negative", position)
	case count > slots || window == 0 && position+count > slots:
		return fmt.Errorf("%d positions from %d on do not fit %d slots", count, position, slots)
	}
	return nil
}

func floorMod(a, n int) int {
	if m := a % n; m < 0 {
		return m + n
	} else {
		return m
	}
}

// ringUpdate writes row i of update to slot (start + i) mod R.
func ringUpdate(c *Call, state *Tensor) ([]Value, error) {
	update := c.Tensor("update")
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(state.Shape))
	if err != nil {
		return nil, err
	}
	start, slots := int(c.int32("start")), state.Shape[axis]
	want := slices.Clone(state.Shape)
	if len(update.Shape) == len(want) {
		want[axis] = update.Shape[axis]
	}
	if !slices.Equal(update.Shape, want) || want[axis] > slots || start < 0 {
		return nil, fmt.Errorf("update %v at %d of a ring %v along axis %d", update.Shape, start, state.Shape, axis)
	}
	update = convert(update, state.DType, c.bufferPrecision())
	inner := 1
	for _, n := range state.Shape[axis+1:] {
		inner *= n
	}
	for i := range update.Len() / inner {
		outer, row := i/want[axis], i%want[axis]
		to := (outer*slots + (start+row)%slots) * inner
		if state.F != nil {
			copy(state.F[to:to+inner], update.F[i*inner:])
		} else {
			copy(state.I[to:to+inner], update.I[i*inner:])
		}
	}
	return nil, nil
}

// reset reports whether the state counts as zeros.
func (c *Call) reset() bool { return c.Has("reset") && c.Tensor("reset").I[0] != 0 }

// convUpdate is y[t] = activation(Σ_j w[c][j] · s[t+1+j]) for the rows s of the state followed by those of
// x; the last K rows become the state.
func convUpdate(c *Call, state *Tensor) ([]Value, error) {
	attrs, x, w := ir.Attrs[ir.BufferConvAttrs](c.Op), c.Tensor("x"), c.Tensor("w")
	rows := &Tensor{DType: state.DType, Shape: slices.Clone(state.Shape), F: slices.Clone(state.F)}
	if c.reset() {
		clear(rows.F)
	}
	var err error
	swap := &ir.TransposeAttrs{Perm: []int{0, 2, 1}}
	if attrs.ChannelFirst {
		if rows, err = c.compose("transpose", rows.DType, swap, rows); err != nil {
			return nil, err
		}
	}
	all, err := c.compose("concatenate", ir.Promote(rows.DType, x.DType), &ir.AxisAttrs{Axis: 1}, []*Tensor{rows, x})
	if err != nil {
		return nil, err
	}
	d, k := c.Result(0).DType, w.Shape[1]
	y, err := c.compose("conv1d", d, &ir.Conv1DAttrs{Stride: 1, Dilation: 1, Groups: w.Shape[0]}, all, w)
	if err != nil {
		return nil, err
	}
	if y, err = c.compose("slice", d, nil, y, 1, 1, y.Shape[1]); err != nil {
		return nil, err
	}
	if attrs.Activation != "" {
		if y, err = c.activate(attrs.Activation, y); err != nil {
			return nil, err
		}
	}
	last, err := c.compose("slice", all.DType, nil, all, 1, all.Shape[1]-k, all.Shape[1])
	if err != nil {
		return nil, err
	}
	if attrs.ChannelFirst {
		if last, err = c.compose("transpose", last.DType, swap, last); err != nil {
			return nil, err
		}
	}
	copy(state.F, convert(last, state.DType, c.bufferPrecision()).F)
	return []Value{{Tensor: y}}, nil
}

// deltaUpdate is gated_delta_rule from the state that the buffer holds to the one that it gets.
func deltaUpdate(c *Call, state *Tensor) ([]Value, error) {
	from := state
	if c.reset() {
		from = &Tensor{DType: state.DType, Shape: state.Shape, F: make([]float32, len(state.F))}
	}
	v := c.Tensor("v")
	y, next, err := deltaSteps(c.Done, c.Tensor("q"), c.Tensor("k"), v, c.Tensor("g"), c.Tensor("beta"), from)
	if err != nil {
		return nil, err
	}
	copy(state.F, convert(Floats(ir.F32, state.Shape, next), state.DType, c.bufferPrecision()).F)
	return one(c.floatResult(0, v.Shape, y))
}
