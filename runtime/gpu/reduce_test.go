package gpu_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestReductionsAndGathers: what reduces floats and reads rows runs on kernels that pass their self-tests and gives
// what the reference engine gives; what the kernels do not have runs on reference kernels. %y is 6 rows of 512 floats
// on the device, %i are two indices of the host.
func TestReductionsAndGathers(t *testing.T) {
	const none = "" // has no kernel
	for _, c := range []struct{ name, kind, body string }{
		{"sums of rows", "reduce", "%r = sum(x=%y) {axes=[-1]} : f32[6]\n return %r: f32[6]"},
		{"means of columns", "reduce", "%r = mean(x=%y) {axes=[0], keepdims=true} : f32[1,512]\n return %r: f32[1,512]"},
		{"a sum of everything", "reduce", "%r = sum(x=%y) {axes=[]} : f32[]\n return %r: f32[]"},
		{"maxima of columns in the middle", "reduce", `%h = reshape(x=%y, shape=[6, 8, 64]) : f32[6,8,64]
    %t = transpose(x=%h) {perm=[1, 0, 2]} : f32[8,6,64]
    %r = max(x=%t) {axes=[1]} : f32[8,64]
    return %r: f32[8,64]`},
		{"minima over axes apart", "reduce", `%h = reshape(x=%y, shape=[6, 8, 64]) : f32[6,8,64]
    %r = min(x=%h) {axes=[0, 2], keepdims=true} : f32[1,8,1]
    return %r: f32[1,8,1]`},
		{"means of parts of rows", "reduce", `%h = slice(x=%y, axis=1, start=3, stop=200) : f32[6,197]
    %r = mean(x=%h) {axes=[1]} : f32[6]
    return %r: f32[6]`},
		{"places of maxima", "reduce", "%r = argmax(x=%y) {axis=-1} : u32[6]\n return %r: u32[6]"},
		{"places of minima, of columns", "reduce",
			"%r = argmin(x=%y) {axis=0, keepdims=true} : u32[1,512]\n return %r: u32[1,512]"},
		{"sums of integers", none, `%a = argmax(x=%y) {axis=0} : u32[512]
    %r = sum(x=%a) {axes=[0]} : u32[]
    return %r: u32[]`},
		{"rows", "gather", "%r = take(x=%y, index=%i) {axis=0} : f32[2,512]\n return %r: f32[2,512]"},
		{"rows behind an axis of one", "gather", `%h = reshape(x=%y, shape=[1, 96, 32]) : f32[1,96,32]
    %r = take(x=%h, index=%i) {axis=-2} : f32[1,2,32]
    return %r: f32[1,2,32]`},
		{"columns that are rows", "gather", `%h = transpose(x=%y) {perm=[1, 0]} : f32[512,6]
    %r = take(x=%h, index=%i) {axis=0} : f32[2,6]
    return %r: f32[2,6]`},
		{"rows of a constant", "gather", `%t = take(x=@t, index=%i) {axis=0} : bf16[2,4,128]
    %u = reshape(x=%t, shape=[2, 512]) : bf16[2,512]
    %h = slice(x=%y, axis=0, start=0, stop=2) : f32[2,512]
    %r = add(a=%h, b=%u) : f32[2,512]
    return %r: f32[2,512]`},
		{"blocks that are rows", "gather",
			"%r = gather(x=%y, indices=[%i]) {axes=[0], slice_sizes=[1, 512]} : f32[2,1,512]\n return %r: f32[2,1,512]"},
		{"the row of a maximum", "gather", `%h = slice(x=%y, axis=1, start=0, stop=5) : f32[6,5]
    %a = argmax(x=%h) {axis=1} : u32[6]
    %r = take(x=%y, index=%a) {axis=0} : f32[6,512]
    return %r: f32[6,512]`},
		{"a row that may not be there", none, `%h = slice(x=%y, axis=1, start=0, stop=7) : f32[6,7]
    %m = multiply(a=%h, b=@m) : f32[6,7]
    %a = argmax(x=%m) {axis=1} : u32[6]
    %r = take(x=%y, index=%a) {axis=0} : f32[6,512]
    return %r: f32[6,512]`},
		{"an embedding", "embedding", `%h = slice(x=%y, axis=1, start=0, stop=5) : f32[6,5]
    %a = argmax(x=%h) {axis=1} : u32[6]
    %r = take(x=@e, index=%a) {axis=0} : f32[6,64]
    return %r: f32[6,64]`},
		{"an embedding that may not be there", none, `%h = slice(x=%y, axis=1, start=0, stop=7) : f32[6,7]
    %m = multiply(a=%h, b=@m) : f32[6,7]
    %a = argmax(x=%m) {axis=1} : u32[6]
    %r = take(x=@e, index=%a) {axis=0} : f32[6,64]
    return %r: f32[6,64]`},
		{"rows by places of which it is not known how many there are", none,
			`%h = slice(x=%y, axis=1, start=0, stop=64) : f32[6,64]
    %v, %a = top_k(x=%h) {k=2} : f32[6,2], u32[6,2]
    %t = reshape(x=%y, shape=[96, 32]) : f32[96,32]
    %r = take(x=%t, index=%a) {axis=0} : f32[6,2,32]
    return %r: f32[6,2,32]`},
		{"columns", "gather", "%r = take(x=%y, index=%i) {axis=1} : f32[6,2]\n return %r: f32[6,2]"},
		{"parts of rows", none, "%r = gather(x=%y, indices=[%i]) {axes=[0], slice_sizes=[1, 500]} : f32[2,1,500]\n return %r: f32[2,1,500]"},
		{"by two indices", none, "%r = gather(x=%y, indices=[%i, %i]) {axes=[0, 1], slice_sizes=[1, 1]} : f32[2,1,1]\n return %r: f32[2,1,1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(`module {
  constant @w : bf16[512,32]
  constant @t : bf16[5,4,128]
  constant @e : f32[6,64]
  constant @m : f32[7]
  entry forward(%x: f32[6,32], %i: i64[2]) {
    %y = linear(x=%x, weight=@w) : f32[6,512]
    ` + c.body + `
  }
}
`)
			require.NoError(t, err)
			random := normals(4)
			random.fill(t, m, 1)
			kinds := kindsOf(t, m, "cuda")
			require.Equal(t, c.kind == none, slices.Contains(kinds, "reference"), "%v", kinds)
			if c.kind != none {
				require.Contains(t, kinds, c.kind)
			}
			o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1}
			want := compile(t, reference.Engine{}, m, o)
			if c.kind == none {
				o.Warn = func(string) {}
			}
			e := onDevice(t).(gpu.Engine)
			e.SelfTest = &selftest.Options{Dir: t.TempDir()}
			got := compile(t, e, m, o)
			for _, indices := range [][]int64{{0, 4}, {-1, 2}} {
				requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 6, 32)},
					eval.Value{Tensor: eval.Ints(ir.I64, []int{2}, indices)})
			}
		})
	}
}

// TestRowsOfState: rows of a state, which mixed precision holds in bf16, are read where they lie.
func TestRowsOfState(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol p [-2147483648, 2147483647]
  buffer @k : bf16[1,1,8,64]
  entry forward(%x: f32[1,1,6,64], %at: i64[1], %i: i64[2]) {
    %0 = item_int(x=%at) : int(p)
    %1 = add_int(a=%0, b=6) : int(6+p)
    buffer_slice_update @k(update=%x, axis=2, start=%0, stop=%1)
    %2 = load @k() : bf16[1,1,8,64]
    %r = take(x=%2, index=%i) {axis=2} : bf16[1,1,2,64]
    return %r: bf16[1,1,2,64]
  }
}
`)
	require.NoError(t, err)
	o, random := engine.Options{Precision: eval.Mixed}, normals(4)
	integers := func(v ...int64) eval.Value { return eval.Value{Tensor: eval.Ints(ir.I64, []int{len(v)}, v)} }
	requireSameRun(t, compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o),
		eval.Value{Tensor: random.tensor(t, 1, 1, 6, 64)}, integers(1), integers(-2, 0))
}

// TestIndicesOutOfRange: an index that is known before anything runs and that has no row is an error that says so.
func TestIndicesOutOfRange(t *testing.T) {
	m, err := ir.Parse(`module {
  constant @w : f32[64,32]
  entry forward(%x: f32[6,32], %i: i64[2]) {
    %y = linear(x=%x, weight=@w) : f32[6,64]
    %r = take(x=%y, index=%i) {axis=0} : f32[2,64]
    return %r: f32[2,64]
  }
}
`)
	require.NoError(t, err)
	random := normals(4)
	random.fill(t, m, 1)
	x := compile(t, onDevice(t), m, engine.Options{Precision: eval.FP32})
	for _, at := range []int64{6, -7} {
		_, err = x.Run(t.Context(), []eval.Value{{Tensor: random.tensor(t, 6, 32)},
			{Tensor: eval.Ints(ir.I64, []int{2}, []int64{5, at})}})
		require.ErrorContains(t, err, fmt.Sprintf("take: indices[1] is %d, there are 6 rows", at))
	}
}
