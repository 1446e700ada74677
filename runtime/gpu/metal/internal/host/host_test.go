//go:build linux && (amd64 || arm64)

package host

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/standin"
)

// open opens the stand-in's device.
func open(t testing.TB, l *standin.Library) *gpu {
	d, err := Open(Libraries{ObjectiveC: l.Path, Metal: l.Path, Others: []string{l.Path}})
	require.NoError(t, err)
	return d.(*gpu)
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name  string
		setUp func(*standin.Library)
	}{
		{"macOS 15", func(*standin.Library) {}},
		{"macOS 14", func(l *standin.Library) { l.ResidencySets(0) }},
		{"memory that cannot be wrapped", func(l *standin.Library) { l.NoCopy(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			devicetest.Run(t, func(t testing.TB) device.Device {
				l := standin.Checked(t)
				c.setUp(l)
				return open(t, l)
			})
		})
	}
}

// words is what these tests run: copies of n words from an offset to another, in one buffer.
type words struct {
	t       *testing.T
	device  *gpu
	library device.Library
	kernel  device.Kernel
}

func newWords(t *testing.T, d *gpu) *words {
	library, err := d.Compile(devicetest.Source(kernels.Metal))
	require.NoError(t, err)
	k, err := library.Kernel("copy_words")
	require.NoError(t, err)
	return &words{t, d, library, k}
}

func (w *words) move(from device.Binding, to device.Binding, n byte, barrier bool) device.Dispatch {
	return device.Dispatch{Label: "move", Kernel: w.kernel, Groups: [3]int{1, 1, 1}, Threads: [3]int{64, 1, 1}, Barrier: barrier,
		Arguments: []device.Argument{{Binding: from}, {Binding: to}, {Bytes: []byte{n, 0, 0, 0}}}}
}

func (w *words) run(dispatches ...device.Dispatch) {
	s, err := w.device.Record(dispatches)
	require.NoError(w.t, err)
	require.NoError(w.t, s.Submit())
	require.NoError(w.t, w.device.Wait())
	require.NoError(w.t, s.Close())
}

func (w *words) close(buffers ...device.Buffer) {
	for _, b := range buffers {
		require.NoError(w.t, b.Close())
	}
	require.NoError(w.t, w.kernel.Close())
	require.NoError(w.t, w.library.Close())
	require.NoError(w.t, w.device.Close())
}

// The stand-in runs dispatches that may overlap last to first, so that a forgotten barrier shows.
func TestMissingBarrier(t *testing.T) {
	for barrier, want := range map[bool]byte{true: 7, false: 0} {
		d := open(t, standin.Checked(t))
		w := newWords(t, d)
		x, err := d.NewBuffer(12)
		require.NoError(t, err)
		require.NoError(t, x.Write(0, []byte{7}))
		at := func(offset int) device.Binding { return device.Binding{Buffer: x, Offset: offset} }
		w.run(w.move(at(0), at(4), 1, false), w.move(at(4), at(8), 1, barrier))
		got := make([]byte, 1)
		require.NoError(t, x.Read(8, got))
		require.Equal(t, want, got[0])
		w.close(x)
	}
}

// What the system would refuse, or what would go wrong there without a word, is seen.
func TestStandInComplains(t *testing.T) {
	for _, c := range []struct {
		name, want string
		do         func(d *gpu, w *words)
	}{
		{"unknown selector", "-[MTLDevice noSuchThing]: unrecognized selector", func(d *gpu, _ *words) { send(d.device, sel("noSuchThing")) }},
		{"no pool", "a NSString was autoreleased without a pool", func(*gpu, *words) { release(nsString("text")) }},
		{"dead object", "length was sent to a dead MTLBuffer", func(d *gpu, _ *words) {
			b := id(send(d.device, selNewBuffer, 16, shared|untracked))
			release(b)
			send(b, sel("length"))
		}},
		{"two releases", "release was sent to a dead MTLBuffer", func(d *gpu, _ *words) {
			b := id(send(d.device, selNewBuffer, 16, shared|untracked))
			release(b)
			send(b, selRelease)
		}},
		{"tracked buffer", "want shared and untracked", func(d *gpu, _ *words) { release(id(send(d.device, selNewBuffer, 16, shared))) }},
		{"part of a page", "is not whole pages", func(d *gpu, _ *words) { send(d.device, selNoCopy, 1<<20, 100, shared|untracked, 0) }},
		{"too many threads", "a threadgroup of 65 threads, put_bytes allows 64", func(d *gpu, _ *words) {
			b, err := d.newBuffer(4)
			require.NoError(t, err)
			c := write{b, 0, []byte{1}}.command(d.write)
			c.threads[0] = 65
			_, err = d.submit(func(e *encoder) { e.encode(c) })
			require.NoError(t, err)
			require.ErrorContains(t, d.Wait(), "a threadgroup of 65 threads")
			d.err = nil
			require.NoError(t, b.Close())
		}},
		{"no fence", "does not wait for the fence", func(d *gpu, _ *words) {
			require.NoError(t, pool(func() error {
				for range 2 {
					commands := id(send(d.queue, selCommandBuffer))
					e := id(send(commands, selEncoder, dispatchOverlap))
					send(e, selUpdateFence, uintptr(d.fence))
					send(e, selEndEncoding)
					send(commands, selRetain)
					send(commands, selCommit)
					d.running = append(d.running, commands)
					d.submitted++
				}
				return nil
			}))
			require.NoError(t, d.Wait())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, standin.Checked(t, c.want))
			w := newWords(t, d)
			c.do(d, w)
			w.close()
		})
	}
}

// A command buffer that ends in an error says so at the next call that waits, and from then on.
func TestFault(t *testing.T) {
	d := open(t, standin.Checked(t))
	library, err := d.Compile(device.Source{Name: "faulty", Text: kernels.Prelude(kernels.Metal) + `
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
	const want = "metal: command buffer 1: simd operation in divergent code"
	require.ErrorContains(t, d.Wait(), want)
	require.ErrorContains(t, s.Submit(), want)
	require.ErrorContains(t, y.Write(0, []byte{1}), want)
	require.NoError(t, y.Close())
	require.NoError(t, k.Close())
	require.NoError(t, library.Close())
	require.ErrorContains(t, d.Close(), want)
}

// Memory that is longer than the largest buffer is wrapped in windows; every binding finds its words.
func TestWindows(t *testing.T) {
	l := standin.Checked(t)
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 11*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	for i := range memory {
		memory[i] = byte(i % 251)
	}
	d := open(t, l)
	l.LargestBuffer(uintptr(5*page + 100))
	d.maxBuffer = 5*page + 100
	w := newWords(t, d)
	x, err := d.Wrap(memory[8:])
	require.NoError(t, err)
	require.Len(t, x.(*buffer).windows, 5)
	y, err := d.NewBuffer(256)
	require.NoError(t, err)
	for offset := 0; offset < 11*page-8-256; offset += 1012 {
		w.run(w.move(device.Binding{Buffer: x, Offset: offset}, device.Binding{Buffer: y}, 64, false))
		got := make([]byte, 256)
		require.NoError(t, y.Read(0, got))
		require.Equal(t, memory[8+offset:][:256], got, "offset %d", offset)
	}
	_, err = d.NewBuffer(5*page + 100)
	require.ErrorContains(t, err, "metal: a buffer of")
	w.close(x, y)
	require.NoError(t, syscall.Munmap(memory))
}

func TestCover(t *testing.T) {
	for _, c := range []struct {
		size, largest, page int
		starts              []int
		length              int
	}{
		{10, 10, 1, []int{0}, 10},
		{11, 10, 1, []int{0, 5}, 10},
		{20, 10, 1, []int{0, 5, 10}, 10},
		{21, 10, 1, []int{0, 5, 10, 15}, 10},
		{64, 39, 4, []int{0, 16, 32}, 32},
	} {
		starts, length := cover(c.size, c.largest, c.page)
		require.Equal(t, c.starts, starts, "%+v", c)
		require.Equal(t, c.length, length, "%+v", c)
	}
}

// BenchmarkMessage is what a message costs without what it does; a dispatch is some eight.
func BenchmarkMessage(b *testing.B) {
	d := open(b, standin.Checked(b))
	for b.Loop() {
		send(d.device, selMaxBuffer)
	}
	require.NoError(b, d.Close())
}
