package gpu_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// mixture is a mixture of experts as models have it, in parts: REST follows the routed experts %4.
const mixture = `module {
  symbol s0 [1, 64]
  constant @in : bf16[64,32]
  constant @norm : f32[64]
  constant @router : bf16[12,64]
  constant @gate_up : bf16[80,64]
  constant @score : bf16[1,64]
  constant @scale : f32[12,1]
  constant @down : bf16[64,40]
  constant @wide_down : bf16[64,80]
  constant @experts.gate : bf16[12,40,64]
  constant @experts.up : bf16[12,40,64]
  constant @experts.down : bf16[12,64,40]
  entry forward(%in: f32[1,s0,32]) {
    %x = linear(x=%in, weight=@in) : f32[1,s0,64]
    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,s0,64]
    %0, %1, %2 = linears(x=%n, weights=[@router, @gate_up, @score]) : f32[1,s0,12], f32[1,s0,80], f32[1,s0,1]
    ROUTE
    %4 = switch_mlp(x=%n, gate=@experts.gate, up=@experts.up, down=@experts.down, indices=%i, scores=%s) : f32[1,s0,64]
    REST
  }
}
`

// What chooses the experts, and what follows them.
const (
	route = `%t, %i = top_k(x=%0) {k=3} : f32[1,s0,3], u32[1,s0,3]
    %s = softmax(x=%t) {axis=-1} : f32[1,s0,3]`
	scaled = `%t, %i = top_k(x=%0) {k=3} : f32[1,s0,3], u32[1,s0,3]
    %m = softmax(x=%t) {axis=-1} : f32[1,s0,3]
    %e = embedding(indices=%i, weight=@scale) : f32[1,s0,3,1]
    %z = reshape(x=%e, shape=[1, -1, 3]) : f32[1,s0,3]
    %s = multiply(a=%z, b=%m) : f32[1,s0,3]`
	shared = `%5 = slice(x=%1, axis=2, start=0, stop=40) : f32[1,s0,40]
    %6 = slice(x=%1, axis=2, start=40, stop=80) : f32[1,s0,40]
    %7 = glu(gate=%5, x=%6) {activation="silu"} : f32[1,s0,40]
    %8 = linear(x=%7, weight=@down) : f32[1,s0,64]
    %9 = glu(gate=%2, x=%8) {activation="sigmoid"} : f32[1,s0,64]
    `
)

// TestExperts: however the parts of a mixture of experts are put together and whatever else reads them, the result is
// that of the reference engine; and where all parts fit, the kernels for a token are those that are named.
func TestExperts(t *testing.T) {
	three := []string{"linear", "linears", "experts up", "experts down"}
	alone := []string{"linear", "linear", "experts up", "experts down"} // products that nothing reads are not computed
	for _, c := range []struct {
		name, route, rest string
		kinds             []string
		old, by           string // a constant that is stored in another way
	}{
		{"shared, residual", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    %11 = add(a=%x, b=%10) : f32[1,s0,64]
    return %11: f32[1,s0,64]`, three, "", ""},
		{"residual, shared", route, shared + `%10 = add(a=%x, b=%4) : f32[1,s0,64]
    %11 = add(a=%9, b=%10) : f32[1,s0,64]
    return %11: f32[1,s0,64]`, three, "", ""},
		{"shared, no residual", route, shared + `%10 = add(a=%9, b=%4) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, three, "", ""},
		{"one shared, another added", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    %11 = add(a=%x, b=%10) : f32[1,s0,64]
    %12 = add(a=%11, b=%9) : f32[1,s0,64]
    return %12: f32[1,s0,64]`, []string{"linear", "linears", "glu", "linear", "gate", "experts up", "experts down", "norm"}, "", ""},
		{"no shared expert", route, `%10 = add(a=%x, b=%4) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, alone, "", ""},
		{"not summed", route, `return %4: f32[1,s0,64]`, alone, "", ""},
		{"shared expert not gated", route, shared + `%10 = add(a=%4, b=%8) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, nil, "", ""},
		{"shared expert of another width", route, `%7 = glu(gate=%1, x=%1) {activation="silu"} : f32[1,s0,80]
    %8 = linear(x=%7, weight=@wide_down) : f32[1,s0,64]
    %9 = glu(gate=%2, x=%8) {activation="sigmoid"} : f32[1,s0,64]
    %10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, nil, "", ""},
		{"others read the choice", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64], %i: u32[1,s0,3], %s: f32[1,s0,3]`, nil, "", ""},
		{"others read the scores", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64], %t: f32[1,s0,3]`, nil, "", ""},
		{"others read the parts", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64], %0: f32[1,s0,12], %1: f32[1,s0,80], %7: f32[1,s0,40], %8: f32[1,s0,64], %9: f32[1,s0,64]`, nil, "", ""},
		{"others read the routed experts", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64], %4: f32[1,s0,64]`, nil, "", ""},
		{"softmax before", `%p = softmax(x=%0) {axis=-1} : f32[1,s0,12]
    %s, %i = top_k(x=%p) {k=3} : f32[1,s0,3], u32[1,s0,3]`, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, nil, "", ""},
		{"gate of another format", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, []string{"linear", "linear", "linear", "experts up", "experts down"}, "@score : bf16", "@score : f32"},
		{"shared expert of another format", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, nil, "@down : bf16", "@down : f32"},
		{"scaled experts", scaled, `return %4: f32[1,s0,64]`, alone, "", ""},
		{"scaled experts, shared", scaled, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, []string{"linear", "linears", "experts up", "experts down"}, "", ""},
		{"scaled experts of bf16", strings.Replace(scaled,
			"f32[1,s0,3,1]\n    %z = reshape(x=%e, shape=[1, -1, 3]) : f32",
			"bf16[1,s0,3,1]\n    %z = reshape(x=%e, shape=[1, -1, 3]) : bf16", 1),
			`return %4: f32[1,s0,64]`, alone, "@scale : f32", "@scale : bf16"},
		{"scaled experts, one shared of another activation", scaled, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, nil, "switch_mlp", "switch_geglu"},
		{"others read the scales", scaled, `return %4: f32[1,s0,64], %z: f32[1,s0,3]`, nil, "", ""},
		{"others read the scores that are scaled", scaled, `return %4: f32[1,s0,64], %m: f32[1,s0,3]`, nil, "", ""},
		{"gelu", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, []string{"linear", "linears", "glu", "linear", "gate", "experts up", "experts down"}, "switch_mlp", "switch_geglu"},
		{"more experts than a product chooses among", route, shared + `%10 = add(a=%4, b=%9) : f32[1,s0,64]
    return %10: f32[1,s0,64]`, nil, "12", "520"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(strings.NewReplacer("ROUTE", c.route, "REST", c.rest, cmp.Or(c.old, "ROUTE"),
				cmp.Or(c.by, c.route)).Replace(mixture))
			require.NoError(t, err)
			random := normals(8)
			random.fill(t, m, 1.0/8)
			if kinds := kindsOf(t, m, "cuda"); c.kinds != nil {
				require.Equal(t, c.kinds, kinds)
			}
			o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1}
			want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
			for _, n := range []int{1, 2, 8, 9, 40} {
				requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, n, 32)})
			}
		})
	}
}
