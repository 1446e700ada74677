package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// slotCalls are calls of several sequences, of several rows: a row of one, a row of each, long ones, and more than
// half of the table empty.
var slotCalls = []struct{ rows, sequences int }{{1, 1}, {3, 3}, {7, 2}, {12, 4}, {61, 3}, {150, 2}}

func TestSlotConv(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]kernels.SlotConv{
		"rows first": {Conv: kernels.Conv{Channels: 200, Taps: 4, Token: 230, SiLU: true, State: kernels.BF16,
			Weight: kernels.BF16}, Entries: 4},
		"channels first": {Conv: kernels.Conv{Channels: 130, Taps: 3, Token: 130, State: kernels.F32,
			ChannelFirst: true, Weight: kernels.F32},
			Entries: 300},
		"many taps": {Conv: kernels.Conv{Channels: 64, Taps: 20, Token: 64, State: kernels.BF16, Weight: kernels.F32},
			Entries: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, call := range slotCalls {
				t.Run(fmt.Sprintf("%d rows of %d", call.rows, call.sequences), func(t *testing.T) {
					l, err := c.Launch(call.rows + 20)
					require.NoError(t, err)
					kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: call.rows, Capacity: call.rows + 20,
						Sequences: call.sequences}))
				})
			}
		})
	}
}

func TestSlotConvRefusals(t *testing.T) {
	_, err := kernels.SlotConv{Conv: kernels.Conv{Channels: 8, Taps: 0}, Entries: 1}.Launch(3)
	require.EqualError(t, err, "convolution of 8 channels over 0 tokens, want 1 to 32 tokens")
	_, err = kernels.SlotConv{Conv: kernels.Conv{Channels: 8, Taps: 4, State: kernels.BF16,
		Weight: kernels.F32}}.Launch(3)
	require.EqualError(t, err, "a table of 0 sequences, want 1 at least")
}
