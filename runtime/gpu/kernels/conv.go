package kernels

import (
	"errors"
	"fmt"
)

// Reset says when a state is taken as zeros.
type Reset int

// A state is never reset, or where the first element of the buffer reset is true, or where the first token is at
// position 0.
const (
	NoReset Reset = iota
	ResetFlag
	ResetAtStart
)

// set reports whether the state is reset, for reference implementations.
func (r Reset) set(flag bool, position int) bool {
	return r == ResetFlag && flag || r == ResetAtStart && position == 0
}

// Conv is a causal depthwise convolution over the last Taps tokens. A state has the rows of the tokens before: y[t] =
// activation(Σ_j w[c, j]·s[t+1+j]), where s is the rows of the state followed by those of x. The last Taps rows of s
// become the new state.
type Conv struct {
	Channels, Taps int
	// Token is the distance in elements of x from one token to the next.
	Token int
	// SiLU says that the activation is SiLU; else there is none.
	SiLU bool
	// State is the dtype of the state, whose shape is [Taps, Channels], or [Channels, Taps] with ChannelFirst.
	State        DType
	ChannelFirst bool
	Weight       DType
	Reset        Reset
}

// convTokens is the number of tokens that a thread of conv_tokens computes.
const convTokens = 16

func (c Conv) check() error {
	if c.Channels <= 0 || c.Taps <= 0 || c.Taps > 32 {
		return fmt.Errorf("convolution of %d channels over %d tokens, want 1 to 32 tokens", c.Channels, c.Taps)
	}
	if err := errors.Join(needFloat("the state", c.State), needFloat("the weight", c.Weight)); err != nil {
		return fmt.Errorf("convolution: %w", err)
	}
	return nil
}

func (c Conv) defines() []Define {
	return define("CONV_CHANNELS", c.Channels, "CONV_TAPS", c.Taps, "CONV_X_TOKEN", c.Token,
		"CONV_CHANNEL_FIRST", c.ChannelFirst,
		"CONV_SILU", c.SiLU, "CONV_RESET", int(c.Reset), "CONV_TOKENS", convTokens, "CONV_STATE_T", c.State.text(),
		"CONV_WEIGHT_T", c.Weight.text())
}

func (c Conv) launch(kernel string, groups int) (Launch, error) {
	if err := c.check(); err != nil {
		return Launch{}, err
	}
	return Launch{
		File: "conv", Kernel: kernel, Defines: c.defines(),
		Groups: [3]int{ceil(c.Channels, 128), groups, 1}, Threads: [3]int{128, 1, 1},
	}, nil
}

// StepLaunch is the dispatch for few tokens. It takes ConvStepArguments: W [Channels, Taps], Reset bool [1],
// Y f32 [T, Channels], and Next, the state after the last token, which may be State itself.
func (c Conv) StepLaunch() (Launch, error) {
	l, err := c.launch("conv_step", 1)
	l.Case = func(s Sizes) *Case { return c.newCase(s, false) }
	return l, err
}

// Launches are the dispatches for up to tokens tokens: the outputs, and then the state. They take ConvTokensArguments
// and ConvStateArguments, as StepLaunch has them.
func (c Conv) Launches(tokens int) (outputs, state Launch, err error) {
	if outputs, err = c.launch("conv_tokens", ceil(tokens, convTokens)); err == nil {
		state, err = c.launch("conv_state", 1)
		state.Case = func(s Sizes) *Case { return c.newCase(s, true) }
	}
	return outputs, state, err
}

// Reference computes what the launches compute.
func (c Conv) Reference(tokens, position int, x, w []float32, reset bool, state, y []float32) {
	at := func(row, channel int) int {
		if c.ChannelFirst {
			return channel*c.Taps + row
		}
		return row*c.Channels + channel
	}
	rows := make([]float32, c.Taps+tokens)
	for channel := range c.Channels {
		for j := range c.Taps {
			if rows[j] = state[at(j, channel)]; c.Reset.set(reset, position) {
				rows[j] = 0
			}
		}
		for t := range tokens {
			rows[c.Taps+t] = x[t*c.Token+channel]
		}
		for t := range tokens {
			var sum float64
			for j := range c.Taps {
				sum += float64(w[channel*c.Taps+j]) * float64(rows[t+1+j])
			}
			if c.SiLU {
				sum = SiLU.of(sum)
			}
			y[t*c.Channels+channel] = float32(sum)
		}
		for j := range c.Taps {
			state[at(j, channel)] = c.State.store(rows[tokens+j])
		}
	}
}
