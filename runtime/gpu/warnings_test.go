package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestWarnings: operations without a kernel give what the reference engine gives, and one warning tells of them all,
// however many there are, however many instances, and for however many shapes there are plans.
func TestWarnings(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol n [1, 64]
  constant @w : f32[64,32]
  entry forward(%x: f32[n,32]) {
    %0 = linear(x=%x, weight=@w) : f32[n,64]
    %1 = cumsum(x=%0) {axis=1} : f32[n,64]
    %2 = tanh(x=%1) : f32[n,64]
    %3 = sort(x=%2) {axis=1} : f32[n,64]
    return %3: f32[n,64]
  }
}
`)
	require.NoError(t, err)
	random := normals(1)
	random.fill(t, m, 1)
	var warnings []string
	o := engine.Options{Precision: eval.FP32, Warn: func(text string) { warnings = append(warnings, text) }}
	exe, err := onDevice(t).Compile(m, o)
	require.NoError(t, err)
	require.Empty(t, warnings, "before anything runs")
	want := compile(t, reference.Engine{}, m, engine.Options{Precision: eval.FP32})
	for range 2 {
		x, err := exe.NewInstance()
		require.NoError(t, err)
		for _, tokens := range []int{1, 1, 3} {
			requireSameRun(t, want, x, eval.Value{Tensor: random.tensor(t, tokens, 32)})
		}
		require.NoError(t, x.Close())
	}
	require.NoError(t, exe.Close())
	require.Len(t, warnings, 1)
	require.Regexp(t, `^--device \w+ has no kernel for cumsum and perhaps other operations of this program: they run on reference kernels, slowly$`, warnings[0])
}

// TestWarningsOfTheHost: of operations on inputs alone, which are done before the first kernel, those are told that are
// many numbers without a kernel, and computed for every call.
func TestWarningsOfTheHost(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  string // of inputs %one and %many to %r, a factor of what kernels give
		want string // the operation that is told
	}{
		{"a number that needs no kernel", "%r = exp(x=%one) : f32[1]", ""},
		{"a number without a kernel", "%r = cumsum(x=%one) {axis=0} : f32[1]", ""},
		{"many numbers that need no kernel",
			"%0 = exp(x=%many) : f32[2048]\n %r = slice(x=%0, axis=0, start=0, stop=1) : f32[1]", ""},
		{"many numbers without a kernel",
			"%0 = cumsum(x=%many) {axis=0} : f32[2048]\n %r = slice(x=%0, axis=0, start=0, stop=1) : f32[1]", "cumsum"},
		{"many of few", "%0 = random_bits(shape=[2048]) : u32[2048]\n %1 = slice(x=%0, axis=0, start=0, stop=1) : u32[1]\n %r = astype(x=%1) {scalar_type=f32} : f32[1]", "random_bits"},
		{"many that are the same for every call",
			"%m = multiply_int(a=%s, b=1000) : int(1000*n)\n %0 = arange(start=0, stop=%m, step=1) {scalar_type=f32} : f32[1000*n]\n %r = slice(x=%0, axis=0, start=2, stop=3) : f32[1]", ""},
		{"many of some, with a kernel for more",
			"%0 = reshape(x=%many, shape=[2048, 1]) : f32[2048,1]\n %1 = reshape(x=%many, shape=[1, 2048]) : f32[1,2048]\n %2 = add(a=%0, b=%1) : f32[2048,2048]\n %3 = slice(x=%2, axis=0, start=0, stop=1) : f32[1,2048]\n %4 = slice(x=%3, axis=1, start=0, stop=1) : f32[1,1]\n %r = reshape(x=%4, shape=[1]) : f32[1]", "add"},
		{"few of many", "%r = prod(x=%many) {axes=[0], keepdims=true} : f32[1]", "prod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ir.Parse(fmt.Sprintf(`module {
  symbol n [1, 64]
  constant @w : f32[64,32]
  entry forward(%%x: f32[n,32], %%one: f32[1], %%many: f32[2048]) {
    %%s = sym_size(a=%%x) {dim=0} : int(n)
    %%y = linear(x=%%x, weight=@w) : f32[n,64]
    %s
    %%z = multiply(a=%%y, b=%%r) : f32[n,64]
    return %%z: f32[n,64]
  }
}
`, c.ops))
			require.NoError(t, err)
			random := normals(1)
			random.fill(t, m, 1)
			var warnings []string
			x := compile(t, onDevice(t), m,
				engine.Options{Precision: eval.FP32, Warn: func(text string) { warnings = append(warnings, text) }})
			_, err = x.Run(t.Context(), []eval.Value{{Tensor: random.tensor(t, 3, 32)}, {Tensor: random.tensor(t, 1)},
				{Tensor: random.tensor(t, 2048)}})
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], "has no kernel for "+c.want+" ")
		})
	}
}
