package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestEntries: the entries of a module run on one state, by plans of their own, and share weights: what forward writes
// the draft reads, a reset is of both, and the device gives what the reference engine gives.
func TestEntries(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol n [1, 8]
  constant @w : f32[16,16]
  buffer @seen : f32[1,1,8,16]
  entry forward(%x: f32[1,1,n,16]) {
    %0 = linear(x=%x, weight=@w) : f32[1,1,n,16]
    %1 = sym_size(a=%x) {dim=2} : int(n)
    buffer_slice_update @seen(update=%0, axis=2, start=0, stop=%1)
    return %0: f32[1,1,n,16]
  }
  entry draft(%y: f32[1,1,8,16]) {
    %0 = load @seen() : f32[1,1,8,16]
    %1 = add(a=%0, b=%y) : f32[1,1,8,16]
    %2 = linear(x=%1, weight=@w) : f32[1,1,8,16]
    return %2: f32[1,1,8,16]
  }
}
`)
	require.NoError(t, err)
	random := normals(1)
	random.fill(t, m, 1)
	o := engine.Options{Precision: eval.FP32}
	want := compile(t, reference.Engine{}, m, o)
	exe, err := onDevice(t).Compile(m, o)
	require.NoError(t, err)
	got, err := exe.NewInstance()
	require.NoError(t, err)
	same := func(entry string, in ...eval.Value) {
		t.Helper()
		a, err := want.(engine.Entries).Call(t.Context(), entry, in)
		require.NoError(t, err)
		b, err := got.(engine.Entries).Call(t.Context(), entry, in)
		require.NoError(t, err)
		for i := range a {
			require.InDeltaSlice(t, a[i].Tensor.F, b[i].Tensor.F, 1e-4)
		}
	}
	y := eval.Value{Tensor: random.tensor(t, 1, 1, 8, 16)}
	for _, rows := range []int{1, 3, 1} {
		same("forward", eval.Value{Tensor: random.tensor(t, 1, 1, rows, 16)})
		same("draft", y)
	}
	require.NoError(t, want.Reset())
	require.NoError(t, got.Reset())
	same("draft", y)
	_, err = got.(engine.Entries).Call(t.Context(), "backward", nil)
	require.EqualError(t, err, `the module has no entry "backward"`)
	require.NoError(t, got.Close())
	require.NoError(t, exe.Close())
}
