package inputtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Tensor is a tensor in memory.
type Tensor struct {
	Shape  []int
	Values []float32
	BF16   bool // stored in bf16, else in float32
}

// Source is a checkpoint in memory.
type Source struct {
	Config  map[string]any
	Arch    string             // the family's name: "qwen35moe"
	Tensors map[string]*Tensor // names inside the language model: "layers.0.input_layernorm.weight"
	Files   map[string][]byte  // the other text files
	// Draft are the tensors of multi-token prediction ("mtp.norm.weight"). Only a GGUF file gets them, and only where
	// WithDraft asks for it.
	Draft     map[string]*Tensor
	WithDraft bool
	config    huggingface.Config
}

// beside matches the tensors of modules other than the language model.
var beside = regexp.MustCompile(`^(model\.)?(mtp|visual|vision_|embed_vision|audio_|embed_audio)`)

// Read reads a directory. It may have no tokenizer.
func Read(dir string) (*Source, error) {
	s := &Source{Tensors: map[string]*Tensor{}, Draft: map[string]*Tensor{}, Files: map[string][]byte{}}
	m, err := huggingface.Load(dir)
	if err != nil {
		return nil, err
	}
	s.config = m.Config
	s.Arch = m.Family
	if err := json.Unmarshal(m.Files.Config, &s.Config); err != nil {
		return nil, err
	}
	for _, name := range []string{huggingface.TokenizerFile, huggingface.TokenizerConfigFile,
		huggingface.GenerationConfigFile} {
		if s.Files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	files, err := safetensors.OpenCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	for _, t := range files.Tensors() {
		draft := strings.HasPrefix(t.Name, "mtp.")
		if beside.MatchString(t.Name) && !draft {
			continue
		}
		raw, err := io.ReadAll(t.Reader())
		if err != nil {
			return nil, err
		}
		x := &Tensor{Shape: t.Shape, Values: make([]float32, t.Elements()), BF16: t.DType == safetensors.BF16}
		if x.BF16 {
			numeric.BF16SliceToF32(x.Values, raw)
		} else {
			numeric.F32SliceFromBytes(x.Values, raw)
		}
		if draft {
			s.Draft[t.Name] = x
			continue
		}
		s.Tensors[strings.TrimPrefix(strings.TrimPrefix(t.Name, "model."), "language_model.")] = x
	}
	return s, nil
}

// Names lists the tensors in the order of their names.
func (s *Source) Names() []string { return slices.Sorted(maps.Keys(s.Tensors)) }

// rows returns rows [start, start+count) of the axis before the last one, of every matrix.
func (t *Tensor) rows(start, count int) *Tensor {
	n := len(t.Shape)
	all, cols := t.Shape[n-2], t.Shape[n-1]
	out := &Tensor{Shape: slices.Clone(t.Shape), BF16: t.BF16}
	out.Shape[n-2] = count
	for at := 0; at < len(t.Values); at += all * cols {
		out.Values = append(out.Values, t.Values[at+start*cols:at+(start+count)*cols]...)
	}
	return out
}

// plus adds to every value, in float32.
func (t *Tensor) plus(v float32) *Tensor {
	out := &Tensor{Shape: t.Shape, Values: make([]float32, len(t.Values))}
	for i, x := range t.Values {
		out.Values[i] = x + v
	}
	return out
}

// entry makes an entry of a safetensors file.
func (t *Tensor) entry(name string) safetensors.Entry {
	if t.BF16 {
		p := make([]byte, 2*len(t.Values))
		numeric.F32SliceToBF16(p, t.Values)
		return safetensors.Entry{Name: name, DType: safetensors.BF16, Shape: t.Shape, Data: safetensors.Bytes(p)}
	}
	p := make([]byte, 4*len(t.Values))
	numeric.F32SliceToBytes(p, t.Values)
	return safetensors.Entry{Name: name, DType: safetensors.F32, Shape: t.Shape, Data: safetensors.Bytes(p)}
}

// WriteDir writes the checkpoint in the layout of Hugging Face.
func (s *Source) WriteDir(dir string) error {
	var entries []safetensors.Entry
	for _, name := range s.Names() {
		full := "model." + name
		if name == "lm_head.weight" {
			full = name
		}
		entries = append(entries, s.Tensors[name].entry(full))
	}
	return s.writeDir(dir, s.Config, entries, nil)
}

// writeDir writes a checkpoint directory.
func (s *Source) writeDir(dir string, config map[string]any, entries []safetensors.Entry,
	metadata map[string]string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	for name, p := range map[string][]byte{huggingface.ConfigFile: text,
		huggingface.TokenizerFile:        s.Files[huggingface.TokenizerFile],
		huggingface.TokenizerConfigFile:  s.Files[huggingface.TokenizerConfigFile],
		huggingface.GenerationConfigFile: s.Files[huggingface.GenerationConfigFile]} {
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o666); err != nil {
			return err
		}
	}
	if err := safetensors.WriteFile(filepath.Join(dir, safetensors.SingleFileName), entries, metadata); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
