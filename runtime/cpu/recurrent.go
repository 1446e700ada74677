package cpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// channelBlock is the number of channels of a convolution that a thread takes at a time.
const channelBlock = 1024

// flag is the optional bool that sets a state to zeros first.
func (b *binder) flag() (v *value, ok bool) {
	if b.op.Input("reset") == nil {
		return nil, true
	}
	v = b.input("reset")
	return v, v != nil && v.kind == dense && v.dtype == ir.Bool && v.len() == 1
}

// isSet reads a flag.
func (v *value) isSet() bool { return v != nil && v.ints()[0] != 0 }

// bindConv convolves each channel of x [B, S, C] with its taps, over the rows that the buffer holds and those
// of x.
func bindConv(b *binder) bool {
	attrs, x, s := ir.Attrs[ir.BufferConvAttrs](b.op), b.input("x"), b.floatState()
	w := b.input("w")
	reset, ok := b.flag()
	if !ok || x == nil || s == nil || w == nil || !x.isFloats() || len(x.shape) != 3 || x.shape[2] > 1 && x.stride[2] != 1 ||
		b.op.Input("w").Constant == nil || !w.isFloats() || len(w.shape) != 3 {
		return false
	}
	batch, steps, channels, taps := x.shape[0], x.shape[1], x.shape[2], w.shape[1]
	want := []int{batch, taps, channels}
	if attrs.ChannelFirst {
		want = []int{batch, channels, taps}
	}
	if !slices.Equal(s.shape, want) || !slices.Equal(w.shape, []int{channels, taps, 1}) || taps == 0 {
		return false
	}
	// The taps of a block of channels, row by row.
	blocks := (channels + channelBlock - 1) / channelBlock
	weight := make([]float32, channels*taps)
	for i := range blocks {
		lo, hi := i*channelBlock, min((i+1)*channelBlock, channels)
		part := weight[lo*taps : hi*taps]
		for c := lo; c < hi; c++ {
			for t := range taps {
				part[t*(hi-lo)+c-lo] = w.slot.f[w.offset+c*w.stride[0]+t*w.stride[1]]
			}
		}
	}
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	convolve := func(work *work, n, lo, hi int) {
		width := hi - lo
		rows := grow(work.acc, (taps+steps)*width)
		work.acc = rows
		s.readRows(rows, n, lo, hi, attrs.ChannelFirst, reset.isSet())
		in := x.floats()
		for t := range steps {
			copy(rows[(taps+t)*width:(taps+t+1)*width], in[n*x.stride[0]+t*x.stride[1]+lo:][:width])
		}
		part := weight[lo*taps : hi*taps]
		for t := range steps {
			dst := out.slot.f[(n*steps+t)*channels+lo:][:width]
			kernel.Convolve(dst, rows[(t+1)*width:(t+1+taps)*width], part)
			if attrs.Activation == "silu" {
				kernel.SiLU(dst, dst)
			}
		}
		s.writeLast(rows[steps*width:], n, lo, hi, attrs.ChannelFirst)
	}
	b.do("conv", b.parallel(batch*blocks, 1, func(lo, hi int) {
		work := getWork()
		for i := lo; i < hi; i++ {
			from := i % blocks * channelBlock
			convolve(work, i/blocks, from, min(from+channelBlock, channels))
		}
		putWork(work)
	}))
	return true
}

// readRows reads channels [lo, hi) of the rows of a state, [taps, hi-lo].
func (s *state) readRows(dst []float32, n, lo, hi int, channelFirst, zero bool) {
	width := hi - lo
	taps, channels := s.shape[1], s.shape[2]
	if channelFirst {
		taps, channels = channels, taps
	}
	switch {
	case zero:
		clear(dst[:taps*width])
	case channelFirst:
		for c := lo; c < hi; c++ {
			for t := range taps {
				s.get(dst[t*width+c-lo:][:1], (n*channels+c)*taps+t)
			}
		}
	default:
		for t := range taps {
			s.get(dst[t*width:(t+1)*width], (n*taps+t)*channels+lo)
		}
	}
}

// writeLast writes channels [lo, hi) of the rows of a state.
func (s *state) writeLast(rows []float32, n, lo, hi int, channelFirst bool) {
	width := hi - lo
	taps, channels := s.shape[1], s.shape[2]
	if channelFirst {
		taps, channels = channels, taps
		for c := lo; c < hi; c++ {
			for t := range taps {
				s.put((n*channels+c)*taps+t, rows[t*width+c-lo:][:1])
			}
		}
		return
	}
	for t := range taps {
		s.put((n*taps+t)*channels+lo, rows[t*width:(t+1)*width])
	}
}

// deltaRows is the number of rows of a head's state that a thread takes at a time.
const deltaRows = 64

// bindDeltaRule runs the gated delta rule over the tokens of a call, on the state that a buffer holds.
func bindDeltaRule(b *binder) bool {
	s := b.floatState()
	reset, ok := b.flag()
	q, k, v, g, beta := b.input("q"), b.input("k"), b.input("v"), b.input("g"), b.input("beta")
	for _, x := range []*value{q, k, v, g, beta} {
		if x == nil || !x.isFloats() {
			return false
		}
	}
	if !ok || s == nil || len(q.shape) != 4 || len(v.shape) != 4 || len(g.shape) != 3 || len(s.shape) != 4 {
		return false
	}
	batch, steps, keyHeads, keyWidth := q.shape[0], q.shape[1], q.shape[2], q.shape[3]
	heads, width := v.shape[2], v.shape[3]
	if !slices.Equal(k.shape, q.shape) || !slices.Equal(v.shape, []int{batch, steps, heads, width}) || !slices.Equal(g.shape, []int{batch, steps, heads}) ||
		!slices.Equal(beta.shape, g.shape) || !slices.Equal(s.shape, []int{batch, heads, width, keyWidth}) || keyHeads == 0 || heads%keyHeads != 0 ||
		q.stride[3] != 1 || k.stride[3] != 1 || v.stride[3] != 1 {
		return false
	}
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, v.shape) {
		return false
	}
	parts := (width + deltaRows - 1) / deltaRows
	run := b.parallel(batch*heads*parts, 1, func(lo, hi int) {
		w := getWork()
		for i := lo; i < hi; i++ {
			n, h, part := i/parts/heads, i/parts%heads, i%parts
			first, last := part*deltaRows, min((part+1)*deltaRows, width)
			at := ((n*heads+h)*width + first) * keyWidth
			size := (last - first) * keyWidth
			var rows []float32
			if s.half == nil {
				rows = s.slot.f[at : at+size]
			} else {
				rows = grow(w.acc, size)
				w.acc = rows
			}
			switch {
			case reset.isSet():
				clear(rows)
			case s.half != nil:
				s.get(rows, at)
			}
			key := h / (heads / keyHeads)
			qs, ks, vs, gs, bs, y := q.floats(), k.floats(), v.floats(), g.floats(), beta.floats(), out.slot.f
			for t := range steps {
				from := n*q.stride[0] + t*q.stride[1] + key*q.stride[2]
				of := n*k.stride[0] + t*k.stride[1] + key*k.stride[2]
				value := n*v.stride[0] + t*v.stride[1] + h*v.stride[2]
				to := ((n*steps+t)*heads + h) * width
				kernel.DeltaStep(y[to+first:to+last], rows, qs[from:from+keyWidth], ks[of:of+keyWidth], vs[value+first:value+last],
					gs[n*g.stride[0]+t*g.stride[1]+h*g.stride[2]], bs[n*beta.stride[0]+t*beta.stride[1]+h*beta.stride[2]])
			}
			if s.half != nil {
				s.put(at, rows)
			}
		}
		putWork(w)
	})
	st := b.do("delta rule", run)
	st.bytes, st.flops = 8*s.size, 7*s.size*steps
	return true
}
