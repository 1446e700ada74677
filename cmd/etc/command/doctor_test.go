package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A GPU's self-tests are told: how many kernels passed, and which failed by how much.
func TestDoctorTellsOfKernels(t *testing.T) {
	const wrong = "matmul/matmul is off by 0.31 of the largest number, where 0.01 is allowed"
	for _, c := range []struct {
		state deviceState
		want  []string
	}{
		{deviceState{KernelsPassed: 26, KernelsFailed: []string{wrong}},
			[]string{"26 kernels have passed their self-tests, 1 have failed", "kernel " + wrong}},
		{deviceState{KernelsPassed: 26}, []string{"26 kernels have passed their self-tests, 0 have failed"}},
		{deviceState{}, nil},
	} {
		c.state.Name, c.state.check, c.state.About = "metal", check{OK: true}, "a GPU"
		var out strings.Builder
		require.NoError(t, diagnosis{Devices: []deviceState{c.state}}.writeText(&out))
		require.Contains(t, out.String(), "device metal")
		require.Equal(t, len(c.want) > 0, strings.Contains(out.String(), "self-tests"))
		for _, w := range c.want {
			require.Contains(t, out.String(), w)
		}
	}
}
