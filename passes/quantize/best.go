package quantize

import "math"

// Constants of Best.
const (
	// levelSpan is the extent of a group in levels; its ends are the levels -levelSpan/2 and levelSpan/2.
	levelSpan = 65024
	// leastMagnitude is the largest weight for which a group keeps MinMax's scale and bias. It is far above the
	// smallest normal number, so that no intermediate result loses bits.
	leastMagnitude = 0x1p-100
	// offsetRatio identifies groups that lie far from zero: their extent is smaller than their largest magnitude
	// divided by this.
	offsetRatio = 8
	// fitRounds bounds the number of least-squares fits of a group.
	fitRounds = 2
	// maxGrids bounds the number of grids that are tried at once; a power of two.
	maxGrids = 16
	// maxGroup is the largest group that Best takes.
	maxGroup = 128
)

// trims are the ranges of codes that are tried for 4 bits. Each is given by what it cuts off the group's extent at the
// low and at the high end, in hundredths of the extent; a negative number extends it. They were chosen greedily, each
// together with its mirror image: the next one was always the one that lowers the error after a least-squares fit most,
// over normal, Laplace, Student-t and trained weights in groups of 32, 64 and 128. Part of the gain over the whole
// extent comes from a finer step, paid for with the error of a few large weights. The rest comes from having a choice,
// since the rounding errors of the ranges are nearly independent of each other.
var trims = [...]struct{ low, high int }{
	{1, 3}, {3, 1}, {0, 4}, {4, 0}, {1, 1}, {4, 4}, {-6, 2}, {2, -6}, {-1, 1}, {1, -1}, {2, 6}, {6, 2},
}

// trimmed are the grids that belong to trims.
var trimmed = func() (g [len(trims)]grid) {
	for i, t := range trims {
		step := levelSpan * float64(100-t.low-t.high) / (100 * 15)
		g[i], _ = affine{step, levelSpan * float64(t.low-50) / 100}.grid(4)
	}
	return g
}()

// nudges are the scales and biases that are tried for 8 bits. The scale is that of the whole extent plus so many 1/256
// of itself; the numbers are one to two steps of bf16 apart. The bias is the one that centres the codes, plus so many
// quarters of the scale. They were chosen as trims were. With 8 bits, cutting off ends gains little; what counts is how
// well the rounded pairs happen to fit the weights.
var nudges = [...]struct{ scale, bias float32 }{
	{0, 0}, {2, 4}, {1, -2}, {1, 1}, {3, -2}, {4, 4}, {5, -2}, {6, 0}, {3, -5}, {3, 1}, {6, 5}, {6, -5},
}

// affine is a scale and a bias in units of levels: code q stands for level a*q + b.
type affine struct{ a, b float64 }

// grid returns the grid that maps levels to the nearest codes. It returns false where the grid's integers would
// overflow.
func (p affine) grid(bits int) (grid, bool) {
	one := float64(int(1) << fractionBits(bits))
	codes := one / p.a
	m, c := codes*0x1p15, -float64(p.b*codes)
	if !(math.Abs(m) < 0x7fff && math.Abs(c) < 0x7000) {
		return grid{}, false
	}
	return grid{int16(nearest(m)), int16(nearest(c)) + int16(one/2)}, true
}

// nearest rounds x, of a magnitude below 2^16, to the nearest integer, ties up.
func nearest(x float64) int { return int(x+(0x1p16+0.5)) - 1<<16 }

// bestSearch is the search over one group.
type bestSearch struct {
	bits   int
	format Float
	mid    float64 // the weight that is level 0
	unit   float64 // size of a level, in weights
	inUnit float64 // size of a weight of 1, in levels
	levels []int16
	n, sum int64   // number of weights, sum of their levels
	perN   float64 // 1/n, exact: n is a power of two

	best  params
	least float64 // excess of best

	// What is tried: trials are pairs of scale and bias as stored; grids are the grids of the trials, then further
	// ones.
	trials  [maxGrids]trial
	grids   [maxGrids]grid
	moments [maxGrids]moments
	scratch [maxGroup]int16
}

// trial is a stored scale and bias, and what they are in levels.
type trial struct {
	params
	levels affine
}

// bestParams returns Best's scale and bias for the group w, whose values lie between lo and hi, both finite.
func (q *quantizer) bestParams(w []float32, lo, hi float32) params {
	minMax := minMaxParams(lo, hi, q.Bits).rounded(q.Params)
	switch extent, magnitude := hi-lo, max(-lo, hi); {
	case !isFinite(extent) || magnitude < leastMagnitude:
		return minMax
	case extent < magnitude/offsetRatio:
		return q.offsetParams(w, lo, hi, minMax)
	}
	s := &q.search
	mid := lo/2 + hi/2
	s.bits, s.format = q.Bits, q.Params
	s.mid, s.unit, s.inUnit = float64(mid), float64(hi-lo)/levelSpan, levelSpan/float64(hi-lo)
	s.levels = s.scratch[:len(w)]
	s.n, s.sum = int64(len(w)), int64(toLevels(s.levels, w, mid, levelSpan/(hi-lo)))
	s.perN = 1 / float64(len(w))
	s.best, s.least = minMax, math.Inf(1)
	if q.Bits == 8 {
		s.nudge(minMax, mid, (hi-lo)/255)
	} else {
		s.trim(minMax)
	}
	return s.best
}

// nudge searches with 8 bits. minMax is among the pairs that it tries, so no group gets worse than with MinMax.
func (s *bestSearch) nudge(minMax params, mid, step float32) {
	n := s.add(0, minMax)
	for _, d := range nudges {
		scale := s.format.Round(step * (1 + d.scale/256))
		n = s.add(n, params{scale, s.format.Round(mid - float32(scale*(127.5-d.bias/4)))})
	}
	s.measure(n)
	s.judge(n)
}

// trim searches with 4 bits. minMax is among the pairs that it tries.
func (s *bestSearch) trim(minMax params) {
	n := s.add(0, minMax)
	all := n + copy(s.grids[n:], trimmed[:])
	s.measure(all)
	s.judge(n)
	// The part of the levels' variance that codes explain is covariance² / variance. The bit patterns of positive
	// numbers have the order of the numbers, so the lowest bits can hold the number of the grid.
	explains := uint64(0)
	for i, m := range s.moments[n:all] {
		c, v := s.spread(m)
		covariance, variance := float64(c), float64(max(v, 1))
		part := math.Float64bits(float64(covariance*covariance) / variance)
		explains = max(explains, part&^(maxGrids-1)|uint64(maxGrids-1-i))
	}
	codes := s.moments[n:][maxGrids-1-explains%maxGrids]
	for range fitRounds {
		if _, variance := s.spread(codes); variance <= 0 {
			return
		}
		n := s.add(0, s.leastSquares(codes))
		s.measure(n)
		if !s.judge(n) {
			return
		}
		codes = s.moments[0]
	}
}

// add adds a trial to n others and returns their new number. It drops a pair that cannot be stored or is useless.
func (s *bestSearch) add(n int, p params) int {
	if p.scale == 0 || !isFinite(p.scale) || !isFinite(p.bias) {
		return n
	}
	levels := affine{float64(p.scale) * s.inUnit, float64((float64(p.bias) - s.mid) * s.inUnit)}
	g, ok := levels.grid(s.bits)
	if !ok {
		return n
	}
	s.trials[n], s.grids[n] = trial{p, levels}, g
	return n + 1
}

// measure computes the moments of n grids.
func (s *bestSearch) measure(n int) {
	if n > 0 {
		gridMoments(s.moments[:n], s.levels, s.grids[:n], s.bits)
	}
}

// judge keeps the best of n trials if it is better than all earlier ones.
func (s *bestSearch) judge(n int) (better bool) {
	for i, t := range s.trials[:n] {
		if e := s.excess(s.moments[i], t.levels); e < s.least {
			s.best, s.least, better = t.params, e, true
		}
	}
	return better
}

// spread returns the covariance of codes and levels and the variance of the codes, from the moments m; both are
// multiplied by n*n.
func (s *bestSearch) spread(m moments) (covariance, variance int64) {
	q := int64(m.q)
	return s.n*int64(m.qy) - q*s.sum, s.n*int64(m.qq) - q*q
}

// leastSquares returns the scale and bias, as stored, that fit the codes with the moments m best. The codes must not be
// all equal.
func (s *bestSearch) leastSquares(m moments) params {
	covariance, variance := s.spread(m)
	a := float64(covariance) / float64(variance)
	b := (float64(s.sum) - float64(a*float64(m.q))) * s.perN
	return params{float32(a * s.unit), float32(s.mid + float64(b*s.unit))}.rounded(s.format)
}

// excess returns the squared error of the codes with the moments m under p, in levels, minus the sum of the squared
// levels. That sum is the same for all codes.
func (s *bestSearch) excess(m moments, p affine) float64 {
	scale := float64(p.a * (float64(p.a*float64(m.qq)) - float64(2*float64(m.qy))))
	bias := float64(p.b * (float64(p.b*float64(s.n)) - float64(2*s.sum)))
	return scale + bias + float64(2*float64(p.a*p.b)*float64(m.q))
}
