package session

import (
	"math"
	"math/bits"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Memory is the memory of a language model program while it runs, in bytes. Short-lived memory of a call is not
// included.
type Memory struct {
	// Weights are the constants as the file holds them. They are read in place, for every token.
	Weights int64
	// State is the state of one session: caches, and the state of recurrent layers. An engine that pipelines calls
	// (engine.Pipelined) keeps the latter twice, if there is memory for it; that is not counted. With a form of its own
	// (runtime/single) it is always kept twice there.
	State int64
	// Position is the part of State that each position of the context takes.
	Position int64
}

// MeasureMemory returns the memory of a program whose context has maxSeqLen positions. FP32 keeps the float buffers in
// float32, the other precisions in their declared dtypes.
func MeasureMemory(m *ir.Module, maxSeqLen int, p eval.Precision) Memory {
	return measure(m, maxSeqLen, ir.DType.Size, func(d ir.DType) int { return eval.StateDType(d, p).Size() })
}

// MeasureDecoded is MeasureMemory for what runs the operations of the graph as they stand, as the reference engine
// does: it keeps constants and buffers as tensors of float32 or int64.
func MeasureDecoded(m *ir.Module, maxSeqLen int) Memory {
	decoded := func(d ir.DType) int {
		if d.IsFloat() {
			return ir.F32.Size()
		}
		return ir.I64.Size()
	}
	return measure(m, maxSeqLen, decoded, decoded)
}

// measure returns the memory of a program. constant and buffer return the size of an element of a dtype in constants
// and in buffers.
func measure(m *ir.Module, maxSeqLen int, constant, buffer func(ir.DType) int) Memory {
	var out Memory
	for _, c := range m.Constants {
		if c.Data != nil {
			out.Weights = add(out.Weights, size(c.Data.Shape(), constant(c.Data.DType())))
		}
	}
	bytes := func(b *ir.Buffer) int64 {
		dims, _ := b.Type.Static()
		return size(dims, buffer(b.Type.DType))
	}
	for _, b := range m.Buffers {
		out.State = add(out.State, bytes(b))
	}
	for _, b := range positionBuffers(m) {
		if b.slots == int64(maxSeqLen) && b.slots > 0 {
			out.Position = add(out.Position, bytes(b.buffer)/b.slots)
		}
	}
	return out
}

// Need returns the memory for a number of sessions.
func (m Memory) Need(sessions int) int64 {
	return add(m.Weights, multiply(m.State, int64(sessions)))
}

// Within returns the memory of the same program for sessions that use only positions of its maxSeqLen positions, on an
// engine where a session allocates only what it uses.
func (m Memory) Within(maxSeqLen, positions int) Memory {
	m.State -= multiply(m.Position, int64(max(maxSeqLen-positions, 0)))
	return m
}

// Longest returns the longest context with which the program would fit: 0 where none does.
func (m Memory) Longest(maxSeqLen, sessions int, available int64) int {
	if m.Need(sessions) <= available {
		return maxSeqLen
	}
	fixed := m.State - multiply(m.Position, int64(maxSeqLen))
	room := (available-m.Weights)/int64(sessions) - fixed
	if m.Position == 0 || fixed < 0 || room < m.Position {
		return 0
	}
	return int(min(room/m.Position, int64(maxSeqLen)))
}

// size returns the number of elements of a shape times the size of one.
func size(dims []int64, element int) int64 {
	n := int64(element)
	for _, d := range dims {
		n = multiply(n, max(d, 0))
	}
	return n
}

// multiply returns a product of numbers that are not negative; it stops at the largest int64.
func multiply(a, b int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// add returns a sum of numbers that are not negative; it stops at the largest int64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
