package loaders

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/fp8"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/mlx"
	"github.com/etc-ml/etc/loaders/mx"
	"github.com/etc-ml/etc/loaders/prequantized"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Options are the user's options for a module.
type Options = builder.Options

// Checkpoint is an open checkpoint whose configuration and tensors fit each other.
type Checkpoint struct {
	// Model has everything in the directory except for the weights: configuration, tokenizer, chat template, sampling
	// defaults, special tokens, and the list of files.
	Model *huggingface.Model

	arch     architecture
	model    model
	sources  []Source
	skipped  map[string]int
	list     []builder.Tensor           // all tensors
	sourceOf func(name string) []Source // the stored tensors that a tensor of list is made of
	// multipliers says that norms are stored as the factors that they multiply by ([builder.Tensors]).
	multipliers bool
	draft       string // kind of the draft, "" for none
	unlisted    []string
	notes       []string

	prequantized bool
	close        func() error
}

// Source is a tensor of the checkpoint that modules read.
type Source struct {
	Name  string
	DType string // as the file spells it: "BF16"
	Shape []int
	File  string // the file's name in the directory
	Size  int64  // bytes
	// Draft tells that only the method draft reads the tensor.
	Draft bool

	data   io.ReaderAt
	prefix string // of the name in provenances
}

// Reader reads the tensor's bytes from first to last. Every call gives a reader of its own.
func (s Source) Reader() io.Reader { return io.NewSectionReader(s.data, 0, s.Size) }

// Open reads the configuration and the headers of the weights in dir and checks that they belong
// together. The error lists every tensor that is missing, unknown or of another shape or dtype
// ([*builder.TensorError]), and every wrong key of the configuration ([*huggingface.ConfigError]). The
// caller closes the checkpoint.
func Open(dir string) (*Checkpoint, error) {
	m, err := huggingface.Load(dir)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, huggingface.ConfigFile)
	arch, ok := findArchitecture(m.Config)
	if !ok {
		return nil, fmt.Errorf("%s: the family %s has no builder (%T)", config, m.Family, m.Config)
	}
	if m.Quantization != nil && mlx.IsOther(m.Quantization) && !fp8.Is(m.Quantization) && !mx.Is(m.Quantization) {
		return nil, fmt.Errorf("%s: expected weights in bf16, f16, f32, fp8 or MX formats, or those of mlx-lm, found "+
			"the quantization %s; use the original checkpoint", config, m.Quantization)
	}
	files, err := safetensors.OpenCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Model: m, arch: arch, close: files.Close}
	for _, t := range files.Unlisted() {
		c.unlisted = append(c.unlisted, t.Name)
	}
	if err := c.readSafetensors(files, config); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return c, nil
}

// readSafetensors gives the architecture the tensors of safetensors files.
func (c *Checkpoint) readSafetensors(files *safetensors.Checkpoint, config string) (err error) {
	list := make([]builder.Tensor, len(files.Tensors()))
	for i, t := range files.Tensors() {
		list[i] = tensorOf(t, "")
	}
	parts := map[string][]string{} // tensors of a joint one
	switch metadata := files.Files()[0].Metadata(); {
	case prequantized.IsBundle(metadata):
		c.prequantized = true
		if list, parts, err = prequantized.Unflatten(files.Files()[0].Path(), metadata, list); err != nil {
			return err
		}
		if c.arch.bundle != nil {
			list = c.arch.bundle(c.Model.Config, list)
		}
	case c.Model.Quantization != nil && fp8.Is(c.Model.Quantization):
		quantization, err := fp8.ParseConfig(config, c.Model.Quantization)
		if err != nil {
			return err
		}
		if list, parts, err = fp8.Fold(quantization, list); err != nil {
			return err
		}
	case c.Model.Quantization != nil && mx.Is(c.Model.Quantization):
		quantization, err := mx.ParseConfig(config, c.Model.Quantization)
		if err != nil {
			return err
		}
		if list, parts, err = mx.Fold(quantization, list); err != nil {
			return err
		}
	case c.Model.Quantization != nil:
		quantization, err := mlx.ParseConfig(config, c.Model.Quantization)
		if err != nil {
			return err
		}
		if list, parts, err = mlx.Fold(quantization, list); err != nil {
			return err
		}
	}
	return c.read(list, builder.NewTensors(list), func(name string) []Source {
		if parts[name] == nil {
			parts[name] = []string{name}
		}
		var out []Source
		for _, part := range parts[name] {
			t, _ := files.Tensor(part)
			out = append(out, sourceOf(t, ""))
		}
		return out
	})
}

// read gives the architecture its tensors: those of list that belong to the language model. sources returns the
// tensors of the files from which one of them is made.
func (c *Checkpoint) read(list []builder.Tensor, tensors *builder.Tensors, sources func(name string) []Source) error {
	if c.model = c.arch.open(c.Model.Config, c.Model.Tokens, tensors); c.model == nil {
		return fmt.Errorf("%s: expected another type of configuration than %T", c.Model.Dir, c.Model.Config)
	}
	if err := tensors.Err(c.Model.Dir, c.Model.Architecture); err != nil {
		return err
	}
	c.list, c.sourceOf, c.multipliers = list, sources, tensors.Multipliers
	c.sources = usedSources(tensors, sources)
	c.skipped = tensors.Skipped()
	return nil
}

// usedSources lists the tensors of the files that a builder has asked for.
func usedSources(tensors *builder.Tensors, sources func(name string) []Source) (out []Source) {
	seen := map[string]bool{} // what a bundle has fused is several tensors of one name
	for _, name := range tensors.Used() {
		if !seen[name] {
			seen[name] = true
			out = append(out, sources(name)...)
		}
	}
	return out
}

// Architecture returns the model's class name in transformers, one of [Architectures].
func (c *Checkpoint) Architecture() string { return c.Model.Architecture }

// Family returns a short name of the model family, one of [huggingface.Families]: "qwen35moe".
func (c *Checkpoint) Family() string { return c.Model.Family }

// ExporterUsesMinMax reports how ExecuTorch's exporter quantizes the model: with 4-bit min/max and an 8-bit
// embedding, or else with hqq scale-only.
func (c *Checkpoint) ExporterUsesMinMax() bool { return c.arch.exporterUsesMinMax }

// Sensitive lists patterns of names of weights that stay at 8 bits where others have 4, beside those that all
// architectures have: routers and projections with names of their own ([path.Match]).
func (c *Checkpoint) Sensitive() []string {
	if m, ok := c.model.(interface{ Sensitive() []string }); ok {
		return m.Sensitive()
	}
	return nil
}

// Build makes the module that is the model's forward; see [builder.Build] for its inputs and outputs. An
// option that is out of range is an error. The module reads the checkpoint, which must stay open.
func (c *Checkpoint) Build(o Options) (*ir.Module, error) {
	m, err := c.model.Build(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Model.Dir, err)
	}
	return m, nil
}

// Sources lists the tensors that modules read, in the order of their bytes in the files, those of a draft last.
func (c *Checkpoint) Sources() []Source { return c.sources }

// Skipped counts the tensors that are not used, by kind: those of modules other than the language model
// ([builder.Vision], [builder.Audio], [builder.MultiToken]), and [builder.SharedKV].
func (c *Checkpoint) Skipped() map[string]int { return c.skipped }

// Unlisted lists the names of tensors that lie in the files but not in the index, which are left out.
func (c *Checkpoint) Unlisted() []string { return c.unlisted }

// Notes lists further facts about the input that the user should know.
func (c *Checkpoint) Notes() []string { return c.notes }

// Prequantized reports whether the checkpoint is a bundle that ExecuTorch's quantize_and_save wrote.
func (c *Checkpoint) Prequantized() bool { return c.prequantized }

// BOS returns the id of the token that begins a text, or false if the model has none.
func (c *Checkpoint) BOS() (int, bool) {
	return c.Model.Tokens.BOS, c.Model.Tokens.BOS != huggingface.NoToken
}

// EOS lists the ids of the tokens that end a text.
func (c *Checkpoint) EOS() []int { return c.Model.Tokens.EOS }

// Close closes the files of the weights; modules cannot read their constants any more.
func (c *Checkpoint) Close() error { return c.close() }

// sourceOf makes a source from a tensor of a file. prefix distinguishes its provenance from tensors of other files with
// the same name.
func sourceOf(t *safetensors.Tensor, prefix string) Source {
	return Source{Name: t.Name, DType: string(t.DType), Shape: t.Shape, File: filepath.Base(t.File().Path()),
		Size: t.Size(),
		data: t, prefix: prefix}
}
