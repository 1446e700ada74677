package batch_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestSequences: what a pool refuses, it refuses before anything is fed.
func TestSequences(t *testing.T) {
	m := fusetest.Load(t, "neighbours/qwen35-4w")
	pool := newPool(t, m, reference.Engine{}, eval.FP32, small)
	s := pool.Open()
	feed := func(want string, feeds ...batch.Feed) {
		t.Helper()
		_, err := pool.Feed(t.Context(), feeds...)
		require.ErrorContains(t, err, want)
	}
	feed("0 tokens of which 0 give something", batch.Feed{Sequence: s})
	feed("1 tokens of which 2 give something", batch.Feed{Sequence: s, Tokens: ids(0, 1), Rows: make([]batch.Row, 2)})
	feed("token 256 is not in the vocabulary of 256 tokens", batch.Feed{Sequence: s, Tokens: []int32{256}})
	feed("fed twice", batch.Feed{Sequence: s, Tokens: ids(0, 1)}, batch.Feed{Sequence: s, Tokens: ids(0, 1)})
	feed("300 tokens after 0 do not fit the context of 256 tokens", batch.Feed{Sequence: s, Tokens: ids(0, 300)})
	feed("13 tokens to take back, a call has at most 12", batch.Feed{Sequence: s, Tokens: ids(0, 13), Exact: true})
	require.Zero(t, s.Position())

	out, err := s.Feed(t.Context(), ids(0, 30), greedyLogits, greedyLogits)
	require.NoError(t, err)
	require.Len(t, out, 2, "a prompt longer than a call is fed in several")
	require.Equal(t, 30, s.Position())
	require.ErrorContains(t, s.Rollback(1), "no state was kept after 29")
	fork, err := s.Fork()
	require.NoError(t, err)
	_, err = pool.Feed(t.Context(), batch.Feed{Sequence: fork, Tokens: ids(1, 3), Exact: true})
	require.NoError(t, err)
	require.NoError(t, fork.Rollback(2))
	require.Equal(t, 31, fork.Position())
	require.ErrorContains(t, fork.Rollback(2), "the last call has 1 left to take back")
	fork.Close()
	feed("the sequence is closed", batch.Feed{Sequence: fork, Tokens: ids(0, 1)})
	require.Positive(t, pool.Used())
	s.Close()
	require.Zero(t, pool.Used())
}

// TestFailedFeed: a call whose context ends breaks its sequences and no others.
func TestFailedFeed(t *testing.T) {
	m := fusetest.Load(t, "neighbours/qwen35-4w")
	pool := newPool(t, m, reference.Engine{}, eval.FP32, small)
	want := aloneLogits(t, pool, ids(0, 4))
	other, s := pool.Open(), pool.Open()
	_, err := other.Feed(t.Context(), ids(0, 3))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Feed(ctx, ids(1, 5), greedyLogits)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Feed(t.Context(), ids(1, 5))
	require.ErrorContains(t, err, "the sequence's last call failed, close it")
	out, err := other.Feed(t.Context(), ids(0, 4)[3:], greedyLogits)
	require.NoError(t, err)
	require.Equal(t, want[3], out[0].Logits)
}

// TestPoolMemory: what has no room is refused, and fits when others are closed.
func TestPoolMemory(t *testing.T) {
	m := fusetest.Load(t, "neighbours/qwen3-4w")
	o := batch.RaggedOptions{Rows: 12, Sequences: 3, BlockRows: 4, Engine: engine.Options{Precision: eval.FP32}}
	x, err := batch.NewRagged(m, reference.Engine{}, o)
	require.NoError(t, err)
	pool, err := batch.NewPool(x, 3*x.Layout().BlockBytes)
	require.NoError(t, err)
	defer pool.Close()
	a, b := pool.Open(), pool.Open()
	_, err = a.Feed(t.Context(), ids(0, 8))
	require.NoError(t, err)
	_, err = b.Feed(t.Context(), ids(1, 8))
	require.ErrorIs(t, err, batch.ErrNoMemory)
	require.Zero(t, b.Position())
	a.Close()
	_, err = b.Feed(t.Context(), ids(1, 8))
	require.NoError(t, err)
}

// TestBudget: units never take more than the budget, and a budget of nothing is refused.
func TestBudget(t *testing.T) {
	for _, name := range []string{"etc-gemma4-chat-sample", "qwen35moe-tiny-bf16", "neighbours/qwen3-4w",
		"neighbours/museglimmer-4w"} {
		m := fusetest.Load(t, name)
		o := batch.RaggedOptions{Rows: 16, Sequences: 4, BlockRows: 8, Engine: engine.Options{Precision: eval.Mixed},
			Budget: 1 << 22}
		x, err := batch.NewRagged(m, reference.Engine{}, o)
		require.NoError(t, err)
		require.LessOrEqual(t, x.Layout().Bytes(x.Units()), int64(1<<22), name)
		require.NoError(t, x.Close())
		o.Budget = 100
		_, err = batch.NewRagged(m, reference.Engine{}, o)
		require.ErrorContains(t, err, "100 bytes of caches, want at least")
		var not *batch.NotRaggedError
		o.Engine.DisablePasses = []string{"ragged"}
		_, err = batch.NewRagged(m, reference.Engine{}, o)
		require.ErrorAs(t, err, &not)
		o.Engine.Precision, o.Engine.DisablePasses = eval.Strict, nil
		_, err = batch.NewRagged(m, reference.Engine{}, o)
		require.ErrorAs(t, err, &not)
		require.ErrorContains(t, err, "precision strict")
	}
}

// TestDescribe: what inspect --plan says of calls of many sequences.
func TestDescribe(t *testing.T) {
	m := fusetest.Load(t, "neighbours/qwen35-4w")
	say := func(e engine.Engine, p eval.Precision) string {
		var b strings.Builder
		require.NoError(t, batch.Describe(&b, m, e, p, ragged.Storage{}))
		return b.String()
	}
	require.Equal(t, `
many sequences
  a call has rows of all sequences
  full attention: 2 caches, 16384 bytes for a block of 64 positions
  recurrent state: 6 buffers, 81408 bytes for a slot
`, say(cpu.Engine{}, eval.Mixed))
	require.Contains(t, say(cpu.Engine{}, eval.FP32), "32768 bytes for a block")
	require.Contains(t, say(cpu.Engine{}, eval.Strict),
		"one sequence at a time, each with a state of its own: precision strict")
	require.Contains(t, say(&hasher{}, eval.Mixed), "device hasher has no kernels for blocks and slots")
	m.Buffers[0].Type = ir.StaticType(ir.BF16, 2, 4, 320) // a batch of two
	require.Contains(t, say(cpu.Engine{}, eval.Mixed), "one sequence at a time")
}

// TestSequenceBytes: what a sequence takes is what the pool has for one, and of a window no more than its positions.
func TestSequenceBytes(t *testing.T) {
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	o := batch.RaggedOptions{Rows: 16, Sequences: 1, Engine: engine.Options{Precision: eval.Mixed}}
	var last int64
	for _, positions := range []int{60, 300, 3000} {
		o.Positions = positions
		got, err := batch.SequenceBytes(m, cpu.Engine{}, o)
		require.NoError(t, err)
		x, err := batch.NewRagged(m, cpu.Engine{}, o)
		require.NoError(t, err)
		require.Equal(t, x.Layout().Bytes(x.Units()), got)
		require.Greater(t, got, last)
		last = got
		require.NoError(t, x.Close())
	}
	var not *batch.NotRaggedError
	_, err := batch.SequenceBytes(m, &hasher{}, o)
	require.ErrorAs(t, err, &not)
}
