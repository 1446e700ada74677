package calibrate_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// TestDamage holds the damage of each weight to the divergence of the module in which it alone is quantized.
func TestDamage(t *testing.T) {
	for _, name := range []string{"gemma4-chat", "qwen35moe-chat"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "gemma4-chat" {
				t.Skip("takes some seconds")
			}
			_, held := windows(t, name)
			held = held[:2]
			m := prepared(t, name)
			best := &quantize.Scheme{Method: quantize.Best, Bits: 4, GroupSize: 32}
			measure := func(jobs int) map[string]float64 {
				damage, err := calibrate.Damage(context.Background(), m,
					calibrate.DamageOptions{Windows: held, Jobs: jobs,
						Scheme: func(name string, cols int) *quantize.Scheme {
							if strings.HasPrefix(name, "layers.1.") {
								return nil
							}
							return best
						}})
				require.NoError(t, err)
				return damage
			}
			damage := measure(1)
			require.Equal(t, damage, measure(3))
			require.Greater(t, len(damage), 4)
			for weight, d := range damage {
				require.NotContains(t, weight, "layers.1.")
				if testing.Short() && !strings.HasPrefix(weight, "layers.0.") {
					continue
				}
				alone := passes.Recipe{Rules: []passes.Rule{{Kind: passes.LinearWeight, Pattern: weight, Scheme: best}}}
				q, err := calibrate.Evaluate(context.Background(), m, roundedWeights{recipe: alone},
					calibrate.Evaluation{Windows: held})
				require.NoError(t, err)
				require.Equal(t, q.Mean, d, weight)
				require.Positive(t, d, weight)
			}
		})
	}
}

func TestDamageRefuses(t *testing.T) {
	m := prepared(t, "gemma4-chat")
	none := func(string, int) *quantize.Scheme { return nil }
	_, err := calibrate.Damage(context.Background(), m, calibrate.DamageOptions{Scheme: none})
	require.ErrorContains(t, err, "at least one window")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = calibrate.Damage(ctx, m, calibrate.DamageOptions{Windows: [][]int{{1, 2}}, Scheme: none})
	require.ErrorIs(t, err, context.Canceled)
}
