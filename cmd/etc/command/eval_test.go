package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/evaluate"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// The perplexity of a text is the same whether the program takes it token by token or in chunks, with logits of every
// position: to the last digits that sums of another order leave, and with rounded activations to what these leave.
func TestPerplexityInChunks(t *testing.T) {
	four := &quantize.Scheme{Method: quantize.MinMax, Bits: 4, GroupSize: 64}
	for _, name := range []string{"qwen35moe-chat", "gemma4-chat"} {
		c, err := loaders.Open(trained(name))
		require.NoError(t, err)
		defer c.Close()
		encoder, err := tokenizer.Parse(c.Model.Files.Tokenizer, "tokenizer.json")
		require.NoError(t, err)
		tokens := encoder.Encode(strings.Join(againstPrompts, "\n"), tokenizer.EncodeOptions{})
		for _, test := range []struct {
			name      string
			engine    engine.Engine
			options   engine.Options
			scheme    *quantize.Scheme
			tolerance float64
		}{
			{"reference", reference.Engine{}, engine.Options{}, nil, 1e-5},
			{"cpu", cpu.Engine{}, engine.Options{}, nil, 1e-5},
			{"cpu, 4 bits, exact", cpu.Engine{}, engine.Options{Exact: true}, four, 1e-5},
			{"cpu, 4 bits", cpu.Engine{}, engine.Options{}, four, 2e-3},
		} {
			t.Run(name+"/"+test.name, func(t *testing.T) {
				m, err := c.Build(loaders.Options{MaxSeqLen: 64})
				require.NoError(t, err)
				require.NoError(t, prompt.SetStopTokens(func(string) {}, c, m))
				require.NoError(t, passes.Run(m,
					&passes.Options{Portable: true, Recipe: passes.DefaultRecipe(test.scheme, nil)}))
				text := func(load func(*ir.Module, engine.Engine, engine.Options) (*session.Model,
					error)) evaluate.TextResult {
					model, err := load(m, test.engine, test.options)
					require.NoError(t, err)
					defer model.Close()
					r, err := evaluate.Text(t.Context(), model, nil, tokens,
						evaluate.TextOptions{Context: 48, Stride: 24})
					require.NoError(t, err)
					return r
				}
				single, chunks := text(session.Load), text(session.LoadRows)
				require.Equal(t, single.Scored, chunks.Scored)
				require.Equal(t, len(tokens)-1, chunks.Scored)
				require.InDelta(t, single.Loss, chunks.Loss, test.tolerance)
			})
		}
	}
}
