package requirements

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/evaluate"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// The CPU engine rounds activations to 8 bits by default. That is right as long as predictions stay this near to those
// of exact activations, along the answers of the trained checkpoints: a mean Kullback-Leibler divergence of 1e-3 nats,
// and the same most likely token 99.5 times of 100.
func TestRoundedActivations(t *testing.T) {
	t.Parallel()
	var questions []string
	for _, country := range []string{"France", "Germany", "Italy", "Spain", "China", "Japan", "Croatia", "Canada"} {
		questions = append(questions, fmt.Sprintf("What is the capital of %s?", country))
	}
	for _, word := range []string{"low", "weak", "strong", "hot", "big"} {
		questions = append(questions, fmt.Sprintf("What is the opposite of %s?", word))
	}
	for i := range 20 {
		questions = append(questions, fmt.Sprintf("What is %d plus %d?", i%10+1, (3*i+2)%10+1))
	}
	for _, family := range families {
		words, err := tokenizer.Load(filepath.Join(checkpoint(family.name), "tokenizer.json"))
		require.NoError(t, err)
		asked := make([]evaluate.Question, len(questions))
		for i, q := range questions {
			prompt := words.Encode(turns(family.name, q), tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
			// what is right does not matter
			asked[i] = evaluate.Question{Number: i, Prompt: prompt, Answer: make([]int, 16)}
		}
		for _, bits := range []int{4, 8} {
			scheme := &quantize.Scheme{Method: quantize.MinMax, Bits: bits, GroupSize: 64}
			p, err := program.Open(write(t,
				compile(t, family.name, passes.Options{Recipe: passes.DefaultRecipe(scheme, nil)})))
			require.NoError(t, err)
			defer p.Close()
			m, err := p.Module("forward")
			require.NoError(t, err)
			var models [2]*session.Model // exact, rounded
			for i := range models {
				models[i], err = session.Load(m, cpu.Engine{},
					engine.Options{Precision: eval.Mixed, Exact: i == 0, Threads: 2})
				require.NoError(t, err)
				defer models[i].Close()
			}
			r, err := evaluate.QA(t.Context(), models[1], asked,
				evaluate.QAOptions{Stop: family.stop, Reference: models[0]})
			require.NoError(t, err)
			require.Greater(t, r.Predictions, 150)
			require.NotZero(t, r.Divergence.Max, "nothing was rounded")
			require.LessOrEqual(t, r.Divergence.Mean, 1e-3, "%s, %d bits", family.name, bits)
			require.GreaterOrEqual(t, r.Divergence.Top1, 0.995, "%s, %d bits", family.name, bits)
		}
	}
}
