//go:build linux && (amd64 || arm64)

package host

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

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
		{"macOS 14", func(l *standin.Library) { l.Set(standin.MacOS, 14) }},
		{"memory that cannot be wrapped", func(l *standin.Library) { l.Set(standin.NoCopy, 0) }},
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
	return device.Dispatch{Label: "move", Kernel: w.kernel, Groups: [3]int{1, 1, 1},
		Threads: [3]int{64, 1, 1}, Barrier: barrier,
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

// WriteText is writeText for tests outside of the package.
const WriteText = writeText

// What Open refuses. An error that wraps ErrUnavailable lets --device auto go on to the next engine.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name        string
		setting     standin.Setting
		value       uintptr
		want        string // "" where nothing is refused
		unavailable bool
	}{
		{"macOS 13", standin.MacOS, 13, "metal: compiling write (Metal 3.1, which wants macOS 14): invalid value 'metal3.1'", true},
		{"A13", standin.Family, 1006, "metal: stand-in is not of Apple's GPU family 7 (M1) or later", true},
		{"M2", standin.Family, 1008, "", false},
		{"narrow simdgroups", standin.SimdgroupWidth, 16,
			"metal: kernel put_bytes of write has simdgroups of 16 threads, want 32", false},
		{"wide simdgroups", standin.SimdgroupWidth, 64,
			"metal: kernel put_bytes of write has simdgroups of 64 threads, want 32", false},
		{"too much threadgroup memory", standin.StaticMemory, 32769,
			"metal: kernel put_bytes of write takes 32769 bytes of threadgroup memory, the GPU has 32768", false},
		{"all of the threadgroup memory", standin.StaticMemory, 32768, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := standin.Checked(t)
			l.Set(c.setting, c.value)
			d, err := Open(Libraries{ObjectiveC: l.Path, Metal: l.Path, Others: []string{l.Path}})
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, d.Close())
				return
			}
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.unavailable, errors.Is(err, device.ErrUnavailable))
		})
	}
}

// A Submit beyond maxRunning waits for the oldest, and for no others.
func TestRunning(t *testing.T) {
	d := open(t, standin.Checked(t))
	w := newWords(t, d)
	x, err := d.NewBuffer(8)
	require.NoError(t, err)
	s, err := d.Record([]device.Dispatch{w.move(device.Binding{Buffer: x}, device.Binding{Buffer: x, Offset: 4}, 1,
		false)})
	require.NoError(t, err)
	for i := range 3 * maxRunning {
		require.NoError(t, s.Submit())
		require.Len(t, d.running, min(i+1, maxRunning))
	}
	require.NoError(t, d.Wait())
	require.NoError(t, s.Close())
	w.close(x)
}

// busy is a device with a buffer of four words, on whose first two a sequence runs that copies the first to the second.
func busy(t *testing.T) (*words, *buffer, device.Sequence) {
	d := open(t, standin.Checked(t))
	w := newWords(t, d)
	x, err := d.newBuffer(16)
	require.NoError(t, err)
	s, err := d.Record([]device.Dispatch{w.move(device.Binding{Buffer: x}, device.Binding{Buffer: x, Offset: 4}, 1,
		false)})
	require.NoError(t, err)
	require.NoError(t, s.Submit())
	require.Len(t, d.running, 1)
	return w, x, s
}

// What is written while a sequence runs is there for all that comes after the Write, and in order.
func TestWritesWhileBusy(t *testing.T) {
	writeAt := func(t *testing.T, x *buffer, offset int, value byte) {
		taken := []byte{value}
		require.NoError(t, x.Write(offset, taken))
		taken[0] = 99
	}
	write := func(t *testing.T, x *buffer, value byte) { writeAt(t, x, 0, value) }
	read := func(t *testing.T, x *buffer) []byte {
		got := make([]byte, 8)
		require.NoError(t, x.Read(0, got))
		return got
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, x *buffer, s device.Sequence) []byte
		want []byte // of the two words: the sequence makes the second the first
	}{
		{"two writes to a place", func(t *testing.T, x *buffer, s device.Sequence) []byte {
			write(t, x, 1)
			write(t, x, 2)
			require.NoError(t, s.Submit())
			return read(t, x)
		}, []byte{2, 0, 0, 0, 2, 0, 0, 0}},
		{"a write that begins within a word, made once", func(t *testing.T, x *buffer, s device.Sequence) []byte {
			writeAt(t, x, 1, 3)
			require.NoError(t, s.Submit())
			require.Empty(t, x.device.writes)
			return read(t, x)
		}, []byte{0, 3, 0, 0, 0, 3, 0, 0}},
		{"a write when what ran is done, but the one before was not made",
			func(t *testing.T, x *buffer, s device.Sequence) []byte {
				f, err := x.Fetch(8, 4)
				require.NoError(t, err)
				write(t, x, 1)
				_, err = f.Bytes()
				require.NoError(t, err)
				write(t, x, 2)
				require.NoError(t, s.Submit())
				return read(t, x)
			}, []byte{2, 0, 0, 0, 2, 0, 0, 0}},
		{"a read", func(t *testing.T, x *buffer, _ device.Sequence) []byte {
			write(t, x, 1)
			return read(t, x)
		}, []byte{1, 0, 0, 0, 0, 0, 0, 0}},
		{"a fetch", func(t *testing.T, x *buffer, _ device.Sequence) []byte {
			write(t, x, 1)
			f, err := x.Fetch(0, 8)
			require.NoError(t, err)
			got, err := f.Bytes()
			require.NoError(t, err)
			return got
		}, []byte{1, 0, 0, 0, 0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, x, s := busy(t)
			require.Equal(t, c.want, c.do(t, x, s))
			require.NoError(t, s.Close())
			w.close(x)
		})
	}
}

// A fetch waits for what was submitted before it, and leaves running what came after.
func TestFetch(t *testing.T) {
	w, x, s := busy(t)
	f, err := x.Fetch(0, 4)
	require.NoError(t, err)
	require.NoError(t, s.Submit())
	got, err := f.Bytes()
	require.NoError(t, err)
	require.Len(t, w.device.running, 1)
	require.NoError(t, x.Place(0, []byte{1}))
	require.Equal(t, make([]byte, 4), got)
	require.NoError(t, w.device.Wait())
	require.NoError(t, s.Close())
	w.close(x)
}

// Sequences that have ended are given up without a wait, and a write then takes the short way.
func TestEnded(t *testing.T) {
	w, x, s := busy(t)
	require.NoError(t, pool(func() error { send(w.device.running[0], selWait); return nil }))
	require.NoError(t, x.Write(0, []byte{1}))
	require.Empty(t, w.device.running)
	require.Empty(t, w.device.writes)
	require.NoError(t, s.Close())
	w.close(x)
}

// The stand-in says that a dispatch takes a quarter of a millisecond.
func TestTimes(t *testing.T) {
	w, x, s := busy(t)
	got, err := s.(device.Timed).Times()
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, 250*time.Microsecond, got[0].Round(time.Microsecond))
	require.NoError(t, s.Close())
	w.close(x)
}

// Place neither waits nor leaves anything to do: the bytes are there at once, beside what runs.
func TestPlace(t *testing.T) {
	w, x, s := busy(t)
	require.NoError(t, x.Place(8, []byte{3}))
	require.Len(t, w.device.running, 1)
	require.Empty(t, w.device.writes)
	require.Equal(t, byte(3), x.memory[8])
	next, err := w.device.Record([]device.Dispatch{w.move(device.Binding{Buffer: x, Offset: 8},
		device.Binding{Buffer: x, Offset: 12}, 1, false)})
	require.NoError(t, err)
	require.NoError(t, next.Submit())
	got := make([]byte, 16)
	require.NoError(t, x.Read(0, got))
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0}, got)
	require.NoError(t, s.Close())
	require.NoError(t, next.Close())
	w.close(x)
}

// put submits a write to a buffer, as it is, and waits.
func put(t *testing.T, d *gpu, b *buffer) {
	_, err := d.submit(func(e *encoder) { e.encode(write{b, 0, []byte{1}}.command(d.write)) })
	require.NoError(t, err)
	require.NoError(t, d.Wait())
	require.NoError(t, b.Close())
}

// What the system would refuse, or what would go wrong there without a word, is seen.
func TestStandInComplains(t *testing.T) {
	l, err := standin.Load()
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		name, want string
		do         func(d *gpu, w *words)
	}{
		{"unknown selector", "-[MTLDevice noSuchThing]: unrecognized selector",
			func(d *gpu, _ *words) { send(d.device, sel("noSuchThing")) }},
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
		{"tracked buffer", "want shared and untracked",
			func(d *gpu, _ *words) { release(id(send(d.device, selNewBuffer, 16, shared))) }},
		{"part of a page", "is not whole pages",
			func(d *gpu, _ *words) { send(d.device, selNoCopy, 1<<20, 100, shared|untracked, 0) }},
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
		{"a message of macOS 15 on macOS 14", "-[MTLCommandQueue addResidencySet:]: unrecognized selector",
			func(d *gpu, _ *words) {
				l.Set(standin.MacOS, 14)
				send(d.queue, selAddResidencySet, uintptr(d.residency))
			}},
		{"fast functions", "floating-point functions are not precise", func(d *gpu, _ *words) {
			require.NoError(t, pool(func() error {
				options := id(send(class("MTLCompileOptions"), selNew))
				send(options, selSetLanguage, language31)
				send(options, selSetMath, mathSafe)
				var failure id
				release(id(send(d.device, selNewLibrary, uintptr(nsString(writeText)), uintptr(options),
					uintptr(unsafe.Pointer(&failure)))), options)
				return nil
			}))
		}},
		{"a buffer that is not committed to the residency set",
			"argument 0 of put_bytes is in no committed residency set of the queue", func(d *gpu, _ *words) {
				b, err := d.newBuffer(4)
				require.NoError(t, err)
				d.residencyChanged = false
				put(t, d, b)
			}},
		{"a residency set that is not requested",
			"argument 0 of put_bytes is in a residency set that was committed, but not requested", func(d *gpu,
				_ *words) {
				b, err := d.newBuffer(4)
				require.NoError(t, err)
				send(d.residency, selCommit)
				d.residencyChanged = false
				put(t, d, b)
			}},
		{"a closed kernel", "a dispatch runs with a dead pipeline", func(d *gpu, w *words) {
			b, err := d.newBuffer(8)
			require.NoError(t, err)
			s, err := d.Record([]device.Dispatch{w.move(device.Binding{Buffer: b}, device.Binding{Buffer: b, Offset: 4},
				1, false)})
			require.NoError(t, err)
			require.NoError(t, s.Submit())
			require.NoError(t, w.kernel.Close())
			require.ErrorContains(t, d.Wait(), "metal: command buffer 1: a dead pipeline")
			d.err = nil
			require.NoError(t, b.Close())
		}},
		{"a closed buffer", "copy_words runs with a dead buffer", func(d *gpu, w *words) {
			b, err := d.newBuffer(8)
			require.NoError(t, err)
			c, err := d.newBuffer(8)
			require.NoError(t, err)
			s, err := d.Record([]device.Dispatch{w.move(device.Binding{Buffer: b},
				device.Binding{Buffer: c}, 0, false)})
			require.NoError(t, err)
			require.NoError(t, s.Submit())
			require.NoError(t, b.Close())
			require.NoError(t, d.Wait())
			require.NoError(t, c.Close())
		}},
		{"65 command buffers", "a command buffer beside 64 others: it waits for one of them", func(d *gpu, _ *words) {
			for range 65 {
				_, err := d.submit(func(*encoder) {})
				require.NoError(t, err)
			}
			require.NoError(t, d.Wait())
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

// A command buffer that ends in an error says so at the next call that waits, and from then on until Recover.
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
	require.NoError(t, d.Recover())
	require.NoError(t, d.Wait())
	written, err := d.NewBuffer(4)
	require.NoError(t, err)
	require.NoError(t, s.Submit())
	require.NoError(t, written.Write(0, []byte{1})) // beside what runs
	require.NoError(t, d.Recover())                 // from an error that nobody has waited for
	require.NoError(t, written.Close())
	w := newWords(t, d)
	x, err := d.NewBuffer(8)
	require.NoError(t, err)
	require.NoError(t, x.Write(0, []byte{7}))
	w.run(w.move(device.Binding{Buffer: x}, device.Binding{Buffer: x, Offset: 4}, 1, false))
	got := make([]byte, 1)
	require.NoError(t, x.Read(4, got))
	require.Equal(t, byte(7), got[0])
	require.NoError(t, s.Submit())
	require.ErrorContains(t, d.Wait(), "metal: command buffer 4: simd operation in divergent code")
	require.NoError(t, s.Close())
	require.NoError(t, x.Close())
	require.NoError(t, y.Close())
	require.NoError(t, k.Close())
	require.NoError(t, library.Close())
	require.NoError(t, w.kernel.Close())
	require.NoError(t, w.library.Close())
	require.ErrorContains(t, d.Close(), "metal: command buffer 4: simd")
}

// Memory that is longer than the largest buffer is wrapped in windows; every binding finds its words.
func TestWindows(t *testing.T) {
	l := standin.Checked(t)
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 11*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	for i := range memory {
		memory[i] = byte(i % 251)
	}
	d := open(t, l)
	l.Set(standin.LargestBuffer, uintptr(5*page+100))
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

// Nothing of Metal's knows wrapped memory when its buffer is closed: it may be unmapped then.
func TestClosed(t *testing.T) {
	l := standin.Checked(t)
	d := open(t, l)
	before := l.Live()
	x, err := d.Wrap(make([]byte, 100))
	require.NoError(t, err)
	require.Equal(t, before+1, l.Live())
	require.NoError(t, x.Close())
	require.Equal(t, before, l.Live())
	require.NoError(t, d.Close())
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
