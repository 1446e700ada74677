package device

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

type fakeBuffer struct {
	Buffer
	size int
}

func (b fakeBuffer) Size() int { return b.size }

type fakeKernel struct{ Kernel }

func (fakeKernel) Name() string    { return "k" }
func (fakeKernel) MaxThreads() int { return 64 }

func TestCheckDispatch(t *testing.T) {
	buffer := fakeBuffer{size: 64}
	good := func() Dispatch {
		return Dispatch{
			Label: "l", Kernel: fakeKernel{}, Groups: [3]int{2, 1, 1}, Threads: [3]int{32, 2, 1}, Memory: 1024,
			Arguments: []Argument{{Binding: Binding{Buffer: buffer, Offset: 60}}, {Bytes: make([]byte, 8)}},
		}
	}
	info := Info{Machine: kernels.Machine{TransferMemory: 1024}}
	require.NoError(t, CheckDispatch(0, good(), info))
	for _, c := range []struct {
		change func(*Dispatch)
		want   string
	}{
		{func(d *Dispatch) { d.Kernel = nil }, "dispatch 3 (l): there is no kernel"},
		{func(d *Dispatch) { d.Groups[1] = 0 }, "the grid is [2 0 1] threadgroups"},
		{func(d *Dispatch) { d.Groups[2] = 65536 }, "at most 2147483647, 65535 and 65535"},
		{func(d *Dispatch) { d.Threads[0] = 0 }, "from 1 to 1024"},
		{func(d *Dispatch) { d.Threads[1] = 3 }, "the threadgroup has 96 threads, kernel k allows 64"},
		{func(d *Dispatch) { d.Memory = 1025 }, "TG_MEMORY of 1025 bytes, the device allows 1024"},
		{func(d *Dispatch) { d.Memory = -1 }, "TG_MEMORY of -1 bytes"},
		{func(d *Dispatch) { d.Arguments[0].Bytes = []byte{1, 2, 3, 4} }, "argument 0 is a buffer and bytes"},
		{func(d *Dispatch) { d.Arguments[1].Bytes = make([]byte, 4100) }, "argument 1 has 4100 bytes"},
		{func(d *Dispatch) { d.Arguments[1].Bytes = make([]byte, 6) }, "argument 1 has 6 bytes"},
		{func(d *Dispatch) { d.Arguments[1].Bytes = nil }, "argument 1 is not set"},
		{func(d *Dispatch) { d.Arguments[0].Offset = 64 }, "argument 0 is at offset 64 of a buffer of 64 bytes"},
		{func(d *Dispatch) { d.Arguments[0].Offset = 2 }, "want a multiple of 4"},
		{func(d *Dispatch) { d.Arguments = make([]Argument, 32) }, "32 arguments"},
	} {
		d := good()
		c.change(&d)
		require.ErrorContains(t, CheckDispatch(3, d, info), c.want)
	}
}

func TestCheckRange(t *testing.T) {
	require.NoError(t, CheckRange("read", 4, 4, 8))
	require.NoError(t, CheckRange("read", 8, 0, 8))
	for _, c := range [][3]int{{-1, 1, 8}, {5, 4, 8}, {0, -1, 8}, {1 << 62, 1 << 62, 8}, {9, 0, 8}} {
		require.Error(t, CheckRange("read", c[0], c[1], c[2]), "%v", c)
	}
}

func TestCountArguments(t *testing.T) {
	const text = `
inline float f(float x) { return x; } // for one and three (both)
[[max_total_threads_per_threadgroup(N)]]
kernel void one(device float* y [[buffer(0)]], // the only one
                uint i [[thread_position_in_grid]]) { y[i] = 0; }
kernel  void
three (device float* x [[buffer(0)]], device float* y [[buffer(1)]], constant P& p [[buffer(2)]]) { }
kernel void none(uint i [[thread_position_in_grid]]) {}
template <typename T>
[[kernel]] void any(device T* y [[buffer(1)]]) {}`
	for name, want := range map[string]int{"one": 1, "three": 3, "none": 0, "any": 2} {
		got, ok := CountArguments(text, name)
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"f", "absent", "thre", "."} {
		_, ok := CountArguments(text, name)
		require.False(t, ok, name)
	}
}
