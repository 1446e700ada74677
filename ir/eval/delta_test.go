package eval

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func deltaArgs(a map[string]*Tensor, name string) []*Tensor {
	var out []*Tensor
	for _, key := range []string{"q", "k", "v", "g", "beta", "state_in"} {
		out = append(out, a[name+"."+key])
	}
	return out
}

func TestGatedDeltaRuleAgreesWithExecuTorch(t *testing.T) {
	a := answers(t, "executorch")
	x := deltaArgs(a, "gdr1")
	got := run(t, "gated_delta_rule", nil, FP32, x[0], x[1], x[2], x[3], x[4], x[5])
	requireNear(t, a["gdr1.y"], got[0])
	requireNear(t, a["gdr1.state_out"], got[1])
	require.Equal(t, answers(t, "executorch")["gdr1.state_in"], x[5], "an argument was changed")
}

// TestGatedDeltaRuleIsItsScan: the operation has the bits of the operations that the scan form consists of.
func TestGatedDeltaRuleIsItsScan(t *testing.T) {
	batch, steps, heads, width, keyWidth := 2, 3, 4, 5, 6
	q, k, v := floats(batch, steps, heads, keyWidth), floats(batch, steps, heads, keyWidth),
		floats(batch, steps, heads, width)
	g, beta, state := floats(batch, steps, heads), floats(batch, steps, heads), floats(batch, heads, width, keyWidth)
	got := run(t, "gated_delta_rule", nil, FP32, q, k, v, g, beta, state)
	do := func(op string, attrs any, args ...any) *Tensor { return run(t, op, attrs, FP32, args...)[0] }
	wide := func(x *Tensor, axis int) *Tensor { return do("expand_dims", &ir.AxisAttrs{Axis: axis}, x) }
	sum := func(x *Tensor) *Tensor { return do("sum", &ir.ReduceAttrs{Axes: []int{-1}}, x) }
	s := state
	for step := range steps {
		at := func(x *Tensor) *Tensor { return do("take", &ir.AxisAttrs{Axis: 1}, x, step) }
		s = do("multiply", nil, s, wide(wide(at(g), -1), -1))
		memory := sum(do("multiply", nil, s, wide(at(k), -2)))
		delta := do("multiply", nil, do("subtract", nil, at(v), memory), wide(at(beta), -1))
		s = do("add", nil, s, do("multiply", nil, wide(at(k), -2), wide(delta, -1)))
		require.Equal(t, sum(do("multiply", nil, s, wide(at(q), -2))), at(got[0]), "step %d", step)
	}
	require.Equal(t, s, got[1])
}

func TestGatedDeltaRuleRoundsAtTheEnd(t *testing.T) {
	tensors := []*Tensor{floats(1, 5, 1, 4), floats(1, 5, 1, 4), floats(1, 5, 2, 3), floats(1, 5, 2),
		floats(1, 5, 2), floats(1, 2, 3, 4)}
	var args []any
	for _, x := range tensors {
		x.DType = ir.BF16
		args = append(args, x)
	}
	exact, strict := run(t, "gated_delta_rule", nil, FP32, args...), run(t, "gated_delta_rule", nil, Strict, args...)
	for i := range exact {
		for j, v := range exact[i].F {
			require.Equal(t, round(ir.BF16, v), strict[i].F[j])
		}
	}
}

// step is a call of the exporter's Metal kernel for the given tensors.
func step(x []*Tensor) (*ir.MetalKernelAttrs, []any) {
	q, v := x[0].Shape, x[2].Shape
	attrs := &ir.MetalKernelAttrs{
		Name: "gated_delta_step", Source: "any text", EnsureRowContiguous: true,
		InputNames: slices.Clone(gatedDeltaStep.InputNames), OutputNames: slices.Clone(gatedDeltaStep.OutputNames),
		OutputShapeLengths: []int{4, 4}, OutputDtypes: []ir.DType{ir.F32, ir.F32},
		TemplateArgNames:  slices.Clone(gatedDeltaStep.TemplateArgNames),
		TemplateArgKinds:  slices.Clone(gatedDeltaStep.TemplateArgKinds),
		TemplateArgValues: []int{int(ir.F32), q[3], v[3], q[2], v[2]},
	}
	inputs := append(slices.Clone(x), Ints(ir.I32, nil, []int64{int64(q[1])}))
	return attrs, []any{inputs, []int{32, v[3], q[0] * v[2]}, []int{32, 4, 1},
		[]int{q[0], q[1], v[2], v[3], q[0], v[2], v[3], q[3]}}
}

func TestMetalKernelIsTheGatedDeltaRule(t *testing.T) {
	x := deltaArgs(answers(t, "executorch"), "gdr1")
	attrs, args := step(x)
	want := run(t, "gated_delta_rule", nil, FP32, x[0], x[1], x[2], x[3], x[4], x[5])
	require.Equal(t, want, run(t, "metal_kernel", attrs, FP32, args...))
}

func TestMetalKernelRefusals(t *testing.T) {
	x := deltaArgs(answers(t, "executorch"), "gdr1")
	for _, test := range []struct {
		want   string
		change func(*ir.MetalKernelAttrs, []any)
	}{
		{`"other_kernel"`, func(a *ir.MetalKernelAttrs, _ []any) { a.Name = "other_kernel" }},
		{"input", func(a *ir.MetalKernelAttrs, _ []any) { a.InputNames[0] = "query" }},
		{"output", func(a *ir.MetalKernelAttrs, _ []any) { a.OutputNames[1] = "state" }},
		{"template", func(a *ir.MetalKernelAttrs, _ []any) { a.TemplateArgNames[1] = "K" }},
		{"template", func(a *ir.MetalKernelAttrs, _ []any) { a.TemplateArgKinds[1] = 1 }},
		{"template", func(a *ir.MetalKernelAttrs, _ []any) { a.TemplateArgValues[3]++ }},
		{"outputs are", func(a *ir.MetalKernelAttrs, _ []any) { a.TemplateArgValues[0] = int(ir.BF16) }},
		{"grid", func(_ *ir.MetalKernelAttrs, x []any) { x[1].([]int)[1]-- }},
		{"thread", func(_ *ir.MetalKernelAttrs, x []any) { x[2].([]int)[0] = 16 }},
		{"shapes", func(_ *ir.MetalKernelAttrs, x []any) { x[3].([]int)[1] = 7 }},
		{"T are [5]", func(_ *ir.MetalKernelAttrs, x []any) { x[0].([]*Tensor)[6] = Ints(ir.I32, nil, []int64{5}) }},
		{"beta", func(_ *ir.MetalKernelAttrs, x []any) { x[0].([]*Tensor)[4] = floats(1, 6, 5) }},
	} {
		attrs, args := step(x)
		test.change(attrs, args)
		requireError(t, test.want, "metal_kernel", attrs, args...)
	}
	// Every kernel that is not known is refused by its name, whatever its interface.
	init := float32(0)
	requireError(t, `"scale"`, "metal_kernel", &ir.MetalKernelAttrs{Name: "scale", InputNames: []string{"x"},
		OutputNames:        []string{"y"},
		OutputShapeLengths: []int{1}, OutputDtypes: []ir.DType{ir.F32}, InitValue: &init}, []*Tensor{floats(2)},
		[]int{1, 1, 1}, []int{1, 1, 1}, []int{2})
}

func TestGatedDeltaRuleRefusals(t *testing.T) {
	q, v, g, state := floats(1, 2, 2, 4), floats(1, 2, 4, 3), floats(1, 2, 4), floats(1, 4, 3, 4)
	run(t, "gated_delta_rule", nil, FP32, q, q, v, g, g, state)
	requireError(t, "state", "gated_delta_rule", nil, q, q, v, g, g, floats(1, 4, 4, 3))
	requireError(t, "heads", "gated_delta_rule", nil, floats(1, 2, 3, 4), floats(1, 2, 3, 4), v, g, g, state)
	requireError(t, "heads", "gated_delta_rule", nil, floats(1, 2, 0, 4), floats(1, 2, 0, 4), v, g, g, state)
	// NaN travels: a bad step spoils its own row of the state and nothing else.
	bad := floats(1, 2, 4, 3)
	bad.F[0] = float32(math.NaN())
	want, got := run(t, "gated_delta_rule", nil, FP32, q, q, v, g, g, state),
		run(t, "gated_delta_rule", nil, FP32, q, q, bad, g, g, state)
	require.True(t, got[1].F[0] != got[1].F[0])
	require.Equal(t, want[1].F[4:], got[1].F[4:])
}
