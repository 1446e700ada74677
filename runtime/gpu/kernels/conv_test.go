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
		"rows first":     {Channels: 200, Taps: 4, Token: 230, SiLU: true, State: kernels.BF16, Weight: kernels.BF16, Reset: kernels.ResetFlag},
		"channels first": {Channels: 130, Taps: 3, Token: 130, State: kernels.F32, ChannelFirst: true, Weight: kernels.F32, Reset: kernels.ResetAtStart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, run := range []struct {
				tokens, position int
				reset, many      bool
				elsewhere        bool // the state after is written there
			}{{1, 9, false, false, false}, {2, 0, true, false, false}, {3, 9, false, false, true}, {1, 0, true, false, true}, {1, 4, false, true, false}, {35, 7, false, true, false}, {2, 0, true, true, false}} {
				r := seeded(uint64(run.tokens))
				capacity := run.tokens + 20
				x, w, state := r.floats(run.tokens*c.Token), r.floats(c.Channels*c.Taps), r.floats(c.Channels*c.Taps)
				weight, got := hold(c.Weight, w), hold(c.State, state)
				next := got
				if run.elsewhere {
					next = hold(c.State, blank(len(state)))
				}
				before := got.floats()
				want, y := blank(capacity*c.Channels), blank(capacity*c.Channels)
				c.Twin(run.tokens, run.position, x, w, run.reset, state, want)
				step := []int32{int32(run.tokens), int32(run.position)}
				if run.many {
					outputs, last, err := c.Launches(capacity)
					require.NoError(t, err)
					kerneltest.Run(t, outputs, kernels.ConvTokensArguments[any]{X: x, W: weight.bytes, Reset: flag(run.reset), State: got.bytes, Y: y, Step: step})
					kerneltest.Run(t, last, kernels.ConvStateArguments[any]{X: x, Reset: flag(run.reset), State: got.bytes, Step: step})
				} else {
					l, err := c.StepLaunch()
					require.NoError(t, err)
					kerneltest.Run(t, l, kernels.ConvStepArguments[any]{X: x, W: weight.bytes, Reset: flag(run.reset), State: got.bytes, Y: y, Next: next.bytes, Step: step})
				}
				requireClose(t, want[:run.tokens*c.Channels], y[:run.tokens*c.Channels], 1e-6)
				requireBlank(t, y[run.tokens*c.Channels:])
				require.Equal(t, state, next.floats())
				if run.elsewhere {
					require.Equal(t, before, got.floats())
				}
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
