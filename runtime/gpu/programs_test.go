package gpu_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestPrograms: programs of one or a few nodes, which ExecuTorch's tools wrote, give what the reference engine
// gives, twice on one state: where there is a kernel, where there is none, and where a result stays on the host.
func TestPrograms(t *testing.T) {
	paths, err := filepath.Glob("../container/testdata/*.pte")
	require.NoError(t, err)
	ran := 0
	for _, path := range paths {
		if strings.Contains(path, "noweights") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			p, err := program.Open(path)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.Close()) })
			m, err := p.Module("forward")
			require.NoError(t, err)
			ran++
			o := engine.Options{Precision: eval.FP32, Exact: true, Warn: func(string) {}}
			var outputs [2][]eval.Value
			for i, e := range []engine.Engine{reference.Engine{}, onDevice(t)} {
				x, err := e.Compile(m, o)
				require.NoError(t, err)
				n, err := x.NewInstance()
				require.NoError(t, err)
				for range 2 {
					out, err := n.Run(t.Context(), randomInputs(t, m))
					require.NoError(t, err)
					outputs[i] = append(outputs[i], out...)
				}
				require.NoError(t, n.Close())
				require.NoError(t, x.Close())
			}
			for i, w := range outputs[0] {
				got := outputs[1][i]
				require.Equal(t, w.Int, got.Int)
				if w.Tensor != nil {
					requireClose(t, []*eval.Tensor{w.Tensor}, []*eval.Tensor{got.Tensor}, 1e-5)
				}
			}
		})
	}
	require.NotZero(t, ran)
}

// randomInputs makes inputs of the declared shapes, with 3 for what is symbolic: small integers, and floats of
// both signs.
func randomInputs(t *testing.T, m *ir.Module) []eval.Value {
	random := rand.New(rand.NewPCG(4, 2))
	var in []eval.Value
	for _, p := range m.Entry.Params {
		if p.Type.Kind == ir.IntKind {
			in = append(in, eval.Value{Int: 2})
			continue
		}
		shape := make([]int, p.Type.Rank())
		for i, d := range p.Type.Shape {
			if n, ok := d.Const(); ok {
				shape[i] = int(n)
			} else {
				shape[i] = 3
			}
		}
		x, err := eval.NewTensor(p.Type.DType, shape...)
		require.NoError(t, err)
		for i := range x.F {
			x.F[i] = float32(random.IntN(64)-32) / 8 // what bf16 holds too
		}
		for i := range x.I {
			x.I[i] = int64(random.IntN(2))
		}
		in = append(in, eval.Value{Tensor: x})
	}
	return in
}
