package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// Without a seed the words of the machine's sequence are cut into elements, lowest byte first.
func TestRandomBitsWithoutSeed(t *testing.T) {
	for _, k := range []struct {
		width int
		want  *Tensor
		words int
	}{
		{1, list(ir.U8, 4, 3, 2, 1, 8), 2}, {2, list(ir.U16, 0x304, 0x102, 0x708, 0x506, 0xb0c), 3},
		{4, list(ir.U32, 0x1020304, 0x5060708, 0x90a0b0c, 0xd0e0f10, 0x11121314), 5},
	} {
		c := &Call{Op: &ir.Op{Def: ir.LookupOp("random_bits"), Attrs: &ir.RandomBitsAttrs{Width: k.width},
			Args: [][]ir.Arg{{ir.Int(5)}, nil}},
			Args: [][]Value{{{Int: 5}}, nil}}
		require.NoError(t, ir.Infer(c.Op))
		_, err := Run(c)
		require.ErrorContains(t, err, "no seed")
		c.Bits = func(n int) []uint32 {
			require.Equal(t, k.words, n)
			return []uint32{0x1020304, 0x5060708, 0x90a0b0c, 0xd0e0f10, 0x11121314}[:n]
		}
		got, err := Run(c)
		require.NoError(t, err)
		require.Equal(t, k.want, got[0].Tensor)
	}
}

// A seed is sign-extended from 32 bits and the draw depends on the number of elements, not on the shape.
func TestRandomBitsWithSeed(t *testing.T) {
	flat := must(t, "random_bits", &ir.RandomBitsAttrs{Width: 4}, []int{6}, register32(-1))
	square := must(t, "random_bits", &ir.RandomBitsAttrs{Width: 4}, []int{2, 3}, register32(-1))
	require.Equal(t, flat.I, square.I)
	other := must(t, "random_bits", &ir.RandomBitsAttrs{Width: 4}, []int{6}, register32(1))
	require.NotEqual(t, flat.I, other.I)
	refuses(t, "width", "random_bits", &ir.RandomBitsAttrs{Width: 8}, []int{6})
	refuses(t, "", "random_bits", &ir.RandomBitsAttrs{Width: 4}, []int{0})
}
