package execution_test

import (
	"context"
	"encoding/binary"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

var checkpoints = filepath.Join("..", "..", "testdata", "checkpoints")

// drafted builds the program of a checkpoint, with its draft.
func drafted(t *testing.T, base, draft string, o loaders.Options) *ir.Module {
	t.Helper()
	c, err := loaders.Open(filepath.Join(checkpoints, base))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	if draft == "auto" {
		require.Empty(t, c.FindDraft())
	} else {
		require.NoError(t, c.OpenDraft(filepath.Join(checkpoints, draft)))
	}
	m, err := c.Build(o)
	require.NoError(t, err)
	require.NoError(t, passes.Run(m, &passes.Options{}))
	return m
}

// answerer opens a program with drafts.
func answerer(t *testing.T, m *ir.Module, e engine.Engine, d batch.Drafting) *execution.Answerer {
	t.Helper()
	o := engine.Options{Precision: eval.FP32, Threads: 2, Warn: func(string) {}}
	a, err := execution.OpenAnswerer("m.pte", m, e, o, execution.Drafting{Drafting: d})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

// talk gives two answers in one session, and what was before the second one.
func talk(t *testing.T, m *session.Model, r session.Request, second []int) (answers [2]session.Answer, before []int) {
	t.Helper()
	s, err := m.NewSession()
	require.NoError(t, err)
	defer s.Close()
	for i := range answers {
		if i == 1 {
			r.Prompt, before = second, s.Tokens()
			if s.Position()+len(second) >= m.MaxSeqLen {
				break
			}
		}
		answers[i], err = s.Generate(context.Background(), r)
		require.NoError(t, err)
	}
	return answers, before
}

// TestDraftsChangeNothing: the tokens with drafts are those of a session, whatever drafts, however many, greedy and
// drawn, across the ends of windows and chunks, stop tokens and full contexts, and in a second answer after the
// first.
func TestDraftsChangeNothing(t *testing.T) {
	long := make([]int, 58) // its answer goes over the end of the window
	for i := range long {
		long[i] = 100 + (i*i)%300
	}
	for _, test := range []struct {
		name, base, draft string
		kind              speculate.Kind
	}{
		{"mtp", "qwen35moe-chat", filepath.Join("qwen35moe-chat-mtp", "mtp.safetensors"), speculate.MultiToken},
		{"dense", "qwen35-tiny", "auto", speculate.MultiToken},
		{"assistant", "gemma4-chat", "gemma4-chat-assistant", speculate.Assistant},
		{"text", "qwen35moe-chat", filepath.Join("qwen35moe-chat-mtp", "mtp.safetensors"), speculate.None},
		{"text and window", "gemma4-chat", "gemma4-chat-assistant", speculate.None},
	} {
		for device, e := range map[string]engine.Engine{"reference": reference.Engine{}, "cpu": cpu.Engine{}} {
			few := device == "reference" // which is slow
			if few && testing.Short() {
				continue
			}
			t.Run(test.name+"/"+device, func(t *testing.T) {
				vocabulary := 256
				if test.base != "qwen35-tiny" {
					vocabulary = 700
				}
				prompts := [][]int{{7}, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, slices.Clone(long)}
				for i := range prompts {
					for j := range prompts[i] {
						prompts[i][j] %= vocabulary
					}
				}
				m := drafted(t, test.base, test.draft, loaders.Options{MaxSeqLen: 128, MaxPrefillChunk: 11})
				o := engine.Options{Precision: eval.FP32, Threads: 2, Warn: func(string) {}}
				plain, err := session.LoadDraws(m.Only(m.Entry), e, o, session.Draws{})
				require.NoError(t, err)
				defer plain.Close()
				checkDrafts(t, plain, prompts, few, func(d batch.Drafting) *execution.Answerer {
					d.Kind = test.kind
					return answerer(t, m, e, d)
				})
			})
		}
	}
}

// checkDrafts compares answers with drafts of several ways with those of a session, for few of the prompts and requests
// or all.
func checkDrafts(t *testing.T, plain *session.Model, prompts [][]int, few bool,
	open func(batch.Drafting) *execution.Answerer) {
	t.Helper()
	requests := []session.Request{
		{Sampling: session.Greedy, MaxNewTokens: 24},
		{Sampling: session.Greedy}, // until the context is full
		{Sampling: session.Sampling{Temperature: 0.7, TopK: 20, TopP: 0.9, Seed: 3}, MaxNewTokens: 24},
		{Sampling: session.Sampling{Temperature: 1, TopP: 1, Seed: -1}, MaxNewTokens: 1},
	}
	second := []int{9, 8, 7}
	drafts := []batch.Drafting{{Most: 3, Fixed: true}, {Most: 4}, {Most: 1, Fixed: true}, {Most: 8, Fixed: true}}
	if few || testing.Short() {
		drafts = drafts[:2]
	}
	if few {
		drafts, prompts = drafts[:1], prompts[2:]
	}
	for _, d := range drafts {
		a := open(d)
		for i, prompt := range prompts {
			for j, r := range requests {
				if j == 1 && (i != 2 || few) {
					continue
				}
				r.Prompt = prompt
				want, before := talk(t, plain, r, second)
				if j == 0 && len(want[0].Tokens) > 8 {
					r.Stop = []int{want[0].Tokens[7]}
					want, before = talk(t, plain, r, second)
				}
				for turn, w := range want {
					if w.Prompt == 0 { // the context was full
						continue
					}
					if turn == 1 {
						r.Prompt = slices.Concat(before, second)
					}
					got, err := a.Generate(t.Context(), r)
					require.NoError(t, err)
					require.Equal(t, w.Tokens, got.Tokens, "%+v, prompt %d, request %d, turn %d", d, i, j, turn)
					require.Equal(t, w.Reason, got.Reason, "%+v, prompt %d, request %d, turn %d", d, i, j, turn)
					checkRounds(t, got, d)
				}
			}
		}
	}
}

// checkRounds holds the log against itself.
func checkRounds(t *testing.T, a session.Answer, d batch.Drafting) {
	t.Helper()
	totals := speculate.Totals{}
	for i, r := range a.Rounds {
		totals.Add(speculate.Totals{Rounds: 1, Drafted: len(r.Draft), Accepted: r.Accepted})
		require.LessOrEqual(t, len(r.Draft), d.Most)
		require.LessOrEqual(t, r.Accepted, len(r.Draft))
		if i > 0 {
			require.GreaterOrEqual(t, r.At, a.Rounds[i-1].At+a.Rounds[i-1].Accepted+1)
		}
	}
	require.Equal(t, totals, a.Drafts)
}

// TestDraftsAreRight: a trained draft is right where the answer is known by heart, and a text that repeats itself is
// drafted from itself.
func TestDraftsAreRight(t *testing.T) {
	m := drafted(t, "qwen35moe-chat", filepath.Join("qwen35moe-chat-mtp", "mtp.safetensors"),
		loaders.Options{MaxSeqLen: 256})
	g := openGoldens(t, filepath.Join("..", "..", "runtime", "speculate", "testdata", "qwen35moe-chat.safetensors"))
	r := session.Request{Prompt: g.ints("prompt2.ids"), Sampling: session.Greedy, MaxNewTokens: 10}
	a, err := answerer(t, m, cpu.Engine{},
		batch.Drafting{Kind: speculate.MultiToken, Most: 3, Fixed: true}).Generate(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, g.ints("prompt2.greedy_ids")[:10], a.Tokens)
	require.Greater(t, a.Drafts.Acceptance(), 0.7)

	r.Prompt = slices.Concat(r.Prompt, a.Tokens, r.Prompt)
	a, err = answerer(t, m, cpu.Engine{}, batch.Drafting{Most: 3, Fixed: true}).Generate(t.Context(), r)
	require.NoError(t, err)
	require.Positive(t, a.Drafts.Accepted, "%+v", a.Rounds)
}

// TestDraftingRefused: what cannot draft says why.
func TestDraftingRefused(t *testing.T) {
	m := drafted(t, "qwen35-tiny", "auto", loaders.Options{MaxSeqLen: 16, MaxPrefillChunk: 2})
	_, err := execution.OpenAnswerer("m.pte", m, cpu.Engine{}, engine.Options{},
		execution.Drafting{Drafting: batch.Drafting{Kind: speculate.Assistant, Most: 1}})
	require.ErrorContains(t, err, "the program has no method draft of kind assistant")
	_, err = execution.OpenAnswerer("m.pte", m, reference.Engine{}, engine.Options{Precision: eval.Strict},
		execution.Drafting{Drafting: batch.Drafting{Kind: speculate.MultiToken, Most: 1}})
	require.ErrorContains(t, err, "without drafts: one sequence runs at a time, since precision strict")
}

// TestSuspicion: drafts that are never right are told of, once, and drafts from the text are not.
func TestSuspicion(t *testing.T) {
	m := drafted(t, "qwen35-tiny", "auto", loaders.Options{MaxSeqLen: 128}) // of random weights
	for kind, want := range map[speculate.Kind]int{speculate.MultiToken: 1, speculate.None: 0} {
		var notes []string
		a, err := execution.OpenAnswerer("m.pte", m, cpu.Engine{}, engine.Options{}, execution.Drafting{
			Drafting: batch.Drafting{Kind: kind, Most: 3, Fixed: true},
			Told:     func(note string) { notes = append(notes, note) }})
		require.NoError(t, err)
		for range 2 {
			_, err := a.Generate(t.Context(), session.Request{Prompt: []int{5, 6, 7, 5, 6}, Sampling: session.Greedy,
				MaxNewTokens: 60})
			require.NoError(t, err)
		}
		require.NoError(t, a.Close())
		require.Len(t, notes, want)
		if want > 0 {
			require.Regexp(t, `: [0-9] of [0-9]+ drafts were right; the draft may belong to another model$`, notes[0])
		}
	}
}

// TestParseDrafts: what --speculate takes.
func TestParseDrafts(t *testing.T) {
	for text, asked := range map[string]bool{"": false, "off": false, "auto": true, "mtp": true, "assistant:1": true,
		"ngram:8": true, "auto:3": true} {
		d, err := execution.ParseDrafts(text)
		require.NoError(t, err, text)
		require.Equal(t, asked, d.Asked(), text)
	}
	for text, want := range map[string]string{
		"sometimes": `"sometimes", want auto, off, mtp, assistant or ngram, the last four with :K too`,
		"off:2":     `"off:2", want auto, off, mtp, assistant or ngram, the last four with :K too`,
		"ngram:9":   `"ngram:9": "9" drafts a round, want 1 to 8`,
		"mtp:":      `"mtp:": "" drafts a round, want 1 to 8`,
		":2":        `":2", want auto, off, mtp, assistant or ngram, the last four with :K too`,
	} {
		_, err := execution.ParseDrafts(text)
		require.EqualError(t, err, want)
	}
}

// goldens are recorded tensors.
type goldens struct {
	t    *testing.T
	file *safetensors.File
}

func openGoldens(t *testing.T, path string) goldens {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return goldens{t, f}
}

func (g goldens) ints(name string) []int {
	g.t.Helper()
	x, ok := g.file.Tensor(name)
	require.True(g.t, ok, name)
	b, err := io.ReadAll(x.Reader())
	require.NoError(g.t, err)
	out := make([]int, len(b)/8)
	for i := range out {
		out[i] = int(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}
