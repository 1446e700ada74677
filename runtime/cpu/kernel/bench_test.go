package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sort"
	"sync"
	"testing"
	"time"
)

// atLevel is KERNEL_LEVEL=name, to measure a level that is not the best of the CPU.
func atLevel(b *testing.B) {
	if name := os.Getenv("KERNEL_LEVEL"); name != "" {
		if err := SetLevel(name); err != nil {
			b.Fatal(err)
		}
	}
}

// each runs f on parts of n that threads share evenly, multiples of 32.
func each(threads, n int, f func(lo, hi int)) {
	var all sync.WaitGroup
	for t := range threads {
		lo, hi := n/32*t/threads*32, n/32*(t+1)/threads*32
		if t == threads-1 {
			hi = n
		}
		all.Go(func() { f(lo, hi) })
	}
	all.Wait()
}

// benchmarkMatrix has cheap random contents.
func benchmarkMatrix(format Format, rows, cols, group int) *Matrix {
	r := rand.New(rand.NewPCG(7, 8))
	w := &Matrix{Format: format, Rows: rows, Cols: cols}
	fill := func(n int, set, mask uint64) []byte {
		b := make([]byte, n)
		for i := 0; i+8 <= n; i += 8 {
			v := r.Uint64()&mask | set
			for j := range 8 {
				b[i+j] = byte(v >> (8 * j))
			}
		}
		return b
	}
	const normal, varied = 0x3c003c003c003c00, 0x80ff80ff80ff80ff // bf16 numbers around ±0.01
	if format.Quantized() {
		w.Group, w.ScaleFormat = group, BF16
		w.Data = fill(rows*cols*format.Bits()/8, 0, ^uint64(0))
		w.Scales, w.Biases = fill(rows*cols/group*2, normal, varied), fill(rows*cols/group*2, normal, varied)
	} else if format.SmallFloats() {
		w.Group = 32
		w.Data = fill(rows*cols*format.Bits()/8, 0, ^uint64(0))
		w.Scales = fill(rows*cols/32, 0x7070707070707070, 0x0707070707070707)
	} else {
		w.Data = fill(rows*cols*format.Bits()/8, normal, varied)
	}
	return w
}

// BenchmarkMatVec is decode: weights from memory, alternating with a plain read of the same bytes. It reports
// GB/s and the median share of the faster of the reads before and after.
func BenchmarkMatVec(b *testing.B) {
	atLevel(b)
	for _, c := range []struct {
		format Format
		path   Path
		cols   int
	}{{Q4, Integer, 2048}, {Q4, Exact, 2048}, {Q8, Integer, 2048}, {Q8, Exact, 2048}, {BF16, Exact, 2048},
		{Q4, Integer, 512}, {Q4, Integer, 5376}, {MXFP4, Integer, 2048}, {MXFP4, Exact, 2048}, {MXFP8, Exact, 2048}} {
		rows := 256 << 20 * 8 / c.format.Bits() / c.cols / 32 * 32 / 2
		w := benchmarkMatrix(c.format, rows, c.cols, 64)
		x, y := make([]float32, c.cols), make([]float32, rows)
		for i := range x {
			x[i] = float32(i%17) - 8
		}
		for _, threads := range []int{1, 2, runtime.GOMAXPROCS(0)} {
			b.Run(fmt.Sprintf("%s/%v/path%d/cols%d/threads%d", Level(), c.format, c.path, c.cols, threads),
				func(b *testing.B) {
					var a Activations
					a.Reset(w.Layout(c.path), 1, c.cols)
					a.Fill(x, c.cols, 0, 1)
					bytes := float64(w.Bytes(rows))
					read := func() float64 {
						start := time.Now()
						each(threads, rows, func(lo, hi int) {
							part := w.Slice(lo, hi)
							Touch(part.Data)
							Touch(part.Scales)
							Touch(part.Biases)
						})
						return time.Since(start).Seconds()
					}
					var speeds, shares []float64
					before := read()
					for b.Loop() {
						start := time.Now()
						each(threads, rows, func(lo, hi int) { MatMul(y, rows, w, &a, lo, hi) })
						took := time.Since(start).Seconds()
						after := read()
						speeds, shares = append(speeds, bytes/took/1e9), append(shares, min(before, after)/took)
						before = after
					}
					sort.Float64s(speeds)
					sort.Float64s(shares)
					b.ReportMetric(speeds[len(speeds)/2], "GB/s")
					b.ReportMetric(speeds[len(speeds)-1], "best-GB/s")
					b.ReportMetric(100*shares[len(shares)/2], "%read")
				})
		}
	}
}

// BenchmarkPieces is the time of one call for a part of the rows, as threads claim them, with 1 to 4 vectors: parts
// in random order, from memory. It reports the third decile of all calls, which other work on the machine moves
// little, and that of a plain read of the same bytes.
func BenchmarkPieces(b *testing.B) {
	atLevel(b)
	for _, c := range []struct {
		format  Format
		cols    int
		vectors int
	}{{Q4, 2048, 1}, {Q4, 512, 1}, {Q4, 704, 1}, {Q8, 2048, 1}, {BF16, 2048, 1}, {Q4, 2048, 2}, {Q4, 2048, 4}} {
		rows := 128 << 20 * 8 / c.format.Bits() / c.cols / 32 * 32
		w := benchmarkMatrix(c.format, rows, c.cols, 64)
		x, y := make([]float32, c.vectors*c.cols), make([]float32, c.vectors*rows)
		for i := range x {
			x[i] = float32(i%17) - 8
		}
		var a Activations
		a.Reset(w.Layout(Integer), c.vectors, c.cols)
		a.Fill(x, c.cols, 0, c.vectors)
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
			step := size / w.Bytes(1) / 4 * 4
			order := rand.New(rand.NewPCG(9, 10)).Perm(rows / step)
			usual := func(f func(lo, hi int)) float64 {
				var times []float64
				for _, i := range order {
					start := time.Now()
					f(i*step, (i+1)*step)
					times = append(times, time.Since(start).Seconds())
				}
				sort.Float64s(times)
				return times[len(times)*3/10]
			}
			name := fmt.Sprintf("%s/%v/cols%d/vectors%d/%dKiB", Level(), c.format, c.cols, c.vectors, size>>10)
			b.Run(name, func(b *testing.B) {
				least, read := math.Inf(1), math.Inf(1)
				for b.Loop() {
					least = min(least, usual(func(lo, hi int) { MatMul(y, rows, w, &a, lo, hi) }))
					read = min(read, usual(func(lo, hi int) {
						part := w.Slice(lo, hi)
						Touch(part.Data)
						Touch(part.Scales)
						Touch(part.Biases)
					}))
				}
				b.ReportMetric(1e6*least, "us/piece")
				b.ReportMetric(float64(w.Bytes(step))/least/1e9, "GB/s")
				b.ReportMetric(float64(w.Bytes(step))/read/1e9, "read-GB/s")
			})
		}
	}
}

// BenchmarkFewVectors is decode of a few streams: a matrix from memory times 1 to 24 vectors, in parts as threads claim
// them. It reports GB/s of the matrix.
func BenchmarkFewVectors(b *testing.B) {
	atLevel(b)
	for _, c := range []struct {
		format Format
		cols   int
	}{{Q4, 2048}, {Q4, 512}, {Q4, 5376}, {Q4, 21504}, {Q8, 2048}} {
		rows := 256 << 20 * 8 / c.format.Bits() / c.cols / 64 * 64 / 2
		w := benchmarkMatrix(c.format, rows, c.cols, 64)
		for _, vectors := range []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48} {
			x, y := make([]float32, vectors*c.cols), make([]float32, vectors*rows)
			for i := range x {
				x[i] = float32(i%17) - 8
			}
			threads := runtime.GOMAXPROCS(0)
			b.Run(fmt.Sprintf("%s/%v/cols%d/vectors%d/threads%d", Level(), c.format, c.cols, vectors, threads),
				func(b *testing.B) {
					var a Activations
					a.Reset(w.Layout(Integer), vectors, c.cols)
					a.Fill(x, c.cols, 0, vectors)
					var speeds []float64
					for b.Loop() {
						start := time.Now()
						each(threads, rows, func(lo, hi int) { MatMul(y, rows, w, &a, lo, hi) })
						speeds = append(speeds, float64(w.Bytes(rows))/time.Since(start).Seconds()/1e9)
					}
					sort.Float64s(speeds)
					b.ReportMetric(speeds[len(speeds)/2], "GB/s")
					b.ReportMetric(speeds[len(speeds)-1], "best-GB/s")
				})
		}
	}
}

// BenchmarkMatMul is prefill, alternating with the products of a tile whose operands stay in the cache and
// whose groups never end: the most that the instructions of the path give. It reports GFLOP/s and the median
// share of that peak.
func BenchmarkMatMul(b *testing.B) {
	atLevel(b)
	for _, c := range []struct {
		format        Format
		path          Path
		rows, cols, m int
	}{{Q4, Integer, 2048, 2048, 512}, {Q4, Integer, 512, 2048, 16}, {Q4, Integer, 2048, 512, 16},
		{Q8, Integer, 2048, 2048, 512}, {Q4, Exact, 2048, 2048, 512}, {Q4, Exact, 512, 2048, 16},
		{BF16, Exact, 2048, 2048, 512}, {MXFP4, Integer, 2048, 2048, 512}, {MXFP8, Exact, 2048, 2048, 512}} {
		w := benchmarkMatrix(c.format, c.rows, c.cols, 64)
		x, y := make([]float32, c.m*c.cols), make([]float32, c.m*c.rows)
		for i := range x {
			x[i] = float32(i%17) - 8
		}
		for _, threads := range []int{1, runtime.GOMAXPROCS(0)} {
			b.Run(fmt.Sprintf("%s/%v/path%d/%dx%dx%d/threads%d", Level(), c.format, c.path, c.rows, c.cols, c.m,
				threads), func(b *testing.B) {
				var a Activations
				a.Reset(w.Layout(c.path), c.m, c.cols)
				a.Fill(x, c.cols, 0, c.m)
				var speeds, shares []float64
				for b.Loop() {
					best := peak(c.path, threads)
					start := time.Now()
					each(threads, c.rows, func(lo, hi int) { MatMul(y, c.rows, w, &a, lo, hi) })
					speed := 2 * float64(c.rows) * float64(c.cols) * float64(c.m) / time.Since(start).Seconds() / 1e9
					speeds, shares = append(speeds, speed), append(shares, speed/best)
				}
				sort.Float64s(speeds)
				sort.Float64s(shares)
				b.ReportMetric(speeds[len(speeds)/2], "GFLOP/s")
				b.ReportMetric(speeds[len(speeds)-1], "best-GFLOP/s")
				b.ReportMetric(100*shares[len(shares)/2], "%peak")
			})
		}
	}
}

// peak is the speed of tiles in GFLOP/s.
func peak(path Path, threads int) float64 {
	const depth, repeats = 512, 200
	width, vectors := active.panelRows, active.tileVectors
	if path == Integer {
		vectors = active.tileCodeVectors
	}
	run := make([]func(), threads)
	for t := range run {
		panel, codes, x := make([]byte, 4*width*depth), make([]int8, vectors*(depth+64)),
			make([]float32, vectors*(depth+16))
		scales, sums := make([]float32, 16*max(width, vectors)), make([]float32, vectors*width)
		run[t] = func() {
			if path == Integer {
				active.tileInteger[0][0](sums, panel, scales, scales, codes, depth+64, scales,
					scales, 16, vectors, 1, depth)
			} else {
				active.tileFloat[1](sums, width, panel, 4*width, x, depth+16, vectors, depth, 1)
			}
		}
		run[t]()
	}
	start := time.Now()
	each(threads, 32*threads, func(lo, hi int) {
		for range repeats {
			run[lo/32]()
		}
	})
	return 2 * float64(width*vectors*depth*repeats*threads) / time.Since(start).Seconds() / 1e9
}

// BenchmarkVector is the time of operations on the vectors of one token, in the cache.
func BenchmarkVector(b *testing.B) {
	atLevel(b)
	const n = 2048
	x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = float32(i%17) - 8
	}
	narrow := make([]byte, 2*n)
	var integer, exact Activations
	integer.Reset(Layout{Path: Integer, Format: Q4, Group: 64}, 1, n)
	exact.Reset(Layout{Path: Exact, Format: Q4, Group: 64}, 1, n)
	state := make([]float32, 128*128)
	logits := make([]float32, 248320)
	for i := range logits {
		logits[i] = float32(i * 7919 % 100003)
	}
	top := make([]int32, 40)
	for _, c := range []struct {
		name string
		run  func()
	}{
		{"RMSNorm", func() { RMSNorm(y, x, z, 1e-6) }},
		{"SiLUMul", func() { SiLUMul(y, x, z) }},
		{"GELUTanhMul", func() { GELUTanhMul(y, x, z) }},
		{"Softmax", func() { Softmax(y, x) }},
		{"Tanh", func() { Tanh(y, x) }},
		{"Axpy", func() { Axpy(y, 0.5, x) }},
		{"ToBF16", func() { ToBF16(narrow, x) }},
		{"Rotate", func() { Rotate(x[:256], y[:128], z[:128]) }},
		{"Convolve", func() { Convolve(y[:512], x, z) }},
		{"DeltaStep128x128", func() { DeltaStep(y[:128], state, x[:128], z[:128], x[128:256], 0.9, 0.5) }},
		{"FillInteger", func() { integer.Fill(x, n, 0, 1) }},
		{"FillExact", func() { exact.Fill(x, n, 0, 1) }},
		{"ArgMax248320", func() { ArgMax(logits) }},
		{"Top40of248320", func() { TopK(top, logits) }},
	} {
		b.Run(Level()+"/"+c.name, func(b *testing.B) {
			for b.Loop() {
				c.run()
			}
		})
	}
}

// BenchmarkAttention is decode: 8 queries of width 256 over a cache from memory. GB/s counts the cache.
func BenchmarkAttention(b *testing.B) {
	atLevel(b)
	const rows, width, queries, chunk = 32768, 256, 8, 512
	cache := benchmarkMatrix(BF16, rows, width, 0)
	q, scores, out := make([]float32, queries*width), make([]float32, queries*chunk), make([]float32, queries*width)
	for i := range scores {
		scores[i] = 1.0 / chunk
	}
	for _, c := range []struct {
		name string
		run  func(lo, hi int)
	}{
		{"scores", func(lo, hi int) { AttentionScores(scores, chunk, q, width, queries, cache, lo, hi) }},
		{"values", func(lo, hi int) { AttentionValues(out, width, scores, chunk, queries, cache, lo, hi) }},
	} {
		b.Run(Level()+"/"+c.name, func(b *testing.B) {
			b.SetBytes(rows * width * 2)
			for b.Loop() {
				for lo := 0; lo < rows; lo += chunk {
					c.run(lo, lo+chunk)
				}
			}
		})
	}
}

// BenchmarkDelta is the gated delta rule of a layer of Qwen3.5-35B-A3B, 16 key heads and 32 value heads of
// width 128, in steps and in chunks, with threads that take key heads in turn. It reports the time of a thread
// for a token of a value head.
func BenchmarkDelta(b *testing.B) {
	atLevel(b)
	const keyHeads, heads, width = 16, 32, 128
	values := func(n int, center float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = center + float32(i*7919%101-50)/1000
		}
		return x
	}
	for _, tokens := range []int{4, 8, 12, 16, 32, 64, 128, 256, 512} {
		q, k := values(tokens*keyHeads*width, 0), values(tokens*keyHeads*width, 0.05)
		v, y := values(tokens*2*heads*width, 0), values(tokens*heads*width, 0)
		decay, beta := values(tokens*heads, 0.9), values(tokens*heads, 0.5)
		var runs []*DeltaRun
		for key := range keyHeads {
			d := &DeltaRun{Tokens: tokens, Keys: width, Q: q[key*width:], K: k[key*width:], QStride: keyHeads * width,
				KStride: keyHeads * width,
				VStride: 2 * heads * width, YStride: heads * width, DecayStride: heads, BetaStride: heads}
			for h := 2 * key; h < 2*key+2; h++ {
				d.Heads = append(d.Heads, DeltaHead{Rows: width, State: values(width*width, 0), V: v[h*width:],
					Y: y[h*width:], Decay: decay[h:], Beta: beta[h:]})
			}
			runs = append(runs, d)
		}
		for _, threads := range []int{1, 2, 4} {
			for _, form := range []struct {
				name string
				run  func(d *DeltaRun)
			}{{"steps", (*DeltaRun).steps}, {"chunks", (*DeltaRun).chunks}} {
				b.Run(fmt.Sprintf("%s/%d/threads%d/%s", Level(), tokens, threads, form.name), func(b *testing.B) {
					for b.Loop() {
						var all sync.WaitGroup
						for t := range threads {
							all.Go(func() {
								for i := t; i < keyHeads; i += threads {
									form.run(runs[i])
								}
							})
						}
						all.Wait()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())*float64(threads)/float64(b.N*heads*tokens),
						"ns/token")
				})
			}
		}
	}
}
