package cpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// channelBlock is the number of channels of a convolution that a thread takes at a time.
const channelBlock = 1024

// flag returns the optional bool operand that resets a state to zeros.
func (b *binder) flag() (v *value, ok bool) {
	if b.Op.Input("reset") == nil {
		return nil, true
	}
	v = b.Input("reset")
	return v, v != nil && v.kind == dense && v.dtype == ir.Bool && v.len() == 1
}

// isSet reads a flag.
func (v *value) isSet() bool { return v != nil && v.ints()[0] != 0 }

// bindConv binds a depthwise convolution of x [B, S, C]. Its input is the rows that the state holds, then the rows of
// x.
func bindConv(b *binder) bool {
	attrs, x, s := ir.Attrs[ir.BufferConvAttrs](b.Op), b.Input("x"), b.floatState()
	w := b.Input("w")
	reset, ok := b.flag()
	if !ok || x == nil || s == nil || w == nil || !x.isFloats() || len(x.shape) != 3 ||
		x.shape[2] > 1 && x.stride[2] != 1 ||
		b.Op.Input("w").Constant == nil || !w.isFloats() || len(w.shape) != 3 {
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
	blocks := (channels + channelBlock - 1) / channelBlock
	weight := convTaps(w)
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

// convTaps returns the taps of each block of channels, row by row, from w [C, K, 1].
func convTaps(w *value) []float32 {
	channels, taps := w.shape[0], w.shape[1]
	weight := make([]float32, channels*taps)
	for lo := 0; lo < channels; lo += channelBlock {
		hi := min(lo+channelBlock, channels)
		part := weight[lo*taps : hi*taps]
		for c := lo; c < hi; c++ {
			for t := range taps {
				part[t*(hi-lo)+c-lo] = w.slot.f[w.offset+c*w.stride[0]+t*w.stride[1]]
			}
		}
	}
	return weight
}

// readRows reads channels [lo, hi) of the rows of a state into dst [taps, hi-lo].
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

// writeLast writes channels [lo, hi) of the last rows to a state.
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
