package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// flag is a bool of a buffer.
func flag(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

func TestConv(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]kernels.Conv{
		"rows first": {Channels: 200, Taps: 4, Token: 230, SiLU: true, State: kernels.BF16, Weight: kernels.BF16,
			Reset: kernels.ResetFlag},
		"channels first": {Channels: 130, Taps: 3, Token: 130, State: kernels.F32, ChannelFirst: true,
			Weight: kernels.F32, Reset: kernels.ResetAtStart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, run := range []struct {
				tokens, position int
				reset, many      bool
				elsewhere        bool // the state after is written there
			}{{1, 9, false, false, false}, {2, 0, true, false, false}, {3, 9, false, false, true},
				{1, 0, true, false, true}, {1, 4, false, true, false}, {35, 7, false, true, false},
				{2, 0, true, true, false}} {
				l, err := c.StepLaunch()
				if run.many {
					_, l, err = c.Launches(run.tokens + 20)
				}
				require.NoError(t, err)
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: run.tokens, Capacity: run.tokens + 20,
					Position: run.position, Reset: run.reset, Elsewhere: run.elsewhere}))
			}
		})
	}
}

func TestConvRefusals(t *testing.T) {
	_, err := kernels.Conv{Channels: 8, Taps: 0}.StepLaunch()
	require.EqualError(t, err, "convolution of 8 channels over 0 tokens, want 1 to 32 tokens")
	_, _, err = kernels.Conv{Channels: 8, Taps: 4, State: kernels.BF16, Weight: kernels.Bool}.Launches(3)
	require.EqualError(t, err, "convolution: the weight is bool, want f32 or bf16")
}
