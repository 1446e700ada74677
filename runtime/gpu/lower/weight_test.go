package lower

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// TestUnknownModeIsRefused: kernels decode a mode of quantization that they know, whatever its bits and group.
func TestUnknownModeIsRefused(t *testing.T) {
	constant := func(d ir.DType) []ir.Arg {
		return []ir.Arg{{Value: &ir.Value{Type: ir.Type{DType: d}, Constant: &ir.Constant{}}}}
	}
	op := &ir.Op{Def: ir.LookupOp("quantized"), Args: [][]ir.Arg{constant(ir.U32), constant(ir.U8), nil}}
	for mode, want := range map[ir.QuantMode]bool{ir.MXFP4: true, ir.MXFP8: true, ir.NVFP4: true, ir.NVFP4 + 1: false} {
		form := ir.WeightForm{Mode: mode, Bits: 4, Group: 32}
		_, ok := quantizedForm(weight{}, &ir.Value{Def: op, Type: ir.Type{DType: ir.BF16, WeightForm: form}})
		require.Equal(t, want, ok, "mode %d", mode)
	}
}
