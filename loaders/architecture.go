package loaders

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gemma4"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/qwen35moe"
)

// model makes modules of one checkpoint.
type model interface {
	Build(builder.Options) (*ir.Module, error)
}

// architecture is a row of the table of architectures.
type architecture struct {
	// family is a short name of the model family, the name of the builder's package.
	family string
	// names are the class names of transformers that config.json may have.
	names []string
	// exporterUsesMinMax tells how ExecuTorch's exporter quantizes the family: min/max with zero points, and
	// the embedding too, or hqq scale-only.
	exporterUsesMinMax bool
	// open takes the model's tensors, where the configuration is of the family; else it gives nil.
	open func(huggingface.Config, huggingface.Tokens, *builder.Tensors) model
	// gguf reads configuration and tensors of a GGUF file whose general.architecture is the family.
	gguf func(*gguf.Model, bool) (map[string]any, []builder.Tensor, error)
	// bundle gives the tensors of a bundle of ExecuTorch's the names of transformers; nil where it has them.
	bundle func(huggingface.Config, []builder.Tensor) []builder.Tensor
}

var architectures = []architecture{
	{"qwen35moe", []string{"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"}, false, open(qwen35moe.New), qwen35moe.FromGGUF, qwen35moe.FromBundle},
	{"gemma4", []string{"Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"}, true, open(gemma4.New), gemma4.FromGGUF, nil},
}

// open makes a row's function of a builder's constructor for configurations of type C.
func open[C huggingface.Config, M model](construct func(C, huggingface.Tokens, *builder.Tensors) M) func(huggingface.Config, huggingface.Tokens, *builder.Tensors) model {
	return func(config huggingface.Config, tokens huggingface.Tokens, t *builder.Tensors) model {
		if c, ok := config.(C); ok {
			return construct(c, tokens, t)
		}
		return nil
	}
}

// Architectures lists the names of the supported architectures, as config.json has them.
func Architectures() []string {
	var names []string
	for _, a := range architectures {
		names = append(names, a.names...)
	}
	slices.Sort(names)
	return names
}

// findArchitecture gives the row of an architecture.
func findArchitecture(name string) (architecture, error) {
	for _, a := range architectures {
		if slices.Contains(a.names, name) {
			return a, nil
		}
	}
	return architecture{}, fmt.Errorf("architecture %q is not supported; expected one of %s", name, strings.Join(Architectures(), ", "))
}
