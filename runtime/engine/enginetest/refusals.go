package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// Refusals requires that what does not fit is an error that says what was expected, and that what runs elsewhere is a
// warning.
func Refusals(t *testing.T, e engine.Engine) {
	m := fusetest.Load(t, "qwen35moe-tiny-bf16")
	x := Start(t, e, m, engine.Options{})
	_, err := x.Run(t.Context(), nil)
	require.ErrorContains(t, err, "0 inputs, want 2")
	in := fusetest.Inputs(m, 0, 3)
	in[0].Tensor.I[1] = 4096
	_, err = x.Run(t.Context(), in)
	require.ErrorContains(t, err, "indices[1] is 4096")
	_, err = x.Run(t.Context(), fusetest.Inputs(m, 255, 3))
	require.ErrorContains(t, err, "cache")
	in = fusetest.Inputs(m, 0, 3)
	in[0].Tensor.DType = ir.I32
	_, err = x.Run(t.Context(), in)
	require.ErrorContains(t, err, "input 0")

	var warning string
	exe, err := e.Compile(m, engine.Options{Precision: eval.Strict, Warn: func(text string) { warning = text }})
	require.NoError(t, err)
	require.Contains(t, warning, "strict")
	strict, err := exe.NewInstance()
	require.NoError(t, err)
	got, err := strict.Run(t.Context(), fusetest.Inputs(m, 0, 3))
	require.NoError(t, err)
	want, err := Start(t, reference.Engine{}, m, engine.Options{Precision: eval.Strict}).Run(t.Context(),
		fusetest.Inputs(m, 0, 3))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, strict.Close())
	require.NoError(t, exe.Close())
}
