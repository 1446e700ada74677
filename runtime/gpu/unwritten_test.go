package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnwritten: a state may be read early until a step of the plan writes it, or something that is deferred will; a step that was taken
// back writes nothing.
func TestUnwritten(t *testing.T) {
	b := &binder{plan: &plan{}, writers: map[*slot]int{}}
	read, state, result := &slot{}, &slot{}, &value{slot: &slot{}}
	b.add(step{operands: []operand{whole(read), {slot: state}}})
	require.True(t, b.unwritten(read, state))
	b.add(step{operands: []operand{whole(read), {slot: state, write: true}}})
	require.True(t, b.unwritten(read))
	require.False(t, b.unwritten(state))
	require.False(t, b.unwritten(read, state))

	sum := &normedSum{sumOf: &sumOf{x: result, residual: result, pre: &normOf{weight: result}}, after: &normOf{out: result}}
	b.add(step{operands: []operand{{slot: read, write: true}, {slot: state, write: true}}})
	require.False(t, b.unwritten(read))
	sum.takeBack(b)
	require.True(t, b.unwritten(read))
	require.False(t, b.unwritten(state), "the step before writes it")

	read.pending = sum
	require.False(t, b.unwritten(read))
}
