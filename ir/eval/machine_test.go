package eval

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// machineOf makes a machine of a module in text form; constants get the values by name.
func machineOf(t *testing.T, p Precision, text string, constants map[string]*Tensor) *Machine {
	t.Helper()
	m, err := ir.Parse(text)
	require.NoError(t, err)
	bindConstants(m, constants)
	x, err := NewMachine(m, p, nil)
	require.NoError(t, err)
	return x
}

func bindConstants(m *ir.Module, constants map[string]*Tensor) {
	for _, c := range m.Constants {
		if v := constants[c.Name]; v != nil {
			dims, _ := c.Value.Type.Static()
			c.Data = ir.Bytes(v.DType, dims, v.Encode())
		}
	}
}

// call runs the entry on tensors.
func call(t *testing.T, x *Machine, inputs ...any) []*Tensor {
	t.Helper()
	var values []Value
	for _, in := range inputs {
		switch in := in.(type) {
		case *Tensor:
			values = append(values, Value{Tensor: in})
		case int:
			values = append(values, Value{Int: int64(in)})
		}
	}
	out, err := x.Run(values)
	require.NoError(t, err)
	tensors := make([]*Tensor, len(out))
	for i, v := range out {
		tensors[i] = v.Tensor
	}
	return tensors
}

// TestLoadsHaveValueSemantics: what was loaded, copied or reshaped before a write keeps its elements.
func TestLoadsHaveValueSemantics(t *testing.T) {
	const text = `module {
  buffer @b : f32[4]
  entry f(%%x: f32[2]) {
    %%0 = load @b() : f32[4]
    %%1 = %s
    %s
    %%2 = load @b() : f32[4]
    return %%1: f32[%s], %%2: f32[4]
  }
}`
	copies := map[string]string{
		"id_copy(x=%0) : f32[4]":                            "4",
		"reshape(x=%0, shape=[2, 2]) : f32[2,2]":            "2,2",
		"contiguous(x=%0) : f32[4]":                         "4",
		"squeeze(x=%0) : f32[4]":                            "4",
		"expand_dims(x=%0) : f32[1,4]":                      "1,4",
		"slice(x=%0, axis=0, start=0, stop=4) : f32[4]":     "4",
		"astype(x=%0) {scalar_type=f32} : f32[4]":           "4",
		"broadcast_to(x=%0, shape=[4]) : f32[4]":            "4",
		"transpose(x=%0) {perm=[0]} : f32[4]":               "4",
		"as_strided(x=%0, shape=[4], strides=[1]) : f32[4]": "4",
		"concatenate(tensors=[%0]) : f32[4]":                "4",
	}
	writes := map[string][]float32{
		"buffer_slice_update @b(update=%x, axis=0, start=1, stop=3)":  {0, 1, 2, 0},
		"%3 = concatenate(tensors=[%x, %x]) : f32[4]\nstore @b(x=%3)": {1, 2, 1, 2},
		"%3 = full(shape=[2], v=0.0) {scalar_type=i32} : i32[2]\n%4 = arange(start=0, stop=2, step=1) {scalar_type=i64} : i64[2]\nbuffer_index_copy @b(update=%x, indices=%4)": {1, 2, 0, 0},
	}
	for c, shape := range copies {
		for w, after := range writes {
			x := machineOf(t, FP32, fmt.Sprintf(text, c, w, shape), nil)
			out := call(t, x, f32([]int{2}, 1, 2))
			require.Equal(t, []float32{0, 0, 0, 0}, out[0].F, "%s\n%s", c, w)
			require.Equal(t, after, out[1].F, "%s\n%s", c, w)
			// The second call sees the first one's state, and what the first returned stays.
			next := call(t, x, f32([]int{2}, 5, 6))
			require.Equal(t, after, next[0].F, "%s\n%s", c, w)
			require.Equal(t, after, out[1].F, "%s\n%s", c, w)
		}
	}
}

// TestInPlaceUpdateDoesNotCopy: without a value that still needs the old content, an update writes where
// the buffer lies.
func TestInPlaceUpdateDoesNotCopy(t *testing.T) {
	x := machineOf(t, FP32, `module {
  buffer @b : f32[4]
  entry f(%x: f32[2]) {
    %0 = load @b() : f32[4]
    %1 = neg(x=%0) : f32[4]
    buffer_slice_update @b(update=%x, axis=0, start=0, stop=2)
    return %1: f32[4]
  }
}`, nil)
	before := x.Buffer(x.module.Buffers[0])
	call(t, x, f32([]int{2}, 1, 2))
	require.Same(t, before, x.Buffer(x.module.Buffers[0]))
	require.Equal(t, []float32{1, 2, 0, 0}, before.F)
}

// TestNothingSharesState: inputs, outputs and constants are not where the buffers are, whatever the
// dtypes that outputs declare.
func TestNothingSharesState(t *testing.T) {
	for _, declared := range []string{"f32", "bf16", "f16"} {
		for _, p := range []Precision{FP32, Mixed, Strict} {
			x := machineOf(t, p, fmt.Sprintf(`module {
  symbol n [-2147483648, 2147483647]
  constant @c : f32[2]
  buffer @b : f32[2]
  buffer @d : f32[2]
  entry f(%%x: f32[2], %%n: int(n)) {
    if(cond=%%n) {
      store @b(x=%%x)
      store @d(x=@c)
      yield
    } else {
      %%y = slice(x=%%x, axis=0, start=0, stop=1) : f32[1]
      buffer_slice_update @b(update=%%y, axis=0, start=0, stop=1)
      buffer_slice_update @d(update=%%y, axis=0, start=0, stop=1)
      yield
    }
    %%b = load @b() : f32[2]
    %%d = load @d() : f32[2]
    return %%b: %[1]s[2], %%d: %[1]s[2], @c: %[1]s[2], %%x: %[1]s[2]
  }
}`, declared), map[string]*Tensor{"c": f32([]int{2}, 7, 8)})
			in := f32([]int{2}, 1, 2)
			first := call(t, x, in, 1)
			require.Equal(t, []float32{1, 2}, first[0].F)
			require.Equal(t, []float32{7, 8}, first[1].F)
			second := call(t, x, f32([]int{2}, 5, 6), 0)
			require.Equal(t, []float32{5, 2}, second[0].F)
			require.Equal(t, []float32{5, 8}, second[1].F)
			for _, out := range [][]*Tensor{first, second} {
				for _, o := range out {
					o.F[1] = 99 // outputs are the caller's
				}
			}
			third := call(t, x, f32([]int{2}, 3, 4), 0)
			require.Equal(t, []float32{3, 2}, third[0].F)
			require.Equal(t, []float32{3, 8}, third[1].F)
			require.Equal(t, []float32{7, 8}, third[2].F, "the constant")
			require.Equal(t, []float32{3, 4}, third[3].F)
			require.Equal(t, []float32{1, 2}, in.F, "the input")
			require.Equal(t, []float32{1, 99}, first[0].F, "an output of an earlier call")
		}
	}
}

// TestPrecision: fp32 rounds nowhere, mixed where state is written, strict everywhere.
func TestPrecision(t *testing.T) {
	const text = `module {
  buffer @b : bf16[1]
  buffer @c : bf16[1]
  buffer @e : bf16[1]
  entry f(%x: bf16[1], %i: i64[1]) {
    %0 = add(a=%x, b=%x) : bf16[1]
    store @b(x=%0)
    %1 = load @b() : bf16[1]
    buffer_slice_update @c(update=%0, axis=0, start=0, stop=1)
    %2 = load @c() : bf16[1]
    buffer_index_copy @e(update=%0, indices=%i)
    %3 = load @e() : bf16[1]
    %4 = neg(x=%1) : bf16[1]
    return %0: bf16[1], %1: bf16[1], %2: f32[1], %3: bf16[1], %4: f32[1]
  }
}`
	const in, sum, rounded = 1.001, 2.002, 2.0 // bf16 has 8 bits
	for _, test := range []struct {
		precision    Precision
		value, state float32
	}{{FP32, sum, sum}, {Mixed, sum, rounded}, {Strict, rounded, rounded}} {
		x := machineOf(t, test.precision, text, nil)
		out := call(t, x, Floats(ir.BF16, []int{1}, []float32{in}), list(ir.I64, 0))
		require.Equal(t, test.value, out[0].F[0], "a value under precision %d", test.precision)
		for i, what := range []string{"store", "slice update", "index copy"} {
			require.Equal(t, test.state, out[1+i].F[0], "%s under precision %d", what, test.precision)
		}
		require.Equal(t, -test.state, out[4].F[0])
		for i, d := range []ir.DType{ir.BF16, ir.BF16, ir.F32, ir.BF16, ir.F32} {
			require.Equal(t, d, out[i].DType, "outputs have the declared dtypes")
		}
	}
}

// TestOutputsAreConverted to the dtypes that the program declares.
func TestOutputsAreConverted(t *testing.T) {
	const text = `module {
  constant @c : f32[3]
  entry f(%%x: %s[3]) {
    return %%x: %s[3]
  }
}`
	for _, test := range []struct {
		from, to string
		in, want *Tensor
	}{
		{"f32", "bf16", f32([]int{3}, 1, 1.001, 3), Floats(ir.BF16, []int{3}, []float32{1, 1, 3})},
		{"f32", "i64", f32([]int{3}, 1.9, -1.9, 3), list(ir.I64, 1, -1, 3)},
		{"u32", "i64", list(ir.U32, 1, 1<<32-1, 0), list(ir.I64, 1, 1<<32-1, 0)},
		{"i64", "i32", list(ir.I64, 1<<32+5, -1, 0), list(ir.I32, 5, -1, 0)},
		{"i64", "bool", list(ir.I64, 2, -1, 0), list(ir.Bool, 1, 1, 0)},
		{"i32", "f32", list(ir.I32, 2, -1, 0), f32([]int{3}, 2, -1, 0)},
		{"u64", "f32", list(ir.U64, -1, 1, 0), f32([]int{3}, 1<<64, 1, 0)},
	} {
		out := call(t, machineOf(t, Strict, fmt.Sprintf(text, test.from, test.to), nil), test.in)
		require.Equal(t, test.want, out[0], "%s to %s", test.from, test.to)
	}
}

func TestIf(t *testing.T) {
	const text = `module {
  symbol n [-2147483648, 2147483647]
  symbol m [-2147483648, 2147483647]
  symbol k [-2147483648, 2147483747]
  buffer @b : f32[]
  entry f(%n: int(n), %m: int(m), %x: f32[]) {
    %0, %1 = if(cond=%n) : f32[], int(k) {
      %2 = if(cond=%m) : f32[] {
        store @b(x=%x)
        %3 = load @b() : f32[]
        %4 = neg(x=%3) : f32[]
        yield %4
      } else {
        %5 = undef() : f32[]
        yield %x
      }
      yield %2, %m
    } else {
      %6 = load @b() : f32[]
      %7 = add_int(a=%m, b=100) : int(m+100)
      yield %6, %7
    }
    return %0: f32[], %1: int(k)
  }
}`
	x := machineOf(t, FP32, text, nil)
	run := func(n, m int, v float32) (float32, int64) {
		out, err := x.Run([]Value{{Int: int64(n)}, {Int: int64(m)}, {Tensor: f32(nil, v)}})
		require.NoError(t, err)
		return out[0].Tensor.F[0], out[1].Int
	}
	for _, test := range []struct {
		n, m  int
		x     float32
		want  float32
		wantN int64
	}{
		{0, 3, 1, 0, 103}, {-1, 0, 2, 2, 0}, {0, 0, 1, 0, 100}, {1, 1, 4, -4, 1}, {0, 5, 1, 4, 105},
		{2, -7, 6, -6, -7}, {0, 0, 1, 6, 100},
	} {
		got, n := run(test.n, test.m, test.x)
		require.Equal(t, test.want, got, test)
		require.Equal(t, test.wantN, n, test)
	}
}

// TestScan compares scans over every axis with a loop.
func TestScan(t *testing.T) {
	for _, axis := range []int{0, 1, -1, -2} {
		rows := (axis + 2) % 2 // 0: the steps are rows, 1: they are columns
		n, steps := []int{3, 4}[rows], []int{4, 3}[rows]
		x := machineOf(t, FP32, strings.NewReplacer("N", fmt.Sprint(n), "AXIS", fmt.Sprint(axis)).Replace(`module {
  entry f(%x: f32[4,3], %y: f32[4,3], %c: f32[N]) {
    %0, %1 = scan(originals=[%x, %y], carry=[%c]) {scan_axis=AXIS} : f32[4,3], f32[N] {
      args %2: f32[N], %3: f32[N], %4: f32[N]
      %5 = multiply(a=%3, b=%4) : f32[N]
      %6 = add(a=%2, b=%5) : f32[N]
      yield %4, %6
    }
    return %0: f32[4,3], %1: f32[N]
  }
}`), nil)
		in, scale, carry := floats(4, 3), floats(4, 3), floats(n)
		out := call(t, x, in, scale, carry)
		want, c := make([]float32, 12), append([]float32{}, carry.F...)
		for step := range steps {
			for i := range c {
				at := []int{step*3 + i, i*3 + step}[rows]
				want[at] = c[i]
				c[i] = in.F[at] + float32(scale.F[at]*c[i])
			}
		}
		require.Equal(t, want, out[0].F)
		require.Equal(t, c, out[1].F)
	}
}

// TestScanState: every step sees what the one before it wrote, carries may change places, and what a step
// yields is not what a later one makes of it.
func TestScanState(t *testing.T) {
	x := machineOf(t, FP32, `module {
  buffer @b : f32[2]
  entry f(%x: f32[2,3], %c: f32[], %d: f32[]) {
    %0, %1, %2, %3 = scan(originals=[%x], carry=[%c, %d]) : f32[2,3], f32[2,3], f32[], f32[] {
      args %4: f32[2], %5: f32[], %6: f32[]
      %7 = load @b() : f32[2]
      %8 = add(a=%7, b=%4) : f32[2]
      %9 = slice(x=%8, axis=0, start=0, stop=1) : f32[1]
      buffer_slice_update @b(update=%9, axis=0, start=0, stop=1)
      %10 = load @b() : f32[2]
      %11 = id_copy(x=%10) : f32[2]
      yield %10, %11, %6, %5
    }
    return %0: f32[2,3], %1: f32[2,3], %2: f32[], %3: f32[]
  }
}`, nil)
	out := call(t, x, f32([]int{2, 3}, 1, 2, 3, 0, 0, 0), f32(nil, 10), f32(nil, 20))
	require.Equal(t, []float32{1, 3, 6, 0, 0, 0}, out[0].F)
	require.Equal(t, []float32{1, 3, 6, 0, 0, 0}, out[1].F)
	require.Equal(t, float32(20), out[2].F[0])
	require.Equal(t, float32(10), out[3].F[0])
}

// TestSessions: machines of one module share constants and nothing else, also at the same time.
func TestSessions(t *testing.T) {
	const text = `module {
  constant @c : f32[2]
  constant @cell : f32[]
  buffer @b : f32[2]
  init {
    %0 = multiply(a=@c, b=@c) : f32[2]
    derive ^cell = %0
  }
  entry f(%x: f32[2]) {
    %0 = load @b() : f32[2]
    %1 = add(a=%0, b=%x) : f32[2]
    store @b(x=%1)
    %2 = add(a=%1, b=^cell) : f32[2]
    return %2: f32[2]
  }
}`
	m, err := ir.Parse(text)
	require.NoError(t, err)
	bindConstants(m, map[string]*Tensor{"c": f32([]int{2}, 10, 20), "cell": f32(nil, 0)})
	constants := NewConstants()
	machines := make([]*Machine, 4)
	for i := range machines {
		machines[i], err = NewMachine(m, FP32, constants)
		require.NoError(t, err)
	}
	var wait sync.WaitGroup
	failed := make([]error, len(machines))
	for i, x := range machines {
		wait.Go(func() {
			for step := range 50 {
				out, err := x.Run([]Value{{Tensor: f32([]int{2}, float32(i), 1)}})
				want := []float32{100 + float32(i*(step+1)), 400 + float32(step+1)}
				if err != nil || out[0].Tensor.F[0] != want[0] || out[0].Tensor.F[1] != want[1] {
					failed[i] = fmt.Errorf("step %d: %v, %v, want %v", step, out, err, want)
					return
				}
			}
		})
	}
	wait.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
	// Reset is of one session.
	require.NoError(t, machines[1].Reset())
	require.Equal(t, []float32{101, 401}, call(t, machines[1], f32([]int{2}, 1, 1))[0].F)
	require.Equal(t, []float32{101 + 2*50, 451}, call(t, machines[2], f32([]int{2}, 1, 1))[0].F)
}

func TestMachineErrors(t *testing.T) {
	const text = `module {
  symbol s [2, 4]
  symbol n [-2147483648, 2147483647]
  constant @c : f32[2]
  buffer @b : f32[4]
  entry f(%x: f32[s,2], %n: int(n)) {
    %0 = slice(x=%x, axis=0, start=0, stop=1) : f32[1,2]
    %1 = reshape(x=%0, shape=[2]) : f32[2]
    buffer_slice_update @b(update=%1, axis=0, start=0, stop=2)
    %2 = add(a=%1, b=@c) : f32[2]
    %3 = floor_divide_int(a=1, b=%n) : int(floordiv(1,n))
    return %2: f32[2], %3: int(floordiv(1,n))
  }
}`
	m, err := ir.Parse(text)
	require.NoError(t, err)
	x, err := NewMachine(m, FP32, nil)
	require.NoError(t, err)
	ok := Value{Tensor: floats(3, 2)}
	for _, test := range []struct {
		name   string
		inputs []Value
		want   string
	}{
		{"too few", []Value{ok}, "f: 1 inputs, want 2"},
		{"an int for a tensor", []Value{{Int: 1}, {Int: 1}}, "f: input 0 (x): an int, want a tensor f32[s,2]"},
		{"dtype", []Value{{Tensor: Floats(ir.BF16, []int{2, 2}, make([]float32, 4))}, {}},
			"f: input 0 (x): bf16[2 2], want f32[s,2]"},
		{"rank", []Value{{Tensor: floats(2)}, {}}, "f: input 0 (x): f32[2], want f32[s,2]"},
		{"dim", []Value{{Tensor: floats(2, 3)}, {}}, "f: input 0 (x): f32[2 3], want f32[s,2]"},
		{"upper bound", []Value{{Tensor: floats(5, 2)}, {}}, "f: input 0 (x): dim 0 is 5, at most 4 is allowed"},
		{"no weights", []Value{ok, {Int: 1}},
			"f: add: operand b: constant @c has no bytes: the module was read from text without weights\n\tin %2 = add(a=%1, b=@c) : f32[2]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := x.Run(test.inputs)
			require.EqualError(t, err, test.want)
		})
	}
	require.Equal(t, ok.Tensor.F[:2], x.Buffer(m.Buffers[0]).F[:2], "operations before the error have written")
	bindConstants(m, map[string]*Tensor{"c": f32([]int{2}, 1, 2)})
	x, err = NewMachine(m, FP32, nil)
	require.NoError(t, err)
	_, err = x.Run([]Value{ok, {Int: 0}})
	require.ErrorContains(t, err, "floor_divide_int: ")
	require.ErrorContains(t, err, "in %3 = floor_divide_int(a=1, b=%n)")
	_, err = x.Run([]Value{{Tensor: floats(1, 2)}, {Int: 1}})
	require.NoError(t, err, "lower bounds are the exporter's, not the program's")
	out := call(t, x, floats(3, 2), 2)
	require.Equal(t, []int{2}, out[0].Shape, "a machine goes on after an error")
	c := m.Constants[0]
	c.Data = ir.Bytes(ir.F32, []int64{3}, make([]byte, 12))
	c.Data = shortData{c.Data}
	x, err = NewMachine(m, FP32, nil)
	require.NoError(t, err)
	_, err = x.Run([]Value{ok, {Int: 1}})
	require.ErrorContains(t, err, "constant @c: ")
}

// shortData has fewer bytes than its shape says.
type shortData struct{ ir.Data }

func (shortData) Shape() []int64 { return []int64{1 << 10} }

func TestInitErrors(t *testing.T) {
	m, err := ir.Parse(`module {
  constant @c : f32[2]
  init {
    %0 = neg(x=@c) : f32[2]
    derive ^c = %0
  }
  entry f() {
    return ^c: f32[2]
  }
}`)
	require.NoError(t, err)
	_, err = NewMachine(m, FP32, nil)
	require.ErrorContains(t, err, "init: neg: operand x: constant @c has no bytes")
	m.NewBuffer("huge", ir.StaticType(ir.F32, 1<<20, 1<<20))
	_, err = NewMachine(m, FP32, nil)
	require.ErrorContains(t, err, "buffer @huge: shape [1048576 1048576] has more than 1073741824 elements")
}

// TestSqueezeKeepsSymbols: a symbolic dim stays where it is 1 in a call, as the type of the result says.
func TestSqueezeKeepsSymbols(t *testing.T) {
	x := machineOf(t, FP32, `module {
  symbol s0 [1, 8]
  entry f(%x: f32[1,s0]) {
    %0 = squeeze(x=%x) {dims=[0, 1]} : f32[s0]
    %1 = squeeze(x=%x) : f32[s0]
    return %0: f32[s0], %1: f32[s0]
  }
}`, nil)
	for _, n := range []int{1, 2} {
		out, err := x.Run([]Value{{Tensor: Floats(ir.F32, []int{1, n}, make([]float32, n))}})
		require.NoError(t, err)
		require.Equal(t, []int{n}, out[0].Tensor.Shape)
		require.Equal(t, []int{n}, out[1].Tensor.Shape)
	}
}

// TestTrace: every operation is reported once it has run, with its results, inner ones before the outer.
func TestTrace(t *testing.T) {
	x := machineOf(t, FP32, `module {
  entry f(%x: f32[2]) {
    %0 = if(cond=0) : f32[2] {
      yield %x
    } else {
      %1 = neg(x=%x) : f32[2]
      yield %1
    }
    %2 = scan(originals=[%0]) {scan_axis=0} : f32[2] {
      args %3: f32[]
      %4 = exp(x=%3) : f32[]
      yield %4
    }
    return %2: f32[2]
  }
}`, nil)
	var names []string
	x.Trace = func(op *ir.Op, results []Value) {
		names = append(names, op.Def.Name)
		require.Len(t, results, len(op.Results))
	}
	call(t, x, f32([]int{2}, 1, 2))
	require.Equal(t, []string{"neg", "if", "exp", "exp", "scan"}, names)
}

// TestCancelledMachine: no operation runs after the one in which the context ends, not even the rest of a scan, and
// the buffers keep what was written before it.
func TestCancelledMachine(t *testing.T) {
	x := machineOf(t, FP32, `module {
  buffer @b : f32[2]
  entry f(%x: f32[2]) {
    store @b(x=%x)
    %0 = scan(originals=[%x]) {scan_axis=0} : f32[2] {
      args %1: f32[]
      %2 = exp(x=%1) : f32[]
      %3 = neg(x=%2) : f32[]
      yield %3
    }
    %4 = neg(x=%0) : f32[2]
    store @b(x=%4)
    return %4: f32[2]
  }
}`, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var names []string
	x.Trace = func(op *ir.Op, results []Value) {
		names = append(names, op.Def.Name)
		if op.Def.Name == "exp" {
			cancel()
		}
	}
	in := []Value{{Tensor: f32([]int{2}, 1, 2)}}
	_, err := x.Call(ctx, "f", in)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"store", "exp"}, names)
	require.Equal(t, []float32{1, 2}, x.Buffer(x.Module().Buffers[0]).F)
	names = nil
	_, err = x.Call(ctx, "f", in)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, names, "a context that has ended already")
	_, err = x.Call(t.Context(), "", in)
	require.NoError(t, err)
	require.Equal(t, []string{"store", "exp", "neg", "exp", "neg", "scan", "neg", "store"}, names)
}

// TestUnseededMachines: draws without a seed differ from call to call and from machine to machine (D16).
func TestUnseededMachines(t *testing.T) {
	const text = `module {
  entry f() {
    %0 = random_bits(shape=[64]) : u32[64]
    return %0: i64[64]
  }
}`
	seen := map[int64]bool{}
	for range 3 {
		x := machineOf(t, FP32, text, nil)
		for range 3 {
			for _, v := range call(t, x)[0].I {
				require.True(t, v >= 0 && v <= math.MaxUint32)
				seen[v] = true
			}
		}
	}
	require.Greater(t, len(seen), 9*64-5)
}
