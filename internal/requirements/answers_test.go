package requirements

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/evaluate"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// turns are a question as the checkpoints were trained to read it.
func turns(name, question string) string {
	if name == "gemma4-chat" {
		return "<|turn>user\n" + question + "<turn|>\n<|turn>model\n"
	}
	return "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
}

// Trained models of both families answer with and without the sampling head, at group sizes 32 and 64, greedily and at
// a moderate temperature (B15, B26, E14).
func TestAnswers(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"What is the capital of France?":        "The capital of France is Paris.",
		"Kyiv is the capital of which country?": "Kyiv is the capital of Ukraine.",
		"What is 5 plus 3?":                     "5 plus 3 is 8.",
	}
	for _, family := range families {
		words, err := tokenizer.Load(filepath.Join(checkpoint(family.name), "tokenizer.json"))
		require.NoError(t, err)
		for _, test := range []struct {
			group    int
			sample   bool
			sampling session.Sampling
		}{
			{32, false, session.Greedy},
			{64, true, session.Greedy},
			{32, true, session.Sampling{Temperature: 0.3, TopK: 20, TopP: 0.9, Seed: 1}},
		} {
			p, err := program.Open(write(t,
				compile(t, family.name, passes.Options{Sample: test.sample, Recipe: fourBits(test.group)})))
			require.NoError(t, err)
			defer p.Close()
			m, err := p.Module("forward")
			require.NoError(t, err)
			model, err := session.Load(m, reference.Engine{}, engine.Options{})
			require.NoError(t, err)
			for question, want := range answers {
				s, err := model.NewSession()
				require.NoError(t, err)
				prompt := words.Encode(turns(family.name, question),
					tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
				a, err := s.Generate(t.Context(),
					session.Request{Prompt: prompt, Sampling: test.sampling, Stop: family.stop})
				require.NoError(t, err)
				require.Equal(t, want, words.Decode(a.Tokens, true), "%s %+v", family.name, test)
				require.NoError(t, s.Close())
			}
			require.NoError(t, model.Close())
		}
	}
}

// TestRecordedAnswers: with weights of 4 bits, a fast engine gives the tokens that transformers gave for the whole
// checkpoint.
func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		name := filepath.Join(root, "testdata", "answers", family.name+".json")
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		questions, err := evaluate.ParseQuestions(name, text)
		require.NoError(t, err)
		p, err := program.Open(write(t, compile(t, family.name, passes.Options{Recipe: fourBits(64)})))
		require.NoError(t, err)
		defer p.Close()
		m, err := p.Module("forward")
		require.NoError(t, err)
		model, err := session.Load(m, cpu.Engine{}, engine.Options{Precision: eval.Mixed})
		require.NoError(t, err)
		r, err := evaluate.QA(t.Context(), model, questions, evaluate.QAOptions{Stop: family.stop})
		require.NoError(t, err)
		require.Empty(t, r.Misses, family.name)
		require.Equal(t, 22, r.Right)
		require.NoError(t, model.Close())
	}
}
