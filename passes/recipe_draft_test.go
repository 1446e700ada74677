package passes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDraftRules: rules for drafts go before those for linears, and rules about layers are about the main method's.
func TestDraftRules(t *testing.T) {
	r, err := ParseRecipe("x", "linear *.mlp.gate.weight 8w group=32\nlinear * none layers=0\nlinear * 4w\ndraft mtp.fc.weight 8w\n")
	require.NoError(t, err)
	again, err := ParseRecipe("x", r.String())
	require.NoError(t, err)
	require.Equal(t, r, again)
	for _, test := range []struct {
		kind WeightKind
		name string
		bits int
	}{
		{LinearWeight, "layers.0.self_attn.o_proj.weight", 0},
		{LinearWeight, "layers.1.self_attn.o_proj.weight", 4},
		{LinearWeight, "mtp.fc.weight", 4},
		{DraftWeight, "mtp.fc.weight", 8},
		{DraftWeight, "mtp.layers.0.self_attn.o_proj.weight", 4},
		{DraftWeight, "mtp.layers.0.mlp.gate.weight", 8},
	} {
		bits := 0
		if s := r.match(test.kind, test.name); s != nil {
			bits = s.Bits
		}
		require.Equal(t, test.bits, bits, "%d %s", test.kind, test.name)
	}
}
