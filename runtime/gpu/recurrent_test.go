package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// layer is the part of a layer of the delta rule that products take over for one token, with weights of their own for
// what is convolved and for the gate. Everything is a result, too.
const layer = `module {
  symbol s0 [1, 8]
  constant @qkv : bf16[24,64]
  constant @z : bf16[32,64]
  constant @heads : bf16[32,64]
  constant @out : bf16[16,32]
  constant @norm : f32[8]
  constant @taps : bf16[20,3,1]
  buffer @state : bf16[1,3,20]
  entry forward(%x: f32[1,s0,64], %residual: f32[1,s0,16]) {
    %0, %1, %2 = linears(x=%x, weights=[@qkv, @z, @heads]) : f32[1,s0,24], f32[1,s0,32], f32[1,s0,32]
    %3 = reshape(x=%2, shape=[1, -1, 4, 8]) : f32[1,s0,4,8]
    %4 = slice(x=%0, axis=2, start=0, stop=20) : f32[1,s0,20]
    %5 = buffer_conv @state(x=%4, w=@taps) {activation="silu"} : f32[1,s0,20]
    %6 = rms_norm(x=%3, weight=@norm) {eps=1e-06} : f32[1,s0,4,8]
    %7 = reshape(x=%1, shape=[1, -1, 4, 8]) : f32[1,s0,4,8]
    %8 = glu(gate=%7, x=%6) {activation="silu"} : f32[1,s0,4,8]
    %9 = reshape(x=%8, shape=[1, -1, 32]) : f32[1,s0,32]
    %10 = linear(x=%9, weight=@out) : f32[1,s0,16]
    %11 = add(a=%residual, b=%10) : f32[1,s0,16]
    return RESULTS
  }
}
`

// TestDeltaLayer: what products take over gives what the reference engine gives, and is there for others too.
func TestDeltaLayer(t *testing.T) {
	for _, c := range []struct {
		name, results string
		kinds         []string
	}{
		{"fused", "%11: f32[1,s0,16], %5: f32[1,s0,20]", []string{"linear conv", "linear of heads"}},
		{"with other readers", "%11: f32[1,s0,16], %5: f32[1,s0,20], %0: f32[1,s0,24], %1: f32[1,s0,32], %8: f32[1,s0,4,8]", []string{"linear conv", "norm", "linear of heads"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ir.Parse(strings.Replace(layer, "RESULTS", c.results, 1))
			require.NoError(t, err)
			random := normals(8)
			random.fill(t, m, 1)
			require.Equal(t, c.kinds, kindsOf(t, m, "cuda"))
			o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1}
			want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
			for _, n := range []int{1, 3, 1, 1} {
				requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, n, 64)},
					eval.Value{Tensor: random.tensor(t, 1, n, 16)})
			}
		})
	}
}
