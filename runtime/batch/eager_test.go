package batch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/speculate"
)

// eager is the reference engine as one that begins calls ahead wherever it gets a hint: such a call has run before the
// caller sees the tokens that it was begun with. What it writes then is there, whatever comes next.
type eager struct {
	drawing
	begun, taken atomic.Int64 // calls that were begun, and those of them that were made
	fail         atomic.Bool  // the next call fails after it has begun the one that follows
}

var errEager = errors.New("the device failed")

func (e *eager) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := e.drawing.Compile(m, o)
	return &eagerExecutable{x, e}, err
}

type eagerExecutable struct {
	engine.Executable
	of *eager
}

func (x *eagerExecutable) NewInstance() (engine.Instance, error) {
	i, err := x.Executable.NewInstance()
	if err != nil {
		return nil, err
	}
	return &eagerInstance{Instance: i, Stateful: i.(engine.Stateful), inner: i.(engine.Entries), of: x.of,
		random: rand.New(rand.NewPCG(5, 6))}, nil
}

type eagerInstance struct {
	engine.Instance
	engine.Stateful
	inner  engine.Entries
	of     *eager
	random *rand.Rand

	entry   string
	next    *engine.Next // of the call that was begun, as the caller gave it; nil: none
	inputs  []eval.Value // a copy of its inputs, with the tokens
	outputs []eval.Value
}

func (*eagerInstance) PipelinesEntries() bool { return true }

func (x *eagerInstance) Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error) {
	return x.CallPipelined(ctx, entry, inputs, nil)
}

func (x *eagerInstance) CallPipelined(ctx context.Context, entry string, inputs []eval.Value,
	next *engine.Next) (out []eval.Value, err error) {
	if x.isBegun(entry, inputs) && x.random.IntN(4) > 0 { // else it was dropped, and runs once more
		if x.of.taken.Add(1); !x.isBegun(entry, x.next.Inputs) {
			return nil, errors.New("tables of a call that was begun have changed")
		}
		out = x.outputs
	} else if out, err = x.inner.Call(ctx, entry, inputs); err != nil {
		return nil, err
	}
	if x.next = next; next == nil {
		return out, nil
	}
	x.of.begun.Add(1)
	x.entry, x.inputs = entry, nil
	for _, v := range next.Inputs {
		x.inputs = append(x.inputs, eval.Value{Tensor: v.Tensor.Clone()})
	}
	copy(x.inputs[0].Tensor.I[:next.Fed], out[0].Tensor.I)
	if x.outputs, err = x.inner.Call(ctx, entry, x.inputs); err == nil && x.of.fail.CompareAndSwap(true, false) {
		x.next, err = nil, errEager
	}
	return out, err
}

// isBegun reports whether the call that was begun has these inputs. Of the first one only the tokens of rows count, and
// none where the caller did not know them yet.
func (x *eagerInstance) isBegun(entry string, inputs []eval.Value) bool {
	if x.next == nil || entry != x.entry || len(inputs) != len(x.inputs) {
		return false
	}
	for i, v := range inputs {
		a, b := v.Tensor, x.inputs[i].Tensor
		known := len(b.I)
		switch {
		case a == x.next.Inputs[0].Tensor:
			known = 0
		case i == 0:
			known = x.next.Fed
		}
		if !slices.Equal(a.Shape, b.Shape) || !slices.Equal(a.F, b.F) || !slices.Equal(a.I[:known], b.I[:known]) {
			return false
		}
	}
	return true
}

// begin starts a runner on an engine.
func begin(t *testing.T, m *ir.Module, e engine.Engine) *batch.Runner {
	t.Helper()
	x, err := batch.NewRagged(m, e, batch.RaggedOptions{Rows: 16, Sequences: 4, BlockRows: 4,
		Engine: engine.Options{Precision: eval.FP32}})
	require.NoError(t, err)
	budget := x.Layout().Bytes(x.Units())
	r, err := batch.New(x, batch.Options{Queue: 100, Budget: budget, Prefix: budget / 2, Checkpoints: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// TestRunnerAhead: answers are those of sequences that are fed alone, also where calls begin before the tokens before
// them are known: after stop tokens, beside requests that arrive and that are cancelled, and beside functions that
// have the executor to themselves.
func TestRunnerAhead(t *testing.T) {
	for _, name := range []string{"etc-gemma4-chat-sample", "neighbours/qwen35-4w"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, e := fusetest.Load(t, name), &eager{}
			alone := newPool(t, m, reference.Engine{}, eval.FP32, small)
			r := begin(t, m, e)
			request := func(i int) batch.Request {
				q := plain()
				for _, id := range ids(i, 3+i) {
					q.Prompt = append(q.Prompt, int(id))
				}
				q.MaxTokens, q.Sampling.Seed, q.Sampling.Temperature = 12+i, int64(i), float32(i%2)
				want := aloneAnswer(t, alone, q)
				if i%3 == 1 { // it ends by a stop token that comes with a call, not by its length
					q.Stop = []int{want[len(want)/2]}
				}
				return q
			}
			var streams []*batch.Stream
			var want [][]int
			for i := range 8 {
				q := request(i)
				answer := aloneAnswer(t, alone, q)
				if at := slices.Index(answer, q.Stop[0]); at >= 0 {
					answer = answer[:at]
				}
				s, err := r.Submit(t.Context(), q)
				require.NoError(t, err)
				if i == 5 {
					_, more := s.Next(t.Context())
					require.True(t, more)
					s.Cancel()
					drain(t, s)
					require.NoError(t, r.Do(t.Context(), func(batch.Executor) {}))
					continue
				}
				streams, want = append(streams, s), append(want, answer)
			}
			for i, s := range streams {
				got, _ := collect(t, s)
				require.Equal(t, want[i], append([]int{}, got...), "stream %d", i)
			}
			require.NoError(t, r.Do(t.Context(), func(batch.Executor) {}))
			require.Positive(t, e.taken.Load())
			require.Greater(t, e.begun.Load(), e.taken.Load())
		})
	}
}

// TestNothingAhead: a call does not begin where the host has to see the tokens before it: for constraints, penalties
// and logprobs.
func TestNothingAhead(t *testing.T) {
	m, e := fusetest.Load(t, "neighbours/qwen35-4w"), &eager{}
	r := begin(t, m, e)
	for _, change := range []func(*batch.Request){
		func(q *batch.Request) { q.Logprobs = 2 },
		func(q *batch.Request) { q.Sampling.Repeat = 1.2 },
		func(q *batch.Request) { q.Sampling.Bias = map[int]float32{5: 1} },
		func(q *batch.Request) { q.MaxTokens = 2 }, // the second token comes with the last call
	} {
		q := plain(7, 8, 9)
		change(&q)
		s, err := r.Submit(t.Context(), q)
		require.NoError(t, err)
		collect(t, s)
		require.Zero(t, e.begun.Load())
	}
	s, err := r.Submit(t.Context(), plain(7, 8, 9))
	require.NoError(t, err)
	collect(t, s)
	require.Positive(t, e.begun.Load())
}

// TestRunnerAheadFails: a call that fails with the next one begun ends its streams with the error. All of their memory
// comes back, and later answers are right.
func TestRunnerAheadFails(t *testing.T) {
	m, e := fusetest.Load(t, "neighbours/qwen35-4w"), &eager{}
	alone := newPool(t, m, reference.Engine{}, eval.FP32, small)
	r := begin(t, m, e)
	q := plain(7, 8, 9)
	want := aloneAnswer(t, alone, q)
	long := q
	long.Stop, long.MaxTokens = nil, r.Limits().Positions-len(q.Prompt) // they run until they fail
	for range 3 {
		var streams []*batch.Stream
		for range 3 {
			s, err := r.Submit(t.Context(), long)
			require.NoError(t, err)
			_, more := s.Next(t.Context())
			require.True(t, more)
			streams = append(streams, s)
		}
		e.fail.Store(true)
		for _, s := range streams {
			for range s.Tokens(t.Context()) { //nolint:revive // only the end counts
			}
			_, err := s.End()
			require.ErrorIs(t, err, errEager)
		}
		s, err := r.Submit(t.Context(), q)
		require.NoError(t, err)
		got, _ := collect(t, s)
		require.Equal(t, want, got)
		require.NoError(t, r.Do(t.Context(), func(batch.Executor) {}))
		require.Equal(t, r.Stats().Idle, r.Stats().Used)
	}
	require.Positive(t, e.taken.Load())
	require.EqualValues(t, 3, r.Stats().Failed)
}

// TestRunnerAheadWithDrafts: answers with drafts are those without, also where the calls between two tries of drafts
// begin ahead. That some do is told apart for drafts of the program and of the text.
func TestRunnerAheadWithDrafts(t *testing.T) {
	for _, d := range []drafted{draftedModels[0], draftedModels[3]} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			e := &eager{}
			o := batch.RaggedOptions{Rows: 16, Sequences: 3, BlockRows: 4}
			b := batch.Options{Queue: 9, Budget: 1 << 40}
			want := d.runner(t, reference.Engine{}, o, b)
			b.Drafting.Most = 3
			got := d.runner(t, e, o, b)
			for _, n := range []int{1, 3} {
				var requests []batch.Request
				for i := range n {
					requests = append(requests, batch.Request{Prompt: []int{7 + i, 8, 9}, MaxTokens: 48, Logprobs: -1,
						Sampling: batch.Sampling{TopP: 1, Temperature: float32(i % 2), Seed: int64(i)}})
				}
				before := e.taken.Load()
				alone, ahead := answer(t, want, requests, nil), answer(t, got, requests, nil)
				for i := range alone {
					require.Equal(t, idsOf(alone[i].tokens), idsOf(ahead[i].tokens))
				}
				require.Greater(t, e.taken.Load(), before, "calls without drafts begin ahead")
			}
			if d.kind != speculate.None {
				require.Positive(t, got.Stats().Drafts.Drafted)
			}
		})
	}
}
