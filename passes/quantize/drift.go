package quantize

import "github.com/etc-ml/etc/ir/numeric/dot"

// Drift is how the inputs x of a linear differ from those x' that the checkpoint would have given it, because weights
// before it are quantized: the sum of (x' - x)·xᵀ over all inputs.
type Drift struct {
	cols, rows int
	sums       dot.Matrix // [cols, cols], transposed: row j has the sums for x[j]
	squares    []float64  // for each column, the sum of the squares of x' - x
	turned     []float32  // scratch of Add: the inputs x, transposed
	away       []float32  // scratch of Add: x' - x, transposed
}

// NewDrift makes the drift of no inputs of cols numbers.
func NewDrift(cols int) *Drift {
	return &Drift{cols: cols, sums: dot.Dense(make([]float32, cols*cols), cols, cols), squares: make([]float64, cols)}
}

// Add adds the inputs x [rows, cols], where the checkpoint has those of exact. As with [Moments.Add], the result
// depends on the order of calls and on how inputs are divided among them, not on each.
func (d *Drift) Add(exact, x []float32, rows int, each Each) {
	d.rows += rows
	for rows > 0 {
		n := min(rows, MomentRows)
		stride := (n + 7) &^ 7 // zeros after the last input add nothing
		d.turned, d.away = resized(d.turned, d.cols*stride), resized(d.away, d.cols*stride)
		blocks := (d.cols + momentCols - 1) / momentCols
		each(blocks, func(b int) {
			for i := b * momentCols; i < min(d.cols, (b+1)*momentCols); i++ {
				turned, away := d.turned[i*stride:(i+1)*stride], d.away[i*stride:(i+1)*stride]
				for t := range n {
					v := x[t*d.cols+i]
					e := exact[t*d.cols+i] - v
					turned[t], away[t] = v, e
					d.squares[i] += float64(float64(e) * float64(e))
				}
				clear(turned[n:])
				clear(away[n:])
			}
		})
		inputs, errors := dot.Dense(d.turned, d.cols, stride), dot.Dense(d.away, d.cols, stride)
		each(blocks, func(b int) {
			first := b * momentCols
			count := min(momentCols, d.cols-first)
			addProducts(d.sums.Part(first, 0, count, d.cols), inputs.Part(first, 0, count, stride), errors)
		})
		exact, x, rows = exact[n*d.cols:], x[n*d.cols:], rows-n
	}
}

// driftSample is the largest number of columns from which it is estimated how much of a drift can be predicted.
const driftSample = 64

// Follow has the solver, of a method with error feedback, choose weights whose outputs for x are near those of the
// checkpoint's weights for x', where d is the drift of the same inputs. The weights W that do this best before they are
// quantized are W + W·C·H⁻¹, with the sums C of the drift and the moments H: the least-squares prediction of x' - x
// by x, added to x.
//
// A prediction from few inputs predicts inputs that it was not made from less well, so W·C·H⁻¹ is multiplied by the
// adjusted coefficient of determination over the coefficient itself (M. Ezekiel, 1930), measured on some of the
// columns.
func (v *Solver) Follow(d *Drift, each Each) {
	count := min(driftSample, d.cols)
	sample := dot.Dense(make([]float32, count*d.cols), count, d.cols)
	predicted := dot.Dense(make([]float32, count*d.cols), count, d.cols)
	each(count, func(i int) {
		for j := range d.cols {
			sample.Row(i)[j] = d.sums.Row(j)[i*d.cols/count]
		}
		copy(predicted.Row(i), sample.Row(i))
		solve(predicted.Part(i, 0, 1, d.cols), v.factor)
	})
	var explained, all float64
	for i := range count {
		for j, p := range predicted.Row(i) {
			explained += float64(float64(p) * float64(sample.Row(i)[j]))
		}
		all += d.squares[i*d.cols/count]
	}
	v.drift, v.followed = dot.Matrix{}, 0
	chance := float64(d.cols) / float64(max(d.rows, 1)) // what as many random inputs would explain
	if r := explained / all; r > chance && r <= 1 && chance < 1 {
		v.drift, v.followed = d.sums, float32((r-chance)/float64((1-chance)*r))
	}
}

// follow returns the weights that w would have to be.
func (v *Solver) follow(dst []float32, w dot.Matrix) dot.Matrix {
	if v.followed == 0 {
		return w
	}
	x := dot.Dense(resized(dst, w.Rows*w.Cols), w.Rows, w.Cols)
	dot.Multiply(x, w, v.drift)
	solve(x, v.factor)
	for r := range x.Rows {
		to := x.Row(r)
		for i, given := range w.Row(r) {
			to[i] = given + float32(v.followed*to[i])
		}
	}
	return x
}

// solve replaces every row c of x by c·(L·Lᵀ)⁻¹, where f is what [factor] gives.
func solve(x, f dot.Matrix) {
	n := f.Rows
	sums := make([]float32, x.Rows*factorBlock)
	for first := 0; first < n; first += factorBlock { // z·Lᵀ = c
		width := min(factorBlock, n-first)
		part := dot.Dense(sums, x.Rows, width)
		dot.Multiply(part, x.Part(0, 0, x.Rows, first), f.Part(first, 0, width, first))
		for r := range x.Rows {
			z := x.Row(r)
			for j, sum := range part.Row(r) {
				l := f.Row(first + j)[first : first+j+1]
				z[first+j] = (z[first+j] - sum - dot.Product(z[first:first+j], l[:j])) / l[j]
			}
		}
	}
	for first := (n - 1) / factorBlock * factorBlock; first >= 0; first -= factorBlock { // x·L = z
		end := min(first+factorBlock, n)
		part := dot.Dense(sums, x.Rows, end-first)
		dot.Multiply(part, x.Part(0, end, x.Rows, n-end), f.Part(first, end, end-first, n-end))
		for r := range x.Rows {
			z := x.Row(r)
			for j := end - 1; j >= first; j-- {
				row := f.Row(j)
				z[j] = z[j]/row[j] - part.Row(r)[j-first] - dot.Product(z[j+1:end], row[j+1:end])
			}
		}
	}
}
