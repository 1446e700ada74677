package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestSlotDelta(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]kernels.SlotDelta{
		"groups, strides": {Delta: kernels.Delta{DK: 64, DV: 12, KHeads: 2, Heads: 4, QToken: 300, KToken: 300,
			VToken: 300, GToken: 9, State: kernels.F32}, Entries: 4},
		"norm and gates": {Delta: kernels.Delta{DK: 128, DV: 20, KHeads: 1, Heads: 2, State: kernels.BF16,
			Norm: kernels.BF16, Eps: 1e-6, Gates: kernels.F32, Rows: 2},
			Entries: 140},
		"many sequences": {Delta: kernels.Delta{DK: 64, DV: 36, KHeads: 1, Heads: 2, State: kernels.F32, Norm: kernels.F32,
			Eps: 1e-6, Gates: kernels.F32}, Entries: 40},
		"narrow keys, early": {Delta: kernels.Delta{DK: 32, DV: 9, KHeads: 1, Heads: 2, State: kernels.F32,
			Early: true, Gates: kernels.F32}, Entries: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, call := range slotCalls {
				t.Run(fmt.Sprintf("%d rows of %d", call.rows, call.sequences), func(t *testing.T) {
					l, err := d.StepLaunch(call.rows + 20)
					require.NoError(t, err)
					kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: call.rows, Capacity: call.rows + 20,
						Sequences: call.sequences}))
				})
			}
			t.Run("the only row", func(t *testing.T) {
				l, err := d.StepLaunch(1)
				require.NoError(t, err)
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 1, Capacity: 1}))
			})
		})
	}
}

// TestSlotDeltaChunks: calls of sequences with few rows and with many give what the rule gives token by token, the
// states behind rows in the middle of chunks among it.
func TestSlotDeltaChunks(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]kernels.SlotDelta{
		"32 tokens": {Delta: kernels.Delta{DK: 64, DV: 32, KHeads: 1, Heads: 2, QToken: 300, KToken: 300, VToken: 300,
			GToken: 9, State: kernels.F32}, Entries: 5,
			Most: 8},
		"64 tokens": {Delta: kernels.Delta{DK: 32, DV: 16, KHeads: 2, Heads: 2, State: kernels.F32,
			Length: 64, Columns: 8}, Entries: 300, Most: 8},
		"all in chunks": {Delta: kernels.Delta{DK: 96, DV: 16, KHeads: 1, Heads: 1, State: kernels.F32,
			Buffers: 2}, Entries: 3, Most: 1},
		"32 columns, 2 parts": {Delta: kernels.Delta{DK: 128, DV: 64, KHeads: 1, Heads: 1, State: kernels.F32,
			Columns: 32, Parts: 2}, Entries: 4, Most: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Of 66 rows and of 134 some leave a state behind the last row of a chunk that is not the last one.
			for _, call := range []struct{ rows, sequences int }{{9, 1}, {40, 40}, {61, 3}, {66, 1}, {134, 1}, {170,
				5}} {
				t.Run(fmt.Sprintf("%d rows of %d", call.rows, call.sequences), func(t *testing.T) {
					oneOfThree(t)
					_, l, err := d.Launches(call.rows + 20)
					require.NoError(t, err)
					kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: call.rows, Capacity: call.rows + 20,
						Sequences: call.sequences}))
				})
			}
		})
	}
}

func TestSlotDeltaRefusals(t *testing.T) {
	ok := kernels.SlotDelta{Delta: kernels.Delta{DK: 64, DV: 32, KHeads: 1, Heads: 2, State: kernels.F32}, Entries: 3}
	rounded, none, odd := ok, ok, ok
	rounded.State, none.Entries, odd.KToken = kernels.BF16, 0, 66
	for want, d := range map[string]kernels.SlotDelta{
		"delta rule in chunks with a state in bf16 in slots, want f32":                        rounded,
		"a table of 0 sequences, want 1 at least":                                             none,
		"delta rule with q and k 64 and 66 elements from token to token, want multiples of 4": odd,
	} {
		_, _, err := d.Launches(40)
		require.EqualError(t, err, want)
		if _, err = d.StepLaunch(40); d.State == kernels.F32 {
			require.EqualError(t, err, want)
		}
	}
}
