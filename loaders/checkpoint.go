package loaders

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Options are what the user chooses about a module.
type Options = builder.Options

// Checkpoint is an open checkpoint whose configuration and tensors fit each other.
type Checkpoint struct {
	// Model is what the directory says beside its weights: configuration, tokenizer, chat template,
	// sampling defaults, special tokens, and the files themselves.
	Model *huggingface.Model

	arch    architecture
	files   *safetensors.Checkpoint
	model   model
	sources []Source
	skipped map[string]int
}

// Source is a tensor of the checkpoint that modules read.
type Source struct {
	Name  string
	DType string // as the file spells it: "BF16"
	Shape []int
	File  string // the file's name in the directory
	Size  int64  // bytes
	data  io.ReaderAt
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
	arch, err := findArchitecture(m.Architecture)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	if m.Quantization != nil {
		return nil, fmt.Errorf("%s: expected weights in bf16, f16 or f32, found the quantization %s; use the original checkpoint", config, m.Quantization)
	}
	files, err := safetensors.OpenCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Model: m, arch: arch, files: files}
	if err := c.read(arch); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return c, nil
}

// read gives the architecture its tensors.
func (c *Checkpoint) read(arch architecture) error {
	list := make([]builder.Tensor, len(c.files.Tensors()))
	for i, t := range c.files.Tensors() {
		list[i] = tensorOf(t)
	}
	tensors := builder.NewTensors(list)
	if c.model = arch.open(c.Model.Config, c.Model.Tokens, tensors); c.model == nil {
		return fmt.Errorf("%s: expected a configuration of %s, found %T", c.Model.Dir, arch.family, c.Model.Config)
	}
	if err := tensors.Err(c.Model.Dir, c.Model.Architecture); err != nil {
		return err
	}
	for _, name := range tensors.Used() {
		t, _ := c.files.Tensor(name)
		c.sources = append(c.sources, Source{t.Name, string(t.DType), t.Shape, filepath.Base(t.File().Path()), t.Size(), t})
	}
	c.skipped = tensors.Skipped()
	return nil
}

// Architecture is the model's class name in transformers, one of [Architectures].
func (c *Checkpoint) Architecture() string { return c.Model.Architecture }

// Family is a short name of the model family: "qwen35moe" or "gemma4".
func (c *Checkpoint) Family() string { return c.arch.family }

// ExporterUsesMinMax reports how ExecuTorch's exporter quantizes the model: with 4-bit min/max and an 8-bit
// embedding, or else with hqq scale-only.
func (c *Checkpoint) ExporterUsesMinMax() bool { return c.arch.exporterUsesMinMax }

// Build makes the module that is the model's forward; see [builder.Build] for its inputs and outputs. An
// option that is out of range is an error. The module reads the checkpoint, which must stay open.
func (c *Checkpoint) Build(o Options) (*ir.Module, error) {
	m, err := c.model.Build(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Model.Dir, err)
	}
	return m, nil
}

// Sources lists the tensors that modules read, in the order of their bytes in the files.
func (c *Checkpoint) Sources() []Source { return c.sources }

// Skipped counts the tensors of modules beside the language model that are left out, by kind:
// [builder.Vision], [builder.Audio], [builder.MultiToken].
func (c *Checkpoint) Skipped() map[string]int { return c.skipped }

// Unlisted lists the names of tensors that lie in the files but not in the index, which are left out.
func (c *Checkpoint) Unlisted() []string {
	var names []string
	for _, t := range c.files.Unlisted() {
		names = append(names, t.Name)
	}
	return names
}

// BOS is the id of the token that begins a text, or false if the model has none.
func (c *Checkpoint) BOS() (int, bool) {
	return c.Model.Tokens.BOS, c.Model.Tokens.BOS != huggingface.NoToken
}

// EOS lists the ids of the tokens that end a text.
func (c *Checkpoint) EOS() []int { return c.Model.Tokens.EOS }

// Close closes the files of the weights; modules cannot read their constants any more.
func (c *Checkpoint) Close() error { return c.files.Close() }
