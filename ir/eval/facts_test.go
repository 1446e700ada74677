package eval

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir"
)

// These tests hold the facts of the op table (ir/facts.go) against the reference kernels.

// example is an application of an operation to tensors of any shape that it takes.
type example struct {
	def      *ir.OpDef
	attrs    any
	operands []any
}

// run evaluates the example with other operands, and gives the operation, typed.
func (e *example) run(operands []any) (*ir.Op, []*Tensor, error) {
	c, err := newCall(e.def.Name, e.attrs, FP32, operands...)
	if err != nil {
		return nil, nil, err
	}
	values, err := Run(c)
	out := make([]*Tensor, len(values))
	for i, v := range values {
		out[i] = v.Tensor
	}
	return c.Op, out, err
}

// size draws a length of an axis.
func size(t *rapid.T) int { return rapid.IntRange(1, 4).Draw(t, "size") }

// sizes draws a shape.
func sizes(t *rapid.T, least, most int) []int {
	return rapid.SliceOfN(rapid.IntRange(1, 4), least, most).Draw(t, "shape")
}

// random draws a tensor: floats between -2 and 2, integers between 1 and 4.
func random(t *rapid.T, d ir.DType, shape ...int) *Tensor {
	x, err := NewTensor(d, slices.Clone(shape)...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.F {
		x.F[i] = float32(rapid.IntRange(-200, 200).Draw(t, "element")) / 100
	}
	for i := range x.I {
		x.I[i] = int64(rapid.IntRange(1, 4).Draw(t, "element"))
		if d == ir.Bool {
			x.I[i] &= 1
		}
	}
	return x
}

// broadcastable draws a shape that broadcasts to another.
func broadcastable(t *rapid.T, shape []int) []int {
	out := slices.Clone(shape[rapid.IntRange(0, len(shape)).Draw(t, "dropped"):])
	for i := range out {
		if rapid.IntRange(0, 3).Draw(t, "broadcast") == 0 {
			out[i] = 1
		}
	}
	return out
}

// distinct has the elements 0, 1, 2, …
func distinct(shape []int) *Tensor { return iota32(slices.Clone(shape)...) }

// elementwise draws an example of an operation that broadcasts, in the first dtype that it takes.
func elementwise(t *rapid.T, def *ir.OpDef) *example {
	shape := sizes(t, 1, 4)
	if def.Name == "delta_decay" {
		n := shape[len(shape)-1]
		return &example{def, nil, []any{random(t, ir.F32, shape...), random(t, ir.F32, n), random(t, ir.F32, n)}}
	}
	attrs := def.NewAttrs()
	switch a := attrs.(type) {
	case *ir.GeluAttrs:
		a.Approximate = rapid.SampledFrom([]string{"none", "tanh"}).Draw(t, "approximate")
	case *ir.GLUAttrs:
		a.Activation = rapid.SampledFrom(ir.Activations).Draw(t, "activation")
	case *ir.DTypeAttrs:
		a.ScalarType = rapid.SampledFrom([]ir.DType{ir.F32, ir.I32}).Draw(t, "dtype")
	}
	shapes := make([][]int, len(def.Operands))
	whole := rapid.IntRange(0, len(def.Operands)-1).Draw(t, "whole")
	for i := range shapes {
		if shapes[i] = shape; i != whole {
			shapes[i] = broadcastable(t, shape)
		}
	}
	for _, d := range []ir.DType{ir.F32, ir.I32, ir.Bool} {
		e := &example{def, attrs, nil}
		for i, o := range def.Operands {
			switch {
			case o.Kind == ir.FloatOperand:
				e.operands = append(e.operands, 3)
			case o.Name == "condition":
				e.operands = append(e.operands, random(t, ir.Bool, shapes[i]...))
			default:
				e.operands = append(e.operands, random(t, d, shapes[i]...))
			}
		}
		if _, _, err := e.run(e.operands); err == nil {
			return e
		} else if d == ir.Bool {
			t.Fatalf("%s takes neither floats nor integers nor bools: %v", def.Name, err)
		}
	}
	return nil
}

// withAxis draws an example of an operation with an attribute Axis.
func withAxis(attrs func(axis int) any, more ...any) func(*rapid.T, *ir.OpDef) *example {
	return func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		axis := rapid.IntRange(-len(shape), len(shape)-1).Draw(t, "axis")
		return &example{def, attrs(axis), append([]any{random(t, ir.F32, shape...)}, more...)}
	}
}

func axisAttrs(axis int) any { return &ir.AxisAttrs{Axis: axis} }

// optional draws whether an operand is there.
func optional(t *rapid.T, x *Tensor) any {
	if rapid.Bool().Draw(t, "present") {
		return x
	}
	return nil
}

// drawnMixture draws a mixture of experts.
func drawnMixture(t *rapid.T, def *ir.OpDef) *example {
	b, s, h, inner, k := size(t), size(t), size(t), size(t), size(t)
	return &example{def, &ir.SwitchMLPAttrs{SortCutoff: size(t)},
		[]any{random(t, ir.F32, b, s, h), random(t, ir.F32, 5, inner, h), random(t, ir.F32, 5, inner, h),
			random(t, ir.F32, 5, h, inner), random(t, ir.I32, b, s, k), random(t, ir.F32, b, s, k)}}
}

// examples draw examples of the operations that are not elementwise, by name.
var examples = map[string]func(*rapid.T, *ir.OpDef) *example{
	"rms_norm": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		return &example{def, &ir.NormAttrs{Eps: 1e-5},
			[]any{random(t, ir.F32, shape...), optional(t, random(t, ir.F32, shape[len(shape)-1]))}}
	},
	"layer_norm": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		n := shape[len(shape)-1]
		return &example{def, &ir.NormAttrs{Eps: 1e-5},
			[]any{random(t, ir.F32, shape...), optional(t, random(t, ir.F32, n)), optional(t, random(t, ir.F32, n))}}
	},
	"addmm": func(t *rapid.T, def *ir.OpDef) *example {
		k, n, shape := size(t), size(t), sizes(t, 0, 3)
		right := append(broadcastable(t, shape[:max(0, len(shape)-1)]), k, n)
		if rapid.IntRange(0, 3).Draw(t, "vector") == 0 {
			right, n = []int{k}, 1
		}
		result := append(slices.Clone(shape), n)
		if len(right) == 1 {
			result = shape
		}
		return &example{def, nil, []any{random(t, ir.F32, append(shape, k)...), random(t, ir.F32, right...),
			optional(t, random(t, ir.F32, broadcastable(t, result)...))}}
	},
	"quantized_matmul": func(t *rapid.T, def *ir.OpDef) *example {
		n, shape := size(t), sizes(t, 1, 3)
		batch := broadcastable(t, shape[:len(shape)-1])
		part := func(d ir.DType, width int) *Tensor { return random(t, d, append(slices.Clone(batch), n, width)...) }
		return &example{def, &ir.QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: "affine", Transpose: true},
			[]any{random(t, ir.F32, append(shape, 64)...), part(ir.U32, 8), part(ir.F32, 2), part(ir.F32, 2)}}
	},
	"linear": func(t *rapid.T, def *ir.OpDef) *example {
		k, n := size(t), size(t)
		return &example{def, nil, []any{random(t, ir.F32, append(sizes(t, 0, 3), k)...), random(t, ir.F32, n, k),
			optional(t, random(t, ir.F32, n))}}
	},
	"linears": func(t *rapid.T, def *ir.OpDef) *example {
		k := size(t)
		return &example{def, nil, []any{random(t, ir.F32, append(sizes(t, 0, 3), k)...),
			[]*Tensor{random(t, ir.F32, size(t), k), random(t, ir.F32, size(t), k)}}}
	},
	"top_k": func(t *rapid.T, def *ir.OpDef) *example {
		n := size(t)
		return &example{def, &ir.TopKAttrs{K: rapid.IntRange(1, n).Draw(t, "k")},
			[]any{random(t, ir.F32, append(sizes(t, 0, 3), n)...)}}
	},
	"switch_mlp": drawnMixture, "switch_geglu": drawnMixture,
	"softmax":      withAxis(func(axis int) any { return &ir.SoftmaxAttrs{Axis: axis} }),
	"sort":         withAxis(axisAttrs),
	"argsort":      withAxis(axisAttrs),
	"partition":    withAxis(axisAttrs, 0),
	"argpartition": withAxis(axisAttrs, 0),
	"cumsum": func(t *rapid.T, def *ir.OpDef) *example {
		reverse, inclusive := rapid.Bool().Draw(t, "reverse"), rapid.Bool().Draw(t, "inclusive")
		return withAxis(func(axis int) any {
			return &ir.CumsumAttrs{Axis: axis, Reverse: reverse,
				Inclusive: inclusive}
		})(t, def)
	},
	"slice": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		axis := rapid.IntRange(-len(shape), len(shape)-1).Draw(t, "axis")
		start := rapid.IntRange(0, 1).Draw(t, "start")
		return &example{def, &ir.StepAttrs{Step: rapid.IntRange(1, 2).Draw(t, "step")},
			[]any{distinct(shape), axis, start, start + size(t)}}
	},
	"take": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		axis := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
		var index any = rapid.IntRange(-shape[axis], shape[axis]-1).Draw(t, "index")
		if rapid.Bool().Draw(t, "tensor") {
			index = list(ir.I32, 0, int64(shape[axis]-1))
		}
		return &example{def, axisAttrs(axis), []any{distinct(shape), index}}
	},
	"transpose": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		perm := rapid.Permutation([]int{0, 1, 2, 3}[:len(shape)]).Draw(t, "perm")
		return &example{def, &ir.TransposeAttrs{Perm: slices.Clone(perm)}, []any{distinct(shape)}}
	},
	"reshape": func(t *rapid.T, def *ir.OpDef) *example {
		shape, a, b := sizes(t, 0, 2), size(t), size(t)
		to := append(slices.Clone(shape), a*b)
		if from := append(shape, a, b); rapid.Bool().Draw(t, "split") {
			return &example{def, nil, []any{distinct(to), from}}
		} else {
			return &example{def, nil, []any{distinct(from), to}}
		}
	},
	"expand_dims": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 0, 3)
		return &example{def, axisAttrs(rapid.IntRange(0, len(shape)).Draw(t, "axis")), []any{distinct(shape)}}
	},
	"squeeze": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 0, 3)
		axis := rapid.IntRange(0, len(shape)).Draw(t, "axis")
		return &example{def, &ir.SqueezeAttrs{Dims: []int{axis}}, []any{distinct(slices.Insert(shape, axis, 1))}}
	},
	"broadcast_to": func(t *rapid.T, def *ir.OpDef) *example {
		shape := sizes(t, 1, 4)
		return &example{def, nil, []any{distinct(broadcastable(t, shape)), shape}}
	},
	"as_strided": func(t *rapid.T, def *ir.OpDef) *example {
		return &example{def, &ir.AsStridedAttrs{Offset: rapid.IntRange(0, 3).Draw(t, "offset")},
			[]any{distinct([]int{4, 4}), []int{2, 3}, []int{1, 4}}}
	},
	"embedding": func(t *rapid.T, def *ir.OpDef) *example {
		return &example{def, nil, []any{random(t, ir.I32, sizes(t, 1, 3)...), random(t, ir.F32, 5, size(t))}}
	},
	"cached_attention": func(t *rapid.T, def *ir.OpDef) *example {
		b, kv, s, d, slots := size(t), size(t), size(t), size(t), 8
		position, window := rapid.IntRange(0, slots-s).Draw(t, "position"), 0
		if rapid.Bool().Draw(t, "ring") { // a ring keeps the window of the first query
			window = rapid.IntRange(1, slots-s+1).Draw(t, "window")
			position = rapid.IntRange(0, 20).Draw(t, "position")
		}
		return &example{def, &ir.CachedAttentionAttrs{Scale: 0.5, Window: window},
			[]any{random(t, ir.F32, b, 2*kv, s, d), random(t, ir.F32, b, kv, slots, d),
				random(t, ir.F32, b, kv, slots, d), position}}
	},
	"block_attention": func(t *rapid.T, def *ir.OpDef) *example {
		kv, r, d := size(t), size(t), size(t) // positions are 1 to 4, sequences 1 to 4, blocks 1 to 4
		return &example{def, &ir.CachedAttentionAttrs{Scale: 0.5, Window: rapid.IntRange(0, 3).Draw(t, "window"),
			First: rapid.IntRange(0, 2).Draw(t, "first")},
			[]any{random(t, ir.F32, 1, 2*kv, r, d), random(t, ir.F32, kv, 5, 2, d), random(t, ir.F32, kv, 5, 2, d),
				random(t, ir.I64, r), random(t, ir.I32, r), random(t, ir.I32, 5, 3)}}
	},
}

// eachFact calls check with examples of every operation that has a fact.
func eachFact(t *testing.T, has func(*ir.OpDef) bool, check func(*rapid.T, *example)) {
	for i := range ir.Ops {
		def := &ir.Ops[i]
		if !has(def) {
			continue
		}
		t.Run(def.Name, func(t *testing.T) {
			draw := examples[def.Name]
			if draw == nil && def.IsElementwise() {
				draw = elementwise
			}
			require.NotNil(t, draw, "no examples of this operation are drawn")
			rapid.Check(t, func(t *rapid.T) { check(t, draw(t, def)) })
		})
	}
}

// TestRowsAreIndependent: some rows of the result are the result for these rows of the operands.
func TestRowsAreIndependent(t *testing.T) {
	compared := map[string]int{}
	eachFact(t, func(d *ir.OpDef) bool { return d.Rows != ir.NoRows }, func(t *rapid.T, e *example) {
		op, want, err := e.run(e.operands)
		require.NoError(t, err)
		for axis, n := range want[0].Shape {
			rows := ir.RowsOf(op, axis)
			if rows == nil {
				continue
			}
			lo := rapid.IntRange(0, n-1).Draw(t, "first")
			hi := rapid.IntRange(lo+1, n).Draw(t, "end")
			operands := slices.Clone(e.operands)
			if rows.Position >= 0 {
				hi = n
				operands[rows.Position] = operands[rows.Position].(int) + lo
			}
			for _, r := range rows.Operands {
				operands[r.Operand] = rowsOf(operands[r.Operand].(*Tensor), r.Axis, lo, hi)
			}
			few := *e
			if e.def.View == ir.ReshapeView { // which number of rows an operand or attribute may say
				shape := slices.Clone(want[0].Shape)
				shape[axis] = hi - lo
				few, operands = example{ir.LookupOp("reshape"), nil, nil}, []any{operands[0], shape}
			}
			_, got, err := few.run(operands)
			require.NoError(t, err)
			for i := range want {
				requireBits(t, rowsOf(want[i], axis, lo, hi), got[i], "%s, axis %d, rows %d to %d",
					ir.FormatAttrs(op), axis, lo, hi)
			}
			if n > 1 {
				compared[e.def.Name]++
			}
		}
	})
	for i := range ir.Ops {
		if d := &ir.Ops[i]; d.Rows != ir.NoRows {
			require.Positive(t, compared[d.Name], "no rows of %s were compared", d.Name)
		}
	}
}

// TestElementwise: each element of the result is the result for the elements of the operands there.
func TestElementwise(t *testing.T) {
	eachFact(t, (*ir.OpDef).IsElementwise, func(t *rapid.T, e *example) {
		_, want, err := e.run(e.operands)
		require.NoError(t, err)
		at := make([]int, len(want[0].Shape))
		for i, n := range want[0].Shape {
			at[i] = rapid.IntRange(0, n-1).Draw(t, "index")
		}
		element := func(x *Tensor) *Tensor {
			for i, n := range x.Shape {
				lo := min(at[len(at)-len(x.Shape)+i], n-1) // the only one of a dim that is broadcast
				x = rowsOf(x, i, lo, lo+1)
			}
			return x
		}
		operands := slices.Clone(e.operands)
		for i, o := range operands {
			if x, ok := o.(*Tensor); ok {
				operands[i] = element(x)
			}
		}
		_, got, err := e.run(operands)
		require.NoError(t, err)
		one := element(want[0])
		requireBits(t, &Tensor{DType: one.DType, Shape: got[0].Shape, F: one.F, I: one.I}, got[0], "element %v", at)
	})
}

// TestViews: the elements of a view are elements of x, in the places that the kind of view says.
func TestViews(t *testing.T) {
	eachFact(t, (*ir.OpDef).IsView, func(t *rapid.T, e *example) {
		_, out, err := e.run(e.operands)
		require.NoError(t, err)
		x, y := e.operands[0].(*Tensor), out[0]
		switch e.def.View {
		case ir.CopyView:
			requireBits(t, x, y, "")
		case ir.CastView:
			require.Equal(t, x.Shape, y.Shape)
			for i := range y.Len() {
				require.InDelta(t, math.Trunc(elementOf(x, i)), math.Trunc(elementOf(y, i)), 0)
			}
		case ir.ReshapeView:
			require.Equal(t, x.F, y.F)
		case ir.SelectView:
			for _, v := range y.F {
				require.Contains(t, x.F, v)
			}
			// The places do not depend on the values.
			more, operands := x.Clone(), slices.Clone(e.operands)
			for i := range more.F {
				more.F[i] += 100
			}
			operands[0] = more
			_, again, err := e.run(operands)
			require.NoError(t, err)
			for i, v := range y.F {
				require.Equal(t, v+100, again[0].F[i])
			}
		}
	})
}

// TestFoldable: what can be folded has a kernel, or an expansion, that sees its arguments and nothing else.
func TestFoldable(t *testing.T) {
	foldable := 0
	for i := range ir.Ops {
		d := &ir.Ops[i]
		if !d.CanFold() {
			continue
		}
		foldable++
		require.True(t, kernels[d.Name] != nil || d.Expand != nil, "%s has neither a kernel nor an expansion", d.Name)
		require.Zero(t, d.Regions, d.Name)
		require.Equal(t, ir.NoState, d.State, d.Name)
	}
	require.Greater(t, foldable, 100)
	for _, name := range []string{"random_bits", "sample", "undef", "load", "store", "if", "scan",
		"buffer_conv", "noop"} {
		require.False(t, ir.LookupOp(name).CanFold(), name)
	}
}

// TestStateUse: what writes a buffer does to its content what the op table says.
func TestStateUse(t *testing.T) {
	for name, write := range map[string]func() (any, []*Tensor){
		"store":               func() (any, []*Tensor) { return nil, []*Tensor{iota32(1, 4, 2)} },
		"buffer_slice_update": func() (any, []*Tensor) { return nil, []*Tensor{iota32(1, 2, 2)} },
		"buffer_index_copy": func() (any, []*Tensor) {
			return axisAttrs(1),
				[]*Tensor{iota32(1, 2, 2), list(ir.I64, 3, 0)}
		},
		"buffer_ring_update": func() (any, []*Tensor) { return axisAttrs(1), []*Tensor{iota32(1, 2, 2)} },
		"buffer_conv":        func() (any, []*Tensor) { return nil, []*Tensor{iota32(1, 1, 2), iota32(2, 4, 1)} },
		"buffer_delta_rule": func() (any, []*Tensor) {
			return nil, []*Tensor{floats(1, 1, 1, 2), floats(1, 1, 1, 2), floats(1, 1, 1, 4),
				floats(1, 1, 1), floats(1, 1, 1)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			after := func(state *Tensor) *Tensor { return writeState(t, name, state, write) }
			one, other := iota32(1, 4, 2), iota32(1, 4, 2)
			if name == "buffer_delta_rule" {
				one, other = iota32(1, 1, 4, 2), iota32(1, 1, 4, 2)
			}
			for i := range one.F {
				one.F[i], other.F[i] = one.F[i]+100, other.F[i]+200
			}
			a, b := after(one), after(other)
			switch ir.LookupOp(name).State {
			case ir.ReplacesState:
				require.Equal(t, a.F, b.F)
			case ir.WritesRows:
				kept := 0
				for i := range a.F {
					if a.F[i] != b.F[i] {
						require.Equal(t, []float32{one.F[i], other.F[i]}, []float32{a.F[i], b.F[i]},
							"an element that is not overwritten stays")
						kept++
					}
				}
				require.Equal(t, len(a.F)/2, kept)
			case ir.AdvancesState:
				require.NotEqual(t, a.F, b.F)
				require.NotEqual(t, one.F, a.F)
			default:
				t.Fatal("the op table says nothing of its state")
			}
		})
	}
	for i := range ir.Ops {
		if d := &ir.Ops[i]; d.Effect == ir.Writes {
			require.NotEqual(t, ir.NoState, d.State, d.Name)
		}
	}
}

// writeState runs a module with that one operation on a buffer, and gives what it then holds.
func writeState(t *testing.T, name string, state *Tensor, write func() (any, []*Tensor)) *Tensor {
	t.Helper()
	attrs, operands := write()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	buffer := m.NewBuffer("b", staticType(state))
	var inputs []Value
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: m.Entry.Body}
		var args []any
		for _, x := range operands {
			args = append(args, m.Entry.NewParam(string(rune('a'+len(args))), staticType(x)))
			inputs = append(inputs, Value{Tensor: x})
		}
		switch name {
		case "buffer_slice_update":
			args = append(args, 1, 1, 3)
		case "buffer_ring_update":
			args = append(args, 3)
		}
		b.BufferOp(name, buffer, attrs, args...)
	}))
	require.NoError(t, ir.Verify(m))
	x, err := NewMachine(m, FP32, nil)
	require.NoError(t, err)
	copy(x.Buffer(buffer).F, state.F)
	_, err = x.Run(inputs)
	require.NoError(t, err)
	return x.Buffer(buffer)
}

// rowsOf copies indices lo to hi of an axis.
func rowsOf(x *Tensor, axis, lo, hi int) *Tensor {
	out := &Tensor{DType: x.DType, Shape: slices.Clone(x.Shape)}
	out.Shape[axis] = hi - lo
	inner := 1
	for _, n := range x.Shape[axis+1:] {
		inner *= n
	}
	for from := 0; from < x.Len(); from += x.Shape[axis] * inner {
		if x.F != nil {
			out.F = append(out.F, x.F[from+lo*inner:from+hi*inner]...)
		} else {
			out.I = append(out.I, x.I[from+lo*inner:from+hi*inner]...)
		}
	}
	return out
}

func elementOf(x *Tensor, i int) float64 {
	if x.F != nil {
		return float64(x.F[i])
	}
	return float64(x.I[i])
}

// requireBits compares two tensors bit for bit; a NaN is like any other.
func requireBits(t *rapid.T, want, got *Tensor, format string, args ...any) {
	require.Equal(t, want.Shape, got.Shape, append([]any{format}, args...)...)
	require.Equal(t, want.DType, got.DType, append([]any{format}, args...)...)
	for i := range want.Len() {
		a, b := elementOf(want, i), elementOf(got, i)
		if a != b && !(math.IsNaN(a) && math.IsNaN(b)) {
			require.Equal(t, a, b, append([]any{format}, args...)...)
		}
	}
}
