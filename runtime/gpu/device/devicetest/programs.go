package devicetest

import (
	_ "embed"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

//go:embed programs.metal
var programs string

// Source returns the test's kernels for a target.
func Source(t kernels.Target) device.Source {
	return device.Source{Name: "programs.metal", Text: kernels.Prelude(t) + "#line 1 \"programs.metal\"\n" + programs}
}

// bench is a device with the compiled kernels; what it makes is closed at the test's end, in the order that
// the interface asks for.
type bench struct {
	t       testing.TB
	device  device.Device
	library device.Library
}

func newBench(t testing.TB, open func(testing.TB) device.Device) *bench {
	d := open(t)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	library, err := d.Compile(Source(d.Info().Target))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, library.Close()) })
	b := &bench{t, d, library}
	return b
}

func (b *bench) kernel(name string) device.Kernel {
	k, err := b.library.Kernel(name)
	require.NoError(b.t, err)
	require.Equal(b.t, name, k.Name())
	b.t.Cleanup(func() { require.NoError(b.t, k.Close()) })
	return k
}

// words is a new buffer of n words, with these in front.
func (b *bench) words(n int, values ...uint32) device.Buffer {
	buffer, err := b.device.NewBuffer(4 * n)
	require.NoError(b.t, err)
	require.Equal(b.t, 4*n, buffer.Size())
	b.t.Cleanup(func() { require.NoError(b.t, buffer.Close()) })
	if len(values) > 0 {
		require.NoError(b.t, buffer.Write(0, encode(values...)))
	}
	return buffer
}

func (b *bench) wrap(memory []byte) device.Buffer {
	buffer, err := b.device.Wrap(memory)
	require.NoError(b.t, err)
	require.Equal(b.t, len(memory), buffer.Size())
	b.t.Cleanup(func() { require.NoError(b.t, buffer.Close()) })
	return buffer
}

func (b *bench) record(dispatches ...device.Dispatch) device.Sequence {
	s, err := b.device.Record(dispatches)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		require.NoError(b.t, b.device.Wait())
		require.NoError(b.t, s.Close())
	})
	return s
}

func (b *bench) submit(s device.Sequence) { require.NoError(b.t, s.Submit()) }

func (b *bench) read(buffer device.Buffer, offset, n int) []uint32 {
	raw := make([]byte, 4*n)
	require.NoError(b.t, buffer.Read(4*offset, raw))
	return decode(raw)
}

// dispatch runs a kernel over n words, in threadgroups of 64, with n as the constant after the buffers.
func dispatch(k device.Kernel, n int, barrier bool, buffers ...device.Binding) device.Dispatch {
	d := device.Dispatch{Label: k.Name(), Kernel: k, Groups: [3]int{(n + 63) / 64, 1, 1},
		Threads: [3]int{64, 1, 1}, Barrier: barrier}
	for _, b := range buffers {
		d.Arguments = append(d.Arguments, device.Argument{Binding: b})
	}
	d.Arguments = append(d.Arguments, device.Argument{Bytes: encode(uint32(n))})
	return d
}

func at(b device.Buffer, word int) device.Binding { return device.Binding{Buffer: b, Offset: 4 * word} }

func encode(words ...uint32) []byte {
	var out []byte
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

func decode(raw []byte) []uint32 {
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return out
}

// numbers returns n different words.
func numbers(n int, factor uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)*factor + 1
	}
	return out
}
