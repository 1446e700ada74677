package metaltest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// A kernel of the engine runs through the host, text for Metal and all, as its reference implementation computes.
func TestKernel(t *testing.T) {
	d, err := StandIn(t)()
	require.NoError(t, err)
	e := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 5, K: 32, Multiplier: 1}
	l, err := e.Launch(3)
	require.NoError(t, err)
	text, err := l.Source(kernels.Metal)
	require.NoError(t, err)
	library, err := d.Compile(device.Source{Name: l.File, Text: text})
	require.NoError(t, err)
	k, err := library.Kernel(l.Kernel)
	require.NoError(t, err)
	buffer := func(words ...uint32) device.Buffer {
		var raw []byte
		for _, w := range words {
			raw = binary.NativeEndian.AppendUint32(raw, w)
		}
		b, err := d.NewBuffer(len(raw))
		require.NoError(t, err)
		require.NoError(t, b.Write(0, raw))
		return b
	}
	rows := make([]uint32, 5*32/2)
	for i := range rows {
		rows[i] = 0x3f803f80 + uint32(i/16)<<16 // 1, and more in every second column
	}
	w, tokens, y, step := buffer(rows...), buffer(4, 0, 2), buffer(make([]uint32, 3*32)...), buffer(3, 0)
	x := device.Dispatch{Label: "embedding", Kernel: k, Groups: l.Groups, Threads: l.Threads}
	for _, b := range []device.Buffer{w, w, w, tokens, y, step} {
		x.Arguments = append(x.Arguments, device.Argument{Binding: device.Binding{Buffer: b}})
	}
	s, err := d.Record([]device.Dispatch{x})
	require.NoError(t, err)
	require.NoError(t, s.Submit())
	got := make([]byte, 3*32*4)
	require.NoError(t, y.Read(0, got))
	for i := range 3 * 32 {
		want := math.Float32frombits(0x3f800000)
		if i%2 == 1 {
			want = math.Float32frombits((0x3f80 + uint32([]int{4, 0, 2}[i/32])) << 16)
		}
		require.Equal(t, want, math.Float32frombits(binary.NativeEndian.Uint32(got[4*i:])), "element %d", i)
	}
	require.NoError(t, s.Close())
	for _, b := range []device.Buffer{w, tokens, y, step} {
		require.NoError(t, b.Close())
	}
	require.NoError(t, k.Close())
	require.NoError(t, library.Close())
	require.NoError(t, d.Close())
}
