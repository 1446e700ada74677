package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
)

// undefinedModule writes %t in one arm only, passes it on through a second If, and reads it where third says so.
const undefinedModule = `module {
  symbol s0 [-2147483648, 2147483647]
  symbol s1 [-2147483648, 2147483647]
  entry forward(%x: f32[2], %written: i64[], %read: i64[]) {
    %0 = item_int(x=%written) : int(s0)
    %1 = if(cond=%0) : f32[2] {
      %2 = neg(x=%x) : f32[2]
      yield %2
    } else {
      %3 = undef() : f32[2]
      yield %3
    }
    %4 = item_int(x=%read) : int(s1)
    %5 = if(cond=%4) : f32[2] {
      %6 = add(a=%1, b=%x) : f32[2]
      yield %6
    } else {
      yield %x
    }
    return %5: f32[2]
  }
}
`

// TestUndefined: a result of an If that the arm that ran does not write may be passed on, and not be read.
func TestUndefined(t *testing.T) {
	x := machineOf(t, FP32, undefinedModule, nil)
	require.Equal(t, "if", x.Module().UndefinedIf().Def.Name)
	run := func(written, read int64) ([]Value, error) {
		number := func(v int64) Value { return Value{Tensor: Ints(ir.I64, nil, []int64{v})} }
		return x.Run([]Value{{Tensor: Floats(ir.F32, []int{2}, []float32{1, 2})}, number(written), number(read)})
	}
	out, err := run(1, 1)
	require.NoError(t, err)
	require.Equal(t, []float32{0, 0}, out[0].Tensor.F)
	out, err = run(0, 0)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2}, out[0].Tensor.F)
	_, err = run(0, 1)
	require.ErrorContains(t, err, "add: operand a: nothing has been written there")
	require.ErrorContains(t, err, "in %6 = add(", "it names the node")
}

// TestUndefinedOutputs: neither an output nor an original of a Scan may be undefined; ints may not be read either.
func TestUndefinedOutputs(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"output", `module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%c: i64[]) {
    %0 = item_int(x=%c) : int(s0)
    %1 = if(cond=%0) : i64[] {
      yield %c
    } else {
      %2 = undef() : i64[]
      yield %2
    }
    return %1: i64[]
  }
}
`, "output 0: nothing has been written"},
		{"int", `module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%c: i64[]) {
    %0 = item_int(x=%c) : int(s0)
    %1 = if(cond=%0) : int(s0) {
      yield %0
    } else {
      %2 = undef() : int(s0)
      yield %2
    }
    %3 = add_int(a=%1, b=1) : int(s0+1)
    %4 = full(v=%3) {scalar_type=i64} : i64[]
    return %4: i64[]
  }
}
`, "add_int: operand a: nothing has been written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := ir.Parse(test.text)
			require.NoError(t, err)
			x, err := NewMachine(m, FP32, nil)
			require.NoError(t, err)
			_, err = x.Run([]Value{{Tensor: Ints(ir.I64, nil, []int64{0})}})
			require.ErrorContains(t, err, test.want)
			_, err = x.Run([]Value{{Tensor: Ints(ir.I64, nil, []int64{1})}})
			require.NoError(t, err)
		})
	}
}

// TestPanicsOfKernels: a kernel that panics, on whichever goroutine, is an error that names the operation.
func TestPanicsOfKernels(t *testing.T) {
	kept := kernels["neg"]
	defer func() { kernels["neg"] = kept }()
	for _, work := range []int{1, 1 << 20} { // on the caller's goroutine, on others
		kernels["neg"] = func(c *Call) ([]Value, error) {
			parallel(64, work, func(lo, _ int) {
				if lo == 0 {
					panic("a mistake")
				}
			})
			return nil, nil
		}
		x := machineOf(t, FP32, "module {\n  entry forward(%x: f32[2]) {\n    %0 = neg(x=%x) : f32[2]\n    return %0: f32[2]\n  }\n}\n", nil)
		_, err := x.Run([]Value{{Tensor: Floats(ir.F32, []int{2}, make([]float32, 2))}})
		var f *fault.Error
		require.ErrorAs(t, err, &f)
		require.ErrorContains(t, err, "a mistake\n\tin %0 = neg(x=%x)")
	}
}

// TestNothingToAttendTo: softmax over no elements, and attention to no keys, give nothing and zeros.
func TestNothingToAttendTo(t *testing.T) {
	x := machineOf(t, FP32, `module {
  entry forward(%q: f32[1,1,2,4], %k: f32[1,1,0,4], %x: f32[3,0]) {
    %0 = sdpa(q=%q, k=%k, v=%k) {scale=1.0} : f32[1,1,2,4]
    %1 = softmax(x=%x) {axis=-1, precise=true} : f32[3,0]
    return %0: f32[1,1,2,4], %1: f32[3,0]
  }
}
`, nil)
	none := Floats(ir.F32, []int{1, 1, 0, 4}, []float32{})
	out := call(t, x, Floats(ir.F32, []int{1, 1, 2, 4}, make([]float32, 8)), none,
		Floats(ir.F32, []int{3, 0}, []float32{}))
	require.Equal(t, make([]float32, 8), out[0].F)
	require.Equal(t, []int{3, 0}, out[1].Shape)
}
