package batch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// drawing is the reference engine as one that draws where the logits are.
type drawing struct{ reference.Engine }

func (drawing) DrawsOnDevice() bool { return true }

// settings are rows that draw in all ways; the last ones ask for more than an entry of draws gives.
func settings(r *rand.Rand, vocab int) []batch.Row {
	draw := func() *batch.Draw {
		return &batch.Draw{Temperature: 2 * r.Float32(), TopK: int64(r.IntN(30)), TopP: 0.5 + r.Float32()/2,
			MinP: r.Float32() / 20, Seed: r.Int64()}
	}
	list := func() (out []batch.Adjustment) {
		for i := range r.IntN(20) {
			out = append(out, batch.Adjustment{Token: int32(i * 7 % vocab), Bias: r.Float32() - 0.5,
				Repeats: r.IntN(2) == 0, Answered: r.IntN(3)})
		}
		return append(out, batch.Adjustment{Token: int32(vocab + 5), Bias: 3},
			batch.Adjustment{Token: int32(vocab - 1), Bias: float32(math.Inf(-1))})
	}
	mask := make([]uint64, (vocab+63)/64)
	for i := range mask {
		mask[i] = r.Uint64()
	}
	masked, all := func() []uint64 { return mask }, func() []uint64 { return nil }
	return []batch.Row{
		{}, {Draw: draw()}, {Draw: &batch.Draw{TopP: 1}}, {Draw: draw(), Logprobs: true, Top: 5},
		{Draw: draw(), Logprobs: true},
		{Draw: draw(), Adjust: &batch.Adjust{List: list(), Repeat: 1.5, Presence: 0.2, Frequency: 0.1}},
		{Draw: draw(), Adjust: &batch.Adjust{Repeat: 1, Mask: masked}, Logprobs: true, Top: 3},
		{Draw: draw(), Adjust: &batch.Adjust{List: list(), Repeat: 1, Frequency: 0.5, Mask: all}},
		{Draw: draw(), Adjust: &batch.Adjust{List: list(), Repeat: 0.7, Mask: masked}},
		{Draw: draw(), Logprobs: true, Top: 30},
		{Draw: draw(), Logits: true, Adjust: &batch.Adjust{List: list(), Repeat: 2}},
	}
}

// requireDrawn feeds the same to two pools, rows with settings of all kinds, and requires the same of them.
func requireDrawn(t *testing.T, want, got *batch.Pool, rounds int) {
	t.Helper()
	vocab := want.Limits().Vocab
	r := rand.New(rand.NewPCG(3, 9))
	var sequences [2][]*batch.Sequence
	for i, p := range []*batch.Pool{want, got} {
		for range 3 {
			sequences[i] = append(sequences[i], p.Open())
		}
	}
	for range rounds {
		rows := settings(r, vocab)
		if r.IntN(2) == 0 {
			rows = rows[:9] // none that needs logits
		}
		if r.IntN(3) == 0 {
			rows = rows[:3] // plain ones
		}
		var feeds [2][]batch.Feed
		for s := range 3 {
			n := 1 + r.IntN(4)
			var asked []batch.Row
			for range r.IntN(n + 1) {
				asked = append(asked, rows[r.IntN(len(rows))])
			}
			for i := range feeds {
				feeds[i] = append(feeds[i],
					batch.Feed{Sequence: sequences[i][s], Tokens: ids(s, 99)[sequences[i][s].Position():][:n],
						Rows: slices.Clone(asked)})
			}
		}
		expected, err := want.Feed(t.Context(), feeds[0]...)
		require.NoError(t, err)
		given, err := got.Feed(t.Context(), feeds[1]...)
		require.NoError(t, err)
		for s := range expected {
			for i, e := range expected[s] {
				g := given[s][i]
				require.Equal(t, e.Token, g.Token, "%+v", feeds[0][s].Rows[i])
				require.Equal(t, len(e.Logits), len(g.Logits))
				require.InDelta(t, e.Logprob, g.Logprob, 1e-3)
				require.Len(t, g.Top, len(e.Top))
				for j, l := range e.Top {
					require.InDelta(t, l.Logprob, g.Top[j].Logprob, 1e-3)
				}
			}
		}
	}
	for i := range sequences {
		for _, s := range sequences[i] {
			s.Close()
		}
	}
}

// TestDrawnWhereLogitsAre: an engine that draws where the logits are gives the tokens and logprobs that the host draws.
func TestDrawnWhereLogitsAre(t *testing.T) {
	t.Parallel()
	name := "gemma4-chat-bf16-ropefix"
	m := fusetest.Load(t, name)
	o := batch.RaggedOptions{Rows: 16, Sequences: 3, BlockRows: 4}
	pools := make([]*batch.Pool, 2)
	for i, e := range []engine.Engine{reference.Engine{}, drawing{}} {
		pools[i] = newPool(t, m, e, eval.FP32, o)
	}
	requireDrawn(t, pools[0], pools[1], 12)
	made, err := batch.RaggedModule(m, drawing{}, o)
	require.NoError(t, err)
	require.NotNil(t, made.Named("draw"))
	require.NotNil(t, made.Named("sample"))
	made, err = batch.RaggedModule(m, reference.Engine{}, o)
	require.NoError(t, err)
	require.Nil(t, made.Named("draw"))
}

// onHost is the CPU engine as one whose tokens the host draws.
type onHost struct{ cpu.Engine }

func (onHost) DrawsOnDevice() bool { return false }

// TestDrawnOnCPU: the kernels of the CPU engine give what the host draws from the engine's logits.
func TestDrawnOnCPU(t *testing.T) {
	t.Parallel()
	for name, precision := range map[string]eval.Precision{"etc-gemma4-chat-sample": eval.Mixed,
		"neighbours/qwen35-4w": eval.FP32} {
		m := fusetest.Load(t, name)
		o := batch.RaggedOptions{Rows: 16, Sequences: 3, BlockRows: 4}
		requireDrawn(t, newPool(t, m, onHost{}, precision, o), newPool(t, m, cpu.Engine{}, precision, o), 12)
	}
}
