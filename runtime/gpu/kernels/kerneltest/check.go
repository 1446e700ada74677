package kerneltest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Check runs the launches of a case, each as Run does, and requires the answers of the reference implementation within
// the bounds of tests, and that nothing else is written but what launches leave for each other.
func Check(t testing.TB, c *kernels.Case) {
	t.Helper()
	CheckWithin(t, MetalMemory, c)
}

// CheckWithin is Check with another limit of threadgroup memory; texts that exceed Metal's are not for Metal.
func CheckWithin(t testing.TB, memory int, c *kernels.Case) {
	t.Helper()
	held := map[*kernels.Buffer][]byte{}
	for _, b := range c.Buffers {
		held[b] = Memory(b)
	}
	for _, l := range c.Launches {
		var list []any
		for _, b := range l.Buffers {
			list = append(list, held[b])
		}
		run(t, memory, l.Launch, list, l.Written)
	}
	expected := map[*kernels.Buffer][]byte{}
	for _, b := range c.Buffers {
		expected[b] = Memory(b)
	}
	for _, w := range c.Wants() {
		got := held[w.Buffer][w.At():][:w.Size()]
		require.LessOrEqual(t, w.Difference(got), w.Bound.Test,
			"%s: the %d numbers from %d on in buffer %d of the case, relative to the largest",
			c.Launches[len(c.Launches)-1].Key(), len(w.Values), w.First, slices.Index(c.Buffers, w.Buffer))
		copy(expected[w.Buffer][w.At():], got)
	}
	for i, b := range c.Buffers {
		require.True(t, b.Scratch || bytes.Equal(expected[b], held[b]),
			"%s writes to buffer %d of the case what it must not", c.Launches[0].Key(), i)
	}
}

// Memory is what a buffer of a case holds before the first launch.
func Memory(b *kernels.Buffer) []byte {
	out := make([]byte, b.Size)
	for _, p := range b.Parts() {
		copy(out[p.At:], p.Content)
	}
	return out
}
