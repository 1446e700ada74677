package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitLayer(t *testing.T) {
	for _, test := range []struct {
		name, before string
		layer        int
		rest         string
		ok           bool
	}{
		{"layers.12.mlp.gate.weight", "layers", 12, "mlp.gate.weight", true},
		{"1303/model.layers.0.self_attn.kv_cache.k_cache", "1303/model.layers", 0, "self_attn.kv_cache.k_cache", true},
		{"layers.5.layer_scalar", "layers", 5, "layer_scalar", true},
		{"layers.3.mlp.experts.7.w", "layers", 3, "mlp.experts.7.w", true},
		{"scalar.f32.30", "scalar.f32.30", 0, "", false}, // a value, not a layer
		{"layers.x.w", "layers.x.w", 0, "", false},
		{"layers.-1.w", "layers.-1.w", 0, "", false},
		{"layers.+1.w", "layers.+1.w", 0, "", false},
		{"layers.99999999999.w", "layers.99999999999.w", 0, "", false},
		{"0.w", "0.w", 0, "", false},
		{"a..1.w", "a.", 1, "w", true},
		{"norm.weight", "norm.weight", 0, "", false},
		{"norm", "norm", 0, "", false},
		{"", "", 0, "", false},
	} {
		before, layer, rest, ok := SplitLayer(test.name)
		require.Equal(t, test.ok, ok, test.name)
		if ok {
			require.Equal(t, []any{test.before, test.layer, test.rest}, []any{before, layer, rest}, test.name)
		}
	}
}
