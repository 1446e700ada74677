package execution_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/runtime/session"
)

// TestBudget: running answers have a state each, prefixes as much, or as much as 16 states and 2 GiB hold.
func TestBudget(t *testing.T) {
	const mib = 1 << 20
	// A state of 150 MiB, 50 of which do not grow with the context of 100 positions.
	small := session.Memory{Weights: 1000 * mib, State: 150 * mib, Position: mib}
	large := session.Memory{Weights: 1000 * mib, State: 1500 * mib}
	for name, c := range map[string]struct {
		need            session.Memory
		answers, drafts int
		available, want int64
	}{
		"many answers":            {small, 20, 0, 0, 40 * 150 * mib},
		"one answer, 2 GiB":       {small, 1, 0, 0, 150*mib + 2048*mib},
		"one answer, 16 states":   {session.Memory{State: mib}, 1, 0, 0, 17 * mib},
		"one answer, large state": {large, 1, 0, 0, 1500*mib + 2048*mib},
		"two of a large state":    {large, 2, 0, 0, 4 * 1500 * mib},
		"drafts":                  {small, 20, 3, 0, 40*150*mib + 4*20*50*mib},
		"half of what is left":    {small, 20, 0, 3000 * mib, 1000 * mib},
		"two states in any case":  {small, 1, 0, 1400 * mib, 300 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			f := execution.Fit{File: "m.pte", Need: c.need, Context: 100}
			got, err := f.Budget(c.answers, c.drafts, c.available)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := execution.Fit{File: "m.pte", Need: small, Context: 100}.Budget(1, 0, 1100*mib)
	require.ErrorIs(t, err, kind.ErrMemory)
}
