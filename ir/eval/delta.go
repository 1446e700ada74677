package eval

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"gated_delta_rule": func(c *Call) ([]Value, error) {
			return c.deltaRule(c.Tensor("q"), c.Tensor("k"), c.Tensor("v"), c.Tensor("g"),
				c.Tensor("beta"), c.Tensor("state"))
		},
		"metal_kernel": metalKernel,
	})
}

// deltaRule is the gated delta rule (Yang et al., Gated Delta Networks, 2025) over T steps:
//
//	S ← g·S;  S ← S + β·(v − S·k)·kᵀ;  y = S·q
//
// with q, k [B, T, Hk, Dk], v [B, T, Hv, Dv], g and β [B, T, Hv] and the state S [B, Hv, Dv, Dk] of value
// head h, which reads key head h/(Hv/Hk). It gives y [B, T, Hv, Dv] and the state after the last step.
// The state is float32 between steps; under Strict it is rounded once, at the end. Otherwise every step
// rounds like the operations of the scan that the rule can be written as, so that both give the same bits.
func (c *Call) deltaRule(q, k, v, g, beta, state *Tensor) ([]Value, error) {
	y, next, err := deltaSteps(c.Done, q, k, v, g, beta, state)
	if err != nil {
		return nil, err
	}
	out, err := c.floatResult(0, v.Shape, y)
	if err != nil {
		return nil, err
	}
	last, err := c.floatResult(1, state.Shape, next)
	if err != nil {
		return nil, err
	}
	return []Value{{Tensor: out}, {Tensor: last}}, nil
}

// deltaSteps computes y and the state after the last step of the gated delta rule, as float32. They are not
// whole when done is closed.
func deltaSteps(done <-chan struct{}, q, k, v, g, beta, state *Tensor) (y, next []float32, err error) {
	if len(q.Shape) != 4 || len(v.Shape) != 4 {
		return nil, nil, fmt.Errorf("q %v and v %v: want four dims, [B, T, H, D]", q.Shape, v.Shape)
	}
	batch, steps, keyHeads, keyWidth := q.Shape[0], q.Shape[1], q.Shape[2], q.Shape[3]
	heads, width := v.Shape[2], v.Shape[3]
	for _, want := range []struct {
		name  string
		t     *Tensor
		shape []int
	}{
		{"q", q, q.Shape},
		{"k", k, q.Shape},
		{"v", v, []int{batch, steps, heads, width}},
		{"g", g, []int{batch, steps, heads}},
		{"beta", beta, []int{batch, steps, heads}},
		{"state", state, []int{batch, heads, width, keyWidth}},
	} {
		if !slices.Equal(want.t.Shape, want.shape) {
			return nil, nil, fmt.Errorf("%s has shape %v, want %v, as q is %v and v is %v", want.name, want.t.Shape,
				want.shape, q.Shape, v.Shape)
		}
		if !want.t.DType.IsFloat() {
			return nil, nil, fmt.Errorf("%s is %s, want a floating-point dtype", want.name, want.t.DType)
		}
	}
	if keyHeads == 0 || heads%keyHeads != 0 {
		return nil, nil, fmt.Errorf("%d value heads, want a multiple of the %d key heads", heads, keyHeads)
	}
	y, err = room(v.Shape)
	if err != nil {
		return nil, nil, err
	}
	next = slices.Clone(state.F)
	// A row of a head's state takes part in nothing but its own element of y.
	parallelUntil(done, batch*heads*width, 3*steps*keyWidth, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			b, h, i := r/width/heads, r/width%heads, r%width
			s := next[r*keyWidth : (r+1)*keyWidth]
			for t := range steps {
				at := b*steps + t
				key := (at*keyHeads + h/(heads/keyHeads)) * keyWidth
				kt, qt := k.F[key:key+keyWidth], q.F[key:key+keyWidth]
				decay := g.F[at*heads+h]
				for j := range s {
					s[j] *= decay
				}
				delta := (v.F[(at*heads+h)*width+i] - sumProducts(s, kt)) * beta.F[at*heads+h]
				for j, x := range kt {
					s[j] += float32(x * delta)
				}
				y[(at*heads+h)*width+i] = sumProducts(s, qt)
			}
		}
	})
	return y, next, nil
}

// sumProducts is sum(multiply(x, y)): the products are rounded to float32 and added in float64.
func sumProducts(x, y []float32) float32 {
	s := 0.0
	for i, v := range x {
		s += float64(float32(v * y[i]))
	}
	return float32(s)
}

// gatedDeltaStep is the interface of the Metal kernel that ExecuTorch's exporter writes for the gated
// delta rule (backends/mlx/custom_kernel_ops/gated_delta_rule.py). Its source is not looked at. Our own
// kernel has the dtype of the state as a second template argument, StT; there it is InT.
var gatedDeltaStep = ir.MetalKernelAttrs{
	Name:             "gated_delta_step",
	InputNames:       []string{"q", "k", "v", "g", "beta", "state_in", "T"},
	OutputNames:      []string{"y", "state_out"},
	TemplateArgNames: []string{"InT", "Dk", "Dv", "Hk", "Hv"},
	TemplateArgKinds: []int{2, 0, 0, 0, 0},
}

// stateDType is the template argument of our kernel that the exporter's has not.
const stateDType = "StT"

// metalKernel runs the one kernel that is known by its interface. It is long because it reads the operands of the
// interface one by one.
func metalKernel(c *Call) ([]Value, error) {
	attrs, known := ir.Attrs[ir.MetalKernelAttrs](c.Op), gatedDeltaStep
	if attrs.Name != known.Name {
		return nil, fmt.Errorf("kernel %q is not known; without Metal only %s can run", attrs.Name, known.Name)
	}
	in, args := c.Tensors("inputs"), attrs.TemplateArgValues
	if len(args) == 0 || len(attrs.TemplateArgNames) != len(args) || len(attrs.TemplateArgKinds) != len(args) {
		return nil, fmt.Errorf("kernel %s has %d template arguments, %d names and %d kinds", attrs.Name, len(args),
			len(attrs.TemplateArgNames), len(attrs.TemplateArgKinds))
	}
	state := args[0]
	if at := slices.Index(attrs.TemplateArgNames, stateDType); at >= 0 {
		trimmed := *attrs
		state = args[at]
		trimmed.TemplateArgNames = slices.Delete(slices.Clone(attrs.TemplateArgNames), at, at+1)
		trimmed.TemplateArgKinds = slices.Delete(slices.Clone(attrs.TemplateArgKinds), at, at+1)
		args = slices.Delete(slices.Clone(args), at, at+1)
		attrs = &trimmed
	}
	if !slices.Equal(attrs.InputNames, known.InputNames) || !slices.Equal(attrs.OutputNames, known.OutputNames) ||
		!slices.Equal(attrs.TemplateArgNames, known.TemplateArgNames) ||
		!slices.Equal(attrs.TemplateArgKinds, known.TemplateArgKinds) ||
		len(in) != len(known.InputNames) || len(args) != len(known.TemplateArgNames) ||
		len(attrs.OutputDtypes) != len(known.OutputNames) ||
		len(c.Op.Results) != len(known.OutputNames) || attrs.InitValue != nil {
		return nil, fmt.Errorf("kernel %s has inputs %v, outputs %v and template arguments %v; known is the one with "+
			"inputs %v, outputs %v and template arguments %v",
			attrs.Name, attrs.InputNames, attrs.OutputNames, attrs.TemplateArgNames, known.InputNames,
			known.OutputNames, known.TemplateArgNames)
	}
	q, v, count := in[0], in[2], in[6]
	if len(q.Shape) != 4 || len(v.Shape) != 4 || count.DType != ir.I32 || len(count.I) != 1 {
		return nil, fmt.Errorf("kernel %s: q %v, v %v and T %s%v, want [B, T, H, D] twice and one i32", attrs.Name,
			q.Shape, v.Shape, count.DType, count.Shape)
	}
	batch, steps := q.Shape[0], q.Shape[1]
	keyHeads, keyWidth, heads, width := q.Shape[2], q.Shape[3], v.Shape[2], v.Shape[3]
	for _, check := range []struct {
		what       string
		have, want []int64
	}{
		{"T", count.I, int64s(steps)},
		{"template arguments", int64s(args[1:]...), int64s(keyWidth, width, keyHeads, heads)},
		{"grid", c.Ints("grid"), int64s(32, width, batch*heads)},
		{"output shapes", c.Ints("output_shapes_flat"),
			int64s(batch, steps, heads, width, batch, heads, width, keyWidth)},
	} {
		if !slices.Equal(check.have, check.want) {
			return nil, fmt.Errorf("kernel %s: %s are %v, want %v for q %v and v %v", attrs.Name, check.what,
				check.have, check.want, q.Shape, v.Shape)
		}
	}
	// The kernel's 32 threads share a row of the state evenly, and it writes elements of type InT.
	dtype := ir.DType(args[0])
	if group := c.Ints("threadgroup"); keyWidth%32 != 0 || len(group) != 3 || group[0] != 32 {
		return nil, fmt.Errorf("kernel %s: Dk is %d in threadgroups of %v, want a multiple of 32 and 32 "+
			"threads along x", attrs.Name, keyWidth, group)
	}
	if want := []ir.DType{dtype, ir.DType(state)}; !slices.Equal(attrs.OutputDtypes, want) {
		return nil, fmt.Errorf("kernel %s: outputs are %v, its template arguments make them %v", attrs.Name,
			attrs.OutputDtypes, want)
	}
	return c.deltaRule(q, in[1], v, in[3], in[4], in[5])
}

func int64s(v ...int) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}
