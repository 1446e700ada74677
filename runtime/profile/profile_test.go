package profile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/profile"
)

var begin = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// steps are those of two tokens and a chunk of a model with a layer.
func steps() []engine.Step {
	var out []engine.Step
	for _, tokens := range []int{8, 1, 1} {
		out = append(out,
			engine.Step{Kind: "linear", Name: "layers.0.mlp.weight", Layer: 0, Tokens: tokens, Start: begin,
				Time: 2 * time.Millisecond, Bytes: 4e6, Operations: tokens * 8e6},
			engine.Step{Kind: "norm", Name: "norm.weight", Layer: engine.NoLayer, Tokens: tokens,
				Start: begin.Add(2 * time.Millisecond), Time: time.Millisecond},
			engine.Step{Kind: engine.Call, Layer: engine.NoLayer, Tokens: tokens, Start: begin,
				Time: 4 * time.Millisecond, Bytes: 4e6, Operations: tokens * 8e6})
	}
	return out
}

// TestProfile: sums by phase, kind and layer; rates; the share of the ceiling; the time between steps.
func TestProfile(t *testing.T) {
	var p profile.Profile
	for _, s := range steps() {
		p.Observe(&s)
	}
	require.Equal(t, 2, p.Token.Tokens)
	require.Equal(t, profile.Total{Count: 2, Time: 4 * time.Millisecond, Bytes: 8e6, Operations: 16e6},
		*p.Token.Kinds["linear"])
	require.Equal(t, profile.Total{Count: 1, Time: time.Millisecond}, *p.Chunk.Layers[engine.NoLayer])
	var out strings.Builder
	require.NoError(t, p.WriteText(&out, profile.Ceiling{Threads: 4, BytesPerSecond: 4e9, OperationsPerSecond: 64e9}))
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"ceiling of 4 threads: 4.0 GB/s read, 64 GFLOP/s in products",
		"chunks: 1 calls, 8 tokens, 4ms",
		"linear 1 2.000 50.0 % 4.0 2.0 0.1 32.0 50 %", // 64 MFLOP need 1 ms, as 4 MB do
		"single tokens: 2 calls, 2 tokens, 8ms",
		"linear 2 4.000 50.0 % 8.0 2.0 0.0 4.0 50 %", // bound by memory: 2 of 4 GB/s
		"norm 2 2.000 25.0 % ",
		"layer steps ms part MB GB/s GFLOP GFLOP/s of ceiling none 2 2.000 25.0 % 0 2 4.000 50.0 %",
		"between steps 2.000 25.0 %",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, out.String(), "NaN")
	out.Reset()
	require.NoError(t, p.WriteText(&out, profile.Ceiling{}))
	require.NotContains(t, out.String(), "ceiling of ")
}

// TestTrace: a JSON array of complete events.
func TestTrace(t *testing.T) {
	var out bytes.Buffer
	trace := profile.NewTrace(&out)
	for _, s := range steps()[:3] {
		trace.Observe(&s)
	}
	require.NoError(t, trace.Close())
	var events []map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &events))
	require.Len(t, events, 3)
	require.Equal(t, "linear", events[0]["name"])
	require.Equal(t, "X", events[0]["ph"])
	require.EqualValues(t, 2000, events[0]["dur"])
	require.EqualValues(t, 2000, events[1]["ts"].(float64)-events[0]["ts"].(float64))
	require.Equal(t, map[string]any{"about": "layers.0.mlp.weight", "layer": 0.0, "bytes": 4e6, "GB/s": 2.0,
		"GFLOP": 0.064, "GFLOP/s": 32.0}, events[0]["args"])
	require.NotContains(t, events[1]["args"], "layer")
	require.NotEqual(t, events[0]["tid"], events[2]["tid"], "calls have a track of their own")

	out.Reset()
	require.NoError(t, profile.NewTrace(&out).Close())
	require.JSONEq(t, "[]", out.String())
	full := profile.NewTrace(fullDisk{})
	full.Observe(&steps()[0])
	require.EqualError(t, full.Close(), "no space left")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }
