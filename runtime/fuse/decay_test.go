package fuse_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/fuse"
)

// TestDecayOfAProductOfItsOwn: where the step of a decay comes from a product that gives nothing else, as in GGUF
// files, whose projections are quantized one by one, the bias of the step stays with the decay and does not go to the
// product.
func TestDecayOfAProductOfItsOwn(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol s0 [1, 16]
  constant @w : f32[4,8]
  constant @dt_bias : f32[4]
  constant @rate : f32[4]
  constant @zero : f32[]
  entry forward(%x: f32[1,s0,8]) {
    %0 = transpose(x=@w) {perm=[1, 0]} : f32[8,4]
    %1 = addmm(mat1=%x, mat2=%0) : f32[1,s0,4]
    %2 = add(a=%1, b=@dt_bias) : f32[1,s0,4]
    %3 = logaddexp(a=%2, b=@zero) : f32[1,s0,4]
    %4 = multiply(a=%3, b=@rate) : f32[1,s0,4]
    %5 = exp(x=%4) : f32[1,s0,4]
    return %5: f32[1,s0,4]
  }
}
`)
	require.NoError(t, err)
	for _, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		v := make([]float32, ir.Elements(dims))
		for i := range v {
			v[i] = map[string]float32{"w": float32(i%5) - 2, "dt_bias": float32(i), "rate": -float32(1+i) / 8}[c.Name]
		}
		c.Data = ir.Bytes(ir.F32, dims, eval.Floats(ir.F32, []int{len(v)}, v).Encode())
	}
	fused, err := fuse.Fuse(m)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"products": 1, "delta_decay": 1}, fusedOps(fused))
	x := eval.Floats(ir.F32, []int{1, 3, 8}, make([]float32, 24))
	for i := range x.F {
		x.F[i] = float32(i*7%11)/8 - .6
	}
	var out [2][]float32
	for i, m := range []*ir.Module{m, fused} {
		machine, err := eval.NewMachine(m, eval.FP32, nil)
		require.NoError(t, err)
		given, err := machine.Run([]eval.Value{{Tensor: x}})
		require.NoError(t, err)
		out[i] = given[0].Tensor.F
	}
	require.Len(t, out[0], 12)
	requireClose(t, out[0], out[1])
}
