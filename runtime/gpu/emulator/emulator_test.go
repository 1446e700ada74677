//go:build linux && (amd64 || arm64)

package emulator

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

func open(t testing.TB, options Options) device.Device {
	d, err := Open(options)
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	for _, schedule := range []uint32{0, 1, 2} {
		t.Run(fmt.Sprint("schedule ", schedule), func(t *testing.T) {
			devicetest.Run(t, func(t testing.TB) device.Device { return open(t, Options{Schedule: schedule}) })
			t.Run("transfers beside threads", func(t *testing.T) {
				devicetest.Run(t, func(t testing.TB) device.Device {
					return open(t, Options{Schedule: schedule, TransferMemory: 200 << 10})
				})
			})
		})
	}
}

// A forgotten barrier shows under a schedule other than the first.
func TestMissingBarrier(t *testing.T) {
	for _, c := range []struct {
		schedule uint32
		barrier  bool
		want     byte
	}{{0, false, 7}, {1, false, 0}, {1, true, 7}} {
		d := open(t, Options{Schedule: c.schedule})
		library, err := d.Compile(devicetest.Source(kernels.CPU))
		require.NoError(t, err)
		k, err := library.Kernel("copy_words")
		require.NoError(t, err)
		x, err := d.NewBuffer(12)
		require.NoError(t, err)
		require.NoError(t, x.Write(0, []byte{7}))
		move := func(i int) device.Dispatch {
			return device.Dispatch{Label: "move", Kernel: k, Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1},
				Arguments: []device.Argument{
					{Binding: device.Binding{Buffer: x, Offset: 4 * i}},
					{Binding: device.Binding{Buffer: x, Offset: 4*i + 4}}, {Bytes: []byte{1, 0, 0, 0}}}}
		}
		second := move(1)
		second.Barrier = c.barrier
		s, err := d.Record([]device.Dispatch{move(0), second})
		require.NoError(t, err)
		require.NoError(t, s.Submit())
		got := make([]byte, 1)
		require.NoError(t, x.Read(8, got))
		require.Equal(t, c.want, got[0], "%+v", c)
		require.NoError(t, x.Close())
		require.NoError(t, library.Close())
		require.NoError(t, d.Close())
	}
}

const faulty = `
[[max_total_threads_per_threadgroup(64)]]
kernel void divergent(device float* y [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  if (t < 40) y[t] = simd_sum(float(t));
}
extern "C" void divergent_entry(void* const* a) { divergent((float*)a[0], PORT_thread_index_in_threadgroup()); }
PORT_ENTRY(divergent, 64, 1)
[[max_total_threads_per_threadgroup(64)]]
kernel void greedy(device float* y [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, much, 10000);
  much[t] = y[t];
}
extern "C" void greedy_entry(void* const* a) { greedy((float*)a[0], PORT_thread_index_in_threadgroup()); }
PORT_ENTRY(greedy, 64, 1)
[[max_total_threads_per_threadgroup(64)]]
kernel void unasked(device float* y [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  TG_MEMORY(large, 256);
  y[t] = float(large[t]);
}
extern "C" void unasked_entry(void* const* a) { unasked((float*)a[0], PORT_thread_index_in_threadgroup()); }
PORT_ENTRY(unasked, 64, 1)
`

// What a kernel may not do ends the timeline with an error that says where.
func TestFaults(t *testing.T) {
	for name, want := range map[string]string{
		"divergent": "emulator: dispatch first, kernel divergent: simd operation in divergent code",
		"greedy":    "emulator: dispatch first, kernel greedy: 40000 bytes of threadgroup memory, the limit is 32768",
		"unasked":   "emulator: dispatch first, kernel unasked: TG_MEMORY of 256 bytes, the launch gives 0",
	} {
		d := open(t, Options{})
		library, err := d.Compile(device.Source{Name: "faulty", Text: kernels.Prelude(kernels.CPU) + faulty})
		require.NoError(t, err)
		k, err := library.Kernel(name)
		require.NoError(t, err)
		y, err := d.NewBuffer(256)
		require.NoError(t, err)
		s, err := d.Record([]device.Dispatch{{Label: "first", Kernel: k, Groups: [3]int{1, 1, 1},
			Threads:   [3]int{64, 1, 1},
			Arguments: []device.Argument{{Binding: device.Binding{Buffer: y}}}}})
		require.NoError(t, err)
		require.NoError(t, s.Submit())
		require.ErrorContains(t, d.Wait(), want)
		require.ErrorContains(t, y.Read(0, make([]byte, 4)), want)
		require.ErrorContains(t, s.Submit(), want)
		require.NoError(t, y.Write(0, []byte{1, 2, 3, 4})) // which does not come to pass
		require.NoError(t, d.Recover())
		require.NoError(t, d.Wait())
		require.NoError(t, y.Write(4, []byte{5}))
		got := make([]byte, 5)
		require.NoError(t, y.Read(0, got))
		require.Equal(t, byte(5), got[4])
		require.NotEqual(t, []byte{1, 2, 3, 4}, got[:4])
		require.NoError(t, s.Submit())
		require.ErrorContains(t, d.Wait(), want, "the next error is told of, too")
		require.NoError(t, d.Recover())
		require.NoError(t, y.Close())
		require.NoError(t, library.Close())
		require.NoError(t, d.Close())
	}
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("CXX", "no-such-compiler")
	_, err := Open(Options{})
	require.ErrorIs(t, err, device.ErrUnavailable)
	require.ErrorContains(t, err, "no-such-compiler is not there (install g++ or set CXX)")
}
