package calibrate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// roundedWeights are a checkpoint's weights after quantization by a recipe, nil for none. A weight with the name gone
// is not there, and one with the name zeros is nothing but zeros.
type roundedWeights struct {
	recipe      passes.Recipe
	gone, zeros string
}

func (x roundedWeights) Rows(c *ir.Constant, kind passes.WeightKind) (calibrate.Rows, error) {
	if c.Name == x.gone {
		return nil, fmt.Errorf("there is no weight %s", c.Name)
	}
	shape := c.Data.Shape()
	cols := int(shape[len(shape)-1])
	scheme := x.recipe.Scheme(kind, c.Name)
	return func(first, n int) (dot.Matrix, error) {
		raw, values := make([]byte, 2*n*cols), make([]float32, n*cols)
		if _, err := c.Data.ReadAt(raw, int64(2*first*cols)); err != nil {
			return dot.Matrix{}, err
		}
		quantize.BF16.Decode(values, raw)
		if scheme == nil {
			return dot.Dense(values, n, cols), nil
		}
		var r quantize.Result
		if err := quantize.Quantize(&r, values, n, cols, *scheme); err != nil {
			return dot.Matrix{}, err
		}
		return dot.Dense(values, n, cols), r.Dequantize(values)
	}, nil
}

func (x roundedWeights) Constant(c *ir.Constant) ir.Data {
	if c.Name != x.zeros {
		return nil
	}
	return ir.Bytes(c.Data.DType(), c.Data.Shape(), make([]byte, ir.DataSize(c.Data)))
}

// TestEvaluate holds an evaluation of weights to the quality that a calibration finds of the same ones, and the
// checkpoint's own weights to no divergence at all.
func TestEvaluate(t *testing.T) {
	for _, name := range []string{"gemma4-chat", "qwen35moe-chat"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "gemma4-chat" {
				t.Skip("takes some seconds")
			}
			text, held := windows(t, name)
			held = held[:2]
			m := prepared(t, name)
			evaluate := func(source calibrate.Source, jobs int) *calibrate.Quality {
				q, err := calibrate.Evaluate(context.Background(), m, source,
					calibrate.Evaluation{Windows: held, Jobs: jobs})
				require.NoError(t, err)
				return q
			}
			r, err := calibrate.Run(context.Background(), m,
				calibrate.Options{Windows: text[:1], HeldOut: held, Recipe: scheme(quantize.Best), Dir: t.TempDir()})
			require.NoError(t, err)
			require.NoError(t, r.Close())
			require.Positive(t, r.Quality.Mean)
			require.Equal(t, r.Quality, evaluate(roundedWeights{recipe: scheme(quantize.Best)}, 1))
			require.Equal(t, r.Quality, evaluate(roundedWeights{recipe: scheme(quantize.Best)}, 3))

			same := evaluate(roundedWeights{}, 0)
			require.Equal(t, 0.0, same.Mean)
			require.Equal(t, 1.0, same.Top1)
			require.Equal(t, same.Reference, same.Perplexity)
			require.Equal(t, r.Quality.Reference, same.Reference)
			require.Greater(t, evaluate(roundedWeights{zeros: "norm.weight"}, 0).Mean, 1.0,
				"constants are those of the source")
		})
	}
}

func TestEvaluateRefuses(t *testing.T) {
	m := prepared(t, "gemma4-chat")
	one := calibrate.Evaluation{Windows: [][]int{{1, 2, 3}}}
	_, err := calibrate.Evaluate(context.Background(), m, roundedWeights{}, calibrate.Evaluation{})
	require.ErrorContains(t, err, "at least one window")
	_, err = calibrate.Evaluate(context.Background(), m, roundedWeights{}, calibrate.Evaluation{Windows: [][]int{{}}})
	require.ErrorContains(t, err, "without tokens")
	_, err = calibrate.Evaluate(context.Background(), m, roundedWeights{gone: "layers.1.mlp.down_proj.weight"}, one)
	require.ErrorContains(t, err, "there is no weight layers.1.mlp.down_proj.weight")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = calibrate.Evaluate(ctx, m, roundedWeights{}, one)
	require.ErrorIs(t, err, context.Canceled)
}
