package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpansionTypes: results that a rule remembers are those of operands, attributes and symbols as they are, not of
// other ones.
func TestExpansionTypes(t *testing.T) {
	one, other := &Symbol{Name: "T", Lo: 1, Hi: 9}, &Symbol{Name: "T", Lo: 1, Hi: 9}
	for range 2 {
		for n := range int64(20) { // more than are remembered
			require.NoError(t, Build(func() {
				b := &Builder{Insert: func(*Op) {}}
				for _, want := range []Type{StaticType(F32, n, 3), StaticType(BF16, n, 3), StaticType(F32, 3, n),
					TensorType(F32, Sym(one)), TensorType(F32, Sym(other))} {
					got := b.Value("copy", nil, &Value{Type: want, Param: "x"}).Type
					require.True(t, want.Equal(got), "%s, want %s", got, want)
				}
				a := &RopeAnglesAttrs{Tokens: int(n) + 1, Dims: 8, Base: 10000, Scale: 1}
				table := b.Op("rope_angles", a, 0)
				require.True(t, table.Result().Type.Shape[0].IsConst(n+1), "%s", table.Result().Type)
				a.Tokens++ // also where an operation is changed
				require.NoError(t, Infer(table))
				require.True(t, table.Result().Type.Shape[0].IsConst(n+2), "%s", table.Result().Type)
			}))
		}
	}
}

// TestExpansionTypesOfWeights: what an expansion needs of a weight beside its type is not taken from another weight.
func TestExpansionTypesOfWeights(t *testing.T) {
	weight := func(b *Builder) *Value {
		packed := &Value{Type: StaticType(U32, 4, 8), Constant: &Constant{Name: "packed"}}
		scales := &Value{Type: StaticType(F32, 4, 2), Constant: &Constant{Name: "scales"}}
		return b.Value("quantized", &QuantizedAttrs{GroupSize: 32, Bits: 4}, packed, scales)
	}
	b := &Builder{Insert: func(*Op) {}}
	var w *Value
	require.NoError(t, Build(func() {
		w = weight(b)
		require.True(t, StaticType(BF16, 4, 64).Equal(b.Value("dense_weight", nil, w).Type))
	}))
	require.ErrorContains(t, Build(func() { b.Value("dense_weight", nil, &Value{Type: w.Type, Param: "w"}) }),
		"want one that an operation quantized gives")
}
