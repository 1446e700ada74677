package loaders

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/loaders/synthetic"
)

// chatCheckpoint is the directory of one of the trained checkpoints that the repository holds.
func chatCheckpoint(name string) string { return filepath.Join("..", "testdata", "checkpoints", name) }

func openCheckpoint(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func build(t *testing.T, c *Checkpoint, o Options) *ir.Module {
	t.Helper()
	m, err := c.Build(o)
	require.NoError(t, err)
	return m
}

func text(t *testing.T, m *ir.Module) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, ir.Print(&b, m))
	return b.String()
}

func readAll(t *testing.T, tensor *safetensors.Tensor) []byte {
	t.Helper()
	p, err := io.ReadAll(tensor.Reader())
	require.NoError(t, err)
	return p
}

// readFloats reads a tensor of bf16, f16 or f32.
func readFloats(t *testing.T, tensor *safetensors.Tensor) []float32 {
	t.Helper()
	p, values := readAll(t, tensor), make([]float32, tensor.Elements())
	switch tensor.DType {
	case safetensors.BF16:
		numeric.BF16SliceToF32(values, p)
	case safetensors.F16:
		numeric.F16SliceToF32(values, p)
	default:
		require.Equal(t, safetensors.F32, tensor.DType)
		numeric.F32SliceFromBytes(values, p)
	}
	return values
}

func readInts(t *testing.T, f *safetensors.File, name string) []int64 {
	t.Helper()
	tensor, ok := f.Tensor(name)
	require.True(t, ok, name)
	values := make([]int64, tensor.Elements())
	_, err := binary.Decode(readAll(t, tensor), binary.LittleEndian, values)
	require.NoError(t, err)
	return values
}

// session runs a module that returns logits on the reference engine.
type session struct {
	t       *testing.T
	machine *eval.Machine
}

func newSession(t *testing.T, m *ir.Module) *session {
	t.Helper()
	machine, err := eval.NewMachine(m, eval.FP32, nil)
	require.NoError(t, err)
	return &session{t, machine}
}

// feed runs tokens from a position on, in calls of at most chunk, and gives the logits after each token.
func (s *session) feed(tokens []int64, position, chunk int) [][]float32 {
	s.t.Helper()
	var out [][]float32
	for len(tokens) > 0 {
		n := min(chunk, len(tokens))
		positions := make([]int64, n)
		for i := range positions {
			positions[i] = int64(position + i)
		}
		results, err := s.machine.Run([]eval.Value{
			{Tensor: eval.Ints(ir.I64, []int{1, n}, tokens[:n])}, {Tensor: eval.Ints(ir.I64, []int{n}, positions)}})
		require.NoError(s.t, err)
		logits := results[0].Tensor
		require.Equal(s.t, n, logits.Shape[1])
		for i := range n {
			out = append(out, logits.F[i*logits.Shape[2]:(i+1)*logits.Shape[2]])
		}
		tokens, position = tokens[n:], position+n
	}
	return out
}

// stored is a tensor of a checkpoint that a test rewrites.
type stored struct {
	name  string
	dtype safetensors.DType
	shape []int
	data  []byte
}

func (s stored) floats() []float32 {
	values := make([]float32, len(s.data)/(s.dtype.Bits()/8))
	if s.dtype == safetensors.F32 {
		numeric.F32SliceFromBytes(values, s.data)
	} else {
		numeric.BF16SliceToF32(values, s.data)
	}
	return values
}

// as converts a tensor of bf16 or f32.
func (s stored) as(d safetensors.DType) stored {
	values := s.floats()
	s.data = make([]byte, len(values)*d.Bits()/8)
	switch d {
	case safetensors.F32:
		numeric.F32SliceToBytes(s.data, values)
	case safetensors.F16:
		numeric.F32SliceToF16(s.data, values)
	default:
		numeric.F32SliceToBF16(s.data, values)
	}
	s.dtype = d
	return s
}

// generate writes a synthetic checkpoint: multimodal names, fused experts, bf16.
func generate(t *testing.T, config huggingface.Config) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, synthetic.Generate(dir, synthetic.Spec{Config: config, Seed: 3, Workers: 1}))
	return dir
}

// rewrite writes a copy of a checkpoint with other tensors, and with another config.json where that
// changes.
func rewrite(t *testing.T, dir string, tensors func([]stored) []stored, config func(map[string]any)) string {
	t.Helper()
	files, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	var list []stored
	for _, tensor := range files.Tensors() {
		list = append(list, stored{tensor.Name, tensor.DType, tensor.Shape, readAll(t, tensor)})
	}
	require.NoError(t, files.Close())
	if tensors != nil {
		list = tensors(list)
	}
	out := t.TempDir()
	var entries []safetensors.Entry
	for _, s := range list {
		entries = append(entries, safetensors.Entry{Name: s.name, DType: s.dtype, Shape: s.shape,
			Data: safetensors.Bytes(s.data)})
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(out, safetensors.SingleFileName), entries, nil))
	p, err := os.ReadFile(filepath.Join(dir, huggingface.ConfigFile))
	require.NoError(t, err)
	var root map[string]any
	require.NoError(t, json.Unmarshal(p, &root))
	if config != nil {
		config(root)
	}
	p, err = json.Marshal(root)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(out, huggingface.ConfigFile), p, 0o666))
	return out
}

// flatten makes a text-only configuration of a multimodal one.
func flatten(root map[string]any) {
	text := root["text_config"].(map[string]any)
	delete(root, "text_config")
	maps.Copy(root, text)
	architecture := root["architectures"].([]any)[0].(string)
	root["architectures"] = []any{strings.Replace(architecture, "ForConditionalGeneration", "ForCausalLM", 1)}
}

// plainNames gives the tensors the names of a text-only checkpoint.
func plainNames(list []stored) []stored {
	for i := range list {
		list[i].name = strings.Replace(list[i].name, "model.language_model.", "model.", 1)
	}
	return list
}
