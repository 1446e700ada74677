package quantize

// offsetParams returns Best's scale and bias for a group w whose extent lo..hi is small compared to its distance from
// zero. There, neighbouring values that a stored bias can take are as far apart as the weights. The bias is such a
// value at either end of the group, or beyond it, and the scale reaches from there to the other end. minMax is what
// MinMax stores.
func (q *quantizer) offsetParams(w []float32, lo, hi float32, minMax params) params {
	best, least := minMax, squaredError(w, minMax, q.Bits)
	levels := float32(int(1)<<q.Bits - 1)
	for _, c := range [...]struct{ bias, end float32 }{
		{lo, hi}, {lo - abs(lo)/256, hi}, {hi, lo}, {hi + abs(hi)/256, lo},
	} {
		p := params{bias: q.Params.Round(c.bias)}
		p.scale = q.Params.Round((c.end - p.bias) / levels)
		if abs(p.scale) < torchAOEpsilon || !isFinite(p.bias) || !isFinite(p.scale) {
			continue
		}
		if e := squaredError(w, p, q.Bits); e < least {
			best, least = p, e
		}
	}
	return best
}

// squaredError returns the squared error of the weights w as packAffine stores them with p.
func squaredError(w []float32, p params, bits int) float64 {
	levels := float32(int(1)<<bits - 1)
	sum := 0.0
	for _, x := range w {
		code := min(max(roundToEven((x-p.bias)/p.scale), 0), levels)
		d := float64(x) - float64(float64(p.scale)*float64(code)) - float64(p.bias)
		sum += float64(d * d)
	}
	return sum
}
