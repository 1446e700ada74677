package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/runtime/batch"
)

// TestBatchDefaults: requests begin with what the generation config says, as far as the program can do it; what it
// cannot is named.
func TestBatchDefaults(t *testing.T) {
	config := func(source string) *text {
		s, err := huggingface.ParseSampling("generation_config.json", []byte(source))
		require.NoError(t, err)
		return &text{File: "a.pte", Sampling: s}
	}
	all := `{"temperature": 0.5, "top_k": 3, "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 1.5, "presence_penalty": 2,
		"frequency_penalty": -1}`
	for name, c := range map[string]struct {
		config string
		limits batch.Limits
		want   batch.Sampling
		unused []string
	}{
		"nothing": {config: `{}`, want: batch.Sampling{TopP: 1}},
		"all": {config: all, want: batch.Sampling{Temperature: 0.5, TopK: 3, TopP: 0.75, MinP: 0.25, Repeat: 1.5,
			RepeatLast: -1, Presence: 2, Frequency: -1}},
		"greedy": {config: `{"do_sample": false, "temperature": 2, "min_p": 0.5, "repetition_penalty": 1.5}`,
			want: batch.Sampling{TopP: 1, Repeat: 1.5, RepeatLast: -1}},
		"off": {config: `{"top_k": -1, "top_p": 1, "min_p": 0, "repetition_penalty": 1}`,
			want: batch.Sampling{TopP: 1}},
		"a head that draws": {config: all, limits: batch.Limits{NoLogits: true},
			want:   batch.Sampling{Temperature: 0.5, TopK: 3, TopP: 0.75},
			unused: []string{"repetition_penalty", "presence_penalty", "frequency_penalty", "min_p"}},
		"a head with a temperature": {config: all, limits: batch.Limits{NoLogits: true, NoSeed: true},
			want:   batch.Sampling{Temperature: 0.5, TopP: 1},
			unused: []string{"repetition_penalty", "presence_penalty", "frequency_penalty", "top_p", "min_p", "top_k"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, unused, err := config(c.config).BatchDefaults(c.limits)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.unused, unused)
		})
	}
	_, _, err := config(`{"temperature": 1e300}`).BatchDefaults(batch.Limits{})
	require.ErrorContains(t, err, "a.pte: generation config: Temperature")
}
