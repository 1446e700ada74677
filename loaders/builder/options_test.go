package builder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	wide, sliding := Limits{Positions: 8192, Chunk: 1024}, Limits{Positions: 8192, Chunk: 256, Window: 100}
	tests := []struct {
		name       string
		options    Options
		limits     Limits
		seq, chunk int
		err        string
	}{
		{"defaults", Options{}, wide, 4096, 1024, ""},
		{"fewer positions", Options{}, Limits{Positions: 512, Chunk: 1024}, 512, 511, ""},
		{"positions unknown", Options{MaxSeqLen: 1 << 20}, Limits{Chunk: 1024}, 1 << 20, 1024, ""},
		{"window", Options{}, sliding, 4096, 100, ""},
		{"window beyond the sequence", Options{MaxSeqLen: 50}, sliding, 50, 49, ""},
		{"wide window", Options{}, Limits{Chunk: 256, Window: 1024}, 4096, 256, ""},
		{"chunk", Options{MaxPrefillChunk: 2000}, wide, 4096, 2000, ""},
		{"largest chunk", Options{MaxSeqLen: 16, MaxPrefillChunk: 15}, wide, 16, 15, ""},
		{"smallest", Options{MaxSeqLen: 2}, wide, 2, 1, ""},
		{"too long", Options{MaxSeqLen: 8193}, wide, 0, 0,
			"max_seq_len: expected 2 to 8192, the positions that the model was made for, found 8193"},
		{"too short", Options{MaxSeqLen: 1}, wide, 0, 0, "max_seq_len: expected 2 to 8192"},
		{"negative", Options{MaxSeqLen: -1}, wide, 0, 0, "found -1"},
		{"beyond 32 bits", Options{MaxSeqLen: 1<<30 + 1}, Limits{Chunk: 1}, 0, 0,
			"max_seq_len: expected 2 to 1073741824, which positions in 32 bits allow, found 1073741825"},
		{"chunk as long as the sequence", Options{MaxSeqLen: 16, MaxPrefillChunk: 16}, wide, 16, 16, ""},
		{"chunk longer than the sequence", Options{MaxSeqLen: 16, MaxPrefillChunk: 17}, wide, 0, 0,
			"max_prefill_chunk: expected 1 to 16, max_seq_len, found 17"},
		{"chunk beyond the window", Options{MaxPrefillChunk: 101}, sliding, 0, 0,
			"max_prefill_chunk: expected 1 to 100, the window of the sliding layers, whose cache a longer chunk would overrun, found 101"},
		{"negative chunk", Options{MaxPrefillChunk: -1}, wide, 0, 0, "max_prefill_chunk: expected 1 to 4096"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o, err := test.options.resolve(test.limits)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, Options{test.seq, test.chunk, false}, o)
		})
	}
}
