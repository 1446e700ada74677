package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/engine"
)

// Session is one conversation with a model: its state and its position. It is not safe for concurrent use.
type Session struct {
	model    *Model
	instance engine.Instance
	tokens   []int                // all tokens that were fed
	torn     bool                 // a call was abandoned, so the buffers may hold a part of what it was to write
	keys     *numeric.KeySequence // makes the keys of draws without a seed
	key      int64                // of keys: for draws without a seed by the runtime's sampler
	answer   int                  // the index in tokens at which the answer begins: after the prompt that was fed last
	given    []drawInput          // the inputs of the runtime's sampler
}

// NewSession makes a session at position 0.
func (m *Model) NewSession() (*Session, error) {
	instance, err := m.executable.NewInstance()
	if err != nil {
		return nil, err
	}
	s := &Session{model: m, instance: instance, keys: numeric.NewUnseededKeySequence()}
	if m.drawn {
		s.given = m.draws.inputs(m.width)
	}
	s.newKey()
	return s, nil
}

// newKey begins draws whose noise no draw before had.
func (s *Session) newKey() { s.key = int64(s.keys.Next()[0]) }

// Model returns the model of the session.
func (s *Session) Model() *Model { return s.model }

// Close frees the session's state.
func (s *Session) Close() error { return s.instance.Close() }

// Tune measures what the engine's option TuneLater put off, for the calls that were made so far: see [engine.Tunable].
// The session's state stays as it is.
func (s *Session) Tune(ctx context.Context) error {
	if t, ok := s.instance.(engine.Tunable); ok {
		return t.Tune(ctx)
	}
	return nil
}

// Position returns the number of tokens that the session has seen.
func (s *Session) Position() int { return len(s.tokens) }

// Tokens returns the tokens that the session has seen.
func (s *Session) Tokens() []int { return slices.Clone(s.tokens) }

// ErrAbandoned is the error of a session whose last call was abandoned in the middle: its state is written in part.
// Reset and Restore mend it.
var ErrAbandoned = errors.New("the session's last call was abandoned and its state is written in part: " +
	"reset it, or restore a snapshot")

// Abandoned reports whether a call was abandoned since the last Reset or Restore. The session then feeds nothing and
// gives no snapshot. Its tokens are those of the calls that were completed.
func (s *Session) Abandoned() bool { return s.torn }

// Reset forgets everything.
func (s *Session) Reset() error {
	s.tokens, s.answer = nil, 0
	s.newKey()
	if err := s.instance.Reset(); err != nil {
		return err
	}
	s.torn = false
	return nil
}

// Step is the result of a call: a token, and the logits it came from where the program gives them. They are valid until
// the next call.
type Step struct {
	Token  int
	Logits []float32
	// Logprob is the natural logarithm of the token's probability. Top has the most likely tokens with theirs, at most
	// [Sampling.TopLogprobs] of them. Both are set only where [Sampling.Logprobs] is.
	Logprob float32
	Top     []Logprob
}

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	Token   int
	Logprob float32
}

// Prefill feeds tokens, in chunks that the program can take, and gives the token that follows. Every
// chunk draws with the same seed, and only the last one's token is kept (requirement B11). A tail below
// the program's smallest chunk is fed token by token (requirement C2). A context that ends before a chunk
// leaves the session with the chunks before it; one that ends in a chunk abandons the session (see
// [Session.Abandoned]).
func (s *Session) Prefill(ctx context.Context, tokens []int, p Sampling) (Step, error) {
	if len(tokens) == 0 {
		return Step{}, fmt.Errorf("an empty prompt: at least one token is needed")
	}
	if err := s.checkRoom(len(tokens)); err != nil {
		return Step{}, err
	}
	var step Step
	s.answer = len(s.tokens) + len(tokens)
	s.newKey()
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			return Step{}, err
		}
		n := min(len(tokens), s.model.MaxChunk)
		if n < s.model.MinChunk {
			n = 1
		}
		q := p
		if n < len(tokens) {
			q = Greedy // the token is dropped, so there is nothing to sample (requirement C10)
			q.TopK, q.TopP, q.Seed = p.TopK, p.TopP, p.Seed
		}
		var err error
		if step, err = s.call(ctx, s.instance.Run, tokens[:n], q); err != nil {
			return Step{}, err
		}
		tokens = tokens[n:]
	}
	return step, nil
}

// Decode feeds one token and gives the next. A context that ends in the call abandons the session.
func (s *Session) Decode(ctx context.Context, token int, p Sampling) (Step, error) {
	if err := s.checkRoom(1); err != nil {
		return Step{}, err
	}
	return s.call(ctx, s.instance.Run, []int{token}, p)
}

// DecodePipelined is Decode for a token whose successor is likely to be fed next, with the parameters next. An engine
// that pipelines calls ([engine.Pipelined]) submits that call before the result of this one was read, so the device
// does not wait for the host. The caller may still feed another token, or none.
func (s *Session) DecodePipelined(ctx context.Context, token int, p, next Sampling) (Step, error) {
	x, ok := s.instance.(engine.Pipelined)
	if !ok || !s.model.givesToken() || s.checkRoom(2) != nil || next.Check() != nil ||
		next.penalizes() || next.Mask != nil {
		return s.Decode(ctx, token, p)
	}
	follows, err := s.inputs([]int{0}, len(s.tokens)+1, next) // penalties and masks depend on the token
	if err != nil {
		return Step{}, err
	}
	run := func(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
		return x.RunPipelined(ctx, inputs, follows)
	}
	return s.call(ctx, run, []int{token}, p)
}

func (s *Session) checkRoom(n int) error {
	if len(s.tokens)+n > s.model.MaxSeqLen {
		return fmt.Errorf("%d tokens at position %d do not fit the context of %d tokens", n,
			len(s.tokens), s.model.MaxSeqLen)
	}
	return nil
}

// runner is how an instance runs forward.
type runner func(ctx context.Context, inputs []eval.Value) ([]eval.Value, error)

// call runs forward on tokens at the session's position and takes the token that follows.
func (s *Session) call(ctx context.Context, run runner, tokens []int, p Sampling) (Step, error) {
	out, err := s.forward(ctx, run, tokens, p)
	if err != nil {
		return Step{}, err
	}
	if s.model.drawn {
		return s.drawn(out, p)
	}
	return s.read(out[0].Tensor, p)
}

// forward runs forward on tokens at the session's position.
func (s *Session) forward(ctx context.Context, run runner, tokens []int, p Sampling) ([]eval.Value, error) {
	if s.torn {
		return nil, ErrAbandoned
	}
	inputs, err := s.inputs(tokens, len(s.tokens), p)
	if err != nil {
		return nil, err
	}
	out, err := run(ctx, inputs)
	if err != nil {
		var abandoned *engine.AbandonedError
		s.torn = errors.As(err, &abandoned)
		return nil, err
	}
	s.tokens = append(s.tokens, tokens...)
	return out, nil
}

// inputs returns the inputs of forward for tokens that start at a position.
func (s *Session) inputs(tokens []int, position int, p Sampling) ([]eval.Value, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if need := p.NeedsRuntime(); need != "" && s.model.Form != Drawn {
		return nil, fmt.Errorf("%s needs the runtime's own sampler, and the program was not loaded with it", need)
	}
	ids, positions := make([]int64, len(tokens)), make([]int64, len(tokens))
	for i, t := range tokens {
		if t < 0 || s.model.Vocab > 0 && t >= s.model.Vocab {
			return nil, fmt.Errorf("token %d is not in the vocabulary of %d tokens", t, s.model.Vocab)
		}
		ids[i], positions[i] = int64(t), int64(position+i)
	}
	inputs := []eval.Value{
		{Tensor: eval.Ints(ir.I64, []int{1, len(tokens)}, ids)},
		{Tensor: eval.Ints(ir.I64, []int{len(tokens)}, positions)},
	}
	if s.model.drawn {
		return s.drawInputs(inputs, tokens, position, p)
	}
	switch s.model.Form {
	case AuthorsSampler:
		shape := []int{1}[:s.model.params[2].Type.Rank()]
		inputs = append(inputs, eval.Value{Tensor: eval.Floats(ir.F32, shape, []float32{p.Temperature})})
	case Sampler:
		topK := p.TopK
		if topK <= 0 {
			topK = math.MaxInt64 // keep all (requirement B18)
		}
		inputs = append(inputs, floatScalar(p.Temperature), intScalar(topK), floatScalar(p.TopP), intScalar(p.Seed))
	}
	return inputs, nil
}

func floatScalar(v float32) eval.Value {
	return eval.Value{Tensor: eval.Floats(ir.F32, nil, []float32{v})}
}

func intScalar(v int64) eval.Value { return eval.Value{Tensor: eval.Ints(ir.I64, nil, []int64{v})} }

// read takes the token, or the last position's logits, out of the output (requirements A10, A11, C11).
func (s *Session) read(t *eval.Tensor, p Sampling) (Step, error) {
	if s.model.givesToken() {
		if t.DType != ir.I64 || len(t.I) != 1 {
			return Step{}, fmt.Errorf("the program gave %s%v, want one i64 token", t.DType, t.Shape)
		}
		if v := t.I[0]; v < 0 || s.model.Vocab > 0 && v >= int64(s.model.Vocab) {
			return Step{}, fmt.Errorf("the program gave token %d, which is not in the vocabulary of %d tokens", v,
				s.model.Vocab)
		}
		return Step{Token: int(t.I[0])}, nil
	}
	vocab := t.Shape[len(t.Shape)-1]
	if !t.DType.IsFloat() || vocab == 0 || len(t.F) < vocab {
		return Step{}, fmt.Errorf("the program gave %s%v, want logits", t.DType, t.Shape)
	}
	logits := t.F[len(t.F)-vocab:]
	return Step{Token: s.choose(logits, p.Temperature), Logits: logits}, nil
}
