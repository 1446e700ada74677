package loaders

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// architectureKey is the metadata key of a GGUF file's architecture.
const architectureKey = "general.architecture"

// OpenGGUF opens a GGUF model, of a split one the first shard. Weights whose values MLX's affine form holds exactly
// are carried in it; superblocks asks for that of Q4_K too, which costs 6 bits a weight in that form and 4.5 in its
// own. All others are given as floats. The caller closes the checkpoint.
func OpenGGUF(path string, superblocks bool) (*Checkpoint, error) {
	m, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	c, err := newGGUF(m, superblocks)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return c, nil
}

// newGGUF makes a checkpoint of a model, and gives it the model to close.
func newGGUF(m *gguf.Model, superblocks bool) (*Checkpoint, error) {
	k := m.Keys()
	name := k.Text(architectureKey)
	i := slices.IndexFunc(architectures, func(a architecture) bool { return slices.Contains(a.ggufs, name) })
	if i < 0 {
		var known []string
		for _, a := range architectures {
			known = append(known, a.ggufs...)
		}
		k.Fault(architectureKey, "one of "+strings.Join(known, ", "))
		return nil, k.Err()
	}
	config, list, err := architectures[i].gguf(m, superblocks)
	if err != nil {
		return nil, err
	}
	text, notText := m.Text()
	files := huggingface.Files{GenerationConfig: text.GenerationConfig, Tokenizer: text.Tokenizer,
		TokenizerConfig: text.TokenizerConfig, ChatTemplate: text.ChatTemplate}
	if files.Config, err = json.MarshalIndent(config, "", "  "); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path(), err)
	}
	c := &Checkpoint{arch: architectures[i], close: m.Close}
	if c.Model, err = huggingface.Parse(m.Path(), files); err != nil {
		return nil, err
	}
	if notText != nil {
		c.notes = append(c.notes, fmt.Sprintf("%v; the program has no tokenizer", notText))
	}
	tensors := builder.NewTensors(list)
	tensors.Multipliers = true
	tensors.Activations = activations(m)
	err = c.read(list, tensors, func(name string) []Source {
		t, _ := m.Tensor(name)
		shape := make([]int, len(t.Shape))
		for i, d := range t.Shape {
			shape[i] = int(d)
		}
		return []Source{{Name: t.Name, DType: t.Type.String(), Shape: shape, File: filepath.Base(t.File()),
			Size: t.Size(), data: t}}
	})
	return c, err
}

// activations returns the dtype of activations for a GGUF model: that which a checkpoint with such an embedding has,
// and bf16, in which the authors computed, for one in blocks.
func activations(m *gguf.Model) ir.DType {
	if t, ok := m.Tensor("token_embd.weight"); ok && (t.Type == gguf.F32 || t.Type == gguf.F16) {
		return ir.F32
	}
	return ir.BF16
}
