package batch_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/synthetic"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/speculate"
)

// TestCentroidDrafts: an assistant with a centroid head, whose rows are not independent of one another, drafts one
// sequence at a time beside other streams what the methods of the file draft that are called one by one, greedy and
// drawn, before and after the end of the window.
func TestCentroidDrafts(t *testing.T) {
	attention := func(kv, head, rotary int, theta float64) huggingface.AttentionGeometry {
		return huggingface.AttentionGeometry{Heads: 4, KVHeads: kv, HeadDim: head, RotaryDim: rotary, RopeTheta: theta}
	}
	c := synthetic.Gemma431B(6) // of the sizes that the assistant was made for
	c.VocabSize, c.HiddenSize, c.IntermediateSize, c.SlidingWindow = 256, 256, 384, 16
	c.Sliding, c.Full = attention(2, 64, 64, 1e4), attention(1, 128, 32, 1e6)
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, synthetic.Generate(target, synthetic.Spec{Config: c, Seed: 3}))
	d := drafted{"centroids", target, "gemma4-ordered-assistant", speculate.Assistant}
	m := d.methods(t)
	for name, e := range map[string]engine.Engine{"cpu": cpu.Engine{}, "reference": reference.Engine{}} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "reference" {
				t.Skip("takes seconds")
			}
			o := batch.RaggedOptions{Rows: 64, Sequences: 3, BlockRows: 4}
			o.Engine.Warn = func(string) {} // device cpu runs the head on reference kernels
			r := d.runner(t, e, o,
				batch.Options{Queue: 9, Budget: 1 << 40, Drafting: batch.Drafting{Most: 3, Fixed: true}})
			var requests []batch.Request
			for i, p := range []batch.Sampling{{TopP: 1}, {Temperature: 0.7, TopP: 0.9, Seed: 11}, {TopP: 1}} {
				q := batch.Request{MaxTokens: 12, Logprobs: -1, Sampling: p, DraftLog: true}
				for j := range []int{5, 9, 30}[i] {
					q.Prompt = append(q.Prompt, (17*i+j*j)%256)
				}
				requests = append(requests, q)
			}
			for i, got := range answer(t, r, requests, nil) {
				q := requests[i]
				chains := m.chains(slices.Concat(q.Prompt, idsOf(got.tokens)), len(q.Prompt), 3,
					batch.Draw{Temperature: q.Sampling.Temperature, TopP: q.Sampling.TopP, Seed: q.Sampling.Seed})
				checkRounds(t, got.end.Rounds, chains, len(q.Prompt), q.MaxTokens)
			}
		})
	}
}
