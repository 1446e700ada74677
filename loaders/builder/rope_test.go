package builder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// TestScaledDivisors: divisors of positions, computed apart with the formulas of transformers' modeling_rope_utils in
// float64.
func TestScaledDivisors(t *testing.T) {
	yarn := func(factor float64, positions int, fast, slow float64, truncate bool) *huggingface.RopeScaling {
		return &huggingface.RopeScaling{Type: "yarn", Factor: factor, Positions: positions, BetaFast: fast,
			BetaSlow: slow, Truncate: truncate}
	}
	for _, test := range []struct {
		rope huggingface.Rope
		want []float64
	}{
		{huggingface.Rope{Dims: 16, Theta: 1e6, Scaling: yarn(4, 32768, 32, 1, true)},
			[]float64{1, 5.62341325, 31.6227766, 237.103921, 2000, 22493.653, 126491.106, 711311.764}},
		{huggingface.Rope{Dims: 8, Theta: 1e7, Scaling: yarn(2, 1024, 32, 1, true)},
			[]float64{1, 74.9788434, 6324.55532, 355655.882}},
		{huggingface.Rope{Dims: 16, Theta: 1e4, Scaling: yarn(4, 64, 32, 1, false)},
			[]float64{1, 5.03566459, 39.0697555, 126.491106, 400, 1264.91106, 4000, 12649.1106}},
		{huggingface.Rope{Dims: 12, Theta: 1e4, Scaling: yarn(8, 32, 2, 2, false)},
			[]float64{1, 37.1327107, 172.354775, 800, 3713.27107, 17235.4775}},
		{huggingface.Rope{Dims: 4, Theta: 100, Scaling: &huggingface.RopeScaling{Type: "linear", Factor: 3}},
			[]float64{3, 30}},
	} {
		got := scaledDivisors(test.rope)
		require.Len(t, got, len(test.want))
		for i, w := range test.want {
			require.InEpsilon(t, w, got[i], 1e-6, "%+v, pair %d", test.rope, i)
		}
	}
}

func TestRopeAttention(t *testing.T) {
	for _, test := range []struct {
		scaling *huggingface.RopeScaling
		want    float64
	}{
		{nil, 1},
		{&huggingface.RopeScaling{Type: "linear", Factor: 4}, 1},
		{&huggingface.RopeScaling{Type: "yarn", Factor: 4}, 1.138629436111989},
		{&huggingface.RopeScaling{Type: "yarn", Factor: 0.5}, 1},
		{&huggingface.RopeScaling{Type: "yarn", Factor: 4, Attention: 1.25}, 1.25},
		{&huggingface.RopeScaling{Type: "yarn", Factor: 40, MScale: 0.707, MScaleAllDim: 1}, 0.9210423553163399},
		{&huggingface.RopeScaling{Type: "yarn", Factor: 4, MScale: 2}, 1.138629436111989},
	} {
		require.InDelta(t, test.want, RopeAttention(test.scaling), 1e-15, "%+v", test.scaling)
	}
}

func TestScaleRotated(t *testing.T) {
	w := Weight{Name: "w", Data: ir.Float32s([]int64{4}, 1, 2, 3, 4)}
	for dims, want := range map[int][]float32{2: {1.5, 3, 3, 4}, 4: {1.5, 3, 4.5, 6}} {
		scaled := w.ScaleRotated(dims, 1.5)
		require.Equal(t, "w", scaled.Name)
		p, err := ir.ReadData(scaled.Data)
		require.NoError(t, err)
		values := make([]float32, 4)
		numeric.F32SliceFromBytes(values, p)
		require.Equal(t, want, values)
	}
	require.Equal(t, w, w.ScaleRotated(2, 1))
}

// TestGroupedRows takes rows of groups apart.
func TestGroupedRows(t *testing.T) {
	w := Weight{Name: "all", Data: ir.Float32s([]int64{6, 1}, 0, 1, 2, 3, 4, 5)}
	got := w.GroupedRows("some", 2, 3, Span{1, 2}, Span{0, 1})
	require.Equal(t, "some", got.Name)
	require.Equal(t, []int64{6, 1}, got.Data.Shape())
	p, err := ir.ReadData(got.Data)
	require.NoError(t, err)
	values := make([]float32, 6)
	numeric.F32SliceFromBytes(values, p)
	require.Equal(t, []float32{1, 2, 4, 5, 0, 3}, values)
}
