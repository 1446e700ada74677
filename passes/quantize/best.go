package quantize

import "math"

// Constants of Best.
const (
	// levelSpan is the extent of a group in levels; its ends are the levels -levelSpan/2 and levelSpan/2.
	levelSpan = 65024
	// leastMagnitude is the largest weight below which a group keeps MinMax's scale and bias: far above
	// the least normal number, so that no intermediate loses bits.
	leastMagnitude = 0x1p-100
	// offsetRatio tells groups that lie far from zero: their extent is smaller than their largest
	// magnitude over this.
	offsetRatio = 8
	// fitRounds bounds the least-squares fits of a group.
	fitRounds = 3
	// maxGroup is the largest group that Best takes.
	maxGroup = 128
)

// trims are the ranges of codes that are tried for 4 bits, each by what it leaves out of the group's
// extent at the low and at the high end, in hundredths; negative: what it adds. They were chosen one
// after another, with its mirror image, each the one that lowers the error after a least-squares fit
// most, over normal, Laplace, Student-t and trained weights in groups of 32, 64 and 128. A part of the
// gain over the whole extent is the error of a few large weights traded for a finer step; the rest is
// choice, for the rounding errors of the ranges are nearly independent of each other.
var trims = [...]struct{ low, high int }{
	{1, 3}, {3, 1}, {0, 4}, {4, 0}, {1, 1}, {4, 4}, {-6, 2}, {2, -6}, {-1, 1}, {1, -1}, {2, 6}, {6, 2},
}

// trimmed are the grids of trims.
var trimmed = func() (g [len(trims)]grid) {
	for i, t := range trims {
		step := levelSpan * float64(100-t.low-t.high) / (100 * 15)
		g[i], _ = affine{step, levelSpan * float64(t.low-50) / 100}.grid(4)
	}
	return g
}()

// nudges are the scales and biases that are tried for 8 bits: the scale of the whole extent plus so many
// 1/256 of itself, between one and two steps of bf16 each, the bias that centres the codes plus so
// many quarters of the scale. They were chosen as trims were. With 8 bits there is little to
// gain from leaving out ends; what counts is how the rounded pairs happen to meet the weights.
var nudges = [...]struct{ scale, bias float32 }{
	{0, 0}, {2, 4}, {1, -2}, {1, 1}, {3, -2}, {4, 4}, {5, -2}, {6, 0}, {3, -5}, {3, 1}, {6, 5}, {6, -5},
}

// affine is a scale and a bias in levels: code q stands for the level a*q + b.
type affine struct{ a, b float64 }

// grid gives the grid that maps levels to the nearest codes; false when its numbers have no room.
func (p affine) grid(bits int) (grid, bool) {
	one := float64(int(1) << fractionBits(bits))
	codes := one / p.a
	m, c := math.Floor(float64(codes*0x1p15)+0.5), math.Floor(0.5-float64(p.b*codes))
	if !(math.Abs(m) <= 0x7fff && math.Abs(c) <= 0x7000) {
		return grid{}, false
	}
	return grid{int16(m), int16(c + one/2)}, true
}

// bestSearch is the search over one group.
type bestSearch struct {
	bits   int
	format Float
	unit   float64 // of a level, in weights
	mid    float64 // the weight of level 0
	n, sum float64 // number of weights, sum of their levels
	levels []int16

	best  params
	least float64 // excess of best

	scratch [maxGroup]int16
	moments [max(len(trims), len(nudges))]moments
}

// bestParams returns Best's scale and bias of the group w with the finite extent lo..hi.
func (q *quantizer) bestParams(w []float32, lo, hi float32) params {
	minMax := minMaxParams(lo, hi, q.Bits).rounded(q.Params)
	switch extent, magnitude := hi-lo, max(-lo, hi); {
	case !isFinite(extent) || magnitude < leastMagnitude:
		return minMax
	case extent < magnitude/offsetRatio:
		return q.offsetParams(w, lo, hi, minMax)
	}
	s := &q.search
	s.begin(w, lo, hi, q.Bits, q.Params)
	// No group gets worse than it is with MinMax.
	s.best, s.least = minMax, math.Inf(1)
	s.try(minMax)
	if q.Bits == 8 {
		s.nudge(lo, hi)
	} else {
		s.trim()
	}
	return s.best
}

// begin reads the group.
func (s *bestSearch) begin(w []float32, lo, hi float32, bits int, format Float) {
	mid := lo/2 + hi/2
	s.bits, s.format = bits, format
	s.unit, s.mid = float64(hi-lo)/levelSpan, float64(mid)
	s.levels = s.scratch[:len(w)]
	s.n, s.sum = float64(len(w)), float64(toLevels(s.levels, w, mid, levelSpan/(hi-lo)))
}

// try tests a scale and a bias as stored and keeps them when they are the best so far. It gives the moments
// of their codes; false when that was not worth it.
func (s *bestSearch) try(p params) (moments, bool) {
	if p.scale == 0 || !isFinite(p.scale) || !isFinite(p.bias) {
		return moments{}, false
	}
	levels := affine{float64(p.scale) / s.unit, (float64(p.bias) - s.mid) / s.unit}
	g, ok := levels.grid(s.bits)
	if !ok {
		return moments{}, false
	}
	grids := [1]grid{g}
	gridMoments(s.moments[:1], s.levels, grids[:], s.bits)
	m := s.moments[0]
	e := s.excess(m, levels)
	if !(e < s.least) {
		return m, false
	}
	s.best, s.least = p, e
	return m, true
}

// nudge searches with 8 bits.
func (s *bestSearch) nudge(lo, hi float32) {
	mid, step := lo/2+hi/2, (hi-lo)/255
	for _, d := range nudges {
		scale := s.format.Round(step * (1 + d.scale/256))
		s.try(params{scale, s.format.Round(mid - float32(scale*(127.5-d.bias/4)))})
	}
}

// trim searches with 4 bits.
func (s *bestSearch) trim() {
	gridMoments(s.moments[:len(trims)], s.levels, trimmed[:], 4)
	var best moments
	covariance, variance := 0.0, 1.0
	for _, m := range s.moments[:len(trims)] {
		// What the codes explain of the levels is the square of the covariance over the variance.
		if c, v := s.spread(m); c > 0 && float64(float64(c*c)*variance) > float64(float64(covariance*covariance)*v) {
			best, covariance, variance = m, c, v
		}
	}
	for range fitRounds {
		if _, v := s.spread(best); v <= 0 {
			return
		}
		m, improved := s.try(s.leastSquares(best))
		if !improved {
			return
		}
		best = m
	}
}

// spread gives the covariance of codes and levels and the variance of the codes with the moments m, both
// times n*n and exact.
func (s *bestSearch) spread(m moments) (covariance, variance float64) {
	q := float64(m.q)
	return float64(s.n*float64(m.qy)) - float64(q*s.sum), float64(s.n*float64(m.qq)) - float64(q*q)
}

// leastSquares gives the scale and the bias, as stored, that fit the codes with the moments m best. The
// codes must not be all equal.
func (s *bestSearch) leastSquares(m moments) params {
	covariance, variance := s.spread(m)
	a := covariance / variance
	b := (s.sum - float64(a*float64(m.q))) / s.n
	return params{float32(a * s.unit), float32(s.mid + float64(b*s.unit))}.rounded(s.format)
}

// excess is the squared error of the codes with the moments m under p, in levels, less the sum of the
// squared levels, which is the same for all codes.
func (s *bestSearch) excess(m moments, p affine) float64 {
	scale := float64(p.a * (float64(p.a*float64(m.qq)) - float64(2*float64(m.qy))))
	bias := float64(p.b * (float64(p.b*s.n) - float64(2*s.sum)))
	return scale + bias + float64(2*float64(p.a*p.b)*float64(m.q))
}
