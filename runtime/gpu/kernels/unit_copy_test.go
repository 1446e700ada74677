package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestUnitCopy(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]kernels.UnitCopy{
		"blocks of heads": {Outer: 3, Units: 7, Unit: 1024},
		"words":           {Outer: 1, Units: 5, Unit: 1100},
		"halves":          {Outer: 2, Units: 2, Unit: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := u.Launch()
			require.NoError(t, err)
			for _, pairs := range []int{1, 9, 0} {
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: pairs, Capacity: pairs + 2}))
			}
		})
	}
	_, err := kernels.UnitCopy{Outer: 1, Units: 2, Unit: 3}.Launch()
	require.EqualError(t, err,
		"copies of units of 3 bytes in a pool [1,2], want an even number of bytes and a pool that is not empty")
}
