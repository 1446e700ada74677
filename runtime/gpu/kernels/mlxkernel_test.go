package kernels_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// exported is the metal_kernel operation that export writes for the gated delta rule of a shape; nil where it
// writes another.
func exported(t *testing.T, input, state ir.DType, keyHeads, heads, keyDim, valueDim int64) *ir.Op {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	require.NoError(t, ir.Build(func() {
		f, b := m.Entry, &ir.Builder{Module: m, Region: m.Entry.Body}
		one, steps := ir.Const(1), ir.Sym(&ir.Symbol{Lo: 1, Hi: 8})
		param := func(name string, d ir.DType, dims ...int64) *ir.Value {
			return f.NewParam(name, ir.TensorType(d, append([]*ir.Expr{one, steps}, ir.Dims(dims...)...)...))
		}
		buffer := m.NewBuffer("state", ir.StaticType(state, 1, heads, valueDim, keyDim))
		op := b.Op("gated_delta_rule", nil, param("q", input, keyHeads, keyDim), param("k", input, keyHeads, keyDim),
			param("v", input, heads, valueDim),
			param("g", ir.F32, heads), param("beta", input, heads), b.Load(buffer))
		b.BufferOp("store", buffer, nil, op.Results[1])
		f.Body.Results, f.Outputs = op.Results[:1], []ir.Type{op.Results[0].Type}
	}))
	require.NoError(t, passes.Run(m, &passes.Options{}))
	var found *ir.Op
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == "metal_kernel" {
			found = op
		}
	})
	return found
}

// mlxType is the name that MLX gives an element type in a kernel.
var mlxType = map[ir.DType]string{ir.F32: "float", ir.BF16: "bfloat16_t", ir.I32: "int"}

// mlxFunction is the text that MLX's metal_kernel generates around a body (mlx/backend/common/metal_kernel.cpp):
// a template over the template arguments, whose parameters are the inputs, those of fewer than eight elements in
// the constant address space and scalars by reference, then the outputs, then the position attributes that the
// body names. It returns their names and the template's arguments, too.
func mlxFunction(t *testing.T, op *ir.Op, sizes []int) (text string, attributes []string, arguments string) {
	t.Helper()
	a := ir.Attrs[ir.MetalKernelAttrs](op)
	var parameters, kinds, values []string
	inputs := op.Operand("inputs")
	require.Len(t, inputs, len(sizes))
	for i, name := range a.InputNames {
		for _, suffix := range []string{"_shape", "_strides", "_ndim"} {
			require.NotContains(t, a.Source, name+suffix, "the body asks for a parameter that this test does not make")
		}
		v := inputs[i].Value.Type
		space, reference := "device", "*"
		if sizes[i] < 8 {
			space = "constant"
		}
		if v.Rank() == 0 {
			reference = "&"
		}
		require.NotEmpty(t, mlxType[v.DType])
		parameters = append(parameters, fmt.Sprintf("const %s %s%s %s [[buffer(%d)]]", space,
			mlxType[v.DType], reference, name, i))
	}
	for i, name := range a.OutputNames {
		parameters = append(parameters, fmt.Sprintf("device %s* %s [[buffer(%d)]]", mlxType[a.OutputDtypes[i]],
			name, len(a.InputNames)+i))
	}
	for _, attribute := range []string{"thread_index_in_simdgroup", "thread_position_in_grid",
		"thread_position_in_threadgroup"} {
		require.Contains(t, a.Source, attribute)
		attributes = append(attributes, attribute)
		kind := "uint3"
		if attribute == "thread_index_in_simdgroup" {
			kind = "uint"
		}
		parameters = append(parameters, fmt.Sprintf("%s %s [[%s]]", kind, attribute, attribute))
	}
	for i, name := range a.TemplateArgNames {
		if a.TemplateArgKinds[i] == 2 {
			kinds, values = append(kinds, "typename "+name), append(values, mlxType[ir.DType(a.TemplateArgValues[i])])
		} else {
			kinds, values = append(kinds, "int "+name), append(values, fmt.Sprint(a.TemplateArgValues[i]))
		}
	}
	return fmt.Sprintf("template <%s>\n[[kernel]] void %s(\n  %s) {\n%s\n}\n", strings.Join(kinds, ", "), a.Name,
			strings.Join(parameters, ",\n  "), a.Source),
		attributes, strings.Join(values, ", ")
}

// TestExportedDeltaKernel runs the text that stands in exported files, in the function that MLX makes of it, on the
// emulator or on Metal, and has clang check its address spaces.
func TestExportedDeltaKernel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		input, state                      ir.DType
		keyHeads, heads, keyDim, valueDim int64
		tokens                            int
	}{
		{ir.BF16, ir.F32, 2, 4, 64, 12, 5},
		{ir.F32, ir.F32, 1, 3, 96, 5, 3},
		{ir.BF16, ir.BF16, 1, 2, 32, 6, 1}, // g and β have fewer than eight elements
	} {
		t.Run(fmt.Sprintf("%s %s %d tokens", c.input, c.state, c.tokens), func(t *testing.T) {
			t.Parallel()
			op := exported(t, c.input, c.state, c.keyHeads, c.heads, c.keyDim, c.valueDim)
			require.NotNil(t, op)
			dtype := func(d ir.DType) kernels.DType {
				if d == ir.BF16 {
					return kernels.BF16
				}
				return kernels.F32
			}
			d := kernels.Delta{DK: int(c.keyDim), DV: int(c.valueDim), KHeads: int(c.keyHeads),
				Heads: int(c.heads), State: dtype(c.state)}
			in, state := newDeltaInput(d, c.tokens), seeded(2).floats(d.Heads*d.DV*d.DK)
			q, k, v, beta := hold(dtype(c.input), in.q), hold(dtype(c.input), in.k), hold(dtype(c.input), in.v),
				hold(dtype(c.input), in.beta)
			from := hold(d.State, state)
			want := blank(c.tokens * d.Heads * d.DV)
			d.Reference(c.tokens, 0, in.q, in.k, in.v, in.g, in.beta, nil, nil, nil, nil, false, state, want)

			function, attributes, arguments := mlxFunction(t, op,
				[]int{len(in.q), len(in.k), len(in.v), len(in.g), len(in.beta), len(state), 1})
			name := ir.Attrs[ir.MetalKernelAttrs](op).Name
			require.NoError(t, kerneltest.Lint(
				"#include <metal_stdlib>\nusing namespace metal;\ntypedef bfloat bfloat16_t;\n"+
					function+fmt.Sprintf("template decltype(%[1]s<%[2]s>) %[1]s<%[2]s>;\n", name, arguments)))

			numbers := func(operand string) (out [3]int) {
				for i, a := range op.Operand(operand) {
					require.Equal(t, ir.IntArg, a.Kind)
					out[i] = int(a.Int)
				}
				return out
			}
			l := kernels.Launch{Kernel: name, Threads: numbers("threadgroup")}
			for i, n := range numbers("grid") {
				require.Zero(t, n%l.Threads[i], "MLX counts threads, and no threadgroup is cut")
				l.Groups[i] = n / l.Threads[i]
			}
			entry := fmt.Sprintf("extern \"C\" __attribute__((visibility(\"default\"))) void %s_entry(void* const* a) {\n", name)
			call := []string{}
			for i, x := range op.Operand("inputs") {
				typ := mlxType[x.Value.Type.DType]
				if x.Value.Type.Rank() == 0 {
					call = append(call, fmt.Sprintf("*(%s*)a[%d]", typ, i))
				} else {
					call = append(call, fmt.Sprintf("(%s*)a[%d]", typ, i))
				}
			}
			for i, r := range op.Results {
				call = append(call, fmt.Sprintf("(%s*)a[%d]", mlxType[r.Type.DType], len(op.Operand("inputs"))+i))
			}
			for _, a := range attributes {
				call = append(call, "PORT_"+a+"()")
			}
			entry += fmt.Sprintf("  %s<%s>(%s);\n}\nPORT_ENTRY(%s, %d, %d)\n", name, arguments,
				strings.Join(call, ", "), name, l.Threads[0]*l.Threads[1]*l.Threads[2],
				len(op.Operand("inputs"))+len(op.Results))
			// The emulator, which Metal's stand-in runs kernels on, has its own words and an entry; MLX names the
			// instance of the template.
			text := "#ifdef PORT_ENTRY\ntypedef ulong size_t;\n#undef constant\n#define constant\n#undef kernel\n#define kernel\n#endif\ntypedef bfloat bfloat16_t;\n" + function +
				"#ifdef PORT_ENTRY\n" + entry +
				fmt.Sprintf("#else\ntemplate [[host_name(\"%[1]s\")]] [[kernel]] decltype(%[1]s<%[2]s>) %[1]s<%[2]s>;\n#endif\n", name, arguments)

			y, next := hold(dtype(c.input), blank(len(want))), hold(d.State, blank(len(state)))
			buffers := []any{q.bytes, k.bytes, v.bytes, in.g, beta.bytes, from.bytes, []int32{int32(c.tokens)}, y.bytes,
				next.bytes}
			if kerneltest.OnMetal() {
				kerneltest.RunOnMetal(t, "#include <metal_stdlib>\nusing namespace metal;\n"+text, l, buffers...)
			} else {
				outcomes := kerneltest.Schedules(t, kernels.Prelude(kernels.CPU)+text, l, buffers...)
				for _, o := range outcomes {
					require.NoError(t, o.Err)
					require.Equal(t, outcomes[0].Buffers, o.Buffers, "every schedule gives the same")
				}
				y, next = y.from(outcomes[0].Buffers[7]), next.from(outcomes[0].Buffers[8])
			}
			requireClose(t, want, y.floats(), y.within(2e-6))
			requireClose(t, state, next.floats(), next.within(2e-6))
		})
	}
}

// TestExportedDeltaFallback: keys that 32 threads cannot share are not given to a kernel.
func TestExportedDeltaFallback(t *testing.T) {
	require.Nil(t, exported(t, ir.BF16, ir.F32, 2, 4, 24, 4))
	require.NotNil(t, exported(t, ir.BF16, ir.F32, 2, 4, 32, 4))
}
