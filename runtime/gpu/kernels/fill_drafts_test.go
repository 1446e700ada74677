package kernels_test

import (
	"testing"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestFillDrafts(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{1, 5, 300} {
		l := kernels.FillDrafts{Rows: rows + 3}.Launch()
		kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: rows, Capacity: rows + 3}))
	}
}
