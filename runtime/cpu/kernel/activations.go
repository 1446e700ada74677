package kernel

import "fmt"

// Path is how quantized weights meet activations.
type Path uint8

const (
	// Exact multiplies float32 activations by the codes.
	Exact Path = iota
	// Integer rounds activations to 8 bits with a scale for each group and multiplies integers.
	Integer
)

// Layout is the form that activations must have for a matrix. Matrices of equal layout share Activations.
type Layout struct {
	Path   Path
	Format Format // F32 for all that is not quantized
	Group  int
	// Alone says that the results of a vector have the same bits however many others are multiplied in the same call.
	Alone bool
}

// tiled reports whether vectors of Alone are multiplied as those of tiles are, even a single one: few vectors without
// a panel have the bits of tiles (few.go). Where a level cannot do that, every vector of Alone is multiplied by the
// kernel for a single one, which reads the weights again.
func (l Layout) tiled() bool {
	return l.Alone && l.Path == Integer && active.fewVectors > 0 && l.Format.Quantized() && l.Group <= fewGroup(l.Format)
}

// RowStep returns a number of rows: MatMul wastes nothing with so many vectors in ranges of multiples of it.
func (l Layout) RowStep(vectors int) int {
	if vectors > 1 || l.tiled() {
		return PanelRows()
	}
	return 1
}

// Layout returns the form of activations that w needs on a path. Only Q4, Q8 and MXFP4 have an integer path.
func (w *Matrix) Layout(path Path) Layout {
	if w.Format == MXFP4 {
		return Layout{Path: path, Format: w.Format.expandedFormat(), Group: w.Group}
	}
	if !w.Format.Quantized() {
		return Layout{Path: Exact, Format: F32}
	}
	return Layout{Path: path, Format: w.Format, Group: w.Group}
}

// takes reports whether w takes activations of a layout.
func (w *Matrix) takes(l Layout) bool {
	l.Alone = false
	return l == w.Layout(l.Path)
}

// Activations holds vectors in the form that MatMul reads. The zero value is ready for Reset. One
// Activations may be read by any number of goroutines, and filled by several that take different vectors.
type Activations struct {
	layout        Layout
	vectors, cols int

	// single says that the elements are ordered for products with one row at a time, not for tiles.
	single bool

	// values is [vectors, valueStride], for the exact path; codes is [vectors, codeStride] and scales
	// [vectors, groupStride], for the integer path; sums is [vectors, groupStride]. What the strides leave
	// over is zero.
	values       []float32
	codes        []int8
	scales, sums []float32

	// blocks, blockScales and blockSums are the same for levels that multiply blocks, see blocks.go.
	blocks                               []int8
	blockScales, blockSums               []float32
	valueStride, codeStride, groupStride int
}

// Vectors and Cols are the shape of a, as Reset set it.
func (a *Activations) Vectors() int { return a.vectors }

// Cols returns the number of elements of a vector.
func (a *Activations) Cols() int { return a.cols }

// Layout returns the form of a, as Reset set it.
func (a *Activations) Layout() Layout { return a.layout }

// Reset makes a hold vectors vectors of cols elements in a form. It keeps memory that is large enough; the
// vectors have no value until Fill or Gather.
func (a *Activations) Reset(layout Layout, vectors, cols int) {
	if vectors < 0 || cols < 0 || layout.Format.Quantized() && (layout.Group <= 0 || cols%layout.Group != 0) {
		panic(fmt.Sprintf("kernel: activations of %d × %d elements in groups of %d", vectors, cols, layout.Group))
	}
	a.layout, a.vectors, a.cols = layout, vectors, cols
	// One cache line more: vectors a power of two apart would compete for the same places of a cache.
	a.single = !layout.tiled() && (layout.Alone || vectors <= active.singleLimit[layout.Path])
	a.valueStride, a.codeStride, a.groupStride = 0, 0, 0
	if layout.Path == Integer {
		a.codeStride = roundUp(cols, 128) + 64
	} else {
		a.valueStride = roundUp(cols, 128) + 16
	}
	if layout.Format.Quantized() {
		a.groupStride = roundUp(cols/layout.Group, 16)
	}
	a.values = grow(a.values, vectors*a.valueStride)
	a.codes = grow(a.codes, vectors*a.codeStride)
	a.sums = grow(a.sums, vectors*a.groupStride)
	if layout.Path == Integer {
		a.scales = grow(a.scales, vectors*a.groupStride)
	}
	if a.blocked() {
		a.resetBlocks()
	}
}

// Fill sets vectors [lo, hi) to those of x, stride elements apart: vector i is x[(i-lo)·stride:][:Cols].
func (a *Activations) Fill(x []float32, stride, lo, hi int) {
	if lo < 0 || hi > a.vectors || lo > hi || stride < 0 || hi > lo && len(x) < (hi-lo-1)*stride+a.cols {
		panic(fmt.Sprintf("kernel: %d elements for vectors %d to %d of %d, %d elements each, %d apart", len(x), lo, hi,
			a.vectors, a.cols, stride))
	}
	for i := lo; i < hi; i++ {
		v := x[(i-lo)*stride:][:a.cols]
		if a.layout.Path == Integer {
			codes := a.codes[i*a.codeStride:][:roundUp(a.cols, 128)]
			scales, sums := a.groupRow(a.scales, i), a.groupRow(a.sums, i)
			clear(codes[a.cols-a.cols%128:])
			clear(scales[a.cols/a.layout.Group:])
			clear(sums[a.cols/a.layout.Group:])
			active.quantize(codes, scales, sums, v, a.layout.Group, a.codeBlock())
			continue
		}
		values := a.values[i*a.valueStride:][:roundUp(a.cols, 128)]
		if a.layout.Format.Quantized() {
			sums := a.groupRow(a.sums, i)
			clear(sums[a.cols/a.layout.Group:])
			active.groupSums(sums, v, a.layout.Group)
		}
		if a.spread() {
			active.spread(values, v)
			continue
		}
		copy(values, v)
		clear(values[a.cols:])
	}
	if a.blocked() {
		a.turn(lo, hi)
	}
}

// Gather sets vector i of a to vector rows[i] of src, for i in [lo, hi): the tokens of an expert. a must
// have been Reset to the layout and Cols of src and as many vectors as rows.
func (a *Activations) Gather(src *Activations, rows []int32, lo, hi int) {
	if a.layout != src.layout || a.cols != src.cols || len(rows) != a.vectors || lo < 0 || hi > len(rows) || lo > hi {
		panic(fmt.Sprintf("kernel: gather %d of %d × %d %v activations to %d × %d %v, vectors %d to %d", len(rows),
			src.vectors, src.cols, src.layout, a.vectors, a.cols, a.layout, lo, hi))
	}
	width := roundUp(a.cols, 128)
	for i := lo; i < hi; i++ {
		r := int(rows[i])
		if r < 0 || r >= src.vectors {
			panic(fmt.Sprintf("kernel: gather vector %d of %d", r, src.vectors))
		}
		copy(a.groupRow(a.sums, i), src.groupRow(src.sums, r))
		if a.layout.Path == Integer {
			copy(a.groupRow(a.scales, i), src.groupRow(src.scales, r))
			reblock(a.codes[i*a.codeStride:][:width], src.codes[r*src.codeStride:][:width],
				a.codeBlock(), src.codeBlock())
			continue
		}
		dst, from := a.values[i*a.valueStride:][:width], src.values[r*src.valueStride:][:width]
		if a.spread() && !src.spread() {
			active.spread(dst, from[:a.cols])
			continue
		}
		copy(dst, from)
	}
	if a.blocked() {
		a.turn(lo, hi)
	}
}

// codeBlock returns the size of the blocks of codes in which those at even places come before those at odd places.
// Products with 8-bit weights need the codes in their order.
func (a *Activations) codeBlock() int {
	switch {
	case a.layout.Format == Q8:
		return 1
	case a.single:
		return active.codeBlock
	case a.blocked():
		return blockPiece(a.layout.Group)
	}
	return tileCodeBlock
}

// tileCodeBlock is the codeBlock of tiles: a panel holds 32-bit words of 8 codes of 4 bits, first the low
// halves of its bytes, then the high ones.
const tileCodeBlock = 8

// spread says that the values are in the order of implementation.spread.
func (a *Activations) spread() bool { return a.single && a.layout.Format == Q4 }

func (a *Activations) groupRow(s []float32, i int) []float32 {
	return s[i*a.groupStride:][:a.groupStride]
}

// reblock copies codes from one codeBlock to another.
func reblock(dst, src []int8, to, from int) {
	switch {
	case to == from:
		copy(dst, src)
		return
	case from == tileCodeBlock && to > from: // an expert of one token of several
		for at := 0; at < len(dst); at += to {
			even, odd, both := dst[at:][:to/2], dst[at+to/2:][:to/2], src[at:][:to]
			for i := 0; i < to/2; i += 4 {
				*(*[4]int8)(even[i:]) = [4]int8(both[2*i:])
				*(*[4]int8)(odd[i:]) = [4]int8(both[2*i+4:])
			}
		}
		return
	}
	for i := range dst {
		dst[blockPlace(i, to)] = src[blockPlace(i, from)]
	}
}

// blockPlace is where code i lies when the even codes of a block come before the odd ones.
func blockPlace(i, block int) int {
	if block == 1 {
		return i
	}
	return i - i%block + i%block/2 + i%2*(block/2)
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// grow is s with n elements, in the same memory if that is large enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
