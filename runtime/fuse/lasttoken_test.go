package fuse_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/fuse"
)

// TestLastTokenOfSomeResults: an operation of which one result is needed whole is not built for its last row.
func TestLastTokenOfSomeResults(t *testing.T) {
	const text = `module {
  symbol s0 [1, 16]
  entry forward(%x: f32[1,s0,8]) {
    %0 = silu(x=%x) : f32[1,s0,8]
    %1, %2 = top_k(x=%0) {k=3} : f32[1,s0,3], u32[1,s0,3]
    %3 = take(x=%1, index=-1) {axis=1} : f32[1,3]
    %4 = square(x=%x) : f32[1,s0,8]
    %5 = take(x=%4, index=-1) {axis=1} : f32[1,8]
    return %3: f32[1,3], %2: u32[1,s0,3], %5: f32[1,8]
  }
}
`
	m, err := ir.Parse(text)
	require.NoError(t, err)
	fused, err := fuse.Fuse(m)
	require.NoError(t, err)
	rows := map[string]string{}
	fused.Entry.Body.Walk(func(op *ir.Op) { rows[op.Def.Name] = op.Results[0].Type.String() })
	require.Equal(t, "f32[1,s0,3]", rows["top_k"], "its indices are returned for all rows")
	require.Equal(t, "f32[1,1,8]", rows["square"], "the fact says so of every elementwise operation")
	x := eval.Floats(ir.F32, []int{1, 5, 8}, make([]float32, 40))
	for i := range x.F {
		x.F[i] = float32(i*7%11) - 5
	}
	var out [2][]eval.Value
	for i, m := range []*ir.Module{m, fused} {
		machine, err := eval.NewMachine(m, eval.FP32, nil)
		require.NoError(t, err)
		out[i], err = machine.Run([]eval.Value{{Tensor: x}})
		require.NoError(t, err)
	}
	require.Equal(t, out[0], out[1])
}

// TestLastTokenOfFewerRows: an operand that has as many rows as the result in some calls only is not cut to its last
// row, for other calls are refused.
func TestLastTokenOfFewerRows(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol s0 [1, 16]
  constant @bias : f32[4,8]
  constant @w : f32[8,8]
  entry forward(%x: f32[1,s0,8]) {
    %0 = addmm(mat1=%x, mat2=@w, bias=@bias) : f32[1,s0,8]
    %1 = take(x=%0, index=-1) {axis=1} : f32[1,8]
    return %1: f32[1,8]
  }
}
`)
	require.NoError(t, err)
	fused, err := fuse.Fuse(m)
	require.NoError(t, err)
	var products []string
	fused.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == "addmm" {
			products = append(products, op.Result().Type.String())
		}
	})
	require.Equal(t, []string{"f32[1,s0,8]"}, products)
}
