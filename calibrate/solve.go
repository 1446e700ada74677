package calibrate

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes/quantize"
)

// inputRows is the number of inputs that are in memory at a time while their moments are summed up.
const inputRows = quantize.MomentRows

// calibrated reports whether the method of the weight needs its inputs.
func (w *weight) calibrated() bool { return w.scheme != nil && w.scheme.Method.Calibrated() }

// follows reports whether the method of the weight also compares with inputs that the checkpoint's weights give, and
// there are enough of them: no more than columns say nothing.
func (w *weight) follows(inputs int) bool {
	return w.calibrated() && w.scheme.Method.Follows() && inputs > w.cols
}

// solveLinear quantizes the weight of a linear into its file.
func (d *driver) solveLinear(x *site, open []*stored, c config) error {
	w, each := x.weights[0], workers(c.solvers)
	in, err := newTable(d.activations, calls(d.text.windows), x.op.Input("x"))
	if err != nil {
		return err
	}
	var exact *table
	if d.exact != nil && w.follows(in.rows) {
		if exact, err = newTable(d.activations, calls(d.exact.windows), x.op.Input("x")); err != nil {
			return err
		}
	}
	held := quantize.SolverBytes(*w.scheme, w.cols, exact != nil)
	d.ledger.reserve(held)
	defer d.ledger.give(held)
	m, err := d.momentsOf(in, []*weight{w}, each)
	if err != nil {
		return err
	}
	solver, err := newSolver(w, m, each)
	if err != nil {
		return err
	}
	if exact != nil {
		drift := quantize.NewDrift(w.cols)
		a, b := d.matrix(inputRows, in.cols), d.matrix(inputRows, in.cols)
		for first := 0; first < in.rows; first += inputRows {
			n := min(inputRows, in.rows-first)
			if err := exact.read(a.Values[:n*in.cols], first, n); err != nil {
				return err
			}
			if err := in.read(b.Values[:n*in.cols], first, n); err != nil {
				return err
			}
			drift.Add(a.Values, b.Values, n, quantize.Each(each))
		}
		d.release(a)
		d.release(b)
		solver.Follow(drift, quantize.Each(each))
	}
	d.look()
	return each.try((w.rows+weightRows-1)/weightRows, func(b int) error {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		return d.solve(open[0], solver, b*weightRows, min(weightRows, w.rows-b*weightRows))
	})
}

// momentsOf returns the moments of all rows of a table, as the methods of the weights need them.
func (d *driver) momentsOf(t *table, weights []*weight, each eachFunc) (*quantize.Moments, error) {
	m := newMoments(t.cols, weights...)
	block := d.matrix(inputRows, t.cols)
	defer d.release(block)
	for first := 0; first < t.rows; first += inputRows {
		n := min(inputRows, t.rows-first)
		if err := t.read(block.Values[:n*t.cols], first, n); err != nil {
			return nil, err
		}
		m.Add(block.Values, n, quantize.Each(each))
	}
	return m, nil
}

// diagonal reports whether the methods of the weights need no more than the diagonal of their inputs' moments.
func diagonal(weights ...*weight) bool {
	return !slices.ContainsFunc(weights, func(w *weight) bool { return w.calibrated() && !w.scheme.Method.Diagonal() })
}

// newMoments makes moments of no inputs, as the methods of the weights need them.
func newMoments(cols int, weights ...*weight) *quantize.Moments {
	if diagonal(weights...) {
		return quantize.NewDiagonalMoments(cols)
	}
	return quantize.NewMoments(cols)
}

// momentBytes returns the memory of what newMoments makes, while inputs are added.
func momentBytes(cols int, weights ...*weight) int64 {
	return quantize.MomentBytes(cols, diagonal(weights...))
}

// newSolver returns the solver of a weight for the moments m of its inputs. If all inputs were zero, all columns
// count the same.
func newSolver(w *weight, m *quantize.Moments, each eachFunc) (*quantize.Solver, error) {
	if m.Mean() == 0 {
		m.AddIdentity(1)
	}
	s, err := quantize.NewSolver(m, *w.scheme, quantize.Each(each))
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", w.constant.Name, err)
	}
	return s, nil
}

// solve quantizes rows [first, first+n) of a weight and writes them to its file.
func (d *driver) solve(x *stored, s *quantize.Solver, first, n int) error {
	held := tileBytes(x.weight)
	d.ledger.take(held)
	defer d.ledger.give(held)
	given, err := x.given(first, n)
	if err != nil {
		return err
	}
	var r quantize.Result
	if err := s.Quantize(&r, given.Values, n); err != nil {
		return fmt.Errorf("tensor %s, rows from %d: %w", x.constant.Name, first, err)
	}
	return x.write(&r, first, given)
}

// tileBytes returns the memory that [driver.solve] takes for weightRows rows.
func tileBytes(w *weight) int64 {
	return quantize.TileBytes(*w.scheme, w.cols) + 2*rowsBytes(weightRows, w.cols)
}

// plain returns rows as a method without a text quantizes them, or unchanged if nothing quantizes the weight. The
// stop test of hqq sees these rows alone; that changes scales by less than a step of bf16.
func (w *weight) plain(first, n int) (dot.Matrix, error) {
	given, err := w.given(first, n)
	if err != nil || w.scheme == nil {
		return given, err
	}
	var r quantize.Result
	if err := quantize.Quantize(&r, given.Values, n, w.cols, *w.scheme); err != nil {
		return given, fmt.Errorf("tensor %s, rows from %d: %w", w.constant.Name, first, err)
	}
	return given, r.Dequantize(given.Values)
}
