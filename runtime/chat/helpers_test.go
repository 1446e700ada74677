package chat_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// Tokens are bytes; a turn is "<role:content>".
const (
	vocabulary = 256
	turnEnd    = '>'
	testSpace  = 400 // positions of the context
	testChunk  = 16
)

// module has the signature of a program with a sampling head, and one buffer; the fake engine computes it.
func module() *ir.Module {
	f := &ir.Func{Name: "forward", Body: &ir.Region{}, Outputs: []ir.Type{ir.StaticType(ir.I64, 1)}}
	length := ir.Sym(&ir.Symbol{Lo: 1, Hi: testChunk})
	f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), length))
	f.NewParam("input_pos", ir.TensorType(ir.I64, length))
	f.NewParam("temperature", ir.StaticType(ir.F32))
	f.NewParam("top_k", ir.StaticType(ir.I64))
	f.NewParam("top_p", ir.StaticType(ir.F32))
	f.NewParam("seed", ir.StaticType(ir.I64))
	m := &ir.Module{Entry: f, Metadata: []ir.Method{
		{Name: "get_max_seq_len", Values: []any{int64(testSpace)}},
		{Name: "get_vocab_size", Values: []any{int64(vocabulary)}},
		{Name: "use_sampling", Values: []any{true}},
	}}
	m.NewBuffer("state", ir.StaticType(ir.I64, 1))
	return m
}

// recurrent is an engine whose next token depends on all tokens before it, through one number that cannot be
// rolled back, and on the seed where the temperature is not 0.
type recurrent struct {
	fed  int                      // tokens, over all instances
	fail func(position int) error // nil for never; called with the position after each call
	kept bool                     // whether instances are engine.Stateful
}

func (*recurrent) Name() string { return "recurrent" }
func (e *recurrent) Compile(*ir.Module, engine.Options) (engine.Executable, error) {
	return e, nil
}
func (e *recurrent) NewInstance() (engine.Instance, error) {
	x := &instance{engine: e}
	if e.kept {
		return &statefulInstance{x}, nil
	}
	return x, nil
}
func (*recurrent) Close() error { return nil }

type instance struct {
	engine   *recurrent
	state    uint64
	position int
}

func (x *instance) Close() error { return nil }
func (x *instance) Reset() error {
	x.state, x.position = 0, 0
	return nil
}

func (x *instance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	for i, t := range inputs[0].Tensor.I {
		p := int(inputs[1].Tensor.I[i])
		if p == 0 {
			x.state, x.position = 0, 0 // as causal attention has it: what is after the position is not seen
		}
		if p != x.position {
			return nil, errors.New("a gap in the positions")
		}
		x.state = x.state*0x9e3779b97f4a7c15 + uint64(t) + 1
		x.position++
		x.engine.fed++
	}
	if x.engine.fail != nil {
		if err := x.engine.fail(x.position); err != nil {
			return nil, err
		}
	}
	h := x.state
	if inputs[2].Tensor.F[0] > 0 {
		h += uint64(inputs[5].Tensor.I[0]) * 0xbf58476d1ce4e5b9
	}
	h ^= h >> 31
	h *= 0x94d049bb133111eb
	h ^= h >> 29
	token := int64("abcdefgh|"[h%9])
	if h%11 == 0 {
		token = turnEnd
	}
	return []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1}, []int64{token})}}, nil
}

type statefulInstance struct{ *instance }

func (x *statefulInstance) Snapshot() ([]engine.State, error) {
	return []engine.State{{Buffer: "state", Tensor: eval.Ints(ir.I64, []int{1}, []int64{int64(x.state)})}}, nil
}

func (x *statefulInstance) Restore(s []engine.State) error {
	x.state = uint64(s[0].Tensor.I[0])
	x.position = math.MinInt // the session says where it goes on
	return nil
}

func (x *statefulInstance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	if x.position == math.MinInt {
		x.position = int(inputs[1].Tensor.I[0])
	}
	return x.instance.Run(ctx, inputs)
}

// plain renders every turn as it is.
func plain(messages []chat.Message, generate bool) ([]int, error) {
	return render(messages, generate, func(content string, _ bool) string { return content })
}

// forgetful leaves the thoughts out of answers that are history: what comes before the last |.
func forgetful(messages []chat.Message, generate bool) ([]int, error) {
	return render(messages, generate, func(content string, last bool) string {
		if last {
			return content
		}
		return content[strings.LastIndexByte(content, '|')+1:]
	})
}

func render(messages []chat.Message, generate bool, answer func(content string, last bool) string) ([]int, error) {
	var b strings.Builder
	for i, m := range messages {
		if m.Content == "unspeakable" {
			return nil, errors.New("the template raised")
		}
		if m.Role == "assistant" {
			m.Content = answer(m.Content, i == len(messages)-1)
		}
		b.WriteString("<" + m.Role + ":" + m.Content + ">")
	}
	if generate {
		b.WriteString("<assistant:")
	}
	return tokens(b.String()), nil
}

func tokens(s string) []int {
	out := make([]int, len(s))
	for i := range s {
		out[i] = int(s[i])
	}
	return out
}

func text(tokens []int) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte(byte(t))
	}
	return b.String()
}

type renderer = func([]chat.Message, bool) ([]int, error)

// converse starts a conversation in a session of its own.
func converse(t *testing.T, e *recurrent, r renderer, system string) (*chat.Conversation, *session.Session) {
	t.Helper()
	model, err := session.Load(module(), e, engine.Options{})
	require.NoError(t, err)
	s, err := model.NewSession()
	require.NoError(t, err)
	c := chat.New(s, system)
	c.Render, c.Text = r, text
	return c, s
}

// request asks for an answer that a turn's end ends.
func request(p session.Sampling) session.Request {
	return session.Request{Sampling: p, Stop: []int{turnEnd}}
}

// scratch is the answer to a conversation that is fed as a whole.
func scratch(t *testing.T, r renderer, messages []chat.Message, p session.Sampling) string {
	t.Helper()
	_, s := converse(t, &recurrent{}, r, "")
	prompt, err := r(messages, true)
	require.NoError(t, err)
	q := request(p)
	q.Prompt = prompt
	a, err := s.Generate(t.Context(), q)
	require.NoError(t, err)
	return text(a.Tokens)
}
