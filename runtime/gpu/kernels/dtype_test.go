package kernels_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// held is a buffer of floats as a kernel has it: numbers of a dtype.
type held struct {
	dtype kernels.DType
	bytes any // []float32 or []uint16
}

// hold rounds x to the dtype, for both sides of a test, and gives the buffer.
func hold(d kernels.DType, x []float32) held {
	if d != kernels.BF16 {
		return held{d, append([]float32(nil), x...)}
	}
	out := make([]uint16, len(x))
	for i, v := range x {
		out[i] = uint16(bf16(v))
		x[i] = unbf16(out[i])
	}
	return held{d, out}
}

// floats reads the buffer.
func (h held) floats() []float32 {
	if f, ok := h.bytes.([]float32); ok {
		return f
	}
	var out []float32
	for _, v := range h.bytes.([]uint16) {
		out = append(out, unbf16(v))
	}
	return out
}

// from is the buffer with the content of memory.
func (h held) from(memory []byte) held {
	if h.dtype != kernels.BF16 {
		out := make([]float32, len(memory)/4)
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(memory[4*i:]))
		}
		return held{h.dtype, out}
	}
	out := make([]uint16, len(memory)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(memory[2*i:])
	}
	return held{h.dtype, out}
}

// within is the tolerance of a comparison of stored numbers with the reference implementation's: fp32, or a rounding to
// bf16.
func (h held) within(fp32 float64) float64 {
	if h.dtype == kernels.BF16 {
		return 1. / 128
	}
	return fp32
}

func unbf16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// uniform numbers.
func (r random) uniform(n int, lo, hi float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = lo + (hi-lo)*r.Float32()
	}
	return out
}

// requireBlank requires that none of the numbers was written.
func requireBlank(t testing.TB, x []float32) {
	t.Helper()
	for i, v := range x {
		require.True(t, v != v, "element %d is written: %g", i, v)
	}
}
