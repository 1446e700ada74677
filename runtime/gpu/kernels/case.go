package kernels

import (
	le "encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// Case is an executable test case of kernels: launches, their buffers with their contents, and the contents that the
// reference implementation expects afterwards. Contents and expectations are computed on demand. One case serves as the
// self-test of a compiled kernel, as the emulator's test, and as a benchmark.
type Case struct {
	// Sizes are the sizes that the case was made for. Those of a self-test are filled in.
	Sizes
	// Launches run in this order, each after the one before it.
	Launches []CaseLaunch
	Buffers  []*Buffer
	// reference computes the expected values and adds them to wants.
	reference func()
	wants     []Want
}

// Sizes say how large a case is. The zero value asks for a self-test: few tokens and, for large products, few rows, so
// that the grid is smaller. Rows of a weight that the launch then does not reach are zeros.
type Sizes struct {
	// Whole asks for the whole launch, with the tokens and the position given here.
	Whole bool
	// Tokens is the number of tokens that are computed. Capacity is the number that the launch is made for, at least
	// Tokens. Position is that of the first token.
	Tokens, Capacity, Position int
	// Reset is the value of the flag that resets a state.
	Reset bool
	// Elsewhere says that the new state is written to another buffer than the old one, as in self-tests.
	Elsewhere bool
	// Chosen says that only the chosen experts have weights, as in self-tests.
	Chosen bool
	// Sequences is the number of sequences that the tokens belong to, as rows of a call of several; 0 stands for one.
	Sequences int
}

// CaseLaunch is a launch with its buffers, in the order of the kernel's parameters.
type CaseLaunch struct {
	Launch
	Buffers []*Buffer
	// Written says which buffers the kernel may write.
	Written []bool
}

// Content is the kind of content that a buffer has before the first launch.
type Content int

// The kinds of content: zeros; bytes of 0xff, which are NaN or -1, so that unwritten results show; random numbers, for
// inputs, states and caches; numbers that the case gives; the data of a weight.
const (
	Zeros Content = iota
	Blank
	Random
	Kept
	Given
	Codes
	Scales
)

// Buffer is a buffer of a case.
type Buffer struct {
	DType DType
	// Size is the size in bytes.
	Size    int
	Content Content
	// Scratch says that nothing is expected of the buffer's content after the launches.
	Scratch bool
	// starts are the indices of the elements at which rows of width numbers begin. Everything else is zeros, or 0xff in
	// a cache.
	starts []int
	width  int
	rest   byte
	values func() []float32
	raw    func() []byte
}

// Part is the content of a buffer from byte At on.
type Part struct {
	At      int
	Content []byte
}

// blankMost is the size of the largest buffer that is filled with bytes of 0xff. Larger ones are zeros.
const blankMost = 1 << 20

// Parts returns the content of the buffer. It is zeros where no part says otherwise. Later parts overwrite earlier
// ones.
func (b *Buffer) Parts() (parts []Part) {
	if b.rest != 0 && b.Size <= blankMost {
		p := make([]byte, b.Size)
		for i := range p {
			p[i] = b.rest
		}
		parts = append(parts, Part{0, p})
	}
	switch {
	case b.raw != nil:
		parts = append(parts, Part{0, b.raw()})
	case b.values != nil:
		content := b.DType.Bytes(b.values())
		for i, at := range b.starts {
			n := b.width * b.DType.Size()
			parts = append(parts, Part{at * b.DType.Size(), content[i*n:][:n]})
		}
	}
	return parts
}

// Values returns the numbers that the case has put into the buffer, row after row, or none if it is nil. They must not
// be changed.
func (b *Buffer) Values() []float32 {
	if b == nil {
		return nil
	}
	return b.values()
}

// Want is the expected content of some elements of a buffer.
type Want struct {
	Buffer *Buffer
	First  int
	DType  DType
	Values []float32
	// Bound is the largest allowed difference, relative to the largest value; 0 requires equality.
	Bound Bounds
}

// Bounds are the bounds for the emulator, whose rounding is known, and for a device in a self-test.
type Bounds struct{ Test, SelfTest float64 }

// Size returns the number of bytes that the values take.
func (w Want) Size() int { return len(w.Values) * w.DType.Size() }

// At returns the byte in the buffer at which the values begin.
func (w Want) At() int { return w.First * w.DType.Size() }

// Difference returns the largest difference between the content that a kernel left and the values, relative to the
// largest value. It is infinite where a number is NaN.
func (w Want) Difference(content []byte) float64 {
	largest, difference := 0.0, 0.0
	for i, got := range w.DType.Numbers(content) {
		want := float64(w.Values[i])
		if got == want && math.IsInf(want, 0) {
			continue // such as masked logits
		}
		largest = max(largest, math.Abs(want))
		if d := math.Abs(got - want); d <= math.MaxFloat64 {
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

// Wants returns what the launches must leave in the buffers. The first call computes it.
func (c *Case) Wants() []Want {
	if c.reference != nil {
		c.reference()
		c.reference = nil
	}
	return c.wants
}

// newCase returns an empty case with these sizes. tokens and position are those of a self-test.
func newCase(s Sizes, tokens, position int) *Case {
	if !s.Whole {
		s = Sizes{Tokens: tokens, Position: position, Elsewhere: true, Chosen: true, Sequences: 3}
	}
	s.Capacity = max(s.Capacity, s.Tokens)
	return &Case{Sizes: s}
}

// add adds a buffer of n elements.
func (c *Case) add(d DType, n int, content Content) *Buffer {
	b := &Buffer{DType: d, Size: max(n*d.Size(), 16), Content: content}
	c.Buffers = append(c.Buffers, b)
	return b
}

// seed returns the random numbers for the buffer that is added next.
func (c *Case) seed() *rand.Rand { return rand.New(rand.NewPCG(3, uint64(len(c.Buffers)))) }

// run adds a launch to the case.
func (c *Case) run(l Launch, a Arguments[*Buffer]) {
	l.Case = nil
	list, written := List(l, a)
	c.Launches = append(c.Launches, CaseLaunch{l, list, written})
}

// few shrinks the grid of a launch, unless the case is whole: it keeps as many threadgroups along the first axis as
// compute at least least of n rows. A threadgroup computes each rows unless the launch says otherwise. few returns the
// number of rows that are computed.
func (c *Case) few(l *Launch, least, n, each int) int { return c.fewAlong(l, 0, least, n, each) }

// fewAlong is few for launches whose rows are divided along another axis of the grid.
func (c *Case) fewAlong(l *Launch, dimension, least, n, each int) int {
	if c.Whole {
		return n
	}
	covers := l.covers
	if covers == nil {
		covers = func(groups int) int { return min(n, groups*each) }
	}
	groups := 1
	for groups < l.Groups[dimension] && covers(groups) < least {
		groups++
	}
	l.Groups[dimension] = groups
	return covers(groups)
}

// random adds a buffer of n random numbers with variance 1.
func (c *Case) random(d DType, n int) *Buffer { return c.spread(d, 1, n, n) }

// spread adds a buffer of rows of random numbers; rows start stride elements apart.
func (c *Case) spread(d DType, rows, width, stride int) *Buffer {
	return c.sparse(d, every(rows), rows, width, stride)
}

// sparse adds a buffer of rows, stride elements apart, of which those in at contain random numbers.
func (c *Case) sparse(d DType, at []int, rows, width, stride int) *Buffer {
	r := c.seed()
	b := c.add(d, rows*stride, Random)
	b.width = width
	for _, row := range at {
		b.starts = append(b.starts, row*stride)
	}
	b.values = sync.OnceValue(func() []float32 {
		out := make([]float32, len(at)*width)
		for i := range out {
			out[i] = d.store((r.Float32()*2 - 1) * 1.75)
		}
		return out
	})
	return b
}

// every returns the numbers from 0 to n-1.
func every(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// each replaces every number of a buffer by f of its index and value.
func (b *Buffer) each(f func(i int, x float32) float32) *Buffer {
	values := b.values
	b.values = sync.OnceValue(func() []float32 {
		out := values()
		for i, x := range out {
			out[i] = b.DType.store(f(i, x))
		}
		return out
	})
	return b
}

// made adds a buffer of n numbers that f computes on demand.
func (c *Case) made(d DType, n int, f func() []float32) *Buffer {
	b := c.add(d, n, Given)
	b.starts, b.width, b.values = []int{0}, n, sync.OnceValue(f)
	return b
}

// given adds a buffer with these numbers.
func (c *Case) given(d DType, values ...float32) *Buffer {
	return c.made(d, len(values), func() []float32 { return values })
}

// ints adds a buffer with these 32-bit integers.
func (c *Case) ints(values ...int32) *Buffer {
	b := c.add(I32, len(values), Given)
	b.raw = func() []byte {
		p, _ := le.Append(nil, le.LittleEndian, values) // binary.Append fails for no slice of integers
		return p
	}
	return b
}

// step adds the buffer step: the number of tokens and the position.
func (c *Case) step() *Buffer { return c.ints(int32(c.Tokens), int32(c.Position)) }

// flag adds the buffer of the flag that resets a state.
func (c *Case) flag() *Buffer { return c.ints(int32(btoi(c.Reset))) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// out adds a buffer for n results. Unless it is large, it is filled with NaN or -1.
func (c *Case) out(d DType, n int) *Buffer {
	b := c.add(d, n, Blank)
	b.rest = 0xff
	return b
}

// scratch adds a buffer for values that one launch passes to the next.
func (c *Case) scratch(d DType, n int) *Buffer {
	b := c.out(d, n)
	b.Scratch = true
	return b
}

// state adds a state of n random numbers, and the buffer of the new state.
func (c *Case) state(d DType, n int) (before, after *Buffer) {
	before = c.random(d, n)
	before.Content = Kept
	if after = before; c.Elsewhere {
		after = c.out(d, n)
	}
	return before, after
}

// norm adds the weights of a norm of size numbers. For a norm without weights it returns any buffer.
func (c *Case) norm(n Norm, size int) *Buffer {
	if n == NormBF16 {
		return c.random(BF16, size)
	}
	return c.random(F32, size)
}

// weight adds a weight [total, k] whose first rows rows are random; the others are zeros.
func (c *Case) weight(f Format, rows, k, total int) (func() *Weight, WeightArguments[*Buffer]) {
	r := c.seed()
	made := sync.OnceValue(func() *Weight { return randomWeight(r, f, rows, k) })
	d := BF16
	switch {
	case f.Floats:
		d = U8
	case f.F32:
		d = F32
	}
	words := c.add(U32, total*k*f.Bits/32, Codes)
	words.raw = func() []byte { return packed(made().Words, U32) }
	a := WeightArguments[*Buffer]{words, words, words}
	if f.Quantized() {
		a.Scales = c.add(d, total*k/f.Group, Scales)
		a.Scales.raw = func() []byte { return packed(made().Scales, d) }
		if !f.Symmetric {
			a.Biases = c.add(d, total*k/f.Group, Scales)
			a.Biases.raw = func() []byte { return packed(made().Biases, d) }
		}
	}
	return made, a
}

// packed converts bit patterns of numbers to the bytes of a buffer of dtype d.
func packed(bits []uint32, d DType) []byte {
	out := make([]byte, 0, len(bits)*d.Size())
	for _, v := range bits {
		if d == U8 {
			out = append(out, byte(v))
			continue
		}
		if d == BF16 {
			out = le.LittleEndian.AppendUint16(out, uint16(v))
		} else {
			out = le.LittleEndian.AppendUint32(out, v)
		}
	}
	return out
}

// randomWeight returns a weight of random codes, with scales such that numbers are near 1 in size.
func randomWeight(r *rand.Rand, f Format, rows, k int) *Weight {
	w := &Weight{Format: f, N: rows, K: k, Words: make([]uint32, rows*k*f.Bits/32)}
	number := func() uint32 { return math.Float32bits(BF16.store((r.Float32()*2 - 1) * 1.75)) }
	for i := range w.Words {
		switch f.Bits {
		case 16:
			w.Words[i] = number()>>16 | number()
		case 32:
			w.Words[i] = math.Float32bits(r.Float32()*2 - 1)
		default:
			w.Words[i] = r.Uint32()
		}
	}
	if !f.Quantized() {
		return w
	}
	if f.Floats {
		for range rows * k / f.Group {
			if f.Group == 16 { // e4m3 scales from 2⁻⁹, the smallest number above 0, to 1/4
				w.Scales = append(w.Scales, uint32(1+r.IntN(40)))
				continue
			}
			w.Scales = append(w.Scales, uint32(127-2*f.Bits/4*f.Bits/4+r.IntN(3)))
		}
		return w
	}
	d, shift := BF16, 16
	if f.F32 {
		d, shift = F32, 0
	}
	levels := float32(int(1) << f.Bits)
	for range rows * k / f.Group {
		scale := d.store((0.5 + r.Float32()) / levels)
		bias := d.store(-scale * levels * (0.4 + 0.2*r.Float32()))
		w.Scales = append(w.Scales, math.Float32bits(scale)>>shift)
		w.Biases = append(w.Biases, math.Float32bits(bias)>>shift)
	}
	return w
}

// rows returns n rows of a weight, from row first on.
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

// want adds the expectation that b begins with n values, which the caller fills in.
func (c *Case) want(b *Buffer, bound Bounds, n int) []float32 { return c.wantRows(b, bound, 1, n, n) }

// wantRows adds the expectation of rows of n elements, stride elements apart, which the caller fills in.
func (c *Case) wantRows(b *Buffer, bound Bounds, rows, n, stride int) []float32 {
	return c.wantAmong(b, bound, every(rows), rows, n, stride)
}

// wantAmong is wantRows for the rows in at.
func (c *Case) wantAmong(b *Buffer, bound Bounds, at []int, rows, n, stride int) []float32 {
	values := make([]float32, len(at)*n)
	if len(at) == rows && n == stride && slices.IsSorted(at) {
		at, n = []int{0}, len(values)
	}
	for i, row := range at {
		c.wants = append(c.wants, Want{b, row * stride, b.DType, values[i*n:][:n], bound})
	}
	return values
}

// wantAt adds the expectation of the elements of b from first on.
func (c *Case) wantAt(b *Buffer, bound Bounds, first int, values []float32) {
	c.wants = append(c.wants, Want{b, first, b.DType, values, bound})
}

// wantInts adds the expectation that b begins with these integers.
func (c *Case) wantInts(b *Buffer, values []int32) {
	want := c.want(b, Bounds{}, len(values))
	for i, v := range values {
		want[i] = float32(v)
	}
}

// after copies the content of a state into want, for the reference implementation to update.
func after(want []float32, state *Buffer) []float32 {
	copy(want, state.Values())
	return want
}

// sums returns a self-test's bound for sums of n products in fp32 in any order.
func sums(n int) float64 { return 1e-5 * max(1, math.Sqrt(float64(n)/512)) }

// Self-test bounds for results that are rounded to bf16 once, and for tiled products whose inputs are rounded to bf16.
const (
	roundedOnce = 5e-3
	roundedAll  = 1e-2
)

// stored returns the bounds of numbers that are computed in fp32 within the given bounds and stored in dtype d.
func stored(d DType, fp32 Bounds) Bounds {
	if d == BF16 {
		return Bounds{max(fp32.Test, 1./128), max(fp32.SelfTest, roundedOnce)}
	}
	return fp32
}

// Bytes converts numbers to the bytes of a buffer of the dtype: f32, bf16, i32, u32 or i64.
func (d DType) Bytes(values []float32) []byte {
	out := make([]byte, 0, len(values)*d.Size())
	for _, v := range values {
		switch d {
		case BF16:
			out = le.LittleEndian.AppendUint16(out, uint16(math.Float32bits(v)>>16))
		case I32, U32:
			out = le.LittleEndian.AppendUint32(out, uint32(int32(v)))
		case I64:
			out = le.LittleEndian.AppendUint64(out, uint64(int64(v)))
		default:
			out = le.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// Numbers converts the bytes of a buffer of the dtype to numbers: f32, bf16, bytes, or 32-bit integers.
func (d DType) Numbers(content []byte) []float64 {
	out := make([]float64, 0, len(content)/d.Size())
	for ; len(content) >= d.Size(); content = content[d.Size():] {
		switch d {
		case BF16:
			out = append(out, float64(math.Float32frombits(uint32(le.LittleEndian.Uint16(content))<<16)))
		case F32, None:
			out = append(out, float64(math.Float32frombits(le.LittleEndian.Uint32(content))))
		case U8:
			out = append(out, float64(content[0]))
		default:
			out = append(out, float64(int32(le.LittleEndian.Uint32(content))))
		}
	}
	return out
}
