package batch_test

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
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// drafted is a checkpoint with a draft.
type drafted struct {
	name, base, draft string
	kind              speculate.Kind
}

// draftedModels are of both families: with recurrent state and with windows.
var draftedModels = []drafted{
	{"text and state", "qwen35-tiny", "auto", speculate.None},
	{"text and window", "gemma4-chat", "gemma4-chat-assistant", speculate.None},
	{"mtp", "qwen35-tiny", "auto", speculate.MultiToken},
	{"mtp with experts", "qwen35moe-chat", "qwen35moe-chat-mtp/mtp.safetensors", speculate.MultiToken},
	{"assistant", "gemma4-chat", "gemma4-chat-assistant", speculate.Assistant},
}

// inCheckpoints is a path in the folder of checkpoints, where it is not absolute.
func inCheckpoints(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("..", "..", "testdata", "checkpoints", path)
}

// module builds the program of a checkpoint, with its draft.
func (d drafted) module(t testing.TB, context int) *ir.Module {
	t.Helper()
	c, err := loaders.Open(inCheckpoints(d.base))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	if d.draft == "auto" {
		require.Empty(t, c.FindDraft())
	} else {
		require.NoError(t, c.OpenDraft(inCheckpoints(d.draft)))
	}
	m, err := c.Build(loaders.Options{MaxSeqLen: context, MaxPrefillChunk: 16})
	require.NoError(t, err)
	require.NoError(t, passes.Run(m, &passes.Options{}))
	return m
}

// runner makes a runner of a drafted model.
func (d drafted) runner(t testing.TB, e engine.Engine, o batch.RaggedOptions, r batch.Options) *batch.Runner {
	t.Helper()
	o.Engine.Precision, o.Engine.Threads = eval.FP32, 2
	if o.Engine.Warn == nil {
		o.Engine.Warn = func(text string) { t.Error(text) }
	}
	if r.Drafting.Most > 0 {
		r.Drafting.Kind, o.Draft = d.kind, d.kind
	}
	x, err := batch.NewRagged(d.module(t, 96), e, o)
	require.NoError(t, err)
	runner, err := batch.New(x, r)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, runner.Close()) })
	return runner
}

// mixedRequests are requests of all kinds: greedy and drawn, with penalties, until a stop token, until the context is
// full, with prompts longer than windows and calls, and texts that repeat themselves.
func mixedRequests(vocab, n int) []batch.Request {
	var out []batch.Request
	for i := range n {
		q := batch.Request{MaxTokens: 10 + i, Sampling: batch.Sampling{TopP: 1}, Logprobs: -1, Drafts: i%5 - 1}
		if i%5 == 1 {
			q.Drafts = 4
		}
		for j := range []int{1, 7, 30, 50}[i%4] {
			q.Prompt = append(q.Prompt, (i*31+j%6*(17+i%3))%vocab)
		}
		switch i % 6 {
		case 0: // few tokens, which repeat themselves
			q.Sampling.Bias = map[int]float32{7: 60, 9: 60}
		case 1:
			q.Sampling = batch.Sampling{Temperature: 0.8, TopK: 20, TopP: 0.9, Seed: int64(i)}
		case 2:
			q.MaxTokens = 0
		case 3:
			q.Sampling.Repeat, q.Sampling.Presence, q.Sampling.Frequency = 1.2, 0.3, 0.1
		case 4:
			q.Logprobs = 2
		case 5:
			q.Sampling = batch.Sampling{Temperature: 1, TopP: 1, MinP: 0.05, Seed: -1}
		}
		out = append(out, q)
	}
	return out
}

// answered is what a request gave.
type answered struct {
	tokens []batch.Token
	end    batch.End
}

// answer has a runner answer requests at the same time; each that is cut is left behind so many tokens.
func answer(t testing.TB, r *batch.Runner, requests []batch.Request, cut map[int]int) []answered {
	t.Helper()
	out := make([]answered, len(requests))
	streams := make([]*batch.Stream, len(requests))
	for i, q := range requests {
		var err error
		streams[i], err = r.Submit(context.Background(), q)
		require.NoError(t, err)
	}
	for i, s := range streams {
		for {
			if n, ok := cut[i]; ok && len(out[i].tokens) == n {
				s.Cancel()
				drain(t, s)
				break
			}
			token, ok := s.Next(t.Context())
			if !ok {
				break
			}
			out[i].tokens = append(out[i].tokens, token)
		}
		var err error
		out[i].end, err = s.End()
		require.NoError(t, err)
	}
	return out
}

// TestDraftsInBatches: what streams answer that draft tokens, each as many as it may, is what they answer without,
// bit for bit on the reference engine and in deterministic calls: 16 at a time, in few blocks and slots, so that some
// are preempted, and again from what the prefix cache has kept.
func TestDraftsInBatches(t *testing.T) {
	for _, d := range draftedModels {
		for name, e := range map[string]engine.Engine{"reference": reference.Engine{}, "cpu": cpu.Engine{},
			"cpu, deterministic": cpu.Engine{}, "rounds": planned{}} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				slow := name == "reference" || name == "cpu, deterministic"
				o := batch.RaggedOptions{Rows: 24, Sequences: 16, BlockRows: 4}
				o.Engine.Deterministic = slow && e.Name() == "cpu"
				n, drafting := 16, []batch.Drafting{{Most: 4, Fixed: true}, {Most: 3}}
				if testing.Short() {
					if slow || d.kind == speculate.None || d.name == "mtp" || name == "cpu" {
						t.Skip("takes seconds")
					}
					n, drafting = 8, drafting[:1]
				}
				t.Parallel()
				budget := batch.Options{Queue: 100, Budget: 1 << 40, Prefix: 1 << 40, Checkpoints: 8}
				plain := d.runner(t, e, o, budget)
				requests := mixedRequests(min(plain.Limits().Vocab, 200), n)
				want := answer(t, plain, requests, nil)
				for i := range requests { // some end at a token of theirs
					if tokens := want[i].tokens; i%3 == 1 && len(tokens) > 6 {
						requests[i].Stop = []int{tokens[5].ID}
					}
				}
				want = answer(t, plain, requests, nil)
				cut := map[int]int{2: 9, 7: 3}
				for _, x := range drafting {
					few, ragged := budget, o
					few.Drafting = x
					if x.Fixed {
						l := plain.Layout()
						few.Budget = 5*l.Bytes(l.Most(96, 24)) + 24*l.SlotBytes
						ragged.Budget = few.Budget
					}
					r := d.runner(t, e, ragged, few)
					for round := range 2 {
						got := answer(t, r, requests, cut)
						compareAnswers(t, want, got, cut, slow, fmt.Sprintf("%+v, round %d", x, round))
					}
					checkDraftTotals(t, r, x, d.name != "mtp" && d.name != "assistant")
				}
			})
		}
	}
}

// compareAnswers compares answers with those without drafts; those that were cut have the beginning of them.
func compareAnswers(t testing.TB, want, got []answered, cut map[int]int, bits bool, what string) {
	t.Helper()
	for i := range want {
		w, g := want[i], got[i]
		n, wasCut := cut[i]
		if wasCut {
			w.tokens = w.tokens[:min(n, len(w.tokens))]
		} else {
			require.Equal(t, w.end.Reason, g.end.Reason, "%s, request %d", what, i)
			require.Equal(t, w.end.Stop, g.end.Stop, "%s, request %d", what, i)
			require.Equal(t, w.end.Tokens, g.end.Tokens, "%s, request %d", what, i)
		}
		require.Len(t, g.tokens, len(w.tokens), "%s, request %d", what, i)
		for j := range w.tokens {
			require.Equal(t, w.tokens[j].ID, g.tokens[j].ID, "%s, request %d, token %d", what, i, j)
			if bits {
				require.Equal(t, w.tokens[j], g.tokens[j], "%s, request %d, token %d", what, i, j)
			} else {
				require.InDelta(t, w.tokens[j].Logprob, g.tokens[j].Logprob, 1e-3)
			}
		}
	}
}

// checkDraftTotals holds the counts against what was asked for.
func checkDraftTotals(t testing.TB, r *batch.Runner, x batch.Drafting, right bool) {
	t.Helper()
	st := r.Stats()
	require.LessOrEqual(t, st.Drafts.Accepted, st.Drafts.Drafted)
	if x.Fixed {
		require.Positive(t, st.Drafts.Drafted)
		if right {
			require.Positive(t, st.Drafts.Accepted)
		}
		require.Positive(t, st.DraftRows)
	}
}

// TestDraftsAreThoseOfOne: streams draft what the methods of the file draft that are called one by one, also where
// the prompt, or a part of it, comes from the prefix cache: the draft's own cache lies there, too. Every round drafts
// as many tokens as it may.
func TestDraftsAreThoseOfOne(t *testing.T) {
	for _, d := range draftedModels[3:] {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			prompt := knownPrompts(t, d.base)[0]
			o := batch.RaggedOptions{Rows: 24, Sequences: 4, BlockRows: 4}
			options := batch.Options{Queue: 9, Budget: 1 << 40, Prefix: 1 << 40}
			plain := d.runner(t, cpu.Engine{}, o, options)
			options.Drafting = batch.Drafting{Most: 3, Fixed: true}
			r, m := d.runner(t, cpu.Engine{}, o, options), d.methods(t)
			for i, p := range []batch.Sampling{{TopP: 1}, {Temperature: 0.5, TopP: 1, Seed: 5}} {
				q := batch.Request{Prompt: prompt, MaxTokens: 40, Logprobs: -1, Marks: []int{7}, Sampling: p,
					DraftLog: true}
				want := idsOf(answer(t, plain, []batch.Request{q}, nil)[0].tokens)
				chains := m.chains(slices.Concat(prompt, want), len(prompt), 3,
					batch.Draw{Temperature: p.Temperature, TopP: p.TopP, Seed: p.Seed})
				for round := range 3 {
					switch {
					case round == 0: // another prompt with the same beginning
						other := q
						other.Prompt = append(append([]int{}, prompt[:7]...), 9, 8, 7, 6)
						answer(t, r, []batch.Request{other}, nil)
					case i > 0:
						continue
					}
					got := answer(t, r, []batch.Request{q}, nil)[0]
					require.Equal(t, want, idsOf(got.tokens))
					require.Positive(t, got.end.Cached)
					if i == 0 {
						require.Greater(t, got.end.Drafts.Acceptance(), 0.3, "round %d", round)
					}
					checkRounds(t, got.end.Rounds, chains, len(prompt), 40)
				}
			}
		})
	}
}

// checkRounds holds the rounds of an answer of tokens after a prompt against the drafts that they must have.
func checkRounds(t *testing.T, rounds speculate.Log, chains map[int][]int32, prompt, tokens int) {
	t.Helper()
	at := prompt + 1 // the first token comes with the prompt
	for i, r := range rounds {
		require.Equal(t, at, r.At, "round %d", i)
		want := chains[at][:min(3, prompt+tokens-at)]
		require.Equal(t, want, r.Draft, "round %d", i)
		at += r.Accepted + 1
	}
	require.GreaterOrEqual(t, at, prompt+tokens, "rounds until the answer has all its tokens")
}

func idsOf(tokens []batch.Token) (out []int) {
	for _, t := range tokens {
		out = append(out, t.ID)
	}
	return out
}

// knownPrompts are prompts of recorded answers of a checkpoint.
func knownPrompts(t testing.TB, base string) (out [][]int) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join("..", "speculate", "testdata", base+".safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	for i := range 16 {
		x, ok := f.Tensor(fmt.Sprintf("prompt%d.ids", i))
		if !ok {
			continue
		}
		b, err := io.ReadAll(x.Reader())
		require.NoError(t, err)
		var ids []int
		for ; len(b) > 0; b = b[8:] {
			ids = append(ids, int(binary.LittleEndian.Uint64(b)))
		}
		out = append(out, ids)
	}
	return out
}

// TestDraftsOnGPU: on a GPU drafts come from the device's draws in calls that streams share, with kernels for
// everything, and streams draft and answer what they do on the CPU.
func TestDraftsOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the kernels have tests of their own")
	}
	e := onGPU(t)
	for _, d := range draftedModels[3:] {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			prompt := knownPrompts(t, d.base)[0]
			var requests []batch.Request
			for i := range 3 {
				requests = append(requests,
					batch.Request{Prompt: prompt[:len(prompt)-i], MaxTokens: 9, Logprobs: -1, Drafts: 1 + i,
						Sampling: batch.Sampling{Temperature: 0.5 * float32(i), TopP: 1, Seed: 4}})
			}
			o := batch.RaggedOptions{Rows: 16, Sequences: 3, BlockRows: 8}
			b := batch.Options{Queue: 9, Budget: 1 << 40, Drafting: batch.Drafting{Most: 3, Fixed: true}}
			want := answer(t, d.runner(t, cpu.Engine{}, o, b), requests, nil)
			got := answer(t, d.runner(t, e, o, b), requests, nil)
			for i := range want {
				require.Equal(t, idsOf(want[i].tokens), idsOf(got[i].tokens))
				require.Positive(t, want[i].end.Drafts.Drafted)
				require.Equal(t, want[i].end.Drafts, got[i].end.Drafts)
			}
		})
	}
}

// TestSequenceDrafts: a program that feeds its sequences itself drafts after one of them, which leaves it as it was,
// in a block that it shares, too.
func TestSequenceDrafts(t *testing.T) {
	for i, e := range []engine.Engine{cpu.Engine{}, cpu.Engine{}, planned{}, planned{}} {
		d := draftedModels[3+i%2]
		t.Run(fmt.Sprintf("%s/%T", d.name, e), func(t *testing.T) {
			o := batch.RaggedOptions{Rows: 64, Sequences: 2, BlockRows: 4, Draft: d.kind, Positions: 64, Drafts: 3}
			o.Engine = engine.Options{Precision: eval.FP32, Warn: func(text string) { t.Error(text) }}
			x, err := batch.NewRagged(d.module(t, 96), e, o)
			require.NoError(t, err)
			pool, err := batch.NewPool(x, 1<<40)
			require.NoError(t, err)
			defer pool.Close()
			prompt := knownPrompts(t, d.base)[0]
			var tokens []int32
			for _, id := range prompt {
				tokens = append(tokens, int32(id))
			}
			s, row := pool.Open(), batch.Row{Draw: &batch.Draw{TopP: 1}, Hidden: true}
			out, err := s.Feed(t.Context(), tokens, row)
			require.NoError(t, err)
			other, err := s.Fork()
			require.NoError(t, err)
			draws := make([]batch.Draw, 3)
			for i := range draws {
				draws[i].TopP = 1
			}
			drafts, err := s.Draft(t.Context(), out[0].Token, out[0].Hidden, draws...)
			require.NoError(t, err)
			require.Equal(t, len(prompt), s.Position())
			feed := append([]int32{out[0].Token}, drafts...)
			got, err := pool.Feed(t.Context(),
				batch.Feed{Sequence: s, Tokens: feed, Rows: []batch.Row{row, row, row, row}, Exact: true})
			require.NoError(t, err)
			want, err := pool.Feed(t.Context(),
				batch.Feed{Sequence: other, Tokens: feed, Rows: []batch.Row{row, row, row, row}})
			require.NoError(t, err)
			require.Equal(t, drafts[0], got[0][0].Token, "known by heart")
			for i := range got[0] {
				require.Equal(t, want[0][i].Token, got[0][i].Token)
			}
			require.NoError(t, s.Rollback(3))
			require.NoError(t, other.Rollback(4))
			again, outs, err := other.Round(t.Context(), out[0].Token, out[0].Hidden, draws, []batch.Row{row, row, row, row})
			require.NoError(t, err)
			require.Equal(t, drafts, again)
			require.Equal(t, got[0], outs)
			_, _, err = other.Round(t.Context(), out[0].Token, out[0].Hidden, draws, []batch.Row{row})
			require.EqualError(t, err, "1 rows, want 4: one for the token and one for each of 3 drafts")
			for range 2 { // the first error does not end the sequence
				_, err = s.Draft(t.Context(), drafts[0], got[0][0].Hidden[1:], draws...)
				require.ErrorContains(t, err, "127 numbers, want 128")
			}
			_, err = other.Draft(t.Context(), 1, nil)
			require.ErrorContains(t, err, "0 drafts after")
		})
	}
}

// rounds counts the calls of an executor that drafts and verifies at once.
type rounds struct {
	executor
	rounds, drafts *int
}

type executor interface {
	batch.Executor
	batch.Rounder
}

func (r rounds) Round(ctx context.Context, call *schedule.Call, chains []batch.Chain,
	rows []batch.Row) ([][]int32, []batch.Output, error) {
	*r.rounds++
	return r.executor.Round(ctx, call, chains, rows)
}

func (r rounds) Draft(ctx context.Context, call *schedule.Call, chains []batch.Chain) ([][]int32, error) {
	*r.drafts++
	return r.executor.Draft(ctx, call, chains)
}

// TestRounds: on a device drafts and their verification are one call, which gives what the single calls give: chains of
// several lengths, beside rows without drafts. More than three drafts, and rows that ask for more than tokens, take
// single calls.
func TestRounds(t *testing.T) {
	for _, d := range draftedModels[3:] {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			o := batch.RaggedOptions{Rows: 64, Sequences: 4, BlockRows: 4, Draft: d.kind, Positions: 64, Drafts: 4}
			o.Engine = engine.Options{Precision: eval.FP32, Warn: func(text string) { t.Error(text) }}
			alone, err := batch.NewRagged(d.module(t, 96), cpu.Engine{}, o)
			require.NoError(t, err)
			require.Zero(t, alone.(batch.Rounder).MostOfRound(), "a call costs little")
			together, err := batch.NewRagged(d.module(t, 96), planned{}, o)
			require.NoError(t, err)
			counted := rounds{together.(executor), new(int), new(int)}
			prompt := knownPrompts(t, d.base)[0]
			var requests []batch.Request
			for i, drafts := range []int{1, 3, -1} {
				requests = append(requests, batch.Request{Prompt: prompt[:len(prompt)-i], MaxTokens: 12, Logprobs: -1,
					Drafts: drafts, Sampling: batch.Sampling{Temperature: 0.4 * float32(i), TopP: 1, Seed: 4}})
			}
			penalized, many := slices.Clone(requests[:1]), slices.Clone(requests[:1])
			penalized[0].Sampling.Presence = 0.5
			many[0].Drafts = 4
			b := batch.Options{Queue: 9, Budget: 1 << 40, Drafting: batch.Drafting{Kind: d.kind, Most: 4, Fixed: true}}
			plain, err := batch.New(alone, b)
			require.NoError(t, err)
			defer plain.Close()
			fast, err := batch.New(counted, b)
			require.NoError(t, err)
			defer fast.Close()
			for name, c := range map[string]struct {
				requests       []batch.Request
				rounds, drafts bool
			}{"rounds": {requests, true, false}, "penalties": {penalized, false, true},
				"four drafts, and fewer at the end": {many, true, true}} {
				*counted.rounds, *counted.drafts = 0, 0
				want, got := answer(t, plain, c.requests, nil), answer(t, fast, c.requests, nil)
				for i := range want {
					require.Equal(t, idsOf(want[i].tokens), idsOf(got[i].tokens), name)
					require.Equal(t, want[i].end.Drafts, got[i].end.Drafts, name)
				}
				require.Equal(t, c.rounds, *counted.rounds > 0, name)
				require.Equal(t, c.drafts, *counted.drafts > 0, name)
			}
		})
	}
}

// TestSuspect: a runner tells once of a draft that is never right, as one of random weights, and of no other.
func TestSuspect(t *testing.T) {
	for _, x := range []struct {
		d    drafted
		told int
	}{{draftedModels[2], 1}, {draftedModels[3], 0}, {draftedModels[0], 0}} {
		t.Run(x.d.name, func(t *testing.T) {
			t.Parallel()
			var told []speculate.Totals // by the goroutine of the runner, which has ended when they are read
			o := batch.Options{Queue: 9, Budget: 1 << 40, Drafting: batch.Drafting{Most: 3, Fixed: true},
				Suspect: func(d speculate.Totals) { told = append(told, d) }}
			r := x.d.runner(t, cpu.Engine{}, batch.RaggedOptions{Rows: 24, Sequences: 4, BlockRows: 4}, o)
			var requests []batch.Request
			for range 3 {
				q := batch.Request{Prompt: []int{5, 6, 7, 8}, MaxTokens: 40, Logprobs: -1, Sampling: batch.Sampling{TopP: 1}}
				if x.d.kind == speculate.MultiToken && x.told == 0 {
					q.Prompt = knownPrompts(t, x.d.base)[0]
				}
				requests = append(requests, q)
			}
			answer(t, r, requests, nil)
			require.NoError(t, r.Close())
			require.Len(t, told, x.told)
			for _, d := range told {
				require.True(t, d.Suspicious(), "%+v", d)
			}
		})
	}
}

// TestDraftsOfOtherStorage: drafts change no token where caches have 8 bits and recurrent state has bf16.
func TestDraftsOfOtherStorage(t *testing.T) {
	for _, d := range draftedModels[3:] {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			o := batch.RaggedOptions{Rows: 24, Sequences: 8, BlockRows: 4}
			o.Storage = ragged.Storage{Q8: true, HalfState: d.kind == speculate.MultiToken}
			o.Engine.Deterministic = true // a code of 8 bits on a tie would follow from who shares the call
			b := batch.Options{Queue: 9, Budget: 1 << 40, Prefix: 1 << 40}
			plain := d.runner(t, cpu.Engine{}, o, b)
			requests := mixedRequests(200, 8)
			for _, prompt := range knownPrompts(t, d.base) {
				requests = append(requests, batch.Request{Prompt: prompt, MaxTokens: 20, Logprobs: -1,
					Sampling: batch.Sampling{TopP: 1}})
			}
			want := answer(t, plain, requests, nil)
			b.Drafting = batch.Drafting{Most: 3, Fixed: true}
			r := d.runner(t, cpu.Engine{}, o, b)
			compareAnswers(t, want, answer(t, r, requests, nil), nil, true, d.name)
			require.Positive(t, r.Stats().Drafts.Accepted)
		})
	}
}
