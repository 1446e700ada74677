package lower_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// machines are devices that modules are lowered for. The last one streams every product, small ones too.
var machines = map[string]kernels.Machine{
	"metal":   {Target: kernels.Metal},
	"cuda":    {Target: kernels.CUDA},
	"h100":    {Target: kernels.CUDA, Cores: 132, TransferMemory: 232448, TransferLeast: 8 << 20},
	"streams": {Target: kernels.CUDA, Cores: 4, TransferMemory: 232448, TransferLeast: 1},
}

// TestLoweredAgree evaluates every graph as the device runs it, on the reference machine, and compares outputs and
// buffers with the module that it came from: for single tokens, few tokens and chunks, one after the other on the same
// state.
func TestLoweredAgree(t *testing.T) {
	for _, name := range fusetest.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			constants := eval.NewConstants()
			for _, precision := range []eval.Precision{eval.FP32, eval.Mixed} {
				want := answers(t, m, precision, constants, 5, 1, 40, 3, 1)
				for device, machine := range machines {
					t.Run(fmt.Sprintf("%s/%d", device, precision), func(t *testing.T) {
						if testing.Short() && machine.TransferLeast != 1 {
							t.Skip("-short: the machine that streams every product has the most rows")
						}
						agree(t, want, fused, machine, precision, constants)
					})
				}
			}
		})
	}
}

// TestNeighboursAgree is TestLoweredAgree for the graphs of the other families, whose windows allow shorter calls.
func TestNeighboursAgree(t *testing.T) {
	for _, name := range fusetest.Neighbours() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			constants := eval.NewConstants()
			for _, precision := range []eval.Precision{eval.FP32, eval.Mixed} {
				if testing.Short() && precision != eval.Mixed {
					continue
				}
				want := answers(t, m, precision, constants, 5, 1, 16, 3, 1)
				for _, device := range []string{"metal", "streams"} {
					agree(t, want, fused, machines[device], precision, constants)
				}
			}
		})
	}
}

// answer is what a call gives, and what the buffers hold behind it.
type answer struct {
	in, out []eval.Value
	buffers []*eval.Tensor
}

// answers runs a module, in calls of so many tokens.
func answers(t *testing.T, m *ir.Module, precision eval.Precision, constants *eval.Constants,
	calls ...int) (all []answer) {
	t.Helper()
	machine, err := eval.NewMachine(m, precision, constants)
	require.NoError(t, err)
	position := 0
	for _, tokens := range calls {
		a := answer{in: fusetest.Inputs(m, position, tokens)}
		position += tokens
		a.out, err = machine.Run(a.in)
		require.NoError(t, err)
		for _, b := range m.Buffers {
			a.buffers = append(a.buffers, machine.Buffer(b).Clone())
		}
		all = append(all, a)
	}
	return all
}

// agree runs what a module is lowered to on the same calls.
func agree(t *testing.T, want []answer, fused *ir.Module, machine kernels.Machine, precision eval.Precision,
	constants *eval.Constants) {
	t.Helper()
	states := map[*ir.Buffer]*eval.Tensor{}
	tolerance := 1e-5
	if precision == eval.Mixed {
		tolerance = 1e-3 // buffers in bfloat16 are rounded
	}
	for _, w := range want {
		lowered, err := lower.Run(fused, shapes(w.in), &lower.Target{Machine: machine, Precision: precision},
			passes.Control{Verify: true})
		require.NoError(t, err)
		got, err := eval.NewMachine(lowered, precision, constants)
		require.NoError(t, err)
		for buffer, content := range states {
			got.SetBuffer(buffer, content)
		}
		out, err := got.Run(w.in)
		require.NoError(t, err)
		tokens := w.in[0].Tensor.Shape[1]
		require.Equal(t, w.out[0].Tensor.I, out[0].Tensor.I)
		requireClose(t, w.out[0].Tensor.F, out[0].Tensor.F, tolerance, "output of %d tokens", tokens)
		for i, buffer := range fused.Buffers {
			states[buffer] = got.Buffer(buffer)
			near := tolerance
			if precision == eval.Mixed && buffer.Type.DType == ir.BF16 {
				near = 1.0 / 128 // a sum in another order may be rounded to the next number
			}
			requireClose(t, w.buffers[i].F, states[buffer].F, near, "@%s after %d tokens", buffer.Name, tokens)
		}
	}
}

func shapes(in []eval.Value) [][]int {
	out := make([][]int, len(in))
	for i, v := range in {
		out[i] = append([]int{}, v.Tensor.Shape...)
	}
	return out
}

// requireClose compares numbers, relative to the largest of those that are wanted.
func requireClose(t *testing.T, want, got []float32, tolerance float64, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	largest := 1.0
	for _, w := range want {
		largest = max(largest, math.Abs(float64(w))) // NaN, if any is
	}
	for i, w := range want {
		if d := math.Abs(float64(w) - float64(got[i])); !(d <= tolerance*largest) {
			require.Fail(t, fmt.Sprintf(format, args...), "element %d is %g, want %g", i, got[i], w)
		}
	}
}

// TestEveryRowDoesSomething: no row of the table is there in vain.
func TestEveryRowDoesSomething(t *testing.T) {
	changed := map[string]bool{}
	// The graphs are too narrow for kernels that make a sum of what they multiply.
	wide, err := ir.Parse(strings.NewReplacer("BODY", ofSum, "RESULTS", "%p: f32[1,T,256]").Replace(block))
	require.NoError(t, err)
	rows, err := ir.Parse(strings.Replace(attendRows, "RESULTS", "%11: f32[1,R,256]", 1))
	require.NoError(t, err)
	rows.Constants[0].Data = ir.Float32s([]int64{64}, make([]float32, 64)...)
	modules := []*ir.Module{wide, rows}
	for _, name := range fusetest.Names() {
		modules = append(modules, fusetest.Load(t, name))
	}
	for _, m := range modules {
		fused, err := fuse.Fuse(m)
		require.NoError(t, err)
		for _, machine := range machines {
			for _, tokens := range []int{1, 3, 40, 64} {
				for _, precision := range []eval.Precision{eval.FP32, eval.Mixed} {
					in := plan.Shapes(fused, tokens)
					before := ""
					_, err := lower.Run(fused, in, &lower.Target{Machine: machine, Precision: precision},
						passes.Control{After: func(pass string, m *ir.Module) error {
							if text := m.String(); text != before {
								changed[pass] = changed[pass] || before != ""
								before = text
							}
							return nil
						}})
					require.NoError(t, err)
				}
			}
		}
	}
	for _, name := range lower.Table.Names()[1:] { // the first is compared with nothing
		require.True(t, changed[name], "row %s changes nothing", name)
	}
}
