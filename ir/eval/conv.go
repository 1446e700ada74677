package eval

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
)

func init() {
	register(map[string]Kernel{
		"conv1d":           conv,
		"conv2d":           conv,
		"conv3d":           conv,
		"conv_transpose1d": convTranspose,
		"conv_transpose2d": convTranspose,
		"conv_transpose3d": convTranspose,
	})
}

// window describes a convolution along one spatial dim: the input is dilated (inputDilation−1 zeros between elements)
// and padded, and the kernel, dilated too, is moved over it by stride.
type window struct {
	stride, dilation, inputDilation int
	// low and high are the zeros before and after the dilated input; negative ones cut elements off.
	low, high int
}

// conv is conv1d, conv2d and conv3d: a cross-correlation of x [N, spatial…, C] with w [O, kernel…, C/groups].
func conv(c *Call) ([]Value, error) {
	var dims []window
	var groups int
	forward := func(stride, padding, dilation int) window {
		return window{stride, dilation, 1, padding, padding}
	}
	switch a := c.Op.Attrs.(type) {
	case *ir.Conv1DAttrs:
		groups = a.Groups
		dims = []window{forward(a.Stride, a.Padding, a.Dilation)}
	case *ir.Conv2DAttrs:
		groups = a.Groups
		dims = []window{forward(a.StrideH, a.PaddingH, a.DilationH), forward(a.StrideW, a.PaddingW, a.DilationW)}
	case *ir.Conv3DAttrs:
		groups = a.Groups
		dims = []window{forward(a.StrideD, a.PaddingD, a.DilationD), forward(a.StrideH, a.PaddingH, a.DilationH),
			forward(a.StrideW, a.PaddingW, a.DilationW)}
	}
	if err := c.checkConv(len(dims), groups); err != nil {
		return nil, err
	}
	return c.convolve(dims, groups, false)
}

// convTranspose is conv_transpose1d, 2d and 3d: a convolution of the dilated input with the flipped kernel.
// w is [O, kernel…, C/groups] as for conv, and padding takes away from the result.
func convTranspose(c *Call) ([]Value, error) {
	type dim struct{ stride, padding, dilation, outputPadding int }
	var list []dim
	var groups int
	switch a := c.Op.Attrs.(type) {
	case *ir.ConvTranspose1DAttrs:
		groups = a.Groups
		list = []dim{{a.Stride, a.Padding, a.Dilation, a.OutputPadding}}
	case *ir.ConvTranspose2DAttrs:
		groups = a.Groups
		list = []dim{{a.StrideH, a.PaddingH, a.DilationH, a.OutputPaddingH},
			{a.StrideW, a.PaddingW, a.DilationW, a.OutputPaddingW}}
	case *ir.ConvTranspose3DAttrs:
		groups = a.Groups
		list = []dim{{a.StrideD, a.PaddingD, a.DilationD, a.OutputPaddingD},
			{a.StrideH, a.PaddingH, a.DilationH, a.OutputPaddingH},
			{a.StrideW, a.PaddingW, a.DilationW, a.OutputPaddingW}}
	}
	if err := c.checkConv(len(list), groups); err != nil {
		return nil, err
	}
	dims := make([]window, len(list))
	for i, d := range list {
		low := d.dilation*(c.Tensor("w").Shape[1+i]-1) - d.padding
		dims[i] = window{1, d.dilation, d.stride, low, low + d.outputPadding}
	}
	return c.convolve(dims, groups, true)
}

// checkConv checks ranks, channels and groups.
func (c *Call) checkConv(spatial, groups int) error {
	x, w := c.Tensor("x"), c.Tensor("w")
	switch {
	case !x.DType.IsFloat() || !w.DType.IsFloat():
		return fmt.Errorf("x is %s and w is %s, want floating-point dtypes", x.DType, w.DType)
	case len(x.Shape) != spatial+2 || len(w.Shape) != spatial+2:
		return fmt.Errorf("x %v and w %v: want %d dims, [N, spatial…, C] and [O, kernel…, C/groups]",
			x.Shape, w.Shape, spatial+2)
	case groups < 1 || groups > 1 && spatial == 3:
		return fmt.Errorf("%d groups over %d spatial dims: want at least one, and one over three dims", groups, spatial)
	case x.Shape[spatial+1] != groups*w.Shape[spatial+1] || w.Shape[0]%groups != 0:
		return fmt.Errorf("x %v and w %v do not agree for %d groups: want C = %d channels in x and a multiple "+
			"of %d outputs",
			x.Shape, w.Shape, groups, groups*w.Shape[spatial+1], groups)
	}
	return nil
}

// axisPlan says which input element every tap of every output position along one dim reads; −1 is a zero.
type axisPlan struct {
	out, taps int
	source    []int // [out][taps]
}

// plan works out one dim of a convolution of in elements with a kernel of taps elements.
func (d window) plan(in, taps int, flip bool) (axisPlan, error) {
	const limit = math.MaxInt32
	if d.stride < 1 || d.dilation < 1 || d.inputDilation < 1 || d.stride > limit || d.dilation > limit ||
		d.inputDilation > limit ||
		d.low > limit || d.low < -limit || d.high > limit || d.high < -limit {
		return axisPlan{}, fmt.Errorf("strides and dilations must be positive and, like paddings, below 2^31: %+v", d)
	}
	// Like MLX, a negative padding cuts elements off the input before that is dilated.
	first, last := 0, in
	low, high := d.low, d.high
	if low < 0 {
		first, low = -low, 0
	}
	if high < 0 {
		last, high = in+high, 0
	}
	width := 1 + (last-first-1)*d.inputDilation + low + high - (1 + (taps-1)*d.dilation)
	if last <= first || taps < 1 || width < 0 {
		return axisPlan{}, fmt.Errorf("%d elements with padding %d and %d are too few for a kernel of %d elements "+
			"with dilation %d", in, d.low, d.high, taps, d.dilation)
	}
	p := axisPlan{out: width/d.stride + 1, taps: taps}
	if _, err := elements([]int{p.out, taps}); err != nil {
		return axisPlan{}, err
	}
	p.source = make([]int, p.out*taps)
	for o := range p.out {
		for t := range taps {
			at := o*d.stride + t*d.dilation - low
			if flip {
				at = o*d.stride + (taps-1-t)*d.dilation - low
			}
			source := -1
			if at >= 0 && at%d.inputDilation == 0 && first+at/d.inputDilation < last {
				source = first + at/d.inputDilation
			}
			p.source[o*taps+t] = source
		}
	}
	return p, nil
}

// convolve gathers, for every output position and group, the elements under the kernel and multiplies
// them with the kernels of the group.
func (c *Call) convolve(dims []window, groups int, flip bool) ([]Value, error) {
	x, w, d := c.Tensor("x"), c.Tensor("w"), c.Result(0).DType
	xs, ws := c.as(x, d), c.as(w, d)
	spatial := len(dims)
	channels, outputs := x.Shape[spatial+1], w.Shape[0]
	// Fewer dims are three with leading dims of one.
	plans := [3]axisPlan{{1, 1, []int{0}}, {1, 1, []int{0}}, {1, 1, []int{0}}}
	in := [3]int{1, 1, 1}
	shape := []int{x.Shape[0]}
	for i, dim := range dims {
		p, err := dim.plan(x.Shape[1+i], w.Shape[1+i], flip)
		if err != nil {
			return nil, fmt.Errorf("spatial dim %d: %w", i, err)
		}
		plans[3-spatial+i], in[3-spatial+i] = p, x.Shape[1+i]
		shape = append(shape, p.out)
	}
	shape = append(shape, outputs)
	out, err := room(shape)
	if err != nil {
		return nil, err
	}
	per, outputsPer := channels/groups, outputs/groups
	a, b, e := plans[0], plans[1], plans[2]
	patch := a.taps * b.taps * e.taps * per
	positions := a.out * b.out * e.out
	parallelUntil(c.Done, x.Shape[0]*positions, outputs*patch, func(lo, hi int) {
		buf := make([]float32, patch)
		for at := lo; at < hi; at++ {
			n, position := at/positions, at%positions
			i, j, k := position/(b.out*e.out), position/e.out%b.out, position%e.out
			for g := range groups {
				rest := buf
				for _, si := range a.source[i*a.taps : (i+1)*a.taps] {
					for _, sj := range b.source[j*b.taps : (j+1)*b.taps] {
						for _, sk := range e.source[k*e.taps : (k+1)*e.taps] {
							if si < 0 || sj < 0 || sk < 0 {
								clear(rest[:per])
							} else {
								from := (((n*in[0]+si)*in[1]+sj)*in[2]+sk)*channels + g*per
								copy(rest[:per], xs[from:from+per])
							}
							rest = rest[per:]
						}
					}
				}
				for o := g * outputsPer; o < (g+1)*outputsPer; o++ {
					out[at*outputs+o] = dot.Product(buf, ws[o*patch:(o+1)*patch])
				}
			}
		}
	})
	return one(c.floatResult(0, shape, out))
}
