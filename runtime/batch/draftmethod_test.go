package batch_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

// methods are the methods forward and draft of a file, called one by one on one state: the independent computation that
// drafts in shared calls are held against.
type methods struct {
	t    *testing.T
	kind speculate.Kind
	engine.Instance
}

// methods compiles the methods of a drafted model as its file has them.
func (d drafted) methods(t *testing.T) *methods {
	t.Helper()
	m, ok := session.AllRows(d.module(t, 96))
	require.True(t, ok)
	m, err := speculate.Hidden(m)
	require.NoError(t, err)
	m, err = speculate.Bind(m, speculate.Method)
	require.NoError(t, err)
	x, err := engine.Compile(cpu.Engine{}, m, engine.Options{Precision: eval.FP32, Threads: 2, Warn: func(string) {}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	i, err := x.NewInstance()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return &methods{t, d.kind, i}
}

// call calls a method with tokens from a position on, and gives its last logits and the hidden states of all rows.
func (m *methods) call(name string, tokens []int, position int, hidden ...[]float32) (logits []float32,
	out [][]float32) {
	m.t.Helper()
	ids, at := make([]int64, len(tokens)), make([]int64, len(tokens))
	for i, token := range tokens {
		ids[i], at[i] = int64(token), int64(position+i)
	}
	inputs := []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1, len(ids)}, ids)},
		{Tensor: eval.Ints(ir.I64, []int{len(at)}, at)}}
	if hidden != nil {
		shape := []int{1, len(hidden), len(hidden[0])}
		inputs = append(inputs, eval.Value{Tensor: eval.Floats(ir.F32, shape, slices.Concat(hidden...))})
	}
	given, err := m.Instance.(engine.Entries).Call(m.t.Context(), name, inputs)
	require.NoError(m.t, err)
	split := func(x *eval.Tensor) [][]float32 {
		return slices.Collect(slices.Chunk(slices.Clone(x.F), x.Shape[len(x.Shape)-1]))
	}
	rows := split(given[0].Tensor)
	return rows[len(rows)-1], split(given[1].Tensor)
}

// chains gives what a round of k drafts drafts after each beginning of a text that has more than known tokens, by its
// length: of the tokens, the last was drawn and not fed yet. p are the parameters of the draws, the first after known.
func (m *methods) chains(text []int, known, k int, p batch.Draw) map[int][]int32 {
	m.t.Helper()
	require.NoError(m.t, m.Reset())
	out := map[int][]int32{}
	hidden := [][]float32{}
	for at := 2; at <= len(text); at++ {
		// Token at-1 was drawn; the one before is fed now, and an assistant reads the caches as they are then.
		_, h := m.call("forward", text[at-2:at-1], at-2)
		hidden = append(hidden, h...)
		token, state := text[at-1], hidden[at-2]
		for j := range k {
			position := at - 1 // an assistant stays there
			if m.kind == speculate.MultiToken {
				position = at - 2 + j // entries of drafts are written again, by the tokens that come
			}
			logits, states := m.call(speculate.Method, []int{token}, position, state)
			draw := p
			draw.Seed += int64(at + j - known)
			token, state = batch.Choose(draw, logits), states[0]
			if at > known {
				out[at] = append(out[at], int32(token))
			}
		}
	}
	return out
}
