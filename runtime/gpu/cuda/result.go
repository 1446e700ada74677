//go:build (linux && !nocuda) || windows

package cuda

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// unwritten is the content of a word of the host's memory until a kernel writes it. If a result equals it, the event
// says whether the kernel is done.
const unwritten = ^uint32(0)

// glances is how often the host looks at a word before it asks for the event: some 20 µs.
const glances = 20000

// await is told that a sequence which writes to a buffer of the host's memory is about to be launched. If it writes one
// word only, at offset at, the host sees by the word itself that it is there, some microseconds before an event says
// so. Where the one before was not waited for, its word may come at any time, so that the event must tell; at is -1
// where several are written.
func (b *buffer) await(at int) {
	b.awaited = -1
	if at >= 0 && !b.pending {
		b.awaited = at
		atomic.StoreUint32(b.word(at), unwritten)
	}
	b.pending = true
}

func (b *buffer) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&b.host.bytes[at])) }

// glance waits for a word, or for the event e if that comes first.
func (d *gpu) glance(word *uint32, e event) error {
	for {
		for range glances {
			if atomic.LoadUint32(word) != unwritten {
				return nil
			}
		}
		if past, err := e.past(d); past || err != nil {
			return err
		}
		runtime.Gosched() // a machine of one processor has others to run
	}
}

// hostWords are the places in the host's memory that a sequence writes to.
type hostWords struct {
	buffers []*buffer
	at      int // of the only one, or -1
}

// see notes that a dispatch has a place in a buffer as an argument.
func (w *hostWords) see(b *buffer, offset int) {
	if b.host.bytes == nil {
		return
	}
	w.at = -1
	if len(w.buffers) == 0 && offset%4 == 0 && offset+4 <= b.size {
		w.at = offset
	}
	w.buffers = append(w.buffers, b)
}

// await tells all buffers.
func (w *hostWords) await() {
	for _, b := range w.buffers {
		b.await(w.at)
	}
}
