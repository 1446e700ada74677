package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestStrided(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]kernels.Strided{
		"copy of a transposed": {Function: "copy", Shape: []int{2, 3, 5, 7}, A: []int{105, 7, 21, 1}, B: []int{0, 0, 0, 0}, Out: []int{105, 35, 7, 1}},
		"add":                  {Function: "add", Shape: []int{300}, A: []int{1}, B: []int{1}, Out: []int{1}},
		"row for every row":    {Function: "multiply", Shape: []int{4, 9}, A: []int{11, 1}, B: []int{0, 1}, Out: []int{9, 1}},
		"number for every row": {Function: "glu", Activation: kernels.Sigmoid, Shape: []int{4, 9}, A: []int{1, 0}, B: []int{9, 1}, Out: []int{9, 1}},
		"gated":                {Function: "glu", Activation: kernels.GELUTanh, Shape: []int{3, 70}, A: []int{140, 1}, B: []int{140, 1}, Out: []int{70, 1}},
		"silu":                 {Function: "activate", Activation: kernels.SiLU, Shape: []int{33}, A: []int{2}, B: []int{0}, Out: []int{1}},
		"sigmoid":              {Function: "activate", Activation: kernels.Sigmoid, Shape: []int{33}, A: []int{1}, B: []int{0}, Out: []int{1}},
		"tanh":                 {Function: "tanh", Shape: []int{33}, A: []int{1}, B: []int{0}, Out: []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seeded(3)
			size := func(strides []int) int {
				n := 1
				for i, d := range s.Shape {
					n += (d - 1) * strides[i]
				}
				return n
			}
			a, b := r.floats(size(s.A)), r.floats(size(s.B))
			got, want := blank(size(s.Out)), blank(size(s.Out))
			l, err := s.Launch()
			require.NoError(t, err)
			kerneltest.Run(t, l, a, b, got)
			s.Twin(a, b, want)
			for i, w := range want {
				if w == w {
					require.InDelta(t, w, got[i], 1e-5, "element %d", i)
				} else {
					require.True(t, got[i] != got[i], "element %d is written", i)
				}
			}
		})
	}
}

func TestStridedRefusals(t *testing.T) {
	for _, c := range []struct {
		s   kernels.Strided
		err string
	}{
		{kernels.Strided{Function: "sinh"}, `strided: function "sinh" is not known`},
		{kernels.Strided{Function: "copy", Shape: []int{2}}, "strided: shape [2], want at most four dims, and a stride of every operand for each"},
		{kernels.Strided{Function: "copy", Shape: []int{0}, A: []int{1}, B: []int{1}, Out: []int{1}}, "strided: shape [0], want from 1 to 2^31 - 1 elements"},
	} {
		_, err := c.s.Launch()
		require.EqualError(t, err, c.err)
	}
}
