package calibrate

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// mixture is an operation switch_mlp or switch_geglu. For each token it computes some experts, down·(a(gate·x) ⊙
// up·x) each, and sums them, weighted by scores.
type mixture struct {
	op             *ir.Op
	gate, up, down *weight
	// quantized are the quantized rows of gate, up and down. While a weight is solved for, they are the rows written
	// so far.
	quantized [3]rows
}

// routed holds the inputs of a mixture in one stream, and the experts that they go to.
type routed struct {
	x        dot.Matrix
	exact    *dot.Matrix // x with the checkpoint's weights, if a method needs it
	perToken int
	experts  []int64   // by token, then by choice
	scores   []float32 // of the same shape
	tokens   [][]int   // by expert, its choices: token·perToken + choice
}

// route collects the inputs of a mixture from a stream.
func (s *stream) route(m *mixture) (*routed, error) {
	x, err := s.gather(m.op.Input("x"))
	if err != nil {
		return nil, err
	}
	r := &routed{x: x, tokens: make([][]int, m.gate.stack)}
	for _, c := range s.calls() {
		t := c.env[m.op.Input("indices")].Tensor
		r.perToken = t.Shape[len(t.Shape)-1]
		r.experts = append(r.experts, t.I...)
		r.scores = append(r.scores, c.env[m.op.Input("scores")].Tensor.F...)
	}
	for i, e := range r.experts {
		if e < 0 || e >= int64(m.gate.stack) {
			return nil, fmt.Errorf("expert %d, want 0 to %d", e, m.gate.stack-1)
		}
		r.tokens[e] = append(r.tokens[e], i)
	}
	return r, nil
}

// inputs returns the rows of x that go to an expert.
func (r *routed) inputs(expert int) dot.Matrix { return r.rowsOf(r.x, expert) }

// rowsOf returns the rows of m that belong to the tokens of an expert. m has a row for each row of x.
func (r *routed) rowsOf(x dot.Matrix, expert int) dot.Matrix {
	out := dot.Dense(make([]float32, len(r.tokens[expert])*x.Cols), len(r.tokens[expert]), x.Cols)
	for i, at := range r.tokens[expert] {
		copy(out.Row(i), x.Row(at/r.perToken))
	}
	return out
}

// experts quantizes the weights of a mixture, expert by expert, and runs the mixture for all windows.
func (d *driver) experts(op *ir.Op) error {
	m, err := d.mixtureOf(op)
	if err != nil {
		return err
	}
	if err := d.solveExperts(m); err != nil {
		return err
	}
	for _, s := range d.streams() {
		if len(s.windows) == 0 {
			continue
		}
		if err := d.runExperts(m, s, m.sources(s.quantized)); err != nil {
			return err
		}
	}
	return nil
}

// mixtureOf returns a mixture with its weights.
func (d *driver) mixtureOf(op *ir.Op) (m *mixture, err error) {
	m = &mixture{op: op}
	for _, x := range []struct {
		name string
		to   **weight
	}{{"gate", &m.gate}, {"up", &m.up}, {"down", &m.down}} {
		if *x.to, err = d.weightOf(op, x.name); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// weights returns the weights gate, up and down.
func (m *mixture) weights() [3]*weight { return [3]*weight{m.gate, m.up, m.down} }

// sources returns the rows of the three weights that a stream computes with.
func (m *mixture) sources(quantized bool) (out [3]rows) {
	for i, w := range m.weights() {
		out[i] = w.given
		if quantized {
			out[i] = m.quantized[i]
		}
	}
	return out
}

// hidden returns the input of an expert's down projection, for the expert's inputs x.
func (m *mixture) hidden(x dot.Matrix, expert int, from [3]rows) (dot.Matrix, error) {
	gate, err := product(x, from[0], expert*m.gate.rows, m.gate.rows, serially)
	if err != nil {
		return gate, err
	}
	up, err := product(x, from[1], expert*m.up.rows, m.up.rows, serially)
	if err != nil {
		return up, err
	}
	return gate, eval.GateExperts(m.op, gate.Values, up.Values)
}

// runExperts runs a mixture for one stream, with rows of its three weights.
func (d *driver) runExperts(m *mixture, s *stream, from [3]rows) error {
	r, err := s.route(m)
	if err != nil {
		return err
	}
	n := m.down.rows
	outputs := dot.Dense(make([]float32, len(r.experts)*n), len(r.experts), n)
	err = d.each.try(m.gate.stack, func(e int) error {
		if len(r.tokens[e]) == 0 {
			return nil
		}
		h, err := m.hidden(r.inputs(e), e, from)
		if err != nil {
			return err
		}
		y, err := product(h, from[2], e*n, n, serially)
		if err != nil {
			return err
		}
		for i, at := range r.tokens[e] {
			copy(outputs.Row(at), y.Row(i))
		}
		return nil
	})
	if err != nil {
		return err
	}
	sums := dot.Dense(make([]float32, r.x.Rows*n), r.x.Rows, n)
	d.each(r.x.Rows, func(t int) {
		for k := range n {
			sum := 0.0
			for i := t * r.perToken; i < (t+1)*r.perToken; i++ {
				sum += float64(float32(outputs.Row(i)[k] * r.scores[i]))
			}
			sums.Row(t)[k] = float32(sum)
		}
	})
	s.scatter(m.op.Result(), m.op.Input("x"), sums)
	return nil
}

// sampledTokens is the number of tokens, evenly spaced over the text, that go through every expert. The down
// projections of experts with few tokens of their own are quantized for these too.
const sampledTokens = 128

// solveExperts quantizes the weights of a mixture that the recipe names and that the directory lacks.
//
// An expert with K input columns is quantized for the tokens that are routed to it, and for the mean of all tokens,
// which weighs as much as K tokens. So an expert with no tokens, or with fewer than columns, is quantized for the
// text as a whole.
func (d *driver) solveExperts(m *mixture) error {
	open := [3]*stored{} // files that are being written
	for i, w := range m.weights() {
		var err error
		if m.quantized[i], open[i], err = d.expertRows(w); err != nil {
			return err
		}
	}
	if open == [3]*stored{} {
		return nil
	}
	r, err := d.text.route(m)
	if err != nil {
		return err
	}
	if d.exact != nil {
		exact, err := d.exact.gather(m.op.Input("x"))
		if err != nil {
			return err
		}
		r.exact = &exact
	}
	all := quantize.NewMoments(r.x.Cols)
	all.Add(r.x.Values, r.x.Rows, quantize.Each(d.each))
	err = d.each.try(m.gate.stack, func(e int) error {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		return m.solveExpert(e, r, all, open)
	})
	if err != nil {
		return err
	}
	for i, x := range open {
		if x == nil {
			continue
		}
		if err := d.store.finish(x); err != nil {
			return err
		}
		if x, err = d.store.find(x.weight); err != nil {
			return err
		}
		m.quantized[i] = x.quantizedRows
	}
	return nil
}

// expertRows returns the source of the rows of an expert's weight: another program, a method that needs no text, or a
// file of the directory. It creates a missing file, and also returns it for the rows to be written.
func (d *driver) expertRows(w *weight) (rows, *stored, error) {
	if d.source != nil {
		other, err := d.source.Rows(w.constant, passes.LinearWeight)
		return other, nil, err
	}
	if !w.calibrated() {
		return w.plain, nil, nil
	}
	x, err := d.store.find(w)
	if err != nil {
		return nil, nil, err
	}
	if x != nil {
		return x.quantizedRows, nil, nil
	}
	if x, err = d.store.create(w); err != nil {
		return nil, nil, err
	}
	return x.quantizedRows, x, nil
}

// solveExpert quantizes those weights of an expert whose files are open.
func (m *mixture) solveExpert(e int, r *routed, all *quantize.Moments, open [3]*stored) error {
	x := r.inputs(e)
	var solver *quantize.Solver // of gate and up, whose inputs are the same
	for i, to := range open {
		if to == nil {
			continue
		}
		if i == 2 || solver == nil || *m.gate.scheme != *m.up.scheme {
			moments, err := m.momentsOf(e, i, x, r, all)
			if err != nil {
				return err
			}
			if solver, err = newSolver(to.weight, moments, serially); err != nil {
				return err
			}
			if err := m.follow(solver, e, i, x, r); err != nil {
				return err
			}
		}
		for at := 0; at < to.rows; at += weightRows {
			if err := to.solve(solver, e*to.rows+at, min(weightRows, to.rows-at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow is [follow] for the expert's weight number i, whose inputs are x.
func (m *mixture) follow(s *quantize.Solver, e, i int, x dot.Matrix, r *routed) (err error) {
	w := m.weights()[i]
	if r.exact == nil || !w.calibrated() || !w.scheme.Method.Follows() || x.Rows <= w.cols {
		return nil
	}
	exact := r.rowsOf(*r.exact, e)
	if i == 2 {
		if exact, err = m.hidden(exact, e, m.sources(false)); err != nil {
			return err
		}
		if x, err = m.hidden(x, e, m.sources(true)); err != nil {
			return err
		}
	}
	follow(s, w, exact, x, serially)
	return nil
}

// momentsOf returns the moments of the inputs of the expert's weight number i.
func (m *mixture) momentsOf(e, i int, x dot.Matrix, r *routed, all *quantize.Moments) (*quantize.Moments, error) {
	if i < 2 {
		moments := quantize.NewMoments(m.gate.cols)
		moments.Add(x.Values, x.Rows, serially)
		moments.AddScaled(all, float32(m.gate.cols)/float32(r.x.Rows))
		return moments, nil
	}
	moments := quantize.NewMoments(m.down.cols)
	h, err := m.hidden(x, e, m.sources(true))
	if err != nil {
		return nil, err
	}
	moments.Add(h.Values, h.Rows, serially)
	if few := m.down.cols - h.Rows; few > 0 {
		count := min(sampledTokens, r.x.Rows)
		sample := dot.Dense(make([]float32, count*r.x.Cols), count, r.x.Cols)
		for t := range count {
			copy(sample.Row(t), r.x.Row(t*(r.x.Rows/count)))
		}
		if h, err = m.hidden(sample, e, m.sources(true)); err != nil {
			return nil, err
		}
		other := quantize.NewMoments(m.down.cols)
		other.Add(h.Values, h.Rows, serially)
		moments.AddScaled(other, float32(few)/float32(4*count))
	}
	return moments, nil
}
