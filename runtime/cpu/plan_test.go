package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// programs are bodies of entries that take %x f32[s0,6], %y f32[s0,6], %i i64[] and %c bool[], with buffers
// @b f32[4,6], @h bf16[1,2,5,6] and @n i32[4], and constants @w f32[6], @m f32[6,6], @k f32[6,3,1].
var programs = map[string]string{
	"views and what is not one": `
    %0 = transpose(x=%x) {perm=[1, 0]} : f32[6,s0]
    %1 = reshape(x=%0, shape=[2, 3, -1]) : f32[2,3,s0]
    %2 = transpose(x=%1) {perm=[2, 0, 1]} : f32[s0,2,3]
    %3 = reshape(x=%2, shape=[-1, 6]) : f32[s0,6]
    %4 = add(a=%3, b=%y) : f32[s0,6]
    %5 = slice(x=%4, axis=1, start=1, stop=6) {step=2} : f32[s0,3]
    %6 = silu(x=%5) : f32[s0,3]
    %7 = rms_norm(x=%4, weight=@w) {eps=0.001} : f32[s0,6]
    %8 = slice(x=%7, axis=1, start=3, stop=6) : f32[s0,3]
    %9 = multiply(a=%6, b=%8) : f32[s0,3]
    %10 = broadcast_to(x=%9, shape=[2, -1, -1]) : f32[2,s0,3]
    %11 = softmax(x=%10) {axis=-1} : f32[2,s0,3]
    return %11: f32[2,s0,3]`,
	"a load that outlives a write": `
    %0 = load @b() : f32[4,6]
    %1 = slice(x=%0, axis=0, start=1, stop=3) : f32[2,6]
    %2 = slice(x=%x, axis=0, start=0, stop=1) : f32[min(1,s0),6]
    buffer_slice_update @b(update=%2, axis=0, start=1, stop=2)
    %3 = load @b() : f32[4,6]
    %4 = slice(x=%3, axis=0, start=0, stop=2) : f32[2,6]
    %5 = add(a=%1, b=%4) : f32[2,6]
    return %5: f32[2,6]`,
	"a state that is copied and stored": `
    %0 = load @b() : f32[4,6]
    %1 = id_copy(x=%0) : f32[4,6]
    %2 = add(a=%0, b=@w) : f32[4,6]
    store @b(x=%2)
    %3 = multiply(a=%1, b=%1) : f32[4,6]
    return %3: f32[4,6]`,
	"caches in bf16": `
    %0 = slice(x=%x, axis=0, start=0, stop=1) : f32[min(1,s0),6]
    %1 = reshape(x=%0, shape=[1, 1, 1, 6]) : f32[1,1,1,6]
    %2 = broadcast_to(x=%1, shape=[1, 2, 1, 6]) : f32[1,2,1,6]
    %3 = item_int(x=%i) : int(p)
    %4 = mod_int(a=%3, b=5) : int(mod(p,5))
    %5 = add_int(a=%4, b=1) : int(mod(p,5)+1)
    buffer_slice_update @h(update=%2, axis=2, start=%4, stop=%5)
    %6 = load @h() : bf16[1,2,5,6]
    %7 = transpose(x=%6) {perm=[0, 2, 1, 3]} : bf16[1,5,2,6]
    %8 = reshape(x=%7, shape=[5, 12]) : bf16[5,12]
    return %8: bf16[5,12]`,
	"a slice that is known when it runs": `
    %0 = item_int(x=%i) : int(p)
    %1 = slice(x=@m, axis=0, start=0, stop=%0) : f32[min(6,max(0,wrap(p,6))),6]
    %2 = sum(x=%1) {axes=[0]} : f32[6]
    %3 = add(a=%x, b=%2) : f32[s0,6]
    return %3: f32[s0,6]`,
	"an if": `
    %0 = astype(x=%c) {scalar_type=i32} : i32[]
    %1 = item_int(x=%0) : int(q)
    %2, %3 = if(cond=%1) : f32[s0,6], f32[6] {
      %4 = silu(x=%x) : f32[s0,6]
      %5 = add(a=%4, b=%y) : f32[s0,6]
      buffer_slice_update @b(update=@w, axis=0, start=0, stop=1)
      yield %5, @w
    } else {
      %6 = slice(x=@m, axis=0, start=2, stop=3) : f32[1,6]
      %7 = reshape(x=%6, shape=[6]) : f32[6]
      yield %x, %7
    }
    %8 = load @b() : f32[4,6]
    %9 = sum(x=%8) {axes=[0]} : f32[6]
    %10 = multiply(a=%2, b=%3) : f32[s0,6]
    %11 = add(a=%10, b=%9) : f32[s0,6]
    return %11: f32[s0,6]`,
	"a scan": `
    %0, %1 = scan(originals=[%x, %y], carry=[@w]) {scan_axis=0} : f32[s0,6], f32[6] {
      args %2: f32[6], %3: f32[6], %4: f32[6]
      %5 = multiply(a=%2, b=%4) : f32[6]
      %6 = add(a=%5, b=%3) : f32[6]
      %7 = tanh(x=%6) : f32[6]
      yield %6, %7
    }
    %8 = add(a=%0, b=%1) : f32[s0,6]
    return %8: f32[s0,6]`,
	"integers": `
    %0 = load @n() : i32[4]
    %1 = add(a=%0, b=%0) : i32[4]
    %2 = astype(x=%i) {scalar_type=i32} : i32[]
    %3 = add(a=%1, b=%2) : i32[4]
    store @n(x=%3)
    %4 = astype(x=%3) {scalar_type=f32} : f32[4]
    %5 = reshape(x=%4, shape=[4, 1]) : f32[4,1]
    %6 = multiply(a=%5, b=@w) : f32[4,6]
    return %6: f32[4,6]`,
	"products": `
    %0 = transpose(x=@m) {perm=[1, 0]} : f32[6,6]
    %1 = addmm(mat1=%x, mat2=%0, bias=@w) : f32[s0,6]
    %2 = slice(x=%1, axis=1, start=0, stop=3) : f32[s0,3]
    %3 = slice(x=%1, axis=1, start=3, stop=6) : f32[s0,3]
    %4 = gelu(x=%2) {approximate="tanh"} : f32[s0,3]
    %5 = multiply(a=%3, b=%4) : f32[s0,3]
    %6 = sigmoid(x=%3) : f32[s0,3]
    %7 = slice(x=%6, axis=1, start=0, stop=1) : f32[s0,1]
    %8 = sigmoid(x=%7) : f32[s0,1]
    %9 = multiply(a=%8, b=%5) : f32[s0,3]
    %10 = divide(a=%9, b=@s) : f32[s0,3]
    %11 = tanh(x=%10) : f32[s0,3]
    %12 = multiply(a=%11, b=@s) : f32[s0,3]
    return %12: f32[s0,3]`,
	"rows that are not evenly spaced": `
    %0 = reshape(x=%x, shape=[1, -1, 3, 2]) : f32[1,s0,3,2]
    %1 = slice(x=%0, axis=2, start=1, stop=3) : f32[1,s0,2,2]
    %2 = rms_norm(x=%1) {eps=0.001} : f32[1,s0,2,2]
    %3 = reshape(x=%y, shape=[1, -1, 3, 2]) : f32[1,s0,3,2]
    %4 = slice(x=%3, axis=2, start=0, stop=2) : f32[1,s0,2,2]
    %5 = multiply(a=%1, b=%4) : f32[1,s0,2,2]
    %6 = add(a=%5, b=%2) : f32[1,s0,2,2]
    %7 = transpose(x=%1) {perm=[0, 2, 1, 3]} : f32[1,2,s0,2]
    %8 = transpose(x=%6) {perm=[0, 2, 1, 3]} : f32[1,2,s0,2]
    %9 = add(a=%7, b=%8) : f32[1,2,s0,2]
    %10 = rms_norm(x=%7) {eps=0.001} : f32[1,2,s0,2]
    %11 = reshape(x=%4, shape=[1, 2, -1, 2]) : f32[1,2,s0,2]
    %12 = multiply(a=%11, b=%10) : f32[1,2,s0,2]
    %13 = slice(x=@w, axis=0, start=1, stop=3) : f32[2]
    %14 = add(a=%7, b=%13) : f32[1,2,s0,2]
    %15 = transpose(x=%x) {perm=[1, 0]} : f32[6,s0]
    %16 = rms_norm(x=%15) {eps=0.001} : f32[6,s0]
    %17 = multiply(a=%15, b=%16) : f32[6,s0]
    %18 = reshape(x=%1, shape=[1, -1, 2, 2, 1]) : f32[1,s0,2,2,1]
    %19 = reshape(x=%4, shape=[1, -1, 2, 2, 1]) : f32[1,s0,2,2,1]
    %20 = multiply(a=%18, b=%19) : f32[1,s0,2,2,1]
    return %9: f32[1,2,s0,2], %12: f32[1,2,s0,2], %14: f32[1,2,s0,2], %17: f32[6,s0], %20: f32[1,s0,2,2,1]`,
	"the result is an input, or part of a constant": `
    %0 = slice(x=@m, axis=1, start=2, stop=4) : f32[6,2]
    return %0: f32[6,2], %y: f32[s0,6], %i: i64[]`,
	"rope and top-k": `
    %0 = item_int(x=%i) : int(p)
    %1 = reshape(x=%x, shape=[1, -1, 1, 6]) : f32[1,s0,1,6]
    %2 = transpose(x=%1) {perm=[0, 2, 1, 3]} : f32[1,1,s0,6]
    %3 = rope(x=%2, offset=%0) {dims=4, base=100.0} : f32[1,1,s0,6]
    %4 = rope(x=%3, offset=%0) {dims=6, traditional=true, base=100.0, scale=0.5} : f32[1,1,s0,6]
    %5 = argsort(x=%4) {axis=-1} : u32[1,1,s0,6]
    %6 = slice(x=%5, axis=-1, start=-1, stop=-4) {step=-1} : u32[1,1,s0,3]
    %7 = take_along_axis(x=%4, indices=%6) {axis=-1} : f32[1,1,s0,3]
    %8 = astype(x=%6) {scalar_type=f32} : f32[1,1,s0,3]
    %9 = add(a=%7, b=%8) : f32[1,1,s0,3]
    return %9: f32[1,1,s0,3]`,
}

func programOf(t *testing.T, body string) *ir.Module {
	t.Helper()
	head := `module {
  symbol s0 [0, 64]
  symbol p [-2147483648, 2147483647]
  symbol q [-2147483648, 2147483647]
  constant @w : f32[6]
  constant @m : f32[6,6]
  constant @s : f32[]
  buffer @b : f32[4,6]
  buffer @h : bf16[1,2,5,6]
  buffer @n : i32[4]
  entry forward(%x: f32[s0,6], %y: f32[s0,6], %i: i64[], %c: bool[]) {`
	for _, s := range []string{"p", "q"} { // what a body does not name must not be declared
		if !strings.Contains(body, "int("+s+")") {
			head = strings.Replace(head, fmt.Sprintf("  symbol %s [-2147483648, 2147483647]\n", s), "", 1)
		}
	}
	m, err := ir.Parse(head + body + "\n  }\n}\n")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(5, 6))
	for _, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		v := make([]float32, ir.Elements(dims))
		for i := range v {
			v[i] = float32(random.NormFloat64())
		}
		c.Data = ir.Float32s(dims, v...)
	}
	return m
}

// TestPrograms runs programs with and without kernels of this engine, several times on one state.
func TestPrograms(t *testing.T) {
	for name, body := range programs {
		t.Run(name, func(t *testing.T) {
			m := programOf(t, body)
			for _, p := range []eval.Precision{eval.FP32, eval.Mixed} {
				var x [2]engine.Instance
				for i, e := range []engine.Engine{reference.Engine{}, cpu.Engine{}} {
					exe, err := e.Compile(m, engine.Options{Precision: p, Threads: 2, Warn: func(string) {}})
					require.NoError(t, err)
					defer exe.Close()
					x[i], err = exe.NewInstance()
					require.NoError(t, err)
				}
				random := rand.New(rand.NewPCG(7, 8))
				for call, n := range []int{1, 3, 1, 7, 64, 1} {
					tensor := func() eval.Value {
						v := make([]float32, 6*n)
						for i := range v {
							v[i] = float32(random.NormFloat64())
						}
						return eval.Value{Tensor: eval.Floats(ir.F32, []int{n, 6}, v)}
					}
					in := []eval.Value{tensor(), tensor(),
						{Tensor: eval.Ints(ir.I64, nil, []int64{int64(call * 5 % 7)})},
						{Tensor: eval.Ints(ir.Bool, nil, []int64{int64(call % 2)})}}
					want, err := x[0].Run(t.Context(), in)
					require.NoError(t, err)
					got, err := x[1].Run(t.Context(), in)
					require.NoError(t, err)
					for i := range want {
						requireClose(t, []*eval.Tensor{want[i].Tensor}, []*eval.Tensor{got[i].Tensor}, 1e-5)
						for j := range got[i].Tensor.F { // results belong to the caller
							got[i].Tensor.F[j] = 1e9
						}
					}
				}
				want, err := x[0].(engine.Stateful).Snapshot()
				require.NoError(t, err)
				got, err := x[1].(engine.Stateful).Snapshot()
				require.NoError(t, err)
				for i := range want {
					requireClose(t, []*eval.Tensor{want[i].Tensor}, []*eval.Tensor{got[i].Tensor}, 1e-5)
				}
			}
		})
	}
}

// TestEmptyInputs: no tokens at all give what the reference engine gives, a result or an error.
func TestEmptyInputs(t *testing.T) {
	for name, body := range programs {
		t.Run(name, func(t *testing.T) {
			m := programOf(t, body)
			empty := eval.Value{Tensor: eval.Floats(ir.F32, []int{0, 6}, []float32{})}
			in := []eval.Value{empty, empty, {Tensor: eval.Ints(ir.I64, nil, []int64{1})},
				{Tensor: eval.Ints(ir.Bool, nil, []int64{1})}}
			var out [2][]eval.Value
			var failed [2]bool
			for i, e := range []engine.Engine{reference.Engine{}, cpu.Engine{}} {
				exe, err := e.Compile(m, engine.Options{Precision: eval.FP32, Threads: 2, Warn: func(string) {}})
				require.NoError(t, err)
				defer exe.Close()
				x, err := exe.NewInstance()
				require.NoError(t, err)
				out[i], err = x.Run(t.Context(), in)
				failed[i] = err != nil
			}
			require.Equal(t, failed[0], failed[1])
			for i := range out[0] {
				require.Equal(t, out[0][i].Tensor.Shape, out[1][i].Tensor.Shape)
				require.Equal(t, out[0][i].Tensor.Len(), out[1][i].Tensor.Len())
			}
		})
	}
}

// TestWarnings: one warning tells what runs on reference kernels.
func TestWarnings(t *testing.T) {
	var warnings []string
	exe, err := cpu.Engine{}.Compile(programOf(t, programs["a scan"]),
		engine.Options{Warn: func(text string) { warnings = append(warnings, text) }})
	require.NoError(t, err)
	defer exe.Close()
	x, err := exe.NewInstance()
	require.NoError(t, err)
	row := eval.Value{Tensor: eval.Floats(ir.F32, []int{1, 6}, make([]float32, 6))}
	in := []eval.Value{row, row, {Tensor: eval.Ints(ir.I64, nil, []int64{0})},
		{Tensor: eval.Ints(ir.Bool, nil, []int64{0})}}
	for range 2 {
		_, err = x.Run(t.Context(), in)
		require.NoError(t, err)
	}
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "scan")
}
