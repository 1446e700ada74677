package quantize

import (
	"fmt"

	"github.com/etc-ml/etc/ir/numeric/dot"
)

// damping is what a method adds to the diagonal of moments, as a share of its mean, so that inputs that were never seen
// cost something. More of it suits texts of another kind, less the text itself: the more a method makes of the moments,
// the more it takes.
func (m Method) damping() float32 {
	if m == Learned {
		return 0.2
	}
	return 0.05
}

// Solver quantizes matrices whose inputs have the same moments, by a method that needs them. It is safe for concurrent
// use.
type Solver struct {
	scheme     Scheme
	cols       int
	moments    dot.Matrix // the damped moments; for Learned alone
	importance []float32  // the diagonal of the damped moments
	factor     dot.Matrix // their decomposition, by the function factor; for methods with error feedback
	drift      dot.Matrix // the sums of the drift that Follow was given
	followed   float32    // the part of the drift that is taken into account; 0: none
}

// NewSolver prepares the method of s, which must be one that is calibrated, for inputs with the moments m, which it
// keeps and changes. Moments of nothing but zeros, or ones that are not finite, are an error.
func NewSolver(m *Moments, s Scheme, each Each) (*Solver, error) {
	if err := s.Check(m.cols); err != nil {
		return nil, err
	}
	if !s.Method.Calibrated() {
		return nil, fmt.Errorf("%s quantization needs no moments", s.Method)
	}
	mean := m.Mean()
	if !m.finite() || !(mean > 0) || !isFinite(mean) {
		return nil, fmt.Errorf("the second moments of the inputs have the mean %g, expected a finite number above 0",
			mean)
	}
	damping := float32(s.Method.damping() * mean)
	if m.diagonal && !s.Method.Diagonal() {
		return nil, fmt.Errorf("%s quantization needs all moments, only the diagonal is known", s.Method)
	}
	m.turned = nil
	v := &Solver{scheme: s, cols: m.cols, importance: make([]float32, m.cols)}
	for i := range m.cols {
		*m.at(i) += damping
		v.importance[i] = *m.at(i)
	}
	switch s.Method {
	case Weighted:
		return v, nil
	case Learned:
		m.mirror(each)
		v.moments, v.factor = m.sums, factor(m.sums, damping/16, each)
	default: // the feedback needs nothing but the factor
		v.factor = m.sums
		factorInto(v.factor, m.sums, damping/16, each)
	}
	return v, nil
}

// SolverBytes returns the most memory that moments, the solver made of them, and a drift if it follows one, take for
// inputs of cols numbers. Rows that are being quantized come on top: see [TileBytes].
func SolverBytes(s Scheme, cols int, follows bool) int64 {
	n := int64(cols)
	sums, most := n*n, MomentBytes(cols, s.Method.Diagonal())
	if s.Method == Learned {
		most = max(most, 4*2*sums)
	}
	if follows {
		// the drift's sums and scratch, and what Follow needs of them
		most = max(most, 4*(3*sums+n*max(2*MomentRows, 2*driftSample))+8*n)
	}
	return most + 4*n
}

// TileBytes returns the memory that one worker needs to quantize up to 64 rows of cols numbers.
func TileBytes(s Scheme, cols int) int64 {
	n := solverRows * int64(cols)
	// the result, the codes, the change, what is followed, the slopes of walks, and products of a group
	return n/8*int64(s.Bits) + 8*n/int64(s.GroupSize) + n + 4*n + 4*n +
		4*solverRows*(walkCols+int64(s.GroupSize)) + 64*momentPart
}

// solverRows is the number of rows that are quantized at a time.
const solverRows = 64

// Rounds of [Learned]: those of coordinate descent, and after these those of a walk and coordinate descent.
const (
	sweeps = 1
	walks  = 3
)

// Quantize quantizes the rows w [rows, cols] into dst, whose memory it reuses. The rows do not depend on each other.
func (v *Solver) Quantize(dst *Result, w []float32, rows int) error {
	if err := checkMatrix(w, rows, v.cols, v.scheme); err != nil {
		return err
	}
	dst.reset(rows, v.cols, v.scheme)
	words, groups := v.cols*v.scheme.Bits/32, v.cols/v.scheme.GroupSize
	var t solverTile
	for first := 0; first < rows; first += solverRows {
		n := min(solverRows, rows-first)
		t.reset(v, w[first*v.cols:(first+n)*v.cols], n, dst.Scales[first*groups:(first+n)*groups],
			dst.Biases[first*groups:(first+n)*groups])
		if err := t.quantize(); err != nil {
			err.Row += first
			return err
		}
		Pack(dst.Packed[first*words:(first+n)*words], t.codes, v.scheme.Bits)
	}
	return nil
}

// solverTile holds some rows of a matrix while they are quantized.
type solverTile struct {
	*Solver
	search         quantizer
	rows           int
	levels         float32
	w              dot.Matrix // the weights that are quantized: those given, or what Follow makes of them
	followed       []float32  // the memory of w in the second case
	change         dot.Matrix // the quantized weights minus w
	part           dot.Matrix // products of a group's columns
	codes          []uint8
	slopes         []float32 // scratch of walks
	walker         walker
	scales, biases []float32
	values         [4][maxGroup]float32 // scratch
}

func (t *solverTile) reset(v *Solver, w []float32, rows int, scales, biases []float32) {
	t.Solver, t.rows, t.scales, t.biases = v, rows, scales, biases
	t.search = quantizer{Scheme: v.scheme, group: v.scheme.GroupSize}
	t.levels = float32(int(1)<<v.scheme.Bits - 1)
	t.w = v.follow(t.followed, dot.Dense(w, rows, v.cols))
	if v.followed != 0 {
		t.followed = t.w.Values
	}
	t.change = dot.Dense(resized(t.change.Values, len(w)), rows, v.cols)
	t.part = dot.Dense(resized(t.part.Values, rows*v.scheme.GroupSize), rows, v.scheme.GroupSize)
	t.codes = resized(t.codes, len(w))
}

func (t *solverTile) quantize() *ValueError {
	if t.scheme.Method == Weighted {
		return t.weighted()
	}
	if err := t.feedback(); err != nil {
		return err
	}
	if t.scheme.Method == Learned {
		for range sweeps {
			t.sweep()
		}
		for range walks {
			t.walk()
			t.sweep()
		}
	}
	return nil
}

// groupAt returns the number of a group of a row among all.
func (t *solverTile) groupAt(row, first int) int {
	return row*(t.cols/t.scheme.GroupSize) + first/t.scheme.GroupSize
}

// weighted chooses every group's scale and bias by the squared error weighted by importance.
func (t *solverTile) weighted() *ValueError {
	size := t.scheme.GroupSize
	for r := range t.rows {
		for first := 0; first < t.cols; first += size {
			w := t.w.Row(r)[first : first+size]
			p, err := t.fit(w, t.importance[first:first+size], len(ranges))
			if err != nil {
				return t.located(err, r, first)
			}
			g := t.groupAt(r, first)
			t.scales[g], t.biases[g] = p.scale, p.bias
			for i, x := range w {
				t.codes[r*t.cols+first+i] = uint8(t.code(x, p))
			}
		}
	}
	return nil
}

func (t *solverTile) located(err *ValueError, row, first int) *ValueError {
	err.Row, err.Col = row, first+err.Col
	return err
}

// feedback quantizes the columns from the last to the first. With the decomposition L·Lᵀ of the moments, the squared
// error of the output is the sum over the columns j of (L[j][j]·d[j] + Σ_{i>j} L[i][j]·d[i])², where d is the change of
// the weights; each term is made small in its turn, by the code of column j, when those after it are chosen.
func (t *solverTile) feedback() *ValueError {
	size := t.scheme.GroupSize
	for first := t.cols - size; first >= 0; first -= size {
		behind := t.cols - first - size
		dot.Multiply(t.part, t.change.Part(0, first+size, t.rows, behind),
			t.factor.Part(first, first+size, size, behind))
		for r := range t.rows {
			w, change := t.w.Row(r)[first:first+size], t.change.Row(r)[first:first+size]
			wanted := t.values[0][:size]
			for i, x := range w {
				wanted[i] = x - t.part.Row(r)[i]
			}
			p, err := t.fit(wanted, t.importance[first:first+size], feedbackRanges)
			if err != nil {
				return t.located(err, r, first)
			}
			g := t.groupAt(r, first)
			t.scales[g], t.biases[g] = p.scale, p.bias
			for i := size - 1; i >= 0; i-- {
				x := wanted[i] - dot.Product(change[i+1:], t.factor.Row(first + i)[first+i+1:first+size])
				q := t.code(x, p)
				t.codes[r*t.cols+first+i] = uint8(q)
				change[i] = float32(p.scale*q) + p.bias - w[i]
			}
		}
	}
	return nil
}

// sweep lowers the squared error of the output group by group: each code in its turn goes to the value that is best
// while all else stays, then scale and bias to their least-squares fit to the output with the codes fixed.
func (t *solverTile) sweep() {
	size := t.scheme.GroupSize
	ones := make([]float32, size)
	for i := range ones {
		ones[i] = 1
	}
	sums := make([]float32, size) // of the rows of the group's own moments
	for first := 0; first < t.cols; first += size {
		dot.Multiply(t.part, t.change, t.moments.Part(first, 0, size, t.cols))
		own := t.moments.Part(first, first, size, size)
		for i := range size {
			sums[i] = dot.Product(own.Row(i), ones)
		}
		for r := range t.rows {
			t.descend(r, first, own)
			t.refit(r, first, own, sums)
		}
	}
}

// descend moves the codes of a group of row r.
func (t *solverTile) descend(r, first int, own dot.Matrix) {
	w, change, slope := t.w.Row(r)[first:first+own.Cols], t.change.Row(r)[first:first+own.Cols], t.part.Row(r)
	codes := t.codes[r*t.cols+first:][:own.Cols]
	g := t.groupAt(r, first)
	p := params{t.scales[g], t.biases[g]}
	for i, x := range w {
		q := t.code(x+change[i]-slope[i]/own.Row(i)[i], p)
		if uint8(q) == codes[i] {
			continue
		}
		codes[i] = uint8(q)
		moved := float32(p.scale*q) + p.bias - x
		step := moved - change[i]
		change[i] = moved
		for j, m := range own.Row(i) {
			slope[j] += float32(m * step)
		}
	}
}

// refit moves the scale and the bias of a group of row r where that lowers the error; sums are those of the rows of
// own.
func (t *solverTile) refit(r, first int, own dot.Matrix, sums []float32) {
	size := own.Cols
	w, change, slope := t.w.Row(r)[first:first+size], t.change.Row(r)[first:first+size], t.part.Row(r)
	codes := t.values[0][:size]
	for i := range codes {
		codes[i] = float32(t.codes[r*t.cols+first+i])
	}
	var qq, q1, one, slopeQ, slope1 float64
	for i, q := range codes {
		qq += float64(float64(q) * float64(dot.Product(own.Row(i), codes)))
		q1 += float64(float64(q) * float64(sums[i]))
		one += float64(sums[i])
		slopeQ += float64(float64(q) * float64(slope[i]))
		slope1 += float64(slope[i])
	}
	determinant := float64(qq*one) - float64(q1*q1)
	if !(determinant > float64(1e-6*float64(qq*one))) {
		return
	}
	g := t.groupAt(r, first)
	p := params{
		t.scales[g] - float32((float64(slopeQ*one)-float64(slope1*q1))/determinant),
		t.biases[g] - float32((float64(slope1*qq)-float64(slopeQ*q1))/determinant),
	}.rounded(t.scheme.Params)
	if p.scale == 0 || !isFinite(p.scale) || !isFinite(p.bias) {
		return
	}
	steps, moved := t.values[1][:size], t.values[2][:size]
	for i, q := range codes {
		moved[i] = float32(p.scale*q) + p.bias - w[i]
		steps[i] = moved[i] - change[i]
	}
	gain := 0.0 // of the squared error, halved
	for i, step := range steps {
		gain += float64(float64(step) * (float64(slope[i]) + float64(0.5*float64(dot.Product(own.Row(i), steps)))))
	}
	if gain < 0 {
		t.scales[g], t.biases[g] = p.scale, p.bias
		copy(change, moved)
	}
}

// code returns the code of x under p, as a number.
func (t *solverTile) code(x float32, p params) float32 {
	return roundToEven(min(max((x-p.bias)/p.scale, 0), t.levels))
}

// ranges are the extents that a weighted fit starts from, besides that of Best: what is left out at the low and at the
// high end, as a share of the group's extent.
var ranges = [...]struct{ low, high float32 }{
	{0.04, 0.04}, {0.1, 0.1}, {0, 0.08}, {0.08, 0}, {0.04, 0.14}, {0.14, 0.04}, {0.18, 0.18}, {0, 0},
}

// feedbackRanges are as many of ranges as error feedback tries: the choice of codes mends more than they do.
const feedbackRanges = 2

// fit returns the scale and the bias of the best of several fits to w by the squared error weighted by importance, each
// of which goes from an extent to codes and from codes to their least-squares scale and bias.
func (t *solverTile) fit(w, importance []float32, tried int) (params, *ValueError) {
	lo, hi, finite := extent(w)
	if !finite {
		return params{}, nonFinite(w)
	}
	best := t.search.bestParams(w, lo, hi)
	if !isFinite(best.scale) || !isFinite(best.bias) || best.scale == 0 {
		return best, &ValueError{Detail: fmt.Sprintf(
			"the %d weights from here on, between %g and %g, need the scale %g and the bias %g, which %s does not "+
				"hold; leave the tensor unquantized",
			len(w), lo, hi, best.scale, best.bias, t.scheme.Params)}
	}
	least, next := t.weigh(w, importance, best)
	try := func(p params) {
		for range fitRounds {
			if p = p.rounded(t.scheme.Params); p.scale == 0 || !isFinite(p.scale) || !isFinite(p.bias) {
				return
			}
			e, after := t.weigh(w, importance, p)
			if e < least {
				best, least = p, e
			}
			p = after
		}
	}
	try(next)
	for _, x := range ranges[:tried] {
		span := hi - lo
		from := lo + float32(span*x.low)
		try(params{(hi - float32(span*x.high) - from) / t.levels, from})
	}
	return best, nil
}

// weigh returns the weighted squared error of w under p, and the scale and the bias that fit the codes best.
func (t *solverTile) weigh(w, importance []float32, p params) (squares float64, next params) {
	var sum, sumQ, sumQQ, sumX, sumQX float64
	for i, x := range w {
		q, m := float64(t.code(x, p)), float64(importance[i])
		d := float64(x) - float64(float64(p.scale)*q) - float64(p.bias)
		squares += float64(m * float64(d*d))
		mq := float64(m * q)
		sum += m
		sumQ += mq
		sumQQ += float64(mq * q)
		sumX += float64(m * float64(x))
		sumQX += float64(mq * float64(x))
	}
	determinant := float64(sum*sumQQ) - float64(sumQ*sumQ)
	if !(determinant > 0) {
		return squares, p
	}
	scale := (float64(sum*sumQX) - float64(sumQ*sumX)) / determinant
	return squares, params{float32(scale), float32((sumX - float64(scale*sumQ)) / sum)}
}
