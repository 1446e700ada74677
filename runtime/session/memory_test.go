package session_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/session"
)

// Caches take as much as the context is long, what recurrent layers carry does not; fp32 keeps it all in float32.
func TestMeasureMemory(t *testing.T) {
	m := attention(t, session.Logits)
	embedding, square, head := testVocab*width, width*width, testVocab*width
	weights := int64(4 * (embedding + 3*square + head))
	require.Equal(t, session.Memory{Weights: weights, State: 4 * (2*testContext*width + width),
		Position: 4 * 2 * width},
		session.MeasureMemory(m, testContext, eval.Mixed))

	for _, b := range m.Buffers {
		b.Type.DType = ir.BF16
	}
	half := session.Memory{Weights: weights, State: 2 * (2*testContext*width + width), Position: 2 * 2 * width}
	require.Equal(t, half, session.MeasureMemory(m, testContext, eval.Mixed))
	require.Equal(t, half, session.MeasureMemory(m, testContext, eval.Strict))
	require.Equal(t, 2*half.State, session.MeasureMemory(m, testContext, eval.FP32).State)

	// The caches of a program with a longer context are rings, whose size does not depend on it.
	require.Zero(t, session.MeasureMemory(m, 2*testContext, eval.Mixed).Position)
	require.Zero(t, session.MeasureMemory(m, 0, eval.Mixed).Position)

	// A size beyond all numbers stays one.
	m.NewBuffer("vast", ir.StaticType(ir.F32, math.MaxInt32, math.MaxInt32, math.MaxInt32))
	require.EqualValues(t, math.MaxInt64, session.MeasureMemory(m, testContext, eval.Mixed).State)
}

// The longest context that fits is the longest: one position more does not.
func TestLongestContext(t *testing.T) {
	const context = 100
	m := session.Memory{Weights: 1000, State: 50 + 7*context, Position: 7}
	need := func(context, sessions int) int64 {
		return m.Weights + int64(sessions)*(50+7*int64(context))
	}
	for _, sessions := range []int{1, 2, 3} {
		require.Equal(t, need(context, sessions), m.Need(sessions))
		require.Equal(t, context, m.Longest(context, sessions, need(context, sessions)))
		for _, fits := range []int{1, 2, 50, context - 1} {
			require.Equal(t, fits, m.Longest(context, sessions, need(fits, sessions)))
			require.Equal(t, fits, m.Longest(context, sessions, need(fits+1, sessions)-1))
		}
		require.Zero(t, m.Longest(context, sessions, need(1, sessions)-1))
		require.Zero(t, m.Longest(context, sessions, m.Weights))
		require.Zero(t, m.Longest(context, sessions, 0))
	}
	fixed := session.Memory{Weights: 1000, State: 50}
	require.Zero(t, fixed.Longest(context, 1, 1040), "a shorter context does not help a state that has no caches")
	vast := session.Memory{Weights: 1, State: math.MaxInt64, Position: math.MaxInt64 / 2}
	require.Zero(t, vast.Longest(context, 2, 1<<40))
	require.EqualValues(t, math.MaxInt64, vast.Need(2))
}
