package loaders

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gemma4"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/museglimmer"
	"github.com/etc-ml/etc/loaders/qwen"
)

// model makes modules of one checkpoint.
type model interface {
	Build(builder.Options) (*ir.Module, error)
}

// architecture is a row of the table of builders. It serves all families ([huggingface.Families]) whose configurations
// have one type.
type architecture struct {
	// exporterUsesMinMax tells how ExecuTorch's exporter quantizes such models: min/max with zero points, and
	// the embedding too, or hqq scale-only.
	exporterUsesMinMax bool
	// serves tells whether a configuration is of the row's type.
	serves func(huggingface.Config) bool
	// open takes the model's tensors, where the configuration is of the row's type; else it gives nil.
	open func(huggingface.Config, huggingface.Tokens, *builder.Tensors) model
	// ggufs are the names that GGUF files of such models have for their architecture (general.architecture).
	ggufs []string
	// gguf reads configuration and tensors of such a file.
	gguf func(*gguf.Model, bool) (map[string]any, []builder.Tensor, error)
	// bundle gives the tensors of a bundle of ExecuTorch's the names of transformers; nil where it has them.
	bundle func(huggingface.Config, []builder.Tensor) []builder.Tensor
}

var architectures = []architecture{
	{false, is[*huggingface.Qwen], open(qwen.New), qwen.GGUF, qwen.FromGGUF, qwen.FromBundle},
	{true, is[*huggingface.Gemma4], open(gemma4.New), gemma4.GGUF, gemma4.FromGGUF, nil},
	{true, is[*huggingface.MuseGlimmer], open(museglimmer.New), museglimmer.GGUF, museglimmer.FromGGUF, nil},
}

func is[C huggingface.Config](config huggingface.Config) bool {
	_, ok := config.(C)
	return ok
}

// open makes a row's function of a builder's constructor for configurations of type C.
func open[C huggingface.Config, M model](construct func(C, huggingface.Tokens,
	*builder.Tensors) M) func(huggingface.Config, huggingface.Tokens, *builder.Tensors) model {
	return func(config huggingface.Config, tokens huggingface.Tokens, t *builder.Tensors) model {
		if c, ok := config.(C); ok {
			return construct(c, tokens, t)
		}
		return nil
	}
}

// Architectures lists the names of the supported architectures, as config.json has them.
func Architectures() []string { return huggingface.Architectures() }

// findArchitecture returns the row that serves a configuration. Every type of configuration has one.
func findArchitecture(config huggingface.Config) (architecture, bool) {
	i := slices.IndexFunc(architectures, func(a architecture) bool { return a.serves(config) })
	if i < 0 {
		return architecture{}, false
	}
	return architectures[i], true
}
