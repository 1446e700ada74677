package codegen_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/container"
)

// checkpoints are the trained models of the repository.
var checkpoints = []string{"qwen35moe-chat", "gemma4-chat"}

func openCheckpoint(t testing.TB, name string) *loaders.Checkpoint {
	t.Helper()
	c, err := loaders.Open(filepath.Join("..", "testdata", "checkpoints", name))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// compile builds a checkpoint's module and runs the passes.
func compile(t testing.TB, c *loaders.Checkpoint, l loaders.Options, o passes.Options) *ir.Module {
	t.Helper()
	if l.MaxSeqLen == 0 {
		l.MaxSeqLen = 128
	}
	m, err := c.Build(l)
	require.NoError(t, err)
	require.NoError(t, passes.Run(m, &o))
	return m
}

func minMax(bits, group int) *quantize.Scheme {
	return &quantize.Scheme{Method: quantize.MinMax, Bits: bits, GroupSize: group}
}

// variant is a way to compile.
type variant struct {
	name    string
	options passes.Options
}

// variants are all combinations of backend, sampling head, portable files and recipes for a checkpoint.
func variants(t testing.TB, c *loaders.Checkpoint) []variant {
	t.Helper()
	style := passes.ScaleOnly
	if c.ExporterUsesMinMax() {
		style = passes.MinMax
	}
	executorch, err := passes.ExecuTorchRecipe(style, minMax(4, 32), nil)
	require.NoError(t, err)
	var out []variant
	for _, recipe := range []passes.Recipe{{}, passes.DefaultRecipe(minMax(4, 64), nil),
		passes.DefaultRecipe(minMax(8, 32), minMax(4, 32)), executorch} {
		for _, portable := range []bool{false, true} {
			if portable && c.Family() != "qwen35moe" {
				continue // the same file
			}
			for _, target := range []string{"logits", "sample", "cuda"} {
				o := passes.Options{Recipe: recipe, Portable: portable, Sample: target == "sample"}
				if target == "cuda" {
					o.Backend = passes.CUDA
				}
				out = append(out, variant{fmt.Sprintf("%s %s portable=%v %d rules", target, recipe.Name, portable,
					len(recipe.Rules)), o})
			}
		}
	}
	return out
}

// TestCheckpoints writes both models in every variant. Each file opens, holds one call of one delegate
// (requirements A15, D21), says in its methods what it is (B3), lifts to the module that was written, and is
// written again to the same bytes from the text of that module, with any number of workers.
func TestCheckpoints(t *testing.T) {
	for _, name := range checkpoints {
		c := openCheckpoint(t, name)
		for _, v := range variants(t, c) {
			t.Run(name+" "+v.name, func(t *testing.T) {
				t.Parallel()
				m := compile(t, c, loaders.Options{}, v.options)
				p, file := requireRoundTrip(t, codegen.File{Module: m, Jobs: 2})
				require.Equal(t, []string{"forward"}, p.Methods())
				forward, ok := p.File.Method("forward")
				require.True(t, ok)
				require.Len(t, forward.Delegates, 1)
				require.Equal(t, container.MLXBackend, forward.Delegates[0].ID)
				require.Len(t, forward.Calls, 1)
				require.Empty(t, forward.Others)

				sampling, ok, err := p.File.ConstantBool("use_sampling")
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, v.options.Sample, sampling)
				require.Equal(t, m.Metadata, p.Metadata)

				if v.options.Sample && !v.options.Portable { // requireRoundTrip had two workers
					for _, jobs := range []int{1, 8} {
						_, again := write(t, codegen.File{Module: m, Jobs: jobs})
						requireSameBytes(t, file, again)
					}
				}
			})
		}
	}
}

// TestLogits: requirements A1, A2, A3, E1, E2. Without a sampling head forward takes the tokens and their
// position alone and returns the logits of the last one, (1, vocab), in the dtype that the authors give
// them; the product with lm_head is of one row, whatever the number of tokens.
func TestLogits(t *testing.T) {
	for name, want := range map[string]struct{ output, head, node string }{
		"qwen35moe-chat": {"bf16[1,768]", "lm_head.weight", "addmm"},
		"gemma4-chat":    {"f32[1,960]", "embed_tokens.weight", "addmm"},
	} {
		m := compile(t, openCheckpoint(t, name), loaders.Options{}, passes.Options{})
		path, _ := write(t, codegen.File{Module: m})
		m = lifted(t, open(t, path), "forward")
		require.Equal(t, want.output, m.Entry.Outputs[0].String())
		require.Len(t, m.Entry.Params, 2)
		require.Equal(t, []string{"tokens", "input_pos"}, []string{m.Entry.Params[0].Param, m.Entry.Params[1].Param})
		products := 0
		m.Entry.Body.Walk(func(op *ir.Op) {
			if op.Def.Name != want.node {
				return
			}
			w := op.Input("mat2")
			for w.Def != nil && w.Def.Def.Name == "transpose" {
				w = w.Def.Input("x")
			}
			if w.Constant == nil || w.Constant.Name != want.head {
				return
			}
			products++
			rows, ok := op.Input("mat1").Type.Shape[0].Const()
			require.True(t, ok)
			require.EqualValues(t, 1, rows)
			require.Equal(t, 2, op.Input("mat1").Type.Rank())
		})
		require.Equal(t, 1, products)
	}
}

// TestNoSamplerLeavesNoTrace: requirements E3 and B1, C1. A file without a sampling head has the same bytes
// whether the builder made the authors' sampler and a pass took it away, or neither of them exists: the
// compiler without the passes of both sampling features writes it too.
func TestNoSamplerLeavesNoTrace(t *testing.T) {
	for _, name := range checkpoints {
		c := openCheckpoint(t, name)
		for _, recipe := range []passes.Recipe{{}, passes.DefaultRecipe(minMax(4, 64), nil)} {
			o := passes.Options{Recipe: recipe}
			_, want := write(t, codegen.File{Module: compile(t, c, loaders.Options{}, o)})
			_, never := write(t, codegen.File{Module: compile(t, c, loaders.Options{NoSampler: true}, o)})
			requireSameBytes(t, want, never)

			m, err := c.Build(loaders.Options{NoSampler: true, MaxSeqLen: 128})
			require.NoError(t, err)
			for _, p := range passes.Table {
				if p.Name != "strip-sampler" && p.Name != "sampling-head" && (p.When == nil || p.When(&o)) {
					require.NoError(t, p.Run(m, &o))
				}
			}
			_, without := write(t, codegen.File{Module: m})
			requireSameBytes(t, want, without)

			sampling := o
			sampling.Sample = true
			_, other := write(t, codegen.File{Module: compile(t, c, loaders.Options{}, sampling)})
			require.False(t, bytes.Equal(want, other))
		}
	}
}

// TestSamplingABI: requirements B2, B5, B6, B23, D23. The program's inputs and output, of both models.
func TestSamplingABI(t *testing.T) {
	for _, name := range checkpoints {
		m := compile(t, openCheckpoint(t, name), loaders.Options{}, passes.Options{Sample: true})
		path, _ := write(t, codegen.File{Module: m})
		p := open(t, path)
		forward, _ := p.File.Method("forward")
		var inputs, ranks []string
		for _, i := range forward.Inputs {
			x := forward.Values[i].Tensor
			inputs = append(inputs, x.ScalarType.String())
			ranks = append(ranks, fmt.Sprint(len(x.Sizes)))
		}
		require.Equal(t, []string{"LONG", "LONG", "FLOAT", "LONG", "FLOAT", "LONG"}, inputs)
		require.Equal(t, []string{"2", "1", "0", "0", "0", "0"}, ranks)
		out := forward.Values[forward.Outputs[0]].Tensor
		require.Equal(t, "LONG", out.ScalarType.String())
		require.Equal(t, []int{1}, slices.Clone(out.Sizes))
		names := []string{}
		for _, param := range lifted(t, p, "forward").Entry.Params {
			names = append(names, param.Param)
		}
		require.Equal(t, []string{"tokens", "input_pos", "temperature", "top_k", "top_p", "seed"}, names)
	}
}
