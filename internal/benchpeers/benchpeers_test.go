package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	reader "github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/runtime/bench/serving"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Files are what another reader of the format takes them for.
func TestGGUF(t *testing.T) {
	g := start("qwen35moe", 1)
	g.set("qwen35moe.rope.dimension_sections", []int32{11, 11, 10, 0})
	g.set("qwen35moe.pattern", []bool{true, false})
	g.quantized("a.weight", 64, 3)
	g.constant("b.weight", 0.5, 5)
	g.tensors = append(g.tensors, tensor{"c.weight", typeQ8_0, []uint64{32, 2}, 0, 2})
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, g.write(path))
	m, err := reader.Open(path)
	require.NoError(t, err)
	defer m.Close()
	var got []string
	for _, x := range m.Tensors() {
		got = append(got, strings.TrimSpace(fmt.Sprintln(x.Name, x.Type, x.Shape)))
	}
	require.Equal(t, []string{"a.weight Q4_0 [3 64]", "b.weight F32 [5]", "c.weight Q8_0 [2 32]"}, got)
	require.InDelta(t, 3*2*18+5*4+2*34/2, g.tokenBytes(), 0)
}

// TestVocabulary: another reader of GGUF files makes a tokenizer of it, with which texts become tokens and all tokens
// text.
func TestVocabulary(t *testing.T) {
	v := newVocabulary(1000)
	require.Len(t, v.tokens, 1000)
	g := start("qwen35moe", 1)
	v.addTo(g)
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, g.write(path))
	m, err := reader.Open(path)
	require.NoError(t, err)
	defer m.Close()
	text, err := m.Text()
	require.NoError(t, err)
	k, err := tokenizer.Parse(text.Tokenizer, path)
	require.NoError(t, err)
	ids := k.Encode("the end\n", tokenizer.EncodeOptions{})
	require.Len(t, ids, 7)
	require.Equal(t, "the end\n", k.Decode(ids, false))
	require.Equal(t, "w000998", k.Decode([]int{998}, false))
	require.Equal(t, 248320, models()["qwen4"].gguf(4).vocabularySize())
}

func TestServedTable(t *testing.T) {
	run := func(total float64, cached int) servedRun {
		return servedRun{Row: serving.Row{Requests: 2, Prompt: 64, Cached: cached, Total: total,
			First: serving.Times{P50: 0.1, P99: 0.2}, Between: serving.Times{P50: 0.01, P99: 0.02}},
			worked: time.Second, others: total / 100}
	}
	kinds, err := served{concurrent: "1,4", prompts: "new,again"}.kinds()
	require.NoError(t, err)
	require.Equal(t, []servedKind{{"new", "1"}, {"new", "4"}, {"again", "1"}, {"again", "4"}}, kinds)
	var b bytes.Buffer
	writeServed(&b, kinds[1:2], &server{name: "etc",
		runs: map[servedKind][]servedRun{kinds[1]: {run(30, 0), run(10, 64), run(20, 64), run(24, 128)}}})
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "| new | 4 | etc | 50 % | 100 | 200 | 10.0 | 20.0 | 22.0 | 10.0–30.0 | 1.00 |", lines[2])
	require.Contains(t, lines[4], "used 0.3 cores at most")
	for _, o := range []served{{concurrent: "x", prompts: "new"}, {concurrent: "0", prompts: "new"},
		{concurrent: "1", prompts: "old"}} {
		_, err := o.kinds()
		require.Error(t, err)
	}
}

// TestProcessTime: the name of the program does not mislead it.
func TestProcessTime(t *testing.T) {
	d, ok := parseProcessTime("7 (a) (b 1 2) S 1 7 7 0 -1 4194560 100 0 0 0 123 45 0 0 20 0 1 0 99 1 2\n")
	require.True(t, ok)
	require.Equal(t, 1680*time.Millisecond, d)
	for _, text := range []string{"", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194560 100 0 0 0 x 45 0"} {
		_, ok := parseProcessTime(text)
		require.False(t, ok, text)
	}
}

func TestFloat16(t *testing.T) {
	for v, want := range map[float64]uint16{1: 0x3c00, 0.5: 0x3800, 1.5: 0x3e00, 0.000999: 0x1417,
		6.103515625e-05: 0x0400} {
		require.Equal(t, want, float16(v), "%v", v)
	}
}

// The models have the parameters of the published ones, less layers.
func TestModels(t *testing.T) {
	for name, want := range map[string]float64{"qwen4": 4.38e9, "gemma6": 4.34e9} {
		m := models()[name]
		parameters := 0.0
		for _, x := range m.gguf(m.layers).tensors {
			parameters += float64(x.elements())
		}
		require.InEpsilon(t, want, parameters, 0.01, name)
	}
}

// TestStreams: what both programs print of streams becomes the same tests.
func TestStreams(t *testing.T) {
	llama, err := llamaStreams([]byte("\nmain: note\n" +
		`{"n_kv_max": 768, "pp": 64, "tg": 32, "pl": 8, "t_pp": 2.0, "speed_pp": 256.0, "speed_tg": 51.2, "speed": 100.5}` +
		"\n\nllama_perf_context_print: 1 ms\n"))
	require.NoError(t, err)
	require.Equal(t, samples{{"pp64", 8, []float64{256}}, {"tg32", 8, []float64{51.2}},
		{"pp64+tg32", 8, []float64{100.5}}}, llama)
	etc, err := etcStreams([]byte(`{"file": "m.pte", "rows": [{"streams": 8, "prompt": 64, "generate": 32,
		"samples": [{"prefill": 512, "decode": 100, "total": 200}, {"prefill": 500, "decode": 90, "total": 190}]}]}`))
	require.NoError(t, err)
	require.Equal(t, samples{{"pp64", 8, []float64{512, 500}}, {"tg32", 8, []float64{100, 90}},
		{"pp64+tg32", 8, []float64{200, 190}}}, etc)
	var b bytes.Buffer
	writeTable(&b, []result{{setting: setting{Model: "qwen4", Threads: 2, Streams: 8, Test: "tg32"}, Etc: etc[1].speeds,
		Llama: llama[1].speeds, Read: []float64{40}}})
	require.Contains(t, b.String(), "| tg32, streams: 8 | 2 | 95 (90 to 100) | 51.2 (51.2 to 51.2) | 1.86 |  |  |  |")
	_, err = llamaStreams([]byte("{\"pp\": \n"))
	require.Error(t, err)
	_, err = etcStreams([]byte("etc: no"))
	require.Error(t, err)
	numbers, err := numbersOf("-streams", "1,8")
	require.NoError(t, err)
	require.Equal(t, "1,8", list(numbers))
	for _, text := range []string{"", "0", "x", "1,,2", "-3"} {
		_, err := numbersOf("-streams", text)
		require.ErrorContains(t, err, "-streams", text)
	}
}

func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	one := result{setting: setting{Model: "gemma6", Threads: 4, Test: "tg64"}, Etc: []float64{20, 30},
		Llama: []float64{10}, Read: []float64{100}, Commit: "abc"}
	two := one
	two.Etc, two.Llama = []float64{22}, []float64{10, 11}
	other := one
	other.Commit = "def"
	deep := one
	deep.Depth, deep.Busy = 4096, 3
	require.NoError(t, keep(path, []result{deep, one, other}))
	require.NoError(t, keep(path, []result{two}))
	results, err := kept(path, "abc")
	require.NoError(t, err)
	var b bytes.Buffer
	writeTable(&b, results)
	rows := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Equal(t, []string{
		"| Gemma4-31B, 6 layers | tg64 | 4 | 22 (20 to 30) | 10 (10 to 11) | 2.20 | 100 | 54 % | 24 % |",
		"| Gemma4-31B, 6 layers | tg64 @ d4096, 3 cores busy | 4 | 25 (20 to 30) | 10 (10 to 10) | 2.50 |  |  |  |",
	}, rows[2:])
	require.NoError(t, os.WriteFile(path, []byte("{}\n{"), 0o600))
	_, err = kept(path, "abc")
	require.ErrorContains(t, err, "results.jsonl:2")
	var syntax *json.SyntaxError
	require.ErrorAs(t, err, &syntax)
}
