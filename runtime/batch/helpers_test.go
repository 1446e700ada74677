package batch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

const (
	testVocab   = 24
	testContext = 64
	stopToken   = 3
)

// hasher is an engine whose logits are hashes of all tokens that an instance was fed, so that any token that is fed at
// the wrong place, or left out, shows. Its state is the tokens.
type hasher struct {
	fail    atomic.Int64 // the calls until one fails, 0: none does
	calls   atomic.Int64
	open    atomic.Int64 // instances
	blocked chan struct{}
	entered chan struct{}
	stays   bool // instances are not Stateful
}

var errDevice = errors.New("the device went away")

func (*hasher) Name() string { return "hasher" }
func (h *hasher) Compile(*ir.Module, engine.Options) (engine.Executable, error) {
	return hashed{h}, nil
}

type hashed struct{ *hasher }

func (hashed) Close() error { return nil }
func (x hashed) NewInstance() (engine.Instance, error) {
	x.open.Add(1)
	i := &hashInstance{h: x.hasher, seen: make([]int64, testContext+1)}
	if x.stays {
		return struct{ engine.Instance }{i}, nil
	}
	return i, nil
}

type hashInstance struct {
	h    *hasher
	seen []int64 // tokens, and their number behind
}

func (i *hashInstance) Reset() error { clear(i.seen); return nil }
func (i *hashInstance) Close() error { i.h.open.Add(-1); return nil }
func (i *hashInstance) Snapshot() ([]engine.State, error) {
	copied := append([]int64{}, i.seen...)
	return []engine.State{{Buffer: "seen", Tensor: eval.Ints(ir.I64, []int{len(copied)}, copied)}}, nil
}
func (i *hashInstance) Restore(s []engine.State) error { copy(i.seen, s[0].Tensor.I); return nil }

func (i *hashInstance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	i.h.calls.Add(1)
	if i.h.entered != nil {
		i.h.entered <- struct{}{}
		select {
		case <-i.h.blocked:
		case <-ctx.Done():
			return nil, &engine.AbandonedError{Cause: ctx.Err()}
		}
	}
	if n := i.h.fail.Load(); n > 0 && i.h.fail.Add(-1) == 0 {
		return nil, errDevice
	}
	for j, t := range inputs[0].Tensor.I {
		at := i.seen[testContext]
		if inputs[1].Tensor.I[j] != at {
			return nil, errors.New("a token at the wrong position")
		}
		i.seen[at] = t
		i.seen[testContext]++
	}
	row := logitsOf(i.seen[:i.seen[testContext]])
	if len(inputs) == 2 {
		return []eval.Value{{Tensor: eval.Floats(ir.F32, []int{1, testVocab}, row)}}, nil
	}
	d := batch.Draw{Temperature: inputs[2].Tensor.F[0], TopK: inputs[3].Tensor.I[0], TopP: inputs[4].Tensor.F[0],
		Seed: inputs[5].Tensor.I[0]}
	return []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1}, []int64{int64(batch.Choose(d, row))})}}, nil
}

// logitsOf are the logits after tokens.
func logitsOf(tokens []int64) []float32 {
	h := uint64(1469598103934665603)
	for _, t := range tokens {
		h = (h ^ uint64(t+1)) * 1099511628211
	}
	row := make([]float32, testVocab)
	for i := range row {
		h ^= h << 13
		h ^= h >> 7
		h ^= h << 17
		row[i] = float32(h%4096)/512 - 4
	}
	return row
}

// load makes a model of an engine. sampler gives it a sampling head.
func load(t testing.TB, e engine.Engine, sampler bool) *session.Model {
	t.Helper()
	rows := ir.Sym(&ir.Symbol{Lo: 1, Hi: 8})
	f := &ir.Func{Name: "forward", Body: &ir.Region{}, Outputs: []ir.Type{ir.StaticType(ir.F32, 1, testVocab)}}
	f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), rows))
	f.NewParam("input_pos", ir.TensorType(ir.I64, rows))
	if sampler {
		f.Outputs = []ir.Type{ir.StaticType(ir.I64, 1)}
		for i, d := range []ir.DType{ir.F32, ir.I64, ir.F32, ir.I64} {
			f.NewParam([]string{"temperature", "top_k", "top_p", "seed"}[i], ir.StaticType(d))
		}
	}
	m := &ir.Module{Entry: f, Buffers: []*ir.Buffer{{Name: "seen", Type: ir.StaticType(ir.I64, testContext+1)}},
		Metadata: []ir.Method{{Name: "get_max_seq_len", Values: []any{int64(testContext)}},
			{Name: "get_vocab_size", Values: []any{int64(testVocab)}}, {Name: "use_sampling", Values: []any{sampler}}}}
	model, err := session.Load(m, e, engine.Options{})
	require.NoError(t, err)
	return model
}

// start makes a runner on an engine, with memory for so many states.
func start(t testing.TB, e *hasher, sampler bool, sequences, states int) *batch.Runner {
	t.Helper()
	x, err := batch.NewOneByOne(load(t, e, sampler), 100, sequences, "a test")
	require.NoError(t, err)
	o := batch.Options{Queue: 1000, Budget: int64(100 * states), Prefix: int64(100 * states), Checkpoints: 16}
	r, err := batch.New(x, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.Zero(t, e.open.Load(), "instances are left open")
	})
	return r
}

// alone is the answer of a session that has the device for itself.
func alone(t testing.TB, sampler bool, q batch.Request) session.Answer {
	t.Helper()
	model := load(t, &hasher{}, sampler)
	s, err := model.NewSession()
	require.NoError(t, err)
	p := q.Sampling
	a, err := s.Generate(context.Background(),
		session.Request{Prompt: q.Prompt, MaxNewTokens: q.MaxTokens, Stop: q.Stop,
			Sampling: session.Sampling{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, Seed: p.Seed}})
	require.NoError(t, err)
	return a
}

// collect reads a stream to its end.
func collect(t testing.TB, s *batch.Stream) ([]int, batch.End) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var out []int
	for {
		token, ok := s.Next(ctx)
		if !ok {
			break
		}
		out = append(out, token.ID)
	}
	require.NoError(t, ctx.Err(), "the stream hangs")
	end, err := s.End()
	require.NoError(t, err)
	require.Equal(t, len(out), end.Tokens)
	return out, end
}

// drain reads what is left of a stream, until it has ended.
func drain(t testing.TB, s *batch.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for more := true; more; {
		_, more = s.Next(ctx)
	}
	require.NoError(t, ctx.Err(), "the stream hangs")
}

func plain(prompt ...int) batch.Request {
	return batch.Request{Prompt: prompt, MaxTokens: 12, Stop: []int{stopToken}, Sampling: batch.Sampling{TopP: 1},
		Logprobs: -1}
}
