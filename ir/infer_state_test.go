package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInferState(t *testing.T) {
	cache := &Buffer{"cache", StaticType(BF16, 1, 8, 64, 16)}
	for _, c := range []inferCase{
		{op: "load", want: "bf16[1,8,64,16]"},
		{op: "store", operands: []any{"bf16[1,8,64,16]"}},
		{op: "store", operands: []any{"bf16[1,8,T,16]"}},
		{op: "store", operands: []any{"f32[1,8,64,16]"}, err: "x must be bf16[1,8,64,16], found f32[1,8,64,16]"},
		{op: "store", operands: []any{"bf16[1,8,63,16]"}, err: "x must be bf16[1,8,64,16], found bf16[1,8,63,16]"},
		{op: "store", operands: []any{"bf16[8,64,16]"}, err: "x must be bf16[1,8,64,16], found bf16[8,64,16]"},
		{op: "buffer_slice_update", operands: []any{"f32[1,8,T,16]", 2, "int(P)", "int(P+T)"}},
		{op: "buffer_slice_update", operands: []any{"f32[1,8,8,16]", -2, 60, 68},
			err: "update of shape [1,8,8,16] does not broadcast to [1,8,4,16]"},
		{op: "buffer_slice_update", operands: []any{"f32[1,8,8,16]", 4, 60, 68}, err: "axis 4 is out of range"},
		{op: "buffer_index_copy", attrs: &AxisAttrs{2}, operands: []any{"f32[1,8,T,16]", "i64[T]"}},
		{op: "buffer_index_copy", attrs: &AxisAttrs{2}, operands: []any{"f32[1,8,T,16]", "i32[T]"},
			err: "indices must be i64 with one dim"},
	} {
		op, err := newTestTypes().apply(cache, c.op, c.attrs, append([]any{}, c.operands...)...)
		checkInferCase(t, op, err, c)
	}
	for _, c := range []inferCase{
		{op: "load"},
		{op: "store", operands: []any{"f32[]"}},
		{op: "buffer_slice_update", operands: []any{"f32[1]", 0, 0, 1}},
		{op: "buffer_index_copy", attrs: &AxisAttrs{0}, operands: []any{"f32[1]", "i64[1]"}},
	} {
		_, err := newTestTypes().apply(nil, c.op, c.attrs, c.operands...)
		require.ErrorContains(t, err, c.op+": needs a buffer")
	}
}

func TestInferUndef(t *testing.T) {
	def := LookupOp("undef")
	x := newTestTypes()
	op := &Op{Def: def, Results: []*Value{x.value("f32[T]")}}
	require.NoError(t, Infer(op))
	require.Equal(t, "f32[T]", typeList(op))
	require.ErrorContains(t, Infer(&Op{Def: def}), "undef: needs a result with a type, found 0 results")
	require.ErrorContains(t, Infer(&Op{Def: def, Results: []*Value{{Type: Type{Kind: IntKind}}}}),
		"an int without an expression")
}

func TestInferMetalKernel(t *testing.T) { runInferCases(t, metalKernelCases()) }

func metalKernelCases() []inferCase {
	attrs := func(change func(*MetalKernelAttrs)) *MetalKernelAttrs {
		a := &MetalKernelAttrs{Name: "k", InputNames: []string{"a", "b"}, OutputNames: []string{"y", "z"},
			OutputShapeLengths: []int{3, 0}, OutputDtypes: []DType{BF16, F32},
			TemplateArgNames: []string{"D"}, TemplateArgKinds: []int{0}, TemplateArgValues: []int{64}}
		if change != nil {
			change(a)
		}
		return a
	}
	inputs, three := []string{"f32[T]", "f32[2]"}, []any{1, "int(T)", 32}
	shapes := []any{1, "int(T)", 64}
	with := func(a *MetalKernelAttrs, in, grid, threads, flat any) inferCase {
		return inferCase{op: "metal_kernel", attrs: a, operands: []any{in, grid, threads, flat}}
	}
	want := func(c inferCase, want string) inferCase { c.want = want; return c }
	fails := func(c inferCase, err string) inferCase { c.err = err; return c }
	return []inferCase{
		want(with(attrs(nil), inputs, three, three, shapes), "bf16[1,T,64] f32[]"),
		want(with(attrs(func(a *MetalKernelAttrs) { a.OutputShapeLengths = []int{1, 2} }), inputs, three, three,
			shapes), "bf16[1] f32[T,64]"),
		fails(with(attrs(nil), inputs[:1], three, three, shapes), "input_names must have 1 entries, found 2"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.OutputNames = nil }), inputs, three, three, shapes),
			"output_names must have 2 entries, found 0"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.OutputShapeLengths = []int{3} }), inputs, three, three, shapes),
			"output_shape_lengths must have 2 entries, found 1"),
		fails(with(attrs(nil), inputs, three[:2], three, shapes), "grid must have 3 entries, found 2"),
		fails(with(attrs(nil), inputs, three, []any{}, shapes), "threadgroup must have 3 entries, found 0"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.TemplateArgKinds = nil }), inputs, three, three, shapes),
			"template_arg_kinds must have 1 entries, found 0"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.TemplateArgValues = nil }), inputs, three, three, shapes),
			"template_arg_values must have 1 entries, found 0"),
		fails(with(attrs(nil), inputs, three, three, []any{1, 2}),
			"output_shape_lengths [3 0]: number 0 does not fit the 2 dims"),
		fails(with(attrs(nil), inputs, three, three, []any{1, 2, 3, 4}),
			"output_shape_lengths [3 0] must add up to the 4 dims"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.OutputShapeLengths = []int{4, -1} }), inputs, three, three,
			shapes), "number 0 does not fit"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.OutputShapeLengths = []int{-1, 4} }), inputs, three, three,
			shapes), "number 0 does not fit"),
		fails(with(attrs(nil), inputs, three, three, []any{1, -2, 3}),
			"output_shapes_flat [1,-2,3]: dim 1 is negative"),
		fails(with(attrs(func(a *MetalKernelAttrs) { a.OutputDtypes[1] = 77 }), inputs, three, three, shapes),
			"output_dtypes is dtype(77)"),
		fails(with(&MetalKernelAttrs{}, []string{}, three, three, nil),
			"needs at least one input and one output, found 0 and 0"),
	}
}
