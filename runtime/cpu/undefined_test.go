package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
)

// TestUndefined: a program that may read what nothing wrote runs where that can be told.
func TestUndefined(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%x: f32[2], %c: i64[]) {
    %0 = item_int(x=%c) : int(s0)
    %1 = if(cond=%0) : f32[2] {
      %2 = neg(x=%x) : f32[2]
      yield %2
    } else {
      %3 = undef() : f32[2]
      yield %3
    }
    %4 = exp(x=%1) : f32[2]
    return %4: f32[2]
  }
}
`)
	require.NoError(t, err)
	var warning string
	exe, err := cpu.Engine{}.Compile(m, engine.Options{Warn: func(text string) { warning = text }})
	require.NoError(t, err)
	defer func() { require.NoError(t, exe.Close()) }()
	require.Contains(t, warning, "reference engine")
	x, err := exe.NewInstance()
	require.NoError(t, err)
	run := func(c int64) ([]eval.Value, error) {
		return x.Run(t.Context(), []eval.Value{{Tensor: eval.Floats(ir.F32, []int{2}, make([]float32, 2))},
			{Tensor: eval.Ints(ir.I64, nil, []int64{c})}})
	}
	out, err := run(1)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 1}, out[0].Tensor.F)
	_, err = run(0)
	require.ErrorContains(t, err, "exp: operand x: nothing has been written there")
}
