package evaluate_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

const contextLen = 32

// predictor is an engine that computes the logits of the next token from all tokens that it was fed.
type predictor struct {
	logits   func(context []int) []float32
	fed      []int
	contexts [][]int // after every call
}

func (*predictor) Name() string { return "predictor" }
func (e *predictor) Compile(*ir.Module, engine.Options) (engine.Executable, error) {
	return e, nil
}
func (e *predictor) NewInstance() (engine.Instance, error) { return e, nil }
func (*predictor) Close() error                            { return nil }
func (e *predictor) Reset() error {
	e.fed = nil
	return nil
}
func (e *predictor) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	for _, id := range inputs[0].Tensor.I {
		e.fed = append(e.fed, int(id))
	}
	e.contexts = append(e.contexts, slices.Clone(e.fed))
	row := e.logits(e.fed)
	return []eval.Value{{Tensor: eval.Floats(ir.F32, []int{1, len(row)}, row)}}, nil
}

// load makes a model that gives logits.
func load(t *testing.T, vocab int, logits func(context []int) []float32) (*session.Model, *predictor) {
	t.Helper()
	e := &predictor{logits: logits}
	return loadForm(t, vocab, e, ir.StaticType(ir.F32, 1, int64(vocab))), e
}

// loadForm makes a model with the given output; a token needs the inputs of the sampling head.
func loadForm(t *testing.T, vocab int, e engine.Engine, out ir.Type) *session.Model {
	t.Helper()
	sequence := ir.Sym(&ir.Symbol{Lo: 1, Hi: contextLen})
	f := &ir.Func{Name: "forward", Body: &ir.Region{}, Outputs: []ir.Type{out}}
	f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), sequence))
	f.NewParam("input_pos", ir.TensorType(ir.I64, sequence))
	if !out.DType.IsFloat() {
		for i, d := range []ir.DType{ir.F32, ir.I64, ir.F32, ir.I64} {
			f.NewParam([]string{"temperature", "top_k", "top_p", "seed"}[i], ir.StaticType(d))
		}
	}
	model, err := session.Load(&ir.Module{Entry: f, Metadata: []ir.Method{
		{Name: "get_max_seq_len", Values: []any{int64(contextLen)}},
		{Name: "get_vocab_size", Values: []any{int64(vocab)}}}}, e, engine.Options{})
	require.NoError(t, err)
	return model
}

// oneHot are logits whose largest is that of a token.
func oneHot(vocab, token int) []float32 {
	row := make([]float32, vocab)
	row[token] = 9
	return row
}
