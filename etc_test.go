package etc_test

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/cmd/etc/command"
	"github.com/etc-ml/etc/internal/execution"
)

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(folder())
	os.Exit(code)
}

var greedy = etc.Parameters{Temperature: new(0.0)}

// whole is an answer's text and its end.
func whole(t *testing.T, tokens func(yield func(etc.Token, error) bool)) (string, *etc.End) {
	t.Helper()
	var text strings.Builder
	var end *etc.End
	for token, err := range tokens {
		require.NoError(t, err)
		require.Nil(t, end, "the end comes last")
		text.WriteString(token.Text)
		end = token.End
	}
	require.NotNil(t, end)
	return text.String(), end
}

// failed is the error of an answer.
func failed(t *testing.T, tokens func(yield func(etc.Token, error) bool)) error {
	t.Helper()
	var last error
	for token, err := range tokens {
		require.NoError(t, last, "an error comes last")
		if last = err; err != nil {
			require.Equal(t, -1, token.ID)
		}
	}
	require.Error(t, last)
	return last
}

// exact opens the model so that no bit of an answer depends on what shares its calls.
func exact(t *testing.T) *etc.Model {
	t.Helper()
	m, err := etc.Open(program(), etc.Options{Device: "cpu", Deterministic: true})
	require.NoError(t, err)
	return m
}

// Answers at the same time are those that each question has alone.
func TestConcurrent(t *testing.T) {
	m := exact(t)
	defer m.Close()
	countries := []string{"France", "Italy", "Spain", "Japan", "Canada", "Egypt", "Peru", "Norway"}
	alone := make([]string, len(countries))
	for i, c := range countries {
		alone[i], _ = whole(t, m.Chat(t.Context(), question("What is the capital of "+c+"?"), greedy))
	}
	var wait sync.WaitGroup
	together := make([]string, len(countries))
	for i, c := range countries {
		wait.Go(func() {
			for token, err := range m.Chat(t.Context(), question("What is the capital of "+c+"?"), greedy) {
				if err != nil {
					together[i] = err.Error()
				}
				together[i] += token.Text
			}
		})
	}
	wait.Wait()
	require.Equal(t, alone, together)
}

// The next turn of a conversation takes from the cache what was said before.
func TestConversationIsCached(t *testing.T) {
	m := open()
	defer m.Close()
	messages := question("What is the capital of France?")
	answer, first := whole(t, m.Chat(t.Context(), messages, greedy))
	require.Zero(t, first.CachedTokens)
	messages = append(messages, etc.Message{Role: "assistant", Content: answer},
		etc.Message{Role: "user", Content: "And of Italy?"})
	_, second := whole(t, m.Chat(t.Context(), messages, greedy))
	require.Positive(t, second.CachedTokens)
}

// The same seed gives the same answer, and another one another, which the end tells.
func TestSeed(t *testing.T) {
	m := exact(t)
	defer m.Close()
	draw := func(seed *int64) (string, *etc.End) {
		return whole(t, m.Generate(t.Context(), "The",
			etc.Parameters{Temperature: new(1.5), TopK: new(0), TopP: new(1.0), MaxTokens: 20, Seed: seed}))
	}
	one, end := draw(nil)
	again, other := draw(&end.Seed)
	require.Equal(t, one, again)
	require.Equal(t, end.Seed, other.Seed)
	first, _ := draw(new(int64(1)))
	differs := false // answers are short, so that two seeds may give one
	for seed := int64(2); seed < 10 && !differs; seed++ {
		next, _ := draw(&seed)
		differs = next != first
	}
	require.True(t, differs, "nine seeds, one answer: %q", first)
}

func TestStop(t *testing.T) {
	m := open()
	defer m.Close()
	p := greedy
	p.Stop = []string{" is"}
	text, end := whole(t, m.Chat(t.Context(), question("What is the capital of France?"), p))
	require.Equal(t, "The capital of France", text)
	require.Equal(t, etc.StopText, end.Reason)
	require.Positive(t, end.Prefill)
	_, end = whole(t, m.Chat(t.Context(), question("What is the capital of France?"), greedy))
	require.Equal(t, etc.StopToken, end.Reason)
	p = etc.Parameters{Temperature: new(0.0), IgnoreStopTokens: true, MaxTokens: 40}
	_, end = whole(t, m.Chat(t.Context(), question("What is the capital of France?"), p))
	require.Equal(t, etc.Length, end.Reason)
	require.Equal(t, 40, end.AnswerTokens)
}

// What users write names no control token in a conversation; a prompt as it is may.
func TestUsersText(t *testing.T) {
	m := open()
	defer m.Close()
	end, _ := m.Tokenizer().ID("<|im_end|>")
	plain, err := m.Prompt(question("x"), etc.Parameters{})
	require.NoError(t, err)
	tokens, err := m.Prompt(question("x<|im_end|>"), etc.Parameters{})
	require.NoError(t, err)
	count := func(ids []int) (n int) {
		for _, id := range ids {
			if id == end {
				n++
			}
		}
		return n
	}
	require.Equal(t, count(plain), count(tokens))
	require.Greater(t, len(tokens), len(plain))
	s := m.NewSequence()
	require.NoError(t, s.Append("x<|im_end|>"))
	require.Equal(t, 1, count(s.Tokens()))
}

func TestSequence(t *testing.T) {
	m := open()
	defer m.Close()
	s := m.NewSequence()
	require.ErrorIs(t, failed(t, s.Generate(t.Context(), greedy)), etc.ErrUsage)
	prompt, err := m.Prompt(question("What is the capital of France?"), etc.Parameters{})
	require.NoError(t, err)
	s.AppendTokens(prompt...)
	text, end := whole(t, s.Generate(t.Context(), greedy))
	require.Equal(t, "The capital of France is Paris.", text)
	require.Equal(t, len(prompt)+end.AnswerTokens, s.Len())
	require.Equal(t, text, m.Tokenizer().Decode(s.Tokens()[len(prompt):]))
	require.Contains(t, s.Text(), text)
	fork := s.Fork()
	fork.Truncate(len(prompt))
	require.Equal(t, prompt, fork.Tokens())
	require.Greater(t, s.Len(), fork.Len())
	// A loop that is left keeps what it has seen.
	for _, err := range fork.Generate(t.Context(), greedy) {
		require.NoError(t, err)
		break
	}
	require.Equal(t, len(prompt)+1, fork.Len())
}

func TestErrors(t *testing.T) {
	m := open()
	defer m.Close()
	hi := question("Hi")
	for name, p := range map[string]etc.Parameters{
		"tokens":      {MaxTokens: -1},
		"too many":    {MaxTokens: 1000},
		"top p":       {TopP: new(2.0)},
		"temperature": {Temperature: new(-1.0)},
		"two forms":   {Regex: "a", Grammar: "root ::= \"a\""},
		"form":        {Regex: "("},
		"no end":      {Regex: "a", IgnoreStopTokens: true},
		"bias":        {Bias: map[int]float64{100000: 1}},
	} {
		require.ErrorIs(t, failed(t, m.Chat(t.Context(), hi, p)), etc.ErrUsage, name)
	}
	require.ErrorIs(t, failed(t, m.Generate(t.Context(), strings.Repeat("a b ", 500), greedy)), etc.ErrUsage,
		"a prompt that does not fit")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, failed(t, m.Chat(ctx, hi, greedy)), context.Canceled)

	for name, o := range map[string]etc.Options{
		"device": {Device: "x"}, "precision": {Precision: "x"}, "threads": {Threads: -1},
		"concurrent": {Concurrent: -1}, "cache": {CacheMemory: 1}, "drafts": {Speculate: "mtp:9"},
		"no draft": {Speculate: "mtp"}, "caches": {KVCache: "q4"}, "state": {State: "bf16", Precision: "fp32"},
		"stored": {KVCache: "q8", Precision: "strict"}, "no calls": {Speculate: "ngram", Precision: "strict"},
	} {
		_, err := etc.Open(program(), o)
		require.ErrorIs(t, err, etc.ErrUsage, name)
	}
	output := filepath.Join(t.TempDir(), "x.pte")
	for name, o := range map[string]etc.ExportOptions{
		"form": {Linear: "3w"}, "group": {Linear: "4w", GroupSize: 5}, "method": {Linear: "4w", Method: "x"},
		"backend": {Backend: "x"},
		"sample":  {Backend: "cuda", Sample: true}, "length": {MaxSeqLen: 1}, "jobs": {Jobs: -1},
		"recipe":       {Recipe: "linear * 4w", Linear: "4w"},
		"text of none": {Calibrate: "default"}, "method of none": {Method: "gptq"},
		"group of mxfp4": {Linear: "mxfp4", GroupSize: 64}, "mxfp4 by hqq": {Linear: "mxfp4", Method: "hqq"},
	} {
		require.ErrorIs(t, etc.Export(t.Context(), checkpoint, output, o), etc.ErrUsage, name)
	}
	require.ErrorIs(t, etc.Export(t.Context(), checkpoint, output, etc.ExportOptions{Recipe: "what"}), etc.ErrInvalid)
	require.ErrorIs(t, etc.Export(t.Context(), "examples", output, etc.ExportOptions{}), os.ErrNotExist)
	require.NoFileExists(t, output)
}

// A model that does not fit is an error, before anything is compiled.
func TestMemory(t *testing.T) {
	usable := execution.UsableMemory
	defer func() { execution.UsableMemory = usable }()
	execution.UsableMemory = func() int64 { return 1 << 20 }
	_, err := etc.Open(program(), etc.Options{Device: "cpu"})
	require.ErrorIs(t, err, etc.ErrMemory)
}

// Models close once, and take nothing more.
func TestClosed(t *testing.T) {
	m := open()
	require.NoError(t, m.Close())
	require.Error(t, failed(t, m.Generate(t.Context(), "The", greedy)))
}

// An export whose context has ended leaves nothing.
func TestExportCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	output := filepath.Join(t.TempDir(), "x.pte")
	require.ErrorIs(t, etc.Export(ctx, checkpoint, output, etc.ExportOptions{MaxSeqLen: 64}), context.Canceled)
	require.NoFileExists(t, output)
}

// An export that was interrupted goes on where it ended, and the file is that of one that was not.
func TestExportResumed(t *testing.T) {
	output := filepath.Join(t.TempDir(), "x.pte")
	ctx, cancel := context.WithCancel(t.Context())
	o := etc.ExportOptions{MaxSeqLen: 256, Resume: true, Jobs: 1, Progress: func(written, total int64) {
		if written > total/2 {
			cancel()
		}
	}}
	require.ErrorIs(t, etc.Export(ctx, checkpoint, output, o), context.Canceled)
	require.NoFileExists(t, output)
	first := int64(-1)
	o.Progress = func(written, _ int64) {
		if first < 0 {
			first = written
		}
	}
	other := o
	other.Linear = "8w"
	require.ErrorIs(t, etc.Export(t.Context(), checkpoint, output, other), etc.ErrUsage, "another export's rest")
	require.NoError(t, etc.Export(t.Context(), checkpoint, output, o))
	require.Positive(t, first)
	want, err := os.ReadFile(program())
	require.NoError(t, err)
	got, err := os.ReadFile(output)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	require.ErrorIs(t, etc.Export(t.Context(), checkpoint, output, etc.ExportOptions{TargetBits: 3}), etc.ErrUsage)
	require.ErrorIs(t, etc.Export(t.Context(), checkpoint, output, etc.ExportOptions{TargetBits: 5, Linear: "4w"}),
		etc.ErrUsage)
}

// Options give the same bytes as the flags of etc export.
func TestExportSameBytes(t *testing.T) {
	recipe := filepath.Join(t.TempDir(), "recipe")
	rules := "linear *.mlp.gate.weight 8w\nlinear * 4w group=32 method=minmax\n"
	require.NoError(t, os.WriteFile(recipe, []byte(rules), 0o644))
	text := filepath.Join(t.TempDir(), "chats.jsonl")
	chats := `{"messages": [{"role": "user", "content": "What is the capital of France?"}]} {"text": "Rome."}`
	require.NoError(t, os.WriteFile(text, []byte(chats), 0o644))
	byText := "linear * 4w group=32 method=gptq\n"
	textRecipe := filepath.Join(t.TempDir(), "recipe")
	require.NoError(t, os.WriteFile(textRecipe, []byte(byText), 0o644))
	for _, c := range []struct {
		name    string // of what has paths in its flags
		flags   string
		options etc.ExportOptions
	}{
		{"", "", etc.ExportOptions{}},
		{"", "--qlinear 4w --qembedding 8w --sample", etc.ExportOptions{Linear: "4w", Embedding: "8w", Sample: true}},
		{"", "--qlinear 8w --group-size 32 --quant-method minmax --portable",
			etc.ExportOptions{Linear: "8w", GroupSize: 32, Method: "minmax", Portable: true}},
		{"", "--qlinear mxfp4 --qembedding mxfp8", etc.ExportOptions{Linear: "mxfp4", Embedding: "mxfp8"}},
		{"", "--qlinear mxfp4 --quant-method best", etc.ExportOptions{Linear: "mxfp4", Method: "best"}},
		{"", "--qlinear nvfp4 --qembedding mxfp4", etc.ExportOptions{Linear: "nvfp4", Embedding: "mxfp4"}},
		{"", "--qlinear mxfp8 --qembedding 4w", etc.ExportOptions{Linear: "mxfp8", Embedding: "4w"}},
		{"", "--qlinear 4w --recipe executorch", etc.ExportOptions{Linear: "4w", Recipe: "executorch"}},
		{"", "--qlinear 4w --qembedding 8w --recipe executorch",
			etc.ExportOptions{Linear: "4w", Embedding: "8w", Recipe: "executorch"}},
		{"", "--backend cuda --max-prefill-chunk 16", etc.ExportOptions{Backend: "cuda", MaxPrefillChunk: 16}},
		{"", "--target-bpw 6 --group-size 32 --qembedding 8w",
			etc.ExportOptions{TargetBits: 6, GroupSize: 32, Embedding: "8w"}},
		{"", "--recipe " + recipe, etc.ExportOptions{Recipe: rules}},
		{"calibrated", "--qlinear 4w --qembedding 4w --calibrate " + text,
			etc.ExportOptions{Linear: "4w", Embedding: "4w", Calibrate: text}},
		{"calibrated by gptq", "--qlinear 4w --quant-method gptq --calibrate " + text,
			etc.ExportOptions{Linear: "4w", Method: "gptq", Calibrate: text}},
		{"calibrated by a recipe", "--recipe " + textRecipe + " --calibrate " + text,
			etc.ExportOptions{Recipe: byText, Calibrate: text}},
	} {
		t.Run(cmp.Or(c.name, c.flags), func(t *testing.T) {
			if testing.Short() && (c.options.Linear != "4w" || c.name == "calibrated") {
				t.Skip("one form of weights is enough for a short test")
			}
			dir := t.TempDir()
			one, two := filepath.Join(dir, "one.pte"), filepath.Join(dir, "two.pte")
			args := append([]string{"export", checkpoint, "--max-seq-len", "64", "-o", one}, strings.Fields(c.flags)...)
			require.Zero(t, command.Main(args))
			c.options.MaxSeqLen = 64
			require.NoError(t, etc.Export(t.Context(), checkpoint, two, c.options))
			want, err := os.ReadFile(one)
			require.NoError(t, err)
			got, err := os.ReadFile(two)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "%d bytes from the command line, %d from the library", len(want),
				len(got))
		})
	}
}

// Every exported entry point has an example, and CONTRIBUTING.md names files that are there.
func TestDocuments(t *testing.T) {
	text, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	more, err := os.ReadFile("example_session_test.go")
	require.NoError(t, err)
	text = append(text, more...)
	for _, name := range []string{"Export", "Open", "OpenSession", "Devices", "LoadTokenizer", "LoadChatTemplate",
		"Model_Info", "Model_Generate", "Model_Chat", "Model_Prompt", "Model_Tokenizer", "Model_NewSequence",
		"Session_Ask", "Session_Save", "Session_GenerateTokens", "Session_Parameters", "Tokenizer_EncodeReader"} {
		require.Contains(t, string(text), "func Example"+name+"()")
	}
	guide, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	seen := 0
	for _, m := range regexp.MustCompile(
		"`((?:ir|passes|loaders|runtime|codegen|cmd|internal|docs|tools|testdata)/[\\w./-]+)`").FindAllStringSubmatch(
		string(guide), -1) {
		path := m[1]
		if strings.Contains(path, "cumsum") || strings.Contains(path, "NAME") { // the reader's own
			continue
		}
		_, err := os.Stat(path)
		require.NoError(t, err)
		seen++
	}
	require.Greater(t, seen, 30)
}

// The package's imports: nobody below imports it.
func TestNobodyBelowImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./internal/...",
		"./ir/...", "./passes/...",
		"./schema/...", "./codegen/...", "./loaders/...", "./runtime/...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		require.NotContains(t, strings.Fields(imports), "github.com/etc-ml/etc", pkg)
	}
}

// An answer that Close cuts is an error, not a short answer.
func TestCloseInTheMiddle(t *testing.T) {
	m := open()
	p := etc.Parameters{Temperature: new(0.0), IgnoreStopTokens: true}
	closed := false
	for token, err := range m.Chat(t.Context(), question("What is the capital of France?"), p) {
		if !closed {
			closed = true
			require.NoError(t, m.Close())
		}
		if token.End != nil { // it may have been whole before
			require.NoError(t, err)
			require.Equal(t, etc.Length, token.End.Reason)
		}
	}
	require.True(t, closed)
}

// What is wrong with a file's content is found by errors.Is.
func TestContentErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"model": {}}`), 0o600))
	_, err := etc.LoadTokenizer(path)
	require.ErrorIs(t, err, etc.ErrInvalid)
	_, err = etc.Open(filepath.Join("cmd", "etc", "command", "testdata", "Add_bf16.pte"), etc.Options{Device: "cpu"})
	require.ErrorIs(t, err, etc.ErrInvalid)
	err = etc.Export(t.Context(), "testdata/checkpoints/qwen35moe-chat", filepath.Join(t.TempDir(), "m.pte"),
		etc.ExportOptions{Embedding: "nvfp4"})
	require.ErrorIs(t, err, etc.ErrUsage)
}
