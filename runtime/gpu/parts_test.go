package gpu_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
)

// normal makes normal random numbers, the same ones for a seed.
type normal struct{ *rand.Rand }

func normals(seed uint64) normal { return normal{rand.New(rand.NewPCG(seed, 1))} }

// tensor is an f32 tensor.
func (r normal) tensor(t *testing.T, dims ...int) *eval.Tensor {
	x, err := eval.NewTensor(ir.F32, dims...)
	require.NoError(t, err)
	for i := range x.F {
		x.F[i] = float32(r.NormFloat64())
	}
	return x
}

// fill gives the constants of a module numbers of a deviation.
func (r normal) fill(t *testing.T, m *ir.Module, deviation float32) {
	for _, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		x := r.tensor(t, int(ir.Elements(dims)))
		for i := range x.F {
			x.F[i] *= deviation
		}
		c.Data = ir.Bytes(c.Value.Type.DType, dims, eval.Floats(c.Value.Type.DType, x.Shape, x.F).Encode())
	}
}

// kindsOf are the kinds of kernels of the plan for one token, in order.
func kindsOf(t *testing.T, m *ir.Module, device string) (kinds []string) {
	var plan strings.Builder
	require.NoError(t, gpu.Describe(&plan, m, device, 1, engine.Options{Precision: eval.FP32}))
	steps, _, _ := strings.Cut(plan.String(), "\nby kind\n")
	for _, step := range regexp.MustCompile(`(?m)^ +\d+  (.*?)  `).FindAllStringSubmatch(steps, -1) {
		kinds = append(kinds, step[1])
	}
	return kinds
}

// requireSameRun requires that two instances give the same results for inputs, up to the order of sums.
func requireSameRun(t *testing.T, want, got engine.Instance, in ...eval.Value) {
	t.Helper()
	w, err := want.Run(t.Context(), in)
	require.NoError(t, err)
	g, err := got.Run(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, g, len(w))
	for i := range w {
		requireClose(t, []*eval.Tensor{w[i].Tensor}, []*eval.Tensor{g[i].Tensor}, 1e-5)
	}
}
