package quantize

import (
	"fmt"
	"math"
)

// Constants of torchao's _choose_qparams_and_quantize_scale_only_hqq.
const (
	maxIterations = 20
	hqqTolerance  = 1e-5    // relative change of the scales below which the search stops
	hqqEpsilon    = 0x1p-23 // least scale: float32's machine epsilon
)

// longGroup is the length beyond which the order of torch's sum has more than one level.
const longGroup = 16 * sumLanes

// Search finds the number of HQQ updates of one tensor. torchao repeats the update of all scales
// until the largest relative change in the whole tensor is small; since no group's scale depends on
// another group, it is enough to know the largest change at each update. A tensor is shown to a
// Search in blocks of rows, in any order or to several Searches that are merged, and is then read
// once more and quantized with [Scheme.Iterations] set; the result is the same bits as from one
// call of [Quantize] over the whole tensor. The zero value is ready for use.
type Search struct {
	change [maxIterations]float32 // largest relative change of a scale at each update
}

// Observe takes the block w [rows, cols] of the tensor into account. Unless fits is nil, it stores what
// it found of each of the block's groups there, for [QuantizeFitted]; len(fits) must be their number. It
// reports what [Quantize] reports for the block, and a scheme that is not HQQ.
func (s *Search) Observe(w []float32, rows, cols int, scheme Scheme, fits []Fit) error {
	if scheme.Method != HQQ {
		return fmt.Errorf("search over a tensor for %s quantization: expected hqq, no other method needs one",
			scheme.Method)
	}
	if err := checkMatrix(w, rows, cols, scheme); err != nil {
		return err
	}
	if err := checkFits(fits, rows, cols, scheme); err != nil {
		return err
	}
	return s.observe(w, cols, scheme, fits)
}

// Merge adds the blocks that o has observed to those that s has observed.
func (s *Search) Merge(o *Search) {
	for i, c := range o.change {
		s.change[i] = max(s.change[i], c)
	}
}

// Iterations returns the number of updates, 1 to 20.
func (s *Search) Iterations() int {
	for i, c := range s.change {
		if c < hqqTolerance {
			return i + 1
		}
	}
	return maxIterations
}

// Fit is what a [Search] found for one group: its scale, and the number of updates that gave it. More updates would not
// change the scale, unless the number is the largest allowed.
type Fit struct {
	scale   float32
	updates uint8
}

func checkFits(fits []Fit, rows, cols int, s Scheme) error {
	if groups := rows * (cols / s.group(cols)); fits != nil && len(fits) != groups {
		return fmt.Errorf("%s quantization of a matrix [%d, %d] with %d fits: expected %d, one a group", s.Method, rows,
			cols, len(fits), groups)
	}
	return nil
}

// observe is Observe for whole rows. If fits is not nil, it stores the fit of each group there.
func (s *Search) observe(w []float32, cols int, scheme Scheme, fits []Fit) error {
	group := scheme.group(cols)
	for start := 0; start < len(w); start += group {
		x := w[start : start+group]
		lo, hi, finite := extent(x)
		if !finite {
			return located(nonFinite(x), start, cols)
		}
		scale := startScale(max(-lo, hi), scheme.Bits)
		updates := 0
		for ; updates < maxIterations; updates++ {
			next := updateScale(x, scale, scheme.Bits)
			if next == scale {
				break
			}
			// A scale that overflows makes the change NaN, which max keeps; Quantize reports it.
			s.change[updates] = max(s.change[updates], abs(next-scale)/max(scale, hqqEpsilon))
			scale = next
		}
		if fits != nil {
			fits[start/group] = Fit{scale, uint8(updates)}
		}
	}
	return nil
}

// hqqScale returns the scale of the weights w, group number g, after q.Iterations updates.
func (q *quantizer) hqqScale(w []float32, absMax float32, g int) float32 {
	if q.fits != nil && int(q.fits[g].updates) <= q.Iterations {
		return q.fits[g].scale
	}
	scale := startScale(absMax, q.Bits)
	for range q.Iterations {
		next := updateScale(w, scale, q.Bits)
		if next == scale {
			break
		}
		scale = next
	}
	return scale
}

// startScale returns the scale that maps the largest magnitude of a group to the lowest code.
func startScale(absMax float32, bits int) float32 {
	return max(absMax/float32(int(1)<<(bits-1)), hqqEpsilon)
}

// updateScale quantizes the group w, whose length is a multiple of 32, with scale and returns the
// scale that fits the codes q best, sum(w*q)/sum(q*q); scale itself when all codes are 0.
func updateScale(w []float32, scale float32, width int) float32 {
	limit := float32(int(1) << (width - 1))
	if len(w) > longGroup {
		return updateScaleLong(w, scale, limit)
	}
	// The squares add up to at most 512 * 128^2 = 2^23, exact in any order; the products are rounded.
	var lanes [vectorLen]float32
	squares := updateSums(&lanes, w, scale, limit)
	return leastSquares(addLanes(&lanes), float32(squares), scale)
}

// updateSumsGeneric sums w*q, by lane, and q*q over the codes q of w.
func updateSumsGeneric(lanes *[vectorLen]float32, w []float32, scale, limit float32) (squares int32) {
	var products [sumLanes]float32
	for ; len(w) >= sumLanes; w = w[sumLanes:] {
		for i := range products {
			x := w[i]
			q := roundToEven(clamp(x/scale, limit))
			products[i] += float32(x * q)
			squares += int32(q) * int32(q)
		}
	}
	*lanes = foldVectors(&products)
	return squares
}

// updateScaleLong is updateScale for groups of any multiple of 32.
func updateScaleLong(w []float32, scale, limit float32) float32 {
	products, squares := newCascade(len(w)), newCascade(len(w))
	for ; len(w) >= sumLanes; w = w[sumLanes:] {
		for i := range sumLanes {
			q := roundToEven(clamp(w[i]/scale, limit))
			products.level[0][i] += float32(w[i] * q)
			squares.level[0][i] += float32(q * q)
		}
		products.advance()
		squares.advance()
	}
	return leastSquares(products.sum(), squares.sum(), scale)
}

func leastSquares(products, squares, previous float32) float32 {
	if squares > 0 {
		previous = products / squares
	}
	return abs(max(previous, hqqEpsilon))
}

// clamp limits x to the codes -limit to limit-1.
func clamp(x, limit float32) float32 {
	if x > limit-1 {
		return limit - 1
	}
	if x < -limit {
		return -limit
	}
	return x
}

// packSymmetricGeneric stores the codes round(clamp(w / scale)) + 2^(bits-1) as [Pack] does. scratch is as long
// as w.
func packSymmetricGeneric(dst []uint32, w, scratch []float32, scale float32, bits int) {
	half := int32(1) << (bits - 1)
	limit := float32(half)
	for i, x := range w[:len(scratch)] {
		scratch[i] = clamp(x/scale, limit)
	}
	packRounded(dst, scratch, half, bits)
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
