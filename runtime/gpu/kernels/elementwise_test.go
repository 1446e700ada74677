package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// numbers are a buffer of any dtype, and its content.
type numbers struct {
	buffer any
	values []float64
}

func (r random) numbers(d kernels.DType, n int) numbers {
	x := numbers{values: make([]float64, n)}
	switch d {
	case kernels.F32, kernels.BF16:
		f := r.floats(n)
		x.buffer = hold(d, f).bytes
		for i, v := range f {
			x.values[i] = float64(v)
		}
		return x
	}
	var i32 []int32
	var i64 []int64
	var bools []byte
	for i := range x.values {
		v := r.IntN(2)
		if d != kernels.Bool {
			v = r.IntN(41) - 20
		}
		x.values[i] = float64(v)
		i32, i64, bools = append(i32, int32(v)), append(i64, int64(v)), append(bools, byte(v))
	}
	x.buffer = map[kernels.DType]any{kernels.I32: i32, kernels.I64: i64, kernels.Bool: bools}[d]
	return x
}

// read gives the content of a buffer as numbers.
func (x numbers) read() []float64 {
	var out []float64
	switch b := x.buffer.(type) {
	case []float32:
		for _, v := range b {
			out = append(out, float64(v))
		}
	case []uint16:
		for _, v := range b {
			out = append(out, float64(unbf16(v)))
		}
	case []int32:
		for _, v := range b {
			out = append(out, float64(v))
		}
	case []int64:
		for _, v := range b {
			out = append(out, float64(v))
		}
	case []byte:
		for _, v := range b {
			out = append(out, float64(v))
		}
	}
	return out
}

func check(t *testing.T, e kernels.Elementwise, in []numbers, out numbers, tokens, position int, tolerance float64) {
	t.Helper()
	const capacity = 7
	l, err := e.Launch(capacity)
	require.NoError(t, err)
	var values [][]float64
	a := kernels.ElementwiseArguments[any]{Out: out.buffer, Step: []int32{int32(tokens), int32(position)}}
	operands := [...]*any{&a.X0, &a.X1, &a.X2}
	for i, x := range in {
		*operands[i] = x.buffer
		values = append(values, x.values)
	}
	want := append([]float64(nil), out.values...)
	e.Reference(tokens, position, values, want)
	kerneltest.Run(t, l, a)
	got := out.read()
	require.Len(t, got, len(want))
	for i := range want {
		if math.IsNaN(want[i]) {
			require.True(t, math.IsNaN(got[i]), "element %d is %g, want NaN", i, got[i])
			continue
		}
		require.InDelta(t, want[i], got[i], tolerance*max(1, math.Abs(want[i])), "element %d", i)
	}
}

// TestOperations runs every function on dense operands.
func TestOperations(t *testing.T) {
	t.Parallel()
	for _, name := range kernels.Operations() {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			r, e := seeded(5), kernels.Elementwise{Op: name, Box: kernels.Box{kernels.PerToken(1), kernels.Fixed(40)}}
			place := func(d kernels.DType) kernels.Place {
				p, err := e.Box.Dense(d, kernels.Extent{})
				require.NoError(t, err)
				return p
			}
			var in []numbers
			for range kernels.Arity(name) {
				e.In = append(e.In, place(kernels.F32))
				x := r.numbers(kernels.F32, 120)
				switch name {
				case "log", "sqrt", "rsqrt", "power": // of what they are made for
					for i, v := range x.buffer.([]float32) {
						x.buffer.([]float32)[i] = float32(math.Abs(float64(v)) + 0.01)
						x.values[i] = float64(x.buffer.([]float32)[i])
					}
				case "equal", "not_equal", "logical_and", "logical_or", "logical_not", "where", "sign",
					"less_equal", "greater_equal":
					for i := range x.values {
						x.values[i] = float64(r.IntN(3) - 1)
						x.buffer.([]float32)[i] = float32(x.values[i])
					}
				}
				in = append(in, x)
			}
			e.Out, e.Value, e.Start, e.Step = place(kernels.F32), -1.25, kernels.Extent{Fixed: 3, Position: 1}, 2
			out := numbers{buffer: blank(280), values: make([]float64, 280)}
			for i := range out.values {
				out.values[i] = math.NaN()
			}
			check(t, e, in, out, 3, 11, 1e-6)
		})
	}
}

// TestElementwisePlaces: casts, broadcasts, transposes, slices that begin at the position or at the last token.
func TestElementwisePlaces(t *testing.T) {
	t.Parallel()
	fixed, token := kernels.Fixed, kernels.PerToken
	for name, c := range map[string]struct {
		kernels.Elementwise
		sizes []int // of the operands
		out   int
	}{
		"transpose to bf16": {kernels.Elementwise{Op: "copy", Box: kernels.Box{fixed(3), token(1), fixed(10)},
			In:  []kernels.Place{{kernels.F32, fixed(0), []kernels.Extent{fixed(10), fixed(30), fixed(1)}}},
			Out: kernels.Place{kernels.BF16, fixed(0), []kernels.Extent{token(10), fixed(10), fixed(1)}}}, []int{150},
			150},
		"last token": {kernels.Elementwise{Op: "copy", Box: kernels.Box{fixed(40)},
			In:  []kernels.Place{{kernels.F32, kernels.Extent{Fixed: -40, Token: 40}, []kernels.Extent{fixed(1)}}},
			Out: kernels.Place{kernels.F32, fixed(0), []kernels.Extent{fixed(1)}}}, []int{200}, 40},
		"into rows at the position": {kernels.Elementwise{Op: "copy", Box: kernels.Box{fixed(2), token(1), fixed(6)},
			In: []kernels.Place{{kernels.F32, fixed(0), []kernels.Extent{fixed(6), fixed(12), fixed(1)}}},
			Out: kernels.Place{kernels.F32, kernels.Extent{Position: 6},
				[]kernels.Extent{fixed(72), fixed(6), fixed(1)}}}, []int{60}, 144},
		"bias by heads": {kernels.Elementwise{Op: "add", Box: kernels.Box{token(1), fixed(7)},
			In: []kernels.Place{{kernels.F32, fixed(2), []kernels.Extent{fixed(9), fixed(1)}},
				{kernels.BF16, fixed(0), []kernels.Extent{fixed(0), fixed(1)}}},
			Out: kernels.Place{kernels.F32, fixed(0), []kernels.Extent{fixed(7), fixed(1)}}}, []int{47, 7}, 35},
		"integers": {kernels.Elementwise{Op: "multiply", Box: kernels.Box{token(4)},
			In: []kernels.Place{{kernels.I64, fixed(0), []kernels.Extent{fixed(1)}},
				{kernels.I32, fixed(0), []kernels.Extent{fixed(1)}}},
			Out: kernels.Place{kernels.I32, fixed(0), []kernels.Extent{fixed(1)}}}, []int{20, 20}, 20},
		"less": {kernels.Elementwise{Op: "less", Box: kernels.Box{token(4)},
			In: []kernels.Place{{kernels.I32, fixed(0), []kernels.Extent{fixed(1)}},
				{kernels.I32, fixed(0), []kernels.Extent{fixed(0)}}},
			Out: kernels.Place{kernels.Bool, fixed(0), []kernels.Extent{fixed(1)}}}, []int{20, 1}, 20},
		"where": {kernels.Elementwise{Op: "where", Box: kernels.Box{token(4)},
			In: []kernels.Place{{kernels.Bool, fixed(0), []kernels.Extent{fixed(1)}},
				{kernels.BF16, fixed(0), []kernels.Extent{fixed(1)}},
				{kernels.F32, fixed(0), []kernels.Extent{fixed(0)}}},
			Out: kernels.Place{kernels.F32, fixed(0), []kernels.Extent{fixed(1)}}}, []int{20, 20, 1}, 20},
		"cast to i64": {kernels.Elementwise{Op: "copy", Box: kernels.Box{token(4)},
			In:  []kernels.Place{{kernels.F32, fixed(0), []kernels.Extent{fixed(1)}}},
			Out: kernels.Place{kernels.I64, fixed(0), []kernels.Extent{fixed(1)}}}, []int{20}, 20},
		"positions": {kernels.Elementwise{Op: "arange", Box: kernels.Box{token(1)}, Start: kernels.Extent{Position: 1},
			Step: 1,
			Out:  kernels.Place{kernels.I32, fixed(0), []kernels.Extent{fixed(1)}}}, nil, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seeded(6)
			var in []numbers
			for i, n := range c.sizes {
				in = append(in, r.numbers(c.In[i].DType, n))
			}
			check(t, c.Elementwise, in, r.numbers(c.Out.DType, c.out), 5, 2, 1e-6)
		})
	}
}

func TestElementwiseRefusals(t *testing.T) {
	fixed, token := kernels.Fixed, kernels.PerToken
	vector := kernels.Place{DType: kernels.F32, Strides: []kernels.Extent{fixed(1)}}
	for _, c := range []struct {
		e   kernels.Elementwise
		err string
	}{
		{kernels.Elementwise{Op: "atan2"}, `elementwise: there is no kernel for "atan2"`},
		{kernels.Elementwise{Op: "add", Box: kernels.Box{fixed(4)}, In: []kernels.Place{vector}, Out: vector},
			"elementwise: add has 2 operands, found 1"},
		{kernels.Elementwise{Op: "exp", Box: make(kernels.Box, 5), In: []kernels.Place{vector}, Out: vector},
			"elementwise: exp over 5 dims, want at most 4"},
		{kernels.Elementwise{Op: "exp", Box: kernels.Box{token(2), token(3)}, In: []kernels.Place{vector}, Out: vector},
			"elementwise: exp: the product of {Fixed:0 Token:3 Position:0} and {Fixed:0 Token:2 Position:0} grows faster than the tokens"},
		{kernels.Elementwise{Op: "exp", Box: kernels.Box{{Position: 1}}, In: []kernels.Place{vector}, Out: vector},
			"elementwise: the number of elements follows the position"},
		{kernels.Elementwise{Op: "exp", Box: kernels.Box{fixed(4)}, In: []kernels.Place{{}}, Out: vector},
			"elementwise: exp: an operand {DType:none First:{Fixed:0 Token:0 Position:0} Strides:[]} over 1 dims"},
	} {
		_, err := c.e.Launch(1)
		require.EqualError(t, err, c.err)
	}
	_, err := kernels.Box{fixed(2), token(3), token(1)}.Dense(kernels.F32, kernels.Extent{})
	require.ErrorContains(t, err, "grows faster than the tokens")
}

// TestSigmoidFarOut: activations are right where e^-x is infinite, and of numbers that are no longer any.
func TestSigmoidFarOut(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{-87, -88, -89, -104, -1000, -math.MaxFloat32, 87, 89, math.MaxFloat32, inf, nan}
	for op, want := range map[string][]float32{
		"sigmoid":  {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, nan},
		"glu_silu": {0, 0, 0, 0, 0, 0, 87, 89, math.MaxFloat32, inf, nan},
	} {
		one := make([]float32, len(x))
		for i := range one {
			one[i] = 1
		}
		dense := kernels.Place{DType: kernels.F32, Strides: []kernels.Extent{kernels.Fixed(1)}}
		e := kernels.Elementwise{Op: op, Box: kernels.Box{kernels.Fixed(len(x))}, Out: dense}
		for range kernels.Arity(op) {
			e.In = append(e.In, dense)
		}
		l, err := e.Launch(1)
		require.NoError(t, err)
		out := make([]float32, len(x))
		kerneltest.Run(t, l, kernels.ElementwiseArguments[any]{X0: x, X1: one, X2: one, Out: out, Step: []int32{1, 0}})
		for i, w := range want {
			if w != w {
				require.True(t, math.IsNaN(float64(out[i])), "%s(%g) is %g", op, x[i], out[i])
			} else if w != out[i] { // infinities have no difference
				require.InDelta(t, w, out[i], 1e-35, "%s(%g)", op, x[i])
			}
		}
	}
}
