//go:build (linux && !nocuda) || windows

package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// chain records n dispatches of a number of threadgroups that depend on each other.
func chain(b *testing.B, d device.Device, n, groups int) (device.Sequence, device.Buffer) {
	library, err := d.Compile(devicetest.Source(kernels.CUDA))
	require.NoError(b, err)
	k, err := library.Kernel("copy_words")
	require.NoError(b, err)
	x, err := d.NewBuffer(4096)
	require.NoError(b, err)
	list := make([]device.Dispatch, n)
	for i := range list {
		list[i] = device.Dispatch{Label: "copy", Kernel: k, Barrier: true, Groups: [3]int{groups, 1, 1},
			Threads: [3]int{64, 1, 1}, Arguments: []device.Argument{
				{Binding: device.Binding{Buffer: x}}, {Binding: device.Binding{Buffer: x, Offset: 1024}},
				{Bytes: []byte{64, 0, 0, 0}}}}
	}
	s, err := d.Record(list)
	require.NoError(b, err)
	return s, x
}

// BenchmarkStep is what a token costs besides its kernels: a write of the step, a graph of dispatches that do
// next to nothing, and the fetch of the token before.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		n, groups int
		overlap   bool
	}{{1, 1, true}, {500, 1, false}, {500, 1, true}, {500, 264, false}, {500, 264, true}} {
		b.Run(fmt.Sprintf("%d_dispatches_of_%d_overlap=%v", c.n, c.groups, c.overlap), func(b *testing.B) {
			d := open(b)
			d.(*gpu).overlap = c.overlap && d.(*gpu).overlap
			s, x := chain(b, d, c.n, c.groups)
			var pending device.Fetch
			for b.Loop() {
				require.NoError(b, x.Write(2048, []byte{1, 2, 3, 4, 5, 6, 7, 8}))
				require.NoError(b, s.Submit())
				next, err := x.Fetch(1024, 4)
				require.NoError(b, err)
				if pending != nil {
					_, err := pending.Bytes()
					require.NoError(b, err)
				}
				pending = next
			}
			require.NoError(b, d.Wait())
		})
	}
}

// BenchmarkSubmit is the host's part of it.
func BenchmarkSubmit(b *testing.B) {
	d := open(b)
	s, x := chain(b, d, 500, 1)
	i := 0
	for b.Loop() {
		require.NoError(b, x.Write(2048, []byte{1, 2, 3, 4, 5, 6, 7, 8}))
		require.NoError(b, s.Submit())
		if i++; i%8 == 0 { // the driver's queue is not without end
			b.StopTimer()
			require.NoError(b, d.Wait())
			b.StartTimer()
		}
	}
}

// BenchmarkTransfer moves 1 GiB to the GPU and back.
func BenchmarkTransfer(b *testing.B) {
	d := open(b)
	memory := make([]byte, 1<<30)
	for i := range memory {
		memory[i] = byte(i)
	}
	x, err := d.NewBuffer(len(memory))
	require.NoError(b, err)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(memory)))
		for b.Loop() {
			require.NoError(b, x.Write(0, memory))
			require.NoError(b, d.Wait())
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(memory)))
		for b.Loop() {
			require.NoError(b, x.Read(0, memory))
		}
	})
}

// BenchmarkWrap brings a mapped file of 2 GiB, in the page cache, to the GPU.
func BenchmarkWrap(b *testing.B) {
	d := open(b)
	const size = 2 << 30
	path := filepath.Join(b.TempDir(), "weights")
	piece := make([]byte, 64<<20)
	for i := range piece {
		piece[i] = byte(i * i >> 5)
	}
	f, err := os.Create(path)
	require.NoError(b, err)
	for range size / len(piece) {
		_, err := f.Write(piece)
		require.NoError(b, err)
	}
	require.NoError(b, f.Close())
	b.SetBytes(size)
	for b.Loop() {
		b.StopTimer()
		memory, unmap := devicetest.MapFile(b, path) // pages are mapped anew
		b.StartTimer()
		x, err := d.Wrap(memory)
		require.NoError(b, err)
		require.NoError(b, d.Wait())
		b.StopTimer()
		require.NoError(b, x.Close())
		unmap()
		b.StartTimer()
	}
}

// BenchmarkProduct is cuBLAS through a sequence; operations are 2 M N K.
func BenchmarkProduct(b *testing.B) {
	for _, p := range []device.Product{{M: 512, N: 8192, K: 2048}, {M: 512, N: 8192, K: 2048, Float32: true},
		{M: 2048, N: 8192, K: 2048}} {
		b.Run(fmt.Sprintf("%dx%dx%d_float32=%v", p.M, p.N, p.K, p.Float32), func(b *testing.B) {
			d := open(b)
			k, err := d.(device.MatrixMultiplier).MatrixProduct(p)
			require.NoError(b, err)
			var list []device.Dispatch
			const repeat = 50
			arguments := make([]device.Argument, 3)
			for i, size := range []int{2 * p.M * p.K, 2 * p.N * p.K, 4 * p.M * p.N} {
				x, err := d.NewBuffer(size)
				require.NoError(b, err)
				arguments[i].Buffer = x
			}
			for range repeat {
				list = append(list, device.Dispatch{Label: "product", Kernel: k, Barrier: true, Groups: [3]int{1, 1, 1},
					Threads: [3]int{1, 1, 1}, Arguments: arguments})
			}
			s, err := d.Record(list)
			require.NoError(b, err)
			for b.Loop() {
				require.NoError(b, s.Submit())
				require.NoError(b, d.Wait())
			}
			b.ReportMetric(2e-12*float64(p.M)*float64(p.N)*float64(p.K)*repeat*float64(b.N)/b.Elapsed().Seconds(),
				"TFLOP/s")
		})
	}
}
