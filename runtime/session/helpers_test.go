package session_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

const (
	testVocab   = 16
	testContext = 24
)

// tokensType and positionsType are the first two inputs of every form, for chunks of up to n tokens.
func tokensType(n int64) ir.Type    { return ir.TensorType(ir.I64, ir.Const(1), dimension(n)) }
func positionsType(n int64) ir.Type { return ir.TensorType(ir.I64, dimension(n)) }
func dimension(n int64) *ir.Expr    { return ir.Sym(&ir.Symbol{Lo: 1, Hi: n}) }

// samplerInputs are temperature, top_k, top_p and seed in the order of the ABI (requirement B6).
var samplerInputs = []ir.Type{ir.StaticType(ir.F32), ir.StaticType(ir.I64),
	ir.StaticType(ir.F32), ir.StaticType(ir.I64)}

// metadata makes the constant methods of a model with a context of testContext; more replaces and adds.
func metadata(more ...ir.Method) []ir.Method {
	out := []ir.Method{method("get_max_seq_len", int64(testContext)), method("get_vocab_size", int64(testVocab))}
	for _, m := range more {
		found := false
		for i := range out {
			if out[i].Name == m.Name {
				out[i], found = m, true
			}
		}
		if !found {
			out = append(out, m)
		}
	}
	return out
}

func method(name string, values ...any) ir.Method { return ir.Method{Name: name, Values: values} }

// signature makes a module with a signature and no body: enough for an engine that computes nothing.
func signature(out ir.Type, methods []ir.Method, more ...ir.Type) *ir.Module {
	f := &ir.Func{Name: "forward", Body: &ir.Region{}, Outputs: []ir.Type{out}}
	for i, t := range append([]ir.Type{tokensType(testContext), positionsType(testContext)}, more...) {
		f.NewParam([]string{"tokens", "input_pos", "temperature", "top_k", "top_p", "seed", "extra"}[i], t)
	}
	return &ir.Module{Entry: f, Metadata: methods}
}

// call is what an engine was given in one call.
type call struct {
	tokens, positions []int64
	scalars           []eval.Value
}

// scripted is an engine that records its inputs and answers with a function of them.
type scripted struct {
	calls  []call
	answer func(c call) (*eval.Tensor, error)
	resets int
}

func (*scripted) Name() string { return "scripted" }
func (e *scripted) Compile(*ir.Module, engine.Options) (engine.Executable, error) {
	return e, nil
}
func (e *scripted) NewInstance() (engine.Instance, error) { return e, nil }
func (e *scripted) Close() error                          { return nil }
func (e *scripted) Reset() error                          { e.resets++; return nil }
func (e *scripted) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	if len(inputs) < 2 || inputs[0].Tensor == nil || inputs[1].Tensor == nil {
		return nil, errors.New("tokens and positions are missing")
	}
	c := call{inputs[0].Tensor.I, inputs[1].Tensor.I, inputs[2:]}
	e.calls = append(e.calls, c)
	t, err := e.answer(c)
	if err != nil {
		return nil, err
	}
	return []eval.Value{{Tensor: t}}, nil
}

// lengths are the numbers of tokens of the calls.
func (e *scripted) lengths() []int {
	var out []int
	for _, c := range e.calls {
		out = append(out, len(c.tokens))
	}
	return out
}

// seeds are the seeds of the calls.
func (e *scripted) seeds() []int64 {
	var out []int64
	for _, c := range e.calls {
		out = append(out, c.scalars[3].Tensor.I[0])
	}
	return out
}

// fed are all tokens in the order in which they were fed; their positions must be 0, 1, 2, ….
func (e *scripted) fed(t *testing.T) []int {
	var out []int
	for _, c := range e.calls {
		for i, p := range c.positions {
			require.EqualValues(t, len(out), p, "position")
			out = append(out, int(c.tokens[i]))
		}
	}
	return out
}

// count answers with the token after the last one.
func count(c call) (*eval.Tensor, error) {
	return eval.Ints(ir.I64, []int{1}, []int64{(c.tokens[len(c.tokens)-1] + 1) % testVocab}), nil
}

// countLogits answers with logits whose largest is that of the token after the last one.
func countLogits(c call) (*eval.Tensor, error) {
	row := make([]float32, testVocab)
	row[(c.tokens[len(c.tokens)-1]+1)%testVocab] = 5
	return eval.Floats(ir.F32, []int{1, testVocab}, row), nil
}

// samplerModule has the six inputs and gives a token; logitsModule has two and gives logits.
func samplerModule(methods ...ir.Method) *ir.Module {
	return signature(ir.StaticType(ir.I64, 1),
		metadata(append([]ir.Method{method("use_sampling", true)}, methods...)...), samplerInputs...)
}

func logitsModule(methods ...ir.Method) *ir.Module {
	return signature(ir.StaticType(ir.F32, 1, testVocab), metadata(methods...))
}

// start loads a module on an engine and makes a session.
func start(t *testing.T, m *ir.Module, e engine.Engine) (*session.Model, *session.Session) {
	t.Helper()
	model, err := session.Load(m, e, engine.Options{})
	require.NoError(t, err)
	s, err := model.NewSession()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, model.Close())
	})
	return model, s
}

// sequence is first, first+1, … modulo the vocabulary.
func sequence(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = (first + i) % testVocab
	}
	return out
}

// argmax is the index of the first largest value.
func argmax(v []float32) int {
	best, at := float32(math.Inf(-1)), 0
	for i, x := range v {
		if x > best {
			best, at = x, i
		}
	}
	return at
}
