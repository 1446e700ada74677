package session_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

var checkpoints = filepath.Join("..", "..", "testdata", "checkpoints")

// drafted gives the methods of a program that is built of a checkpoint, with its draft, for contexts and chunks of
// a size.
func drafted(t *testing.T, base, draft string, o loaders.Options, p passes.Options) func(string) (*ir.Module, error) {
	t.Helper()
	c, err := loaders.Open(filepath.Join(checkpoints, base))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	if draft == "auto" {
		require.Empty(t, c.FindDraft())
	} else {
		require.NoError(t, c.OpenDraft(filepath.Join(checkpoints, draft)))
	}
	build := func() (*ir.Module, error) {
		m, err := c.Build(o)
		if err != nil {
			return nil, err
		}
		q := p
		return m, passes.Run(m, &q)
	}
	return func(name string) (*ir.Module, error) {
		m, err := build()
		if err != nil {
			return nil, err
		}
		for i, part := range m.Entries() {
			if part.Name == name {
				parts, err := m.Parts()
				if err != nil {
					return nil, err
				}
				return parts[i], nil
			}
		}
		return nil, fmt.Errorf("no method %s", name)
	}
}

// talk gives two answers in one session: what is behind a rollback must be right for what comes later.
func talk(t *testing.T, m *session.Model, r session.Request, second []int) (tokens [2][]int,
	reasons [2]session.StopReason, a session.Answer) {
	t.Helper()
	s, err := m.NewSession()
	require.NoError(t, err)
	defer s.Close()
	for i := range tokens {
		if i == 1 {
			r.Prompt = second
			if s.Position()+len(second) >= m.MaxSeqLen {
				break
			}
		}
		a, err = s.Generate(context.Background(), r)
		require.NoError(t, err)
		tokens[i], reasons[i] = a.Tokens, a.Reason
	}
	return tokens, reasons, a
}

// TestDraftsChangeNothing: the tokens with drafts are those without, whatever drafts, however many, greedy and
// drawn, across the ends of windows and chunks, stop tokens and full contexts, and in a second answer behind the
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
				prompts := [][]int{{7}, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, long}
				for i := range prompts {
					for j := range prompts[i] {
						prompts[i][j] %= vocabulary
					}
				}
				o := engine.Options{Precision: eval.FP32, Threads: 2, Warn: func(string) {}}
				methods := drafted(t, test.base, test.draft, loaders.Options{MaxSeqLen: 128, MaxPrefillChunk: 11},
					passes.Options{})
				forward, err := methods("forward")
				require.NoError(t, err)
				plain, err := session.LoadDraws(forward, e, o, session.Draws{})
				require.NoError(t, err)
				defer plain.Close()
				checkDrafts(t, plain, prompts, few, func(d session.Drafting) *session.Model {
					d.Kind = test.kind
					m, err := session.LoadDrafting(methods, e, o, d)
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, m.Close()) })
					return m
				})
			})
		}
	}
}

// checkDrafts compares a model that drafts in several ways with one that does not, for few of the prompts and
// requests or all.
func checkDrafts(t *testing.T, plain *session.Model, prompts [][]int, few bool,
	load func(session.Drafting) *session.Model) {
	t.Helper()
	requests := []session.Request{
		{Sampling: session.Greedy, MaxNewTokens: 24},
		{Sampling: session.Greedy}, // until the context is full
		{Sampling: session.Sampling{Temperature: 0.7, TopK: 20, TopP: 0.9, Seed: 3}, MaxNewTokens: 24},
		{Sampling: session.Sampling{Temperature: 1, TopP: 1, Seed: -1}, MaxNewTokens: 1},
	}
	second := []int{9, 8, 7}
	drafts := []session.Drafting{{Most: 3, Fixed: true}, {Most: 4}, {Most: 1, Fixed: true}, {Most: 8, Fixed: true}}
	if few || testing.Short() {
		drafts = drafts[:2]
	}
	if few {
		drafts, prompts = drafts[:1], prompts[2:]
	}
	for _, d := range drafts {
		m := load(d)
		for i, prompt := range prompts {
			for j, r := range requests {
				if j == 1 && (i != 2 || few) {
					continue
				}
				r.Prompt = prompt
				want, reasons, _ := talk(t, plain, r, second)
				if j == 0 && len(want[0]) > 8 {
					r.Stop = []int{want[0][7]}
					want, reasons, _ = talk(t, plain, r, second)
				}
				got, gotReasons, a := talk(t, m, r, second)
				require.Equal(t, want, got, "%+v, prompt %d, request %d", d, i, j)
				require.Equal(t, reasons, gotReasons, "%+v, prompt %d, request %d", d, i, j)
				checkRounds(t, a, d)
			}
		}
	}
}

// checkRounds holds the log against itself.
func checkRounds(t *testing.T, a session.Answer, d session.Drafting) {
	t.Helper()
	totals := speculate.Totals{}
	for i, r := range a.Rounds {
		totals.Add(speculate.Totals{Rounds: 1, Drafted: len(r.Draft), Accepted: r.Accepted})
		require.LessOrEqual(t, len(r.Draft), d.Most)
		require.LessOrEqual(t, r.Accepted, len(r.Draft))
		if i > 0 && d.Fixed && len(a.Rounds[i-1].Draft) > 0 && r.At > a.Rounds[i-1].At {
			require.GreaterOrEqual(t, r.At, a.Rounds[i-1].At+a.Rounds[i-1].Accepted+1)
		}
	}
	require.Equal(t, totals, a.Drafts)
}

// TestDraftsAreRight: a trained draft is right where the answer is known by heart, and a text that repeats itself is
// drafted from itself.
func TestDraftsAreRight(t *testing.T) {
	methods := drafted(t, "qwen35moe-chat", filepath.Join("qwen35moe-chat-mtp", "mtp.safetensors"),
		loaders.Options{MaxSeqLen: 256}, passes.Options{})
	o := engine.Options{Precision: eval.FP32, Threads: 2, Warn: func(string) {}}
	m, err := session.LoadDrafting(methods, cpu.Engine{}, o,
		session.Drafting{Kind: speculate.MultiToken, Most: 3, Fixed: true})
	require.NoError(t, err)
	defer m.Close()
	s, err := m.NewSession()
	require.NoError(t, err)
	defer s.Close()
	g := openGoldens(t, filepath.Join("..", "speculate", "testdata", "qwen35moe-chat.safetensors"))
	r := session.Request{Prompt: g.ints("prompt2.ids"), Sampling: session.Greedy, MaxNewTokens: 10}
	a, err := s.Generate(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, g.ints("prompt2.greedy_ids")[:10], a.Tokens)
	require.Greater(t, a.Drafts.Acceptance(), 0.7)

	m, err = session.LoadDrafting(methods, cpu.Engine{}, o, session.Drafting{Most: 3, Fixed: true})
	require.NoError(t, err)
	defer m.Close()
	again, err := m.NewSession()
	require.NoError(t, err)
	defer again.Close()
	r.Prompt = slices.Concat(r.Prompt, a.Tokens, r.Prompt)
	a, err = again.Generate(context.Background(), r)
	require.NoError(t, err)
	require.Positive(t, a.Drafts.Accepted, "%+v", a.Rounds)
}

// TestDraftingRefused: what cannot draft says why.
func TestDraftingRefused(t *testing.T) {
	methods := drafted(t, "qwen35-tiny", "auto", loaders.Options{MaxSeqLen: 16, MaxPrefillChunk: 2}, passes.Options{})
	load := func(d session.Drafting) error {
		_, err := session.LoadDrafting(methods, reference.Engine{}, engine.Options{}, d)
		return err
	}
	require.ErrorContains(t, load(session.Drafting{Most: 1}),
		"forward takes 2 tokens at most: too few to verify drafts")
	require.ErrorContains(t, load(session.Drafting{Kind: speculate.Assistant, Most: 1}),
		"method draft is no draft of kind assistant")
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
