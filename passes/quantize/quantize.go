package quantize

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
)

// ValueError reports weights that cannot be quantized: one that is not finite, or a group whose
// scale or bias is outside the range of its format.
type ValueError struct {
	// Row and Col locate the weight, or the first one of the group, in the slice that was passed.
	// A caller that passes a block of rows adds the number of the block's first row to Row.
	Row, Col int
	Detail   string
}

// Is reports whether target is what all errors about a file's content are.
func (e *ValueError) Is(target error) bool { return target == kind.ErrInvalid }

// Error names the row and the column.
func (e *ValueError) Error() string {
	return fmt.Sprintf("row %d, column %d: %s", e.Row, e.Col, e.Detail)
}

// Quantize quantizes the matrix w [rows, cols], in row-major order, into dst, whose memory it
// reuses. It reports a scheme that does not fit, a w of another length, and as a [*ValueError]
// weights that are not finite or that no scale of the format s.Params describes; dst then holds
// nothing of use.
//
// Every method but HQQ with s.Iterations = 0 treats each row by itself, so a matrix may be passed
// in blocks of rows, in any order and from any goroutine.
func Quantize(dst *Result, w []float32, rows, cols int, s Scheme) error {
	if err := checkMatrix(w, rows, cols, s); err != nil {
		return err
	}
	if s.Mode != ir.Affine {
		return quantizeBlocks(dst, w, rows, cols, s)
	}
	if s.Method.Calibrated() {
		return fmt.Errorf("%s quantization needs the moments of the inputs: use a Solver", s.Method)
	}
	if s.Method != HQQ || s.Iterations > 0 {
		return quantizeMatrix(dst, w, rows, cols, s, nil)
	}
	fits := make([]Fit, rows*(cols/s.group(cols)))
	var search Search
	if err := search.observe(w, cols, s, fits); err != nil {
		return err
	}
	s.Iterations = search.Iterations()
	return quantizeMatrix(dst, w, rows, cols, s, fits)
}

// QuantizeFitted is [Quantize] for a block of a tensor of HQQ with what [Search.Observe] stored of the same
// rows: the same result without another search. s.Iterations must be set.
func QuantizeFitted(dst *Result, w []float32, rows, cols int, s Scheme, fits []Fit) error {
	if err := checkMatrix(w, rows, cols, s); err != nil {
		return err
	}
	if s.Method.Calibrated() {
		return fmt.Errorf("%s quantization needs the moments of the inputs: use a Solver", s.Method)
	}
	if s.Method != HQQ || s.Iterations == 0 {
		return fmt.Errorf("%s quantization with fits and %d iterations: expected hqq with at least one",
			s.Method, s.Iterations)
	}
	if err := checkFits(fits, rows, cols, s); err != nil {
		return err
	}
	return quantizeMatrix(dst, w, rows, cols, s, fits)
}

func quantizeMatrix(dst *Result, w []float32, rows, cols int, s Scheme, fits []Fit) error {
	dst.reset(rows, cols, s)
	q := quantizer{Scheme: s, group: s.group(cols), quotients: make([]float32, s.group(cols)), fits: fits}
	repeat := q.group / dst.GroupSize
	words := q.group * s.Bits / 32
	for g := range rows * (cols / q.group) {
		p, err := q.quantizeGroup(dst.Packed[g*words:(g+1)*words], w[g*q.group:(g+1)*q.group], g)
		if err != nil {
			return located(err, g*q.group, cols)
		}
		for i := g * repeat; i < (g+1)*repeat; i++ {
			dst.Scales[i], dst.Biases[i] = p.scale, p.bias
		}
	}
	return nil
}

func checkMatrix(w []float32, rows, cols int, s Scheme) error {
	if err := s.Check(cols); err != nil {
		return err
	}
	if rows <= 0 || len(w)/cols != rows || len(w)%cols != 0 {
		return fmt.Errorf("%s quantization of a matrix [%d, %d]: found %d weights", s.Method, rows, cols, len(w))
	}
	return nil
}

// located turns the place of err, an index into a group that starts at weight start, into a row and
// a column.
func located(err *ValueError, start, cols int) error {
	at := start + err.Col
	err.Row, err.Col = at/cols, at%cols
	return err
}

// params are the scale and the bias of one group, as stored.
type params struct{ scale, bias float32 }

// rounded is p as f holds it.
func (p params) rounded(f Float) params { return params{f.Round(p.scale), f.Round(p.bias)} }

// quantizer quantizes groups of one scheme.
type quantizer struct {
	Scheme
	group     int
	quotients []float32 // scratch of one group
	fits      []Fit     // the fit of each group that a Search has found; nil: there was none
	search    bestSearch
}

// quantizeGroup packs the codes of the weights w, group number g of the matrix, into dst.
func (q *quantizer) quantizeGroup(dst []uint32, w []float32, g int) (params, *ValueError) {
	lo, hi, finite := extent(w)
	if !finite {
		return params{}, nonFinite(w)
	}
	var exact, stored params // before and after rounding to q.Params
	offset := int32(0)       // what the rounded quotient of a weight and its code differ by
	switch q.Method {
	case MinMax:
		exact = minMaxParams(lo, hi, q.Bits)
		stored = exact.rounded(q.Params)
	case Best:
		stored = q.bestParams(w, lo, hi)
		exact = stored
	case TorchAOAsymmetric:
		stored, offset = asymmetricParams(lo, hi, q.Bits)
	case TorchAOSymmetric:
		stored, offset = symmetricParams(lo, hi, q.Bits)
	case HQQ:
		exact.scale = q.hqqScale(w, max(-lo, hi), g)
		stored.scale = q.Params.Round(exact.scale)
		stored.bias = Bias(stored.scale, 0, q.Bits, q.Params)
	}
	if !isFinite(stored.scale) || !isFinite(stored.bias) || stored.scale == 0 {
		return params{}, &ValueError{Detail: fmt.Sprintf(
			"the %d weights from here on, between %g and %g, need the scale %g and the bias %g, which %s does not "+
				"hold; leave the tensor unquantized",
			len(w), lo, hi, stored.scale, stored.bias, q.Params)}
	}
	switch q.Method {
	case MinMax, Best:
		packAffine(dst, w, exact, q.Bits)
	case HQQ:
		packSymmetric(dst, w, q.quotients, exact.scale, q.Bits)
	default:
		reciprocalQuotients(q.quotients, w, stored.scale)
		packRounded(dst, q.quotients, offset, q.Bits)
	}
	return stored, nil
}

func isFinite(x float32) bool { return x-x == 0 }

// Bit patterns of the infinities.
const (
	plusInfinity  = 0x7f80_0000
	minusInfinity = 0xff80_0000
)

// extent returns the least and the greatest value of w, whose length is a multiple of 4, and
// whether all are finite. Which zero it returns when w holds both is not defined.
func extent(w []float32) (lo, hi float32, finite bool) {
	// As signed integers the patterns of positive floats are ordered like their values and above
	// those of negative floats; as unsigned integers the patterns of negative floats are ordered
	// like their magnitudes and above those of positive ones. So two integer maxima find both ends
	// of a group with both signs, which is what weights are.
	signed, below := patterns(w)
	above := uint32(signed)
	if above>>31 == 0 && above >= plusInfinity || below >= minusInfinity {
		return 0, 0, false
	}
	if above>>31 == 0 && below>>31 != 0 {
		return math.Float32frombits(below), math.Float32frombits(above), true
	}
	lo, hi = w[0], w[0]
	for _, x := range w {
		lo, hi = min(lo, x), max(hi, x)
	}
	return lo, hi, true
}

// patternsGeneric returns the greatest bit patterns of w, whose length is a multiple of 4, as signed and
// as unsigned integers.
func patternsGeneric(w []float32) (above int32, below uint32) {
	first := math.Float32bits(w[0])
	above0, below0 := int32(first), first
	above1, below1 := above0, below0
	for ; len(w) >= 4; w = w[4:] {
		a, b, c, d := math.Float32bits(w[0]), math.Float32bits(w[1]), math.Float32bits(w[2]), math.Float32bits(w[3])
		above0, below0 = max(above0, int32(a), int32(c)), max(below0, a, c)
		above1, below1 = max(above1, int32(b), int32(d)), max(below1, b, d)
	}
	return max(above0, above1), max(below0, below1)
}

// nonFinite reports the first value of w that is not finite.
func nonFinite(w []float32) *ValueError {
	for i, x := range w {
		if !isFinite(x) {
			return &ValueError{Col: i, Detail: fmt.Sprintf(
				"the weight is %v, expected a finite number; the checkpoint is damaged or was trained to divergence",
				x)}
		}
	}
	return nil
}

// packRounded stores clamp(round(t) + offset, 0, 2^bits - 1) of each t, of magnitude below 2^22, as
// [Pack] does. Ties round to even.
func packRounded(dst []uint32, t []float32, offset int32, bits int) {
	k := uint32(offset - roundBits)
	if bits == 8 {
		for i := range dst {
			q := (*[4]float32)(t[4*i:])
			dst[i] = word8(rounded(q[0])+k, rounded(q[1])+k, rounded(q[2])+k, rounded(q[3])+k)
		}
		return
	}
	for i := range dst {
		q := (*[8]float32)(t[8*i:])
		dst[i] = word4(rounded(q[0])+k, rounded(q[1])+k, rounded(q[2])+k, rounded(q[3])+k,
			rounded(q[4])+k, rounded(q[5])+k, rounded(q[6])+k, rounded(q[7])+k)
	}
}

// rounded returns round(t) + roundBits for t of magnitude below 2^22, ties to even.
func rounded(t float32) uint32 { return math.Float32bits(t + roundBias) }

// word4 packs eight 4-bit codes, limiting each, in two's complement, to 0..15.
func word4(a, b, c, d, e, f, g, h uint32) uint32 {
	if a|b|c|d|e|f|g|h > 15 {
		return limitedWord(4, a, b, c, d, e, f, g, h)
	}
	return a | b<<4 | c<<8 | d<<12 | e<<16 | f<<20 | g<<24 | h<<28
}

// word8 packs four 8-bit codes, limiting each, in two's complement, to 0..255.
func word8(a, b, c, d uint32) uint32 {
	if a|b|c|d > 255 {
		return limitedWord(8, a, b, c, d)
	}
	return a | b<<8 | c<<16 | d<<24
}

func limitedWord(bits int, codes ...uint32) (word uint32) {
	for i, q := range codes {
		word |= uint32(min(max(int32(q), 0), 1<<bits-1)) << (i * bits)
	}
	return word
}
