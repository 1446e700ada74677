package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// longEngine is the reference engine with calls of up to rows rows, whatever the program declares.
type longEngine struct {
	reference.Engine
	rows int
}

func (e longEngine) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	if !o.LongCalls {
		return e.Engine.Compile(m, o)
	}
	longer, rows, err := fuse.Lengthened(m, fuse.LongCalls{Rows: e.rows, Room: 1 << 40, Precision: o.Precision},
		passes.Control{})
	if err != nil {
		return nil, err
	}
	x, err := e.Engine.Compile(longer, o)
	return longExecutable{x, longer, rows}, err
}

type longExecutable struct {
	engine.Executable
	longer *ir.Module
	rows   int
}

func (x longExecutable) CallRows() int              { return x.rows }
func (x longExecutable) StateBuffers() []*ir.Buffer { return x.longer.Buffers }

// TestLongCalls: an engine that takes longer calls than the program declares gets them, and gives the same tokens. A
// snapshot of either session goes on in the other, whatever has wrapped around in its rings.
func TestLongCalls(t *testing.T) {
	m := fusetest.Load(t, "etc-gemma4-chat-sample") // a window of 64, rings of 127 rows
	load := func(e engine.Engine) (*session.Model, *session.Session) {
		model, err := session.Load(m, e, engine.Options{Precision: eval.FP32})
		require.NoError(t, err)
		s, err := model.NewSession()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return model, s
	}
	declared, plain := load(reference.Engine{})
	longer, long := load(longEngine{rows: 96})
	require.Equal(t, 64, declared.MaxChunk)
	require.Equal(t, 96, longer.MaxChunk)
	require.Equal(t, declared.Buffers(), longer.Buffers())
	for _, n := range []int{50, 96, 150} { // within the window, then across the end of either ring
		tokens := make([]int, n)
		for i := range tokens {
			tokens[i] = (n+i)*37%200 + 3
		}
		want, err := plain.Prefill(t.Context(), tokens, session.Greedy)
		require.NoError(t, err)
		got, err := long.Prefill(t.Context(), tokens, session.Greedy)
		require.NoError(t, err)
		require.Equal(t, want.Token, got.Token)
		a, err := plain.Snapshot()
		require.NoError(t, err)
		b, err := long.Snapshot()
		require.NoError(t, err)
		require.NoError(t, plain.Restore(b))
		require.NoError(t, long.Restore(a))
	}
}

// TestOwnBoundOfCalls: a model whose calls have a bound of its own, as one that gives logits of every position, is not
// given longer ones.
func TestOwnBoundOfCalls(t *testing.T) {
	m := fusetest.Load(t, "gemma4-chat-bf16-ropefix")
	model, err := session.LoadRows(m, longEngine{rows: 96}, engine.Options{Precision: eval.FP32})
	require.NoError(t, err)
	require.Equal(t, 64, model.MaxChunk)
	model, err = session.Load(m, longEngine{rows: 96}, engine.Options{Precision: eval.FP32})
	require.NoError(t, err)
	require.Equal(t, 96, model.MaxChunk)
}
