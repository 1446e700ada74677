package synthetic

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// published reads a configuration that transformers wrote for a small model of the real form.
func published(t *testing.T, name string) huggingface.Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	_, config, err := huggingface.ParseConfig(name, text)
	require.NoError(t, err)
	return config
}

// TestTensorsAsTransformers compares names, dtypes and shapes with those of checkpoints that transformers wrote for
// the same configurations (their vision and MTP tensors left out).
func TestTensorsAsTransformers(t *testing.T) {
	for _, name := range []string{"qwen35moe-tiny", "gemma4-tiny"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoint")
			require.NoError(t, Generate(dir, Spec{Config: published(t, name)}))
			c, err := safetensors.OpenCheckpoint(dir)
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			require.Len(t, c.Files(), 1)
			var lines []string
			for _, tensor := range c.Tensors() {
				lines = append(lines, fmt.Sprintf("%s %s %v\n", tensor.Name, tensor.DType, tensor.Shape))
			}
			slices.Sort(lines)
			want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			require.NoError(t, err)
			require.Equal(t, string(want), strings.Join(lines, ""))
		})
	}
}

// TestTensorsOfFamilies is TestTensorsAsTransformers for the tiny checkpoints of the other families.
func TestTensorsOfFamilies(t *testing.T) {
	for _, name := range []string{"qwen35-tiny", "qwen3next-tiny", "qwen3moe-tiny", "qwen3-tiny", "gemma4moe-tiny",
		"gemma4e-tiny", "gemma4unified-tiny", "museglimmer-tiny"} {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join("..", "..", "testdata", "checkpoints", name)
			m, err := huggingface.Load(source)
			require.NoError(t, err)
			dir := filepath.Join(t.TempDir(), "checkpoint")
			require.NoError(t, Generate(dir, Spec{Config: m.Config, Family: m.Family}))
			again, err := huggingface.Load(dir)
			require.NoError(t, err)
			require.Equal(t, m.Config, again.Config)
			require.Equal(t, m.Family, again.Family)
			require.Equal(t, tensorLines(t, source), tensorLines(t, dir))
		})
	}
}

// tensorLines lists the tensors of a language model.
func tensorLines(t *testing.T, dir string) []string {
	t.Helper()
	c, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	var lines []string
	for _, tensor := range c.Tensors() {
		if !strings.Contains(tensor.Name, "vis") && !strings.Contains(tensor.Name, "audio") &&
			!strings.HasPrefix(tensor.Name, "mtp.") {
			lines = append(lines, fmt.Sprintf("%s %s %v", tensor.Name, tensor.DType, tensor.Shape))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestGenerateReadsBack(t *testing.T) {
	qwen := *published(t, "qwen35moe-tiny").(*huggingface.Qwen)
	qwen.Layers, qwen.ConvKernel, qwen.TieWordEmbeddings, qwen.MaxPositions = pattern(5, 3,
		huggingface.LinearAttention), 3, true, 0
	qwen.HeadDim, qwen.RotaryDim, qwen.VocabSize = 96, 28, 31
	gemma := *published(t, "gemma4-tiny").(*huggingface.Gemma4)
	gemma.Full.HeadDim, gemma.Full.RotaryDim, gemma.FinalLogitSoftcap, gemma.TieWordEmbeddings = 96, 26, 0, false
	for _, config := range []huggingface.Config{&qwen, &gemma, published(t, "qwen35moe-tiny"),
		published(t, "gemma4-tiny")} {
		size, err := Bytes(config)
		require.NoError(t, err)
		for _, shardBytes := range []int64{0, size / 3, 1} {
			dir := t.TempDir()
			require.NoError(t, Generate(dir, Spec{Config: config, ShardBytes: shardBytes}))
			m, err := huggingface.Load(dir)
			require.NoError(t, err)
			require.Equal(t, config, m.Config)
			c, err := safetensors.OpenCheckpoint(dir)
			require.NoError(t, err)
			require.Empty(t, c.Unlisted())
			total := int64(0)
			for _, tensor := range c.Tensors() {
				total += tensor.Size()
			}
			require.Equal(t, size, total)
			switch shardBytes {
			case 0:
				require.Len(t, c.Files(), 1)
			case 1:
				require.Len(t, c.Files(), len(c.Tensors()))
			default:
				require.Greater(t, len(c.Files()), 2)
			}
			require.NoError(t, c.Close())
		}
	}
}

// contents reads all tensors of a checkpoint.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	c, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	all := map[string][]byte{}
	for _, tensor := range c.Tensors() {
		all[tensor.Name], err = io.ReadAll(tensor.Reader())
		require.NoError(t, err)
	}
	return all
}

func TestBytesDependOnTheSeedOnly(t *testing.T) {
	config := published(t, "qwen35moe-tiny")
	generate := func(seed uint64, shardBytes int64, workers int) map[string][]byte {
		dir := t.TempDir()
		require.NoError(t, Generate(dir, Spec{Config: config, Seed: seed, ShardBytes: shardBytes, Workers: workers}))
		return contents(t, dir)
	}
	reference := generate(7, 0, 1)
	require.Equal(t, reference, generate(7, 1<<18, 4))
	other := generate(8, 0, 1)
	for name, data := range reference {
		require.NotEqual(t, data, other[name], name)
	}
	// Tensors of one shape differ too.
	require.NotEqual(t, reference["model.language_model.embed_tokens.weight"], reference["lm_head.weight"])
}

// TestKnownBytes pins the generator: a benchmark's checkpoint must not change under its name.
func TestKnownBytes(t *testing.T) {
	tests := []struct {
		distribution
		dtype safetensors.DType
		n     int64
		want  string
	}{
		{linear, safetensors.BF16, 5, "c83bb6bc623c783bad3c"},
		{plainNorm, safetensors.F32, 2, "0000813f0000823f"},
	}
	for _, test := range tests {
		var out strings.Builder
		require.NoError(t, write(&out, test.distribution, stream(1, "name"), test.n, test.dtype))
		require.Equal(t, test.want, fmt.Sprintf("%x", out.String()))
	}
}

// TestDistribution holds mean and standard deviation of many elements against what was asked for. The numbers are
// always the same, so the bounds cannot fail by chance.
func TestDistribution(t *testing.T) {
	const n = chunkElements + 1<<17 // more than a chunk
	for _, d := range []distribution{linear, offsetNorm, plainNorm, one, convTap, logDecay, stepBias} {
		var out strings.Builder
		require.NoError(t, write(&out, d, stream(3, "x"), n, safetensors.BF16))
		data := []byte(out.String())
		require.Len(t, data, 2*n)
		var sum, squares float64
		for ; len(data) > 0; data = data[2:] {
			v := float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16))
			sum += v
			squares += (v - d.mean) * (v - d.mean)
		}
		require.InDelta(t, d.mean, sum/n, 0.004*d.deviation+1e-9)
		require.InDelta(t, d.deviation, math.Sqrt(squares/n), 0.01*d.deviation+1e-9) // rounding to bfloat16 adds some
	}
}

func TestPresets(t *testing.T) {
	tests := []struct {
		config    huggingface.Config
		gigabytes float64 // of the weights; research figures of the published models without vision
	}{
		{Qwen35MoE35B(40), 69.3},
		{Gemma431B(60), 61.4},
		{Qwen35Dense27B(64), 53.8},
		{Qwen3Next80B(48), 159.3},
		{Qwen3MoE30B(48), 61.1},
		{Qwen3Dense8B(36), 16.4},
		{Gemma426B(30), 50.5},
		{Gemma412B(48), 23.8}, // and 52 million parameters of images and sound
		{Gemma4E4B(42), 15.0},
		{MuseGlimmer30B(52), 55.7}, // and 2 billion parameters of vision
	}
	for _, test := range tests {
		size, err := Bytes(test.config)
		require.NoError(t, err)
		require.InDelta(t, test.gigabytes, float64(size)/1e9, 0.1)
	}
	for layers := 1; layers <= 15; layers++ {
		for _, config := range []huggingface.Config{Qwen35MoE35B(layers), Gemma431B(layers),
			Qwen35Dense27B(layers), Qwen3Next80B(layers),
			Qwen3MoE30B(layers), Qwen3Dense8B(layers), Gemma426B(layers), Gemma412B(layers), Gemma4E4B(layers),
			MuseGlimmer30B(layers)} {
			require.Equal(t, layers, config.Depth())
			_, err := configJSON(config, "")
			require.NoError(t, err)
		}
	}
	text, err := configJSON(Gemma412B(48), "gemma4unified")
	require.NoError(t, err)
	require.Contains(t, string(text), `"model_type": "gemma4_unified"`)
	_, err = configJSON(Gemma412B(48), "gemma5")
	require.EqualError(t, err, `expected the short name of a family, found "gemma5"`)
	_, err = configJSON(Gemma426B(30), "gemma4unified")
	require.ErrorContains(t, err, "expected a configuration that config.json can hold", "it has no experts")
}

func TestGenerateRefuses(t *testing.T) {
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o666))
	broken := Qwen35MoE35B(4)
	broken.KVHeads = 3
	unwritable := Gemma431B(6)
	unwritable.Sliding.RotaryDim = 2
	tests := []struct {
		name, dir string
		config    huggingface.Config
		message   string
	}{
		{"directory in use", full, published(t, "gemma4-tiny"), "expected an empty directory, found x in it"},
		{"no configuration", t.TempDir(), nil, "expected a configuration of a supported family, found <nil>"},
		{"inconsistent", t.TempDir(), broken,
			"text_config.num_attention_heads: expected a multiple of num_key_value_heads (3), found 16"},
		{"no layers", t.TempDir(), Gemma431B(0),
			"text_config.num_hidden_layers: expected an integer from 1 to 4096, found 0"},
		{"no such config.json", t.TempDir(), unwritable, "expected a configuration that config.json can hold"},
		{"directory is a file", filepath.Join(full, "x"), published(t, "gemma4-tiny"), "not a directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.ErrorContains(t, Generate(test.dir, Spec{Config: test.config}), test.message)
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	const n = 1 << 24
	b.SetBytes(2 * n)
	for b.Loop() {
		if err := write(io.Discard, linear, 1, n, safetensors.BF16); err != nil {
			b.Fatal(err)
		}
	}
}
