package cpu

import (
	"runtime"
	"time"

	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/cpu/pool"
	"github.com/etc-ml/etc/runtime/engine"
)

// probeBytes is the size of the memory that the probe reads: more than caches hold.
const probeBytes = 256 << 20

// probeTime is about how long each probe takes.
const probeTime = 60 * time.Millisecond

// Probe measures what this machine can do now with the options' threads: how fast [kernel.Touch] reads memory, in bytes
// a second, and how fast 4-bit weights in groups of 64 that fit into caches are multiplied by 64 vectors of
// activations, in multiplications and additions a second. Activations are rounded or not, as the options say. It takes
// about a fifth of a second and 256 MiB. The best of several rounds counts.
func Probe(o engine.Options) (bytesPerSecond, operationsPerSecond float64) {
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := pool.New(threads)
	defer p.Close()
	data := make([]byte, probeBytes)
	const piece = 1 << 20
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1 // unwritten pages are all mapped to one page of zeros
	}
	read := best(func() {
		p.Run(len(data)/piece, 1, func(lo, hi int) { kernel.Touch(data[lo*piece : hi*piece]) })
	})

	const rows, cols, vectors, group = 256, 2048, 64, 64
	w := kernel.Matrix{Format: kernel.Q4, Rows: rows, Cols: cols, Group: group, ScaleFormat: kernel.BF16,
		Data: make([]byte, rows*cols/2), Scales: make([]byte, 2*rows*cols/group),
		Biases: make([]byte, 2*rows*cols/group)}
	var a kernel.Activations
	a.Reset(w.Layout(pathOf(o)), vectors, cols)
	a.Fill(make([]float32, vectors*cols), cols, 0, vectors)
	out := make([][]float32, 4*threads)
	for i := range out {
		out[i] = make([]float32, vectors*rows)
	}
	multiply := best(func() {
		p.Run(len(out), 1, func(lo, hi int) {
			for _, y := range out[lo:hi] {
				kernel.MatMul(y, rows, &w, &a, 0, rows)
			}
		})
	})
	return probeBytes / read.Seconds(), 2 * float64(len(out)) * rows * cols * vectors / multiply.Seconds()
}

// best returns the shortest time of f, over rounds that take probeTime in all.
func best(f func()) time.Duration {
	least := time.Duration(1<<63 - 1)
	for begin := time.Now(); ; {
		start := time.Now()
		f()
		least = min(least, max(time.Since(start), 1))
		if time.Since(begin) > probeTime {
			return least
		}
	}
}
