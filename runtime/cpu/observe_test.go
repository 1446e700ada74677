package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// TestObserve: the steps of every call, each within it, with layers, and bytes that grow with the context only
// for attention; what is observed changes no result.
func TestObserve(t *testing.T) {
	m := fusetest.Load(t, "gemma4-chat-bf16-ropefix")
	o := engine.Options{Precision: eval.Mixed, Threads: 2}
	want := runChunks(t, m, compile(t, cpu.Engine{}, m, o))
	var steps []engine.Step
	o.Observe = func(s *engine.Step) { steps = append(steps, *s) }
	got := runChunks(t, m, compile(t, cpu.Engine{}, m, o))
	requireClose(t, want, got, 0)

	layers, kinds, calls := map[int]bool{}, map[string]int{}, 0
	bytes, first := 0, 0
	for i, s := range steps {
		require.NotZero(t, s.Tokens)
		if s.Kind != engine.Call {
			layers[s.Layer] = true
			kinds[s.Kind]++
			bytes += s.Bytes
			continue
		}
		calls++
		require.Equal(t, bytes, s.Bytes)
		for _, inner := range steps[first:i] {
			require.False(t, inner.Start.Before(s.Start))
			require.LessOrEqual(t, inner.Start.Add(inner.Time).Sub(s.Start), s.Time)
			require.Equal(t, s.Tokens, inner.Tokens)
		}
		bytes, first = 0, i+1
	}
	require.Positive(t, calls)
	for layer := range 6 {
		require.True(t, layers[layer], "layer %d", layer)
	}
	require.True(t, layers[engine.NoLayer])
	require.Positive(t, kinds["attention"]+kinds["cached_attention"], "%v", kinds)
}

// TestProbe: the ceilings are numbers above zero.
func TestProbe(t *testing.T) {
	for _, exact := range []bool{false, true} {
		bytes, operations := cpu.Probe(engine.Options{Precision: eval.Mixed, Threads: 2, Exact: exact})
		require.Positive(t, bytes)
		require.Positive(t, operations)
	}
}
