package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// deltaProgram has 2 rows of a batch, 2 key heads of width 24, 6 value heads of width 36, values that do not lie
// token by token, and a state in dtype.
func deltaProgram(t *testing.T, dtype string) *ir.Module {
	t.Helper()
	m, err := ir.Parse(fmt.Sprintf(`module {
  symbol s0 [1, 256]
  buffer @s : %s[2,6,36,24]
  entry forward(%%q: f32[2,s0,2,24], %%k: f32[2,s0,2,24], %%v: f32[2,6,s0,36], %%g: f32[2,s0,6], %%beta: f32[2,s0,6], %%reset: bool[]) {
    %%0 = transpose(x=%%v) {perm=[0, 2, 1, 3]} : f32[2,s0,6,36]
    %%1 = buffer_delta_rule @s(q=%%q, k=%%k, v=%%0, g=%%g, beta=%%beta, reset=%%reset) : f32[2,s0,6,36]
    return %%1: f32[2,s0,6,36]
  }
}
`, dtype))
	require.NoError(t, err)
	return m
}

// deltaInputs has keys of norm 1, and decays of all sizes.
func deltaInputs(r *rand.Rand, tokens int, reset bool) []eval.Value {
	tensor := func(shape []int, element func() float64) eval.Value {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(element())
		}
		return eval.Value{Tensor: eval.Floats(ir.F32, shape, x)}
	}
	q, k := tensor([]int{2, tokens, 2, 24}, r.NormFloat64), tensor([]int{2, tokens, 2, 24}, r.NormFloat64)
	for i := 0; i < len(k.Tensor.F); i += 24 {
		sum := 0.0
		for _, x := range k.Tensor.F[i : i+24] {
			sum += float64(x) * float64(x)
		}
		for j := range 24 {
			k.Tensor.F[i+j] /= float32(math.Sqrt(sum))
		}
	}
	decay := func() float64 { return []float64{1, 0.99, r.Float64(), 1e-9, 0}[min(r.IntN(40), 4)%5] }
	if tokens%2 == 0 {
		decay = func() float64 { return 1 - 0.01*r.Float64() }
	}
	flag := int64(0)
	if reset {
		flag = 1
	}
	return []eval.Value{q, k, tensor([]int{2, 6, tokens, 36}, r.NormFloat64), tensor([]int{2, tokens, 6}, decay),
		tensor([]int{2, tokens, 6}, r.Float64), {Tensor: eval.Ints(ir.Bool, nil, []int64{flag})}}
}

// TestDeltaRule: calls of any number of tokens, that go on from the state of the call before or from zeros, give
// what the reference engine gives token by token, and the same bits with any number of threads.
func TestDeltaRule(t *testing.T) {
	for _, c := range []struct {
		dtype     string
		precision eval.Precision
		tolerance float64
	}{{"f32", eval.FP32, 3e-6}, {"bf16", eval.FP32, 3e-6}, {"f32", eval.Mixed, 3e-6}, {"bf16", eval.Mixed, 8e-3}} {
		t.Run(fmt.Sprintf("%s, mixed %v", c.dtype, c.precision == eval.Mixed), func(t *testing.T) {
			m := deltaProgram(t, c.dtype)
			run := func(e engine.Engine, threads int) (out []*eval.Tensor) {
				x := compile(t, e, m, engine.Options{Precision: c.precision, Threads: threads})
				r := rand.New(rand.NewPCG(1, 2))
				for i, tokens := range []int{1, 12, 5, 32, 33, 64, 1, 200, 2, 31, 65} {
					result, err := x.Run(t.Context(), deltaInputs(r, tokens, i == 4 || i == 6))
					require.NoError(t, err)
					out = append(out, result[0].Tensor)
				}
				states, err := x.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				return append(out, states[0].Tensor)
			}
			one := run(cpu.Engine{}, 1)
			requireClose(t, run(reference.Engine{}, 1), one, c.tolerance)
			for _, threads := range []int{2, 3, 4, 16} {
				require.Equal(t, one, run(cpu.Engine{}, threads), "%d threads", threads)
			}
		})
	}
}
