package kernels

import (
	le "encoding/binary"
	"math"
	"math/rand/v2"
)

// Trial is a known answer of compiled kernels: launches over buffers of pseudo-random numbers, at the shapes that
// the kernels are compiled for, and what the twins say that these leave in the buffers. Big products are tried on
// few of their rows: the grid is smaller, and the rows of a weight that the launch does not reach are zeros.
type Trial struct {
	Buffers []TrialBuffer
	// Launches run in this order, each after the one before it.
	Launches []TrialLaunch
	Wants    []Want
}

// TrialBuffer is a buffer of a trial: parts of it, and zeros.
type TrialBuffer struct {
	// Size in bytes.
	Size  int
	Parts []TrialPart
}

// TrialPart is what a buffer holds from a byte on.
type TrialPart struct {
	At      int
	Content []byte
}

// TrialLaunch is a launch with the numbers of its buffers.
type TrialLaunch struct {
	Launch  Launch
	Buffers []int
}

// Want is what elements of a buffer must be.
type Want struct {
	Buffer, First int
	DType         DType
	Values        []float32
	// Bound is the largest difference, relative to the largest of the values; 0 for equal.
	Bound float64
}

// Size is the number of bytes that the values take, At where they begin.
func (w Want) Size() int { return len(w.Values) * w.DType.Size() }

// At is where the values begin in the buffer, in bytes.
func (w Want) At() int { return w.First * w.DType.Size() }

// Difference is the largest difference of what a kernel left from the values, relative to the largest of them.
// Where a number is NaN it is infinite.
func (w Want) Difference(content []byte) float64 {
	largest, difference := 0.0, 0.0
	for i, want := range w.Values {
		var got float64
		switch w.DType {
		case BF16:
			got = float64(math.Float32frombits(uint32(le.LittleEndian.Uint16(content[2*i:])) << 16))
		case I32:
			got = float64(int32(le.LittleEndian.Uint32(content[4*i:])))
		default:
			got = float64(math.Float32frombits(le.LittleEndian.Uint32(content[4*i:])))
		}
		largest = max(largest, math.Abs(float64(want)))
		if d := math.Abs(got - float64(want)); d <= math.MaxFloat64 {
			difference = max(difference, d)
		} else {
			difference = math.Inf(1)
		}
	}
	if difference == 0 {
		return 0
	}
	return difference / largest
}

// trial makes a Trial.
type trial struct {
	*rand.Rand
	Trial
}

func newTrial() *trial { return &trial{Rand: rand.New(rand.NewPCG(3, 7))} }

// place is a buffer of a trial while it is made: its number, from 1 on.
type place int

// add adds a buffer.
func (t *trial) add(size int, parts ...TrialPart) place {
	t.Buffers = append(t.Buffers, TrialBuffer{size, parts})
	return place(len(t.Buffers))
}

// run adds a launch; a launch in a trial has none itself.
func (t *trial) run(l Launch, a Arguments[place]) {
	l.Trial = nil
	list, _ := List(l, a)
	buffers := make([]int, len(list))
	for i, at := range list {
		buffers[i] = int(at) - 1
	}
	t.Launches = append(t.Launches, TrialLaunch{l, buffers})
}

// wants adds what rows of n elements, stride elements apart, must be.
func (t *trial) wants(buffer place, d DType, n, stride int, values []float32, bound float64) {
	for i := 0; i*n < len(values); i++ {
		t.wantAt(buffer, i*stride, d, values[i*n:][:n], bound)
	}
}

// want adds what a buffer must hold from its first element on.
func (t *trial) want(buffer place, d DType, values []float32, bound float64) {
	t.wantAt(buffer, 0, d, values, bound)
}

// wantAt adds what a buffer must hold from an element on.
func (t *trial) wantAt(buffer place, first int, d DType, values []float32, bound float64) {
	t.Wants = append(t.Wants, Want{int(buffer) - 1, first, d, values, bound})
}

// random makes numbers of a variance of 1, as a buffer of the dtype holds them.
func (t *trial) random(d DType, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = d.store((t.Float32()*2 - 1) * 1.75)
	}
	return out
}

// Bytes are numbers as a buffer of the dtype holds them: f32, bf16, i32 or u32.
func (d DType) Bytes(values []float32) []byte {
	out := make([]byte, 0, len(values)*d.Size())
	for _, v := range values {
		switch d {
		case BF16:
			out = le.LittleEndian.AppendUint16(out, uint16(math.Float32bits(v)>>16))
		case I32, U32:
			out = le.LittleEndian.AppendUint32(out, uint32(int32(v)))
		default:
			out = le.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// hold adds a buffer of a dtype.
func (t *trial) hold(d DType, values []float32) place {
	p := d.Bytes(values)
	return t.add(max(len(p), 16), TrialPart{0, p})
}

// held adds a buffer of random numbers and gives them.
func (t *trial) held(d DType, n int) ([]float32, place) {
	values := t.random(d, n)
	return values, t.hold(d, values)
}

func (t *trial) floats(n int) ([]float32, place) { return t.held(F32, n) }

// ints adds a buffer of 32-bit integers.
func (t *trial) ints(values ...int32) place {
	p := make([]byte, 0, 4*len(values))
	for _, v := range values {
		p = le.LittleEndian.AppendUint32(p, uint32(v))
	}
	return t.add(max(len(p), 16), TrialPart{0, p})
}

// out adds a buffer for n elements, which are NaN, or -1, where that is cheap.
func (t *trial) out(d DType, n int) place {
	size := max(n*d.Size(), 16)
	if size > 1<<20 {
		return t.add(size)
	}
	p := make([]byte, size)
	for i := range p {
		p[i] = 0xff
	}
	return t.add(size, TrialPart{0, p})
}

// norm adds the weights of a norm of n numbers; a norm without weights has any buffer.
func (t *trial) norm(n Norm, size int) ([]float32, place) {
	if n == NormBF16 {
		return t.held(BF16, size)
	}
	return t.floats(size)
}

// weight adds a weight [total, k] of which rows are random.
func (t *trial) weight(f Format, rows, k, total int) (*Weight, WeightArguments[place]) {
	w := &Weight{Format: f, N: rows, K: k, Words: make([]uint32, rows*k*f.Bits/32)}
	each := k * f.Bits / 8
	words := func() place {
		p := make([]byte, 0, 4*len(w.Words))
		for _, v := range w.Words {
			p = le.LittleEndian.AppendUint32(p, v)
		}
		return t.add(total*each, TrialPart{0, p})
	}
	switch f.Bits {
	case 16:
		for i := range w.Words {
			pair := t.random(BF16, 2)
			w.Words[i] = math.Float32bits(pair[0])>>16 | math.Float32bits(pair[1])
		}
	case 32:
		for i := range w.Words {
			w.Words[i] = math.Float32bits(t.Float32()*2 - 1)
		}
	default:
		for i := range w.Words {
			w.Words[i] = t.Uint32()
		}
	}
	at := words()
	if !f.Quantized() {
		return w, WeightArguments[place]{at, at, at}
	}
	d, shift := BF16, 16
	if f.F32 {
		d, shift = F32, 0
	}
	levels := float32(int(1) << f.Bits)
	scales, biases := make([]float32, rows*k/f.Group), make([]float32, rows*k/f.Group)
	for i := range scales {
		scales[i] = d.store((0.5 + t.Float32()) / levels)
		biases[i] = d.store(-scales[i] * levels * (0.4 + 0.2*t.Float32()))
		w.Scales = append(w.Scales, math.Float32bits(scales[i])>>shift)
		w.Biases = append(w.Biases, math.Float32bits(biases[i])>>shift)
	}
	size := total * k / f.Group * d.Size()
	held := WeightArguments[place]{at, t.add(size, TrialPart{0, d.Bytes(scales)}), at}
	if !f.Symmetric {
		held.Biases = t.add(size, TrialPart{0, d.Bytes(biases)})
	}
	return w, held
}

// rows are n rows of a weight from one on.
func (w *Weight) rows(first, n int) *Weight {
	cut := func(of []uint32, each int) []uint32 {
		if of == nil {
			return nil
		}
		return of[first*each:][:n*each]
	}
	out := &Weight{Format: w.Format, N: n, K: w.K, Words: cut(w.Words, w.K*w.Bits/32)}
	if w.Quantized() {
		out.Scales, out.Biases = cut(w.Scales, w.K/w.Group), cut(w.Biases, w.K/w.Group)
	}
	return out
}

// sums is the bound for sums of n products in fp32, whatever their order.
func sums(n int) float64 { return 1e-5 * max(1, math.Sqrt(float64(n)/512)) }

// The bounds of one rounding to bf16 of results, and of tiled products of numbers that were rounded.
const (
	roundedOnce = 5e-3
	roundedAll  = 1e-2
)

// few makes the grid of a launch smaller: as many threadgroups along the first axis as make at least so many rows,
// of n in all, a threadgroup making each unless the launch says otherwise. It gives the number of rows.
func (l *Launch) few(least, n, each int) int {
	covers := l.covers
	if covers == nil {
		covers = func(groups int) int { return min(n, groups*each) }
	}
	groups := 1
	for groups < l.Groups[0] && covers(groups) < least {
		groups++
	}
	l.Groups[0] = groups
	return covers(groups)
}
