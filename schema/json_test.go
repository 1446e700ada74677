package schema

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema/mlxgraph"
)

// TestJSON: names of the schema, tags of unions, names of enums, 64-bit integers in full.
func TestJSON(t *testing.T) {
	g := &mlxgraph.MLXGraphT{Version: "1",
		InstructionChains: []*mlxgraph.InstructionChainT{{Instructions: []*mlxgraph.InstructionT{
			{Op: &mlxgraph.OpNodeT{Type: mlxgraph.OpNodeNoopNode, Value: &mlxgraph.NoopNodeT{}}},
			{Op: &mlxgraph.OpNodeT{Type: mlxgraph.OpNodeSliceNode, Value: &mlxgraph.SliceNodeT{
				X: &mlxgraph.TidT{Idx: 1}, Out: &mlxgraph.TidT{Idx: 2},
				Axis: &mlxgraph.IntOrVidT{Literal: math.MaxInt64}}}},
			{Op: &mlxgraph.OpNodeT{Type: mlxgraph.OpNodeClipNode,
				Value: &mlxgraph.ClipNodeT{X: &mlxgraph.TidT{}, Out: &mlxgraph.TidT{}}}},
		}}}}
	got, err := JSON(g)
	require.NoError(t, err)
	require.True(t, json.Valid(got))
	require.Contains(t, string(got), `{"op_type":"NoopNode","op":{}}`)
	require.Contains(t, string(got), `{"op_type":"SliceNode","op":{"x":{"idx":1},"out":{"idx":2},"axis":{"literal":9223372036854775807,"is_vid":false},"step":0}}`)
	require.NotContains(t, string(got), "input_map", "absent fields are left out")

	for f, want := range map[float64]string{math.Inf(1): `"inf"`, math.Inf(-1): `"-inf"`, math.NaN(): `"nan"`,
		0.5: "0.5", -1e30: "-1e+30"} {
		got, err := JSON(&mlxgraph.FloatOrVidT{Literal: f})
		require.NoError(t, err)
		require.Equal(t, `{"literal":`+want+`,"is_vid":false}`, string(got))
	}
	all, err := JSON(sampleGraph())
	require.NoError(t, err)
	require.True(t, json.Valid(all))
}
