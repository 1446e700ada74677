package session_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// Every program with logits has a form with those of every position, which goes back to the one with the last; a
// program that samples, or whose end is not computed row by row, has none.
func TestAllRows(t *testing.T) {
	for _, name := range []string{"etc-qwen35moe-chat-portable", "gemma4-chat-bf16-ropefix",
		"qwen35moe-chat-4w-g64-f32-scan", "qwen35moe-tiny-4w-g32-emb8w"} {
		m := fusetest.Load(t, name)
		before := m.String()
		all, ok := session.AllRows(m)
		require.True(t, ok, name)
		require.Equal(t, before, m.String())
		row, rows := m.Entry.Outputs[0], all.Entry.Outputs[0]
		require.Equal(t, 3, rows.Rank(), name)
		require.True(t, rows.Shape[2].Equal(row.Shape[row.Rank()-1]))
		same, ok := session.AllRows(all)
		require.True(t, ok)
		require.Same(t, all, same)
	}
	parsed := func(body, result string) *ir.Module {
		m, err := ir.Parse(`module {
  symbol s0 [1, 8]
  entry forward(%tokens: i64[1,s0], %input_pos: i64[s0], %x: f32[1,s0,8], %y: f32[1,8]) {
` + body + `    return %` + result + `
  }
}
`)
		require.NoError(t, err)
		return m
	}
	take := "    %0 = take(x=%x, index=-1) {axis=1} : f32[1,8]\n"
	for name, m := range map[string]*ir.Module{
		"a sampler": fusetest.Load(t, "etc-gemma4-chat-sample"),
		"no body":   logitsModule(),
		"the first row": parsed("    %0 = take(x=%x, index=0) {axis=1} : f32[1,8]\n",
			"0: f32[1,8]"),
		"an op that mixes rows":    parsed(take+"    %1 = cumsum(x=%0) {axis=0} : f32[1,8]\n", "1: f32[1,8]"),
		"an operand that has rows": parsed(take+"    %1 = add(a=%0, b=%y) : f32[1,8]\n", "1: f32[1,8]"),
		"a row that is used otherwise, too": parsed(take+
			"    %1 = tanh(x=%0) : f32[1,8]\n    %2 = sum(x=%0) {axes=[0, 1]} : f32[]\n    %3 = add(a=%1, b=%2) : f32[1,8]\n", "3: f32[1,8]"),
	} {
		_, ok := session.AllRows(m)
		require.False(t, ok, name)
	}
	all, ok := session.AllRows(parsed(take+"    %1 = tanh(x=%0) : f32[1,8]\n", "1: f32[1,8]"))
	require.True(t, ok)
	require.Equal(t, "f32[1,s0,8]", all.Entry.Outputs[0].String())
}

// The rows of chunks are those of tokens one by one, in each order of skipped and wanted ones.
func TestRows(t *testing.T) {
	const skip = 5
	for _, name := range []string{"etc-qwen35moe-chat-portable", "gemma4-chat-bf16-ropefix"} {
		m := fusetest.Load(t, name)
		m.Metadata = metadata(method("get_max_seq_len", int64(64)), method("get_vocab_size", int64(0)),
			method("get_max_prefill_chunk", int64(7)))
		for _, e := range []engine.Engine{reference.Engine{}, cpu.Engine{}} {
			t.Run(name+"/"+e.Name(), func(t *testing.T) {
				var tokens []int
				for _, id := range fusetest.Inputs(m, 0, 20)[0].Tensor.I {
					tokens = append(tokens, int(id))
				}
				_, single := start(t, m, e)
				model, err := session.LoadRows(m, e, engine.Options{})
				require.NoError(t, err)
				defer model.Close()
				chunks, err := model.NewSession()
				require.NoError(t, err)
				defer chunks.Close()
				want, err := single.Rows(context.Background(), tokens, skip)
				require.NoError(t, err)
				got, err := chunks.Rows(context.Background(), tokens[:12], skip)
				require.NoError(t, err)
				more, err := chunks.Rows(context.Background(), tokens[12:], 0)
				require.NoError(t, err)
				got = append(got, more...)
				require.Len(t, got, len(tokens)-skip)
				require.Len(t, want, len(tokens)-skip)
				require.Equal(t, single.Tokens(), chunks.Tokens())
				for i, w := range want {
					largest := 0.0
					for _, v := range w.Logits {
						largest = max(largest, math.Abs(float64(v)))
					}
					require.InDeltaSlice(t, w.Logits, got[i].Logits, 3e-4*largest, "row %d", i)
				}
			})
		}
	}
}

// Rows are asked for in as few calls as the program takes, and one by one where it gives the last row only.
func TestRowsCalls(t *testing.T) {
	rows := func(c call) (*eval.Tensor, error) {
		n := len(c.tokens)
		values := make([]float32, n*testVocab)
		for i, token := range c.tokens {
			values[i*testVocab+int(token)] = 1
		}
		return eval.Floats(ir.F32, []int{1, n, testVocab}, values), nil
	}
	last := func(c call) (*eval.Tensor, error) {
		t, err := rows(call{tokens: c.tokens[len(c.tokens)-1:]})
		t.Shape = []int{1, testVocab}
		return t, err
	}
	all := signature(ir.TensorType(ir.F32, ir.Const(1), dimension(9), ir.Const(testVocab)),
		metadata(method("get_max_prefill_chunk", int64(4))))
	all.Entry.Body.Results = []*ir.Value{{Type: all.Entry.Outputs[0]}}
	for _, test := range []struct {
		name   string
		m      *ir.Module
		answer func(c call) (*eval.Tensor, error)
		calls  []int
	}{
		{"chunks", all, rows, []int{4, 4, 1}},
		{"one by one", logitsModule(), last, []int{4, 1, 1, 1, 1, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &scripted{answer: test.answer}
			model, err := session.LoadRows(test.m, e, engine.Options{})
			require.NoError(t, err)
			s, err := model.NewSession()
			require.NoError(t, err)
			tokens := sequence(2, 9)
			steps, err := s.Rows(context.Background(), tokens, 3)
			require.NoError(t, err)
			var calls, found []int
			for _, c := range e.calls {
				calls = append(calls, len(c.tokens))
			}
			for _, step := range steps {
				require.Len(t, step.Logits, testVocab)
				found = append(found, step.Token)
			}
			require.Equal(t, test.calls, calls)
			require.Equal(t, tokens[3:], found)
			_, err = s.Rows(context.Background(), tokens, 9)
			require.EqualError(t, err, "the logits after 9 tokens but the first 9: none are left")
			_, err = s.Rows(context.Background(), sequence(0, testContext), 0)
			require.ErrorContains(t, err, "do not fit the context")
		})
	}
	model, _ := start(t, samplerModule(), &scripted{answer: count})
	s, err := model.NewSession()
	require.NoError(t, err)
	_, err = s.Rows(context.Background(), []int{1}, 0)
	require.EqualError(t, err, "logits of a program that gives tokens")
}
