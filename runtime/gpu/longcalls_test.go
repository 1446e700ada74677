package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// TestLongCalls: a session feeds a prompt in longer calls than the program declares and gives the tokens of the
// reference engine, whose calls are the declared ones. A snapshot of either goes on in the other: its rings have the
// rows that the file declares.
func TestLongCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whole models on the emulator")
	}
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	load := func(e engine.Engine) (*session.Model, *session.Session) {
		model, err := session.Load(m, e, engine.Options{Precision: eval.FP32})
		require.NoError(t, err)
		s, err := model.NewSession()
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, s.Close())
			require.NoError(t, model.Close())
		})
		return model, s
	}
	declared, plain := load(reference.Engine{})
	e := onDevice(t).(gpu.Engine)
	e.CallRows = 1024
	longer, long := load(e)
	require.Equal(t, 64, declared.MaxChunk)
	require.Equal(t, 1024, longer.MaxChunk)
	require.Equal(t, declared.Buffers(), longer.Buffers())

	prompt := make([]int, 200)
	for i := range prompt {
		prompt[i] = i*37%200 + 3
	}
	feed := func(s *session.Session, tokens []int, n int) (out []int) {
		step, err := s.Prefill(t.Context(), tokens, session.Greedy)
		for range n {
			require.NoError(t, err)
			out = append(out, step.Token)
			step, err = s.Decode(t.Context(), step.Token, session.Greedy)
		}
		require.NoError(t, err)
		return out
	}
	require.Equal(t, feed(plain, prompt, 3), feed(long, prompt, 3))
	a, err := plain.Snapshot()
	require.NoError(t, err)
	b, err := long.Snapshot()
	require.NoError(t, err)
	require.NoError(t, plain.Restore(b))
	require.NoError(t, long.Restore(a))
	require.Equal(t, feed(plain, prompt[:70], 3), feed(long, prompt[:70], 3))
}
