package gpu

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// TestPositions: attention is measured near the start of the context and in its middle, or where a window is full, and
// never where a cache has no row for its last token.
func TestPositions(t *testing.T) {
	for name, c := range map[string]struct {
		slots, window, tokens int
		want                  []int
	}{
		"a token": {4096, 0, 1, []int{64, 64, 64, 64, 512, 512, 512, 512, 2048}},
		"a token, a long context": {262144, 0, 1,
			[]int{64, 64, 64, 64, 512, 512, 512, 512, 4096, 4096, 32768}},
		"a token, twice the default context": {8192, 0, 1, []int{64, 64, 64, 64, 512, 512, 512, 512, 4096}},
		"a token, a context of some pages": {36864, 0, 1,
			[]int{64, 64, 64, 64, 512, 512, 512, 512, 4096, 4096, 18432}},
		"a token, a short context":               {600, 0, 1, []int{64, 64, 64, 64, 300}},
		"a token, a tiny context":                {100, 0, 1, []int{50}},
		"a token, one slot":                      {1, 0, 1, []int{0}},
		"a token, a window":                      {1280, 1024, 1, []int{64, 64, 64, 64, 512, 512, 512, 512, 1024}},
		"a token, a window of all":               {1024, 1024, 1, []int{64, 64, 64, 64, 512, 512, 512, 512, 1023}},
		"a token, a window behind which is more": {4096, 1024, 1, []int{64, 64, 64, 64, 512, 512, 512, 512, 1024}},
		"a chunk":                                {4096, 0, 512, []int{0, 2048}},
		"a chunk, a long context":                {262144, 0, 1024, []int{0, 4096}},
		"a chunk, a window":                      {1280, 1024, 256, []int{0, 1024}},
		"a chunk of most of the context":         {1024, 0, 1000, []int{0, 24}},
		"a chunk of all the context":             {1024, 0, 1024, []int{0}},
	} {
		a := kernels.Attention{Slots: c.slots, Window: c.window}
		require.Equal(t, c.want, positionsOf(a, c.tokens), name)
		step := atPositions(operand{size: 8}, a, c.tokens)
		require.Equal(t, c.want, step.synthetic.positions, name)
		for i := range 2 * len(c.want) {
			content := step.synthetic.content(i)
			require.Len(t, content, step.size)
			require.EqualValues(t, c.tokens, binary.LittleEndian.Uint32(content))
			require.EqualValues(t, c.want[i%len(c.want)], binary.LittleEndian.Uint32(content[4:]))
		}
	}
}

// TestPartOf: the first launch of attention in another way divides positions into as many blocks as the second one,
// which stays, expects, and comes with the self-test of both.
func TestPartOf(t *testing.T) {
	a := kernels.Attention{D: 64, Heads: 4, KVHeads: 2, Slots: 1024, Scale: 1, Cache: kernels.BF16,
		Tuning: kernels.AttentionTuning{Heads: 2, Tokens: 1, Keys: 4, Blocks: 16, Least: 64, Simdgroups: 4}}
	variant := a.Tuning
	variant.Simdgroups = 8
	l, err := lower.PartOf(a, variant, 1)
	require.NoError(t, err)
	require.Equal(t, 8*32, l.Threads[0])
	require.NotNil(t, l.Case)
	variant.Blocks = 8
	_, err = lower.PartOf(a, variant, 1)
	require.EqualError(t, err, "8 blocks of 64 positions or more, want 16 of 64")
	variant.Blocks, variant.Least = 16, 32
	_, err = lower.PartOf(a, variant, 1)
	require.EqualError(t, err, "16 blocks of 32 positions or more, want 16 of 64")
}
