//go:build linux && !nocuda && (amd64 || arm64)

package cuda

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/cuda/internal/standin"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// standIn is what the tests run on; nil on a machine with NVIDIA's driver, or without compilers.
var standIn *standin.Library

func TestMain(m *testing.M) {
	if _, err := openLibrary(driverNames[0]); err != nil {
		if standIn, err = standin.Load(); err == nil {
			driverNames = []string{standIn.Path}
			os.Setenv("ETC_NVRTC", standIn.Path)
			os.Setenv("ETC_CUBLAS", "no such library") // the stand-in has none
		} else {
			fmt.Fprintln(os.Stderr, "no stand-in for CUDA:", err)
		}
	}
	os.Exit(m.Run())
}

// checkStandIn requires at the end of a test that nothing is left on the stand-in and nothing was wrong but what
// is named.
func checkStandIn(t testing.TB, complaints string) {
	if standIn == nil {
		return
	}
	standIn.Reset()
	t.Cleanup(func() {
		require.Equal(t, complaints, standIn.Complaints())
		require.Zero(t, standIn.Live(), "what was made and not given up")
	})
}

// move copies the word at 4·i of a buffer to the next, by the first of some threadgroups.
func move(k device.Kernel, x device.Buffer, i, groups int, barrier bool) device.Dispatch {
	return device.Dispatch{Label: "move", Kernel: k, Groups: [3]int{groups, 1, 1}, Threads: [3]int{1, 1, 1},
		Barrier: barrier, Arguments: []device.Argument{
			{Binding: device.Binding{Buffer: x, Offset: 4 * i}}, {Binding: device.Binding{Buffer: x, Offset: 4*i + 4}},
			{Bytes: []byte{1, 0, 0, 0}}}}
}

// Barriers are edges: without one the stand-in takes the second dispatch first. Edges of kernels on kernels let
// the second start early; then kernels of one threadgroup have edges without a barrier, too.
func TestEdges(t *testing.T) {
	if standIn == nil {
		t.Skip("there is a real driver, or no compiler for the stand-in")
	}
	for _, c := range []struct {
		groups         [2]int
		barrier, early bool
		want           byte
		programmatic   int32
	}{
		{[2]int{2, 2}, false, true, 0, 0}, {[2]int{2, 2}, true, true, 7, 1}, {[2]int{2, 2}, true, false, 7, 0},
		{[2]int{1, 2}, false, true, 0, 0}, {[2]int{2, 1}, false, true, 0, 0}, {[2]int{1, 1}, false, true, 7, 1},
		{[2]int{1, 1}, false, false, 0, 0},
	} {
		checkStandIn(t, "")
		d, err := Open(Options{Cache: t.TempDir()})
		require.NoError(t, err)
		d.(*gpu).overlap = c.early
		library, err := d.Compile(devicetest.Source(kernels.CUDA))
		require.NoError(t, err)
		k, err := library.Kernel("copy_words")
		require.NoError(t, err)
		x, err := d.NewBuffer(12)
		require.NoError(t, err)
		require.NoError(t, x.Write(0, []byte{7}))
		s, err := d.Record([]device.Dispatch{move(k, x, 0, c.groups[0], false), move(k, x, 1, c.groups[1], c.barrier)})
		require.NoError(t, err)
		require.NoError(t, s.Submit())
		got := make([]byte, 1)
		require.NoError(t, x.Read(8, got))
		require.Equal(t, c.want, got[0], "%+v", c)
		require.Equal(t, c.programmatic, standIn.Programmatic())
		require.NoError(t, s.Close())
		require.NoError(t, x.Close())
		require.NoError(t, library.Close())
		require.NoError(t, d.Close())
	}
}

// A Hopper GPU with NVRTC 12 has transfers; 2048 bytes of its threadgroup memory are left for arrays.
func TestTransferMemory(t *testing.T) {
	if standIn == nil {
		t.Skip("there is a real driver, or no compiler for the stand-in")
	}
	checkStandIn(t, "")
	d, err := Open(Options{Cache: t.TempDir()})
	require.NoError(t, err)
	require.Equal(t, 232448-2048, d.Info().TransferMemory)
	require.NoError(t, d.Close())
}

// An error of a kernel shows at the next call that waits, names the call, and stays.
func TestFault(t *testing.T) {
	if standIn == nil {
		t.Skip("there is a real driver, or no compiler for the stand-in")
	}
	standIn.Reset()
	defer standIn.Reset()
	d, err := Open(Options{Cache: t.TempDir()})
	require.NoError(t, err)
	library, err := d.Compile(device.Source{Name: "faulty", Text: kernels.Prelude(kernels.CUDA) + `
[[max_total_threads_per_threadgroup(64)]]
kernel void divergent(device float* y [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  if (t < 40) y[t] = simd_sum(float(t));
}
extern "C" void divergent_entry(void* const* a) { divergent((float*)a[0], PORT_thread_index_in_threadgroup()); }
PORT_ENTRY(divergent, 64, 1)
`})
	require.NoError(t, err)
	k, err := library.Kernel("divergent")
	require.NoError(t, err)
	y, err := d.NewBuffer(256)
	require.NoError(t, err)
	s, err := d.Record([]device.Dispatch{{Label: "first", Kernel: k, Groups: [3]int{1, 1, 1}, Threads: [3]int{64, 1, 1},
		Arguments: []device.Argument{{Binding: device.Binding{Buffer: y}}}}})
	require.NoError(t, err)
	require.NoError(t, s.Submit())
	require.EqualError(t, d.Wait(), "cuda: cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")
	require.Contains(t, standIn.Complaints(), "simd operation in divergent code")
	require.ErrorContains(t, s.Submit(), "cuda: cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED")
	require.ErrorContains(t, y.Read(0, make([]byte, 4)), "CUDA_ERROR_LAUNCH_FAILED")
	require.ErrorContains(t, d.Close(), "CUDA_ERROR_LAUNCH_FAILED")
}

// The host sees a result by its word, if one launch writes that alone; else, and where the word may be the result, an
// event tells that it is there.
func TestResults(t *testing.T) {
	if standIn == nil {
		t.Skip("there is a real driver, or no compiler for the stand-in")
	}
	checkStandIn(t, "")
	d, err := Open(Options{Cache: t.TempDir()})
	require.NoError(t, err)
	library, err := d.Compile(devicetest.Source(kernels.CUDA))
	require.NoError(t, err)
	k, err := library.Kernel("copy_words")
	require.NoError(t, err)
	x, err := d.NewBuffer(8)
	require.NoError(t, err)
	y, err := d.(device.HostWriter).NewHostBuffer(8)
	require.NoError(t, err)
	b := y.(*buffer)
	give := func(from, to int) device.Dispatch {
		return device.Dispatch{Label: "give", Kernel: k, Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1},
			Arguments: []device.Argument{
				{Binding: device.Binding{Buffer: x, Offset: from}}, {Binding: device.Binding{Buffer: y, Offset: to}},
				{Bytes: []byte{1, 0, 0, 0}}}}
	}
	one, err := d.Record([]device.Dispatch{give(0, 4)})
	require.NoError(t, err)
	two, err := d.Record([]device.Dispatch{give(0, 4), give(4, 0)})
	require.NoError(t, err)
	for _, c := range []struct {
		name     string
		sequence device.Sequence
		times    int
		value    []byte
		awaited  int
	}{
		{"one word", one, 1, []byte{1, 2, 3, 4}, 4},
		{"another", one, 1, []byte{5, 6, 7, 8}, 4},
		{"what stands in a word that is not written", one, 1, []byte{255, 255, 255, 255}, 4},
		{"the first launch may still write", one, 2, []byte{9, 9, 9, 9}, -1},
		{"waited for by an event", one, 1, []byte{10, 9, 9, 9}, 4},
		{"two words", two, 1, []byte{11, 9, 9, 9}, -1},
		{"one again", one, 1, []byte{12, 9, 9, 9}, 4},
	} {
		require.NoError(t, x.Write(0, c.value), c.name)
		for range c.times {
			require.NoError(t, c.sequence.Submit(), c.name)
		}
		require.Equal(t, c.awaited, b.awaited, c.name)
		got := make([]byte, 4)
		require.NoError(t, y.Read(4, got), c.name)
		require.Equal(t, c.value, got, c.name)
	}
	// A word that is there needs no event.
	word := uint32(7)
	require.NoError(t, d.(*gpu).glance(&word, 0))
	for _, s := range []device.Sequence{one, two} {
		require.NoError(t, s.Close())
	}
	for _, b := range []device.Buffer{x, y} {
		require.NoError(t, b.Close())
	}
	require.NoError(t, library.Close())
	require.NoError(t, d.Close())
}

// TestUploadByFewerWorkers: a worker that gets no pinned memory leaves its pieces to the others. Where none gets any,
// the parts give the error.
func TestUploadByFewerWorkers(t *testing.T) {
	if standIn == nil {
		t.Skip("there is a real driver, or no compiler for the stand-in")
	}
	d := open(t)
	part := make([]byte, 5*uploadPiece+3)
	for i := range part {
		part[i] = byte(i * 7)
	}
	for workers := range int32(2) {
		standIn.Pinned(workers)
		u, err := d.(*gpu).Upload([][]byte{part})
		require.NoError(t, err)
		b, err := u.Buffer(0)
		if workers == 0 {
			require.ErrorContains(t, err, "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY")
		} else {
			require.NoError(t, err)
			standIn.Pinned(-1)
			got := make([]byte, len(part))
			require.NoError(t, b.Read(0, got))
			require.True(t, string(part) == string(got))
		}
		require.NoError(t, u.Close())
	}
	require.NoError(t, d.Close())
}
