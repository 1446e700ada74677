package calibrate

import (
	"fmt"
	"sync"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes/quantize"
)

// A site of an operation switch_mlp or switch_geglu is a mixture of experts: for each token it computes some experts,
// down·(a(gate·x) ⊙ up·x) each, and sums them, weighted by scores.

// The indices of a mixture's weights in site.weights.
const (
	gateWeight = iota
	upWeight
	downWeight
)

// routed holds the inputs of a mixture in some calls, and for each expert which of them are routed to it.
type routed struct {
	x        *table
	exact    *table // x with the checkpoint's weights, if a method needs it
	perToken int
	scores   []float32 // by token, then by choice
	choices  [][]int32 // by expert: token·perToken + choice
}

// routedBytes returns the memory of what is known of tokens that choose so many experts each.
func routedBytes(tokens, perToken int) int64 { return 24 * int64(tokens) * int64(perToken) }

// route reads the inputs of a mixture in some calls and finds which experts they go to.
func (x *site) route(s *stream, all []*call) (*routed, error) {
	in, err := newTable(s.activations, all, x.op.Input("x"))
	if err != nil {
		return nil, err
	}
	experts := x.weights[gateWeight].stack
	r := &routed{x: in, choices: make([][]int32, experts)}
	var chosen []int32
	counts := make([]int, experts)
	for _, c := range all {
		indices, _, err := s.activations.get(c.items[x.op.Input("indices")])
		if err != nil {
			return nil, err
		}
		scores, _, err := s.activations.get(c.items[x.op.Input("scores")])
		if err != nil {
			return nil, err
		}
		r.perToken = indices.Tensor.Shape[len(indices.Tensor.Shape)-1]
		for _, e := range indices.Tensor.I {
			if e < 0 || e >= int64(experts) {
				return nil, fmt.Errorf("expert %d, want 0 to %d", e, experts-1)
			}
			counts[e]++
			chosen = append(chosen, int32(e))
		}
		r.scores = append(r.scores, scores.Tensor.F...)
	}
	for e, n := range counts {
		r.choices[e] = make([]int32, 0, n)
	}
	for i, e := range chosen {
		r.choices[e] = append(r.choices[e], int32(i))
	}
	return r, nil
}

// expertScratch is the memory that one worker needs for inputRows inputs of an expert.
type expertScratch struct {
	x, exact, gate, up, exactGate, out []float32
}

// scratches lends scratch to workers, so that there is one for each that runs at a time.
type scratches struct {
	driver *driver
	site   *site
	solves bool // the scratch is to solve for weights, not to run them
	mu     sync.Mutex
	free   []*expertScratch
	bytes  int64
}

// expertSizes returns the numbers of floats in the parts of an expertScratch.
func (x *site) expertSizes(solves bool) (sizes [6]int) {
	in, hidden := x.weights[gateWeight].cols, x.weights[downWeight].cols
	sizes = [6]int{in, 0, hidden, hidden, 0, x.weights[downWeight].rows}
	if solves {
		sizes = [6]int{in, in, hidden, hidden, hidden, 0}
	}
	for i := range sizes {
		sizes[i] *= inputRows
	}
	return sizes
}

// scratchBytes returns the size of an expertScratch.
func (x *site) scratchBytes(solves bool) (n int64) {
	for _, size := range x.expertSizes(solves) {
		n += floatBytes(size)
	}
	return n
}

func (p *scratches) get() *expertScratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		out := p.free[n-1]
		p.free = p.free[:n-1]
		return out
	}
	n := p.site.scratchBytes(p.solves)
	p.driver.ledger.take(n)
	p.bytes += n
	s := p.site.expertSizes(p.solves)
	out := &expertScratch{}
	for i, to := range []*[]float32{&out.x, &out.exact, &out.gate, &out.up, &out.exactGate, &out.out} {
		*to = make([]float32, s[i])
	}
	return out
}

func (p *scratches) put(s *expertScratch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// close gives the memory back.
func (p *scratches) close() { p.driver.ledger.give(p.bytes) }

// blocks calls f for the inputs that are routed to an expert, inputRows at a time.
func (r *routed) blocks(expert int, f func(choices []int32) error) error {
	all := r.choices[expert]
	for first := 0; first < len(all); first += inputRows {
		if err := f(all[first:min(first+inputRows, len(all))]); err != nil {
			return err
		}
	}
	return nil
}

// pick copies the rows of t that belong to choices.
func (r *routed) pick(dst []float32, t *table, choices []int32) (dot.Matrix, error) {
	out := dot.Dense(dst[:len(choices)*t.cols], len(choices), t.cols)
	for i, at := range choices {
		if err := t.read(out.Row(i), int(at)/r.perToken, 1); err != nil {
			return out, err
		}
	}
	return out, nil
}

// hidden returns the input of an expert's down projection for the expert's inputs x, in gate. It uses up for the other
// projection.
func (d *driver) hidden(m *site, x dot.Matrix, expert int, from []rows, gate, up []float32) (dot.Matrix, error) {
	n := m.weights[downWeight].cols
	g, u := dot.Dense(gate[:x.Rows*n], x.Rows, n), dot.Dense(up[:x.Rows*n], x.Rows, n)
	if err := d.product(g, x, from[gateWeight], expert*n, serially); err != nil {
		return g, err
	}
	if err := d.product(u, x, from[upWeight], expert*n, serially); err != nil {
		return g, err
	}
	return g, eval.GateExperts(m.op, g.Values, u.Values)
}

// runExperts runs a mixture for some calls, with rows of its three weights.
func (d *driver) runExperts(s *stream, m *site, from []rows, all []*call, each eachFunc) (dot.Matrix, error) {
	r, err := m.route(s, all)
	if err != nil {
		return dot.Matrix{}, err
	}
	held := routedBytes(r.x.rows, r.perToken)
	d.ledger.take(held)
	defer d.ledger.give(held)
	n := m.weights[downWeight].rows
	outputs := d.matrix(r.x.rows*r.perToken, n)
	defer d.release(outputs)
	lent := &scratches{driver: d, site: m}
	defer lent.close()
	err = each.try(len(r.choices), func(e int) error {
		s := lent.get()
		defer lent.put(s)
		return r.blocks(e, func(choices []int32) error {
			x, err := r.pick(s.x, r.x, choices)
			if err != nil {
				return err
			}
			h, err := d.hidden(m, x, e, from, s.gate, s.up)
			if err != nil {
				return err
			}
			y := dot.Dense(s.out[:x.Rows*n], x.Rows, n)
			if err := d.product(y, h, from[downWeight], e*n, serially); err != nil {
				return err
			}
			for i, at := range choices {
				copy(outputs.Row(int(at)), y.Row(i))
			}
			return nil
		})
	})
	if err != nil {
		return dot.Matrix{}, err
	}
	d.look()
	sums := d.matrix(r.x.rows, n)
	each(r.x.rows, func(t int) {
		for k := range n {
			sum := 0.0
			for i := t * r.perToken; i < (t+1)*r.perToken; i++ {
				sum += float64(float32(outputs.Row(i)[k] * r.scores[i]))
			}
			sums.Row(t)[k] = float32(sum)
		}
	})
	return sums, nil
}

// sampledTokens is the number of tokens, evenly spaced over the text, that go through every expert. The down
// projections of experts with few tokens of their own are quantized for these too.
const sampledTokens = 128

// solveExperts quantizes those weights of a mixture whose files are open.
//
// An expert with K input columns is quantized for the tokens that are routed to it, and for all tokens, whose moments
// are scaled so that they weigh as much as K tokens. So an expert with no tokens, or with fewer than it has columns, is
// quantized for the text as a whole.
func (d *driver) solveExperts(m *site, open []*stored, c config) error {
	r, err := m.route(d.text, calls(d.text.windows))
	if err != nil {
		return err
	}
	held := routedBytes(r.x.rows, r.perToken)
	d.ledger.take(held)
	defer d.ledger.give(held)
	if d.exact != nil {
		if r.exact, err = newTable(d.activations, calls(d.exact.windows), m.op.Input("x")); err != nil {
			return err
		}
	}
	x := &expertSolver{driver: d, site: m, routed: r, open: open}
	if open[gateWeight] != nil || open[upWeight] != nil {
		held := momentBytes(r.x.cols, m.weights[:downWeight]...)
		d.ledger.take(held)
		defer d.ledger.give(held)
		if x.all, err = d.momentsOf(r.x, m.weights[:downWeight], workers(c.solvers)); err != nil {
			return err
		}
	}
	x.lent = &scratches{driver: d, site: m, solves: true}
	defer x.lent.close()
	return workers(c.solvers).try(len(r.choices), func(e int) error {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		s := x.lent.get()
		defer x.lent.put(s)
		return x.solve(e, s)
	})
}

// expertSolver quantizes the weights of a mixture, one expert after the other.
type expertSolver struct {
	*driver
	site   *site
	routed *routed
	all    *quantize.Moments // of all inputs of the mixture
	open   []*stored
	lent   *scratches
}

// solve quantizes the weights of one expert.
func (x *expertSolver) solve(e int, s *expertScratch) error {
	weights := x.site.weights
	var solver *quantize.Solver // of gate and up, whose inputs are the same
	var held int64
	defer func() { x.ledger.give(held) }()
	for i, to := range x.open {
		if to == nil {
			continue
		}
		if i == downWeight || solver == nil || *weights[gateWeight].scheme != *weights[upWeight].scheme {
			solver = nil
			x.ledger.give(held)
			follows := x.routed.exact != nil && to.follows(len(x.routed.choices[e]))
			held = x.site.expertSolverBytes(i, follows)
			x.ledger.take(held)
			moments, err := x.momentsOf(e, i, s)
			if err != nil {
				return err
			}
			if solver, err = newSolver(to.weight, moments, serially); err != nil {
				return err
			}
			if follows {
				if err := x.follow(solver, e, i, s); err != nil {
					return err
				}
			}
		}
		for at := 0; at < to.rows; at += weightRows {
			if err := x.driver.solve(to, solver, e*to.rows+at, min(weightRows, to.rows-at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inputs returns inputs of the expert's weight number i, with rows from. t is r.x, or r.exact.
func (x *expertSolver) inputs(e, i int, t *table, choices []int32, from []rows, in, gate, up []float32) (dot.Matrix,
	error) {
	out, err := x.routed.pick(in, t, choices)
	if err != nil || i < downWeight {
		return out, err
	}
	return x.hidden(x.site, out, e, from, gate, up)
}

// follow gives a solver of the expert's weight number i the inputs that it gets beside those that it would get from
// the checkpoint's weights.
func (x *expertSolver) follow(solver *quantize.Solver, e, i int, s *expertScratch) error {
	drift := quantize.NewDrift(x.site.weights[i].cols)
	err := x.routed.blocks(e, func(choices []int32) error {
		exact, err := x.inputs(e, i, x.routed.exact, choices, x.site.sources(false), s.exact, s.exactGate, s.up)
		if err != nil {
			return err
		}
		in, err := x.inputs(e, i, x.routed.x, choices, x.site.sources(true), s.x, s.gate, s.up)
		if err != nil {
			return err
		}
		drift.Add(exact.Values, in.Values, in.Rows, serially)
		return nil
	})
	solver.Follow(drift, serially)
	return err
}

// momentsOf returns the moments of the inputs of the expert's weight number i.
func (x *expertSolver) momentsOf(e, i int, s *expertScratch) (*quantize.Moments, error) {
	w, r := x.site.weights[i], x.routed
	needs := x.site.weights[:downWeight] // gate and up may share a solver
	if i == downWeight {
		needs = x.site.weights[downWeight:]
	}
	sum := func(choices []int32, to *quantize.Moments) error {
		in, err := x.inputs(e, i, r.x, choices, x.site.sources(true), s.x, s.gate, s.up)
		if err == nil {
			to.Add(in.Values, in.Rows, serially)
		}
		return err
	}
	moments := newMoments(w.cols, needs...)
	err := r.blocks(e, func(choices []int32) error { return sum(choices, moments) })
	if err != nil {
		return nil, err
	}
	if i < downWeight {
		moments.AddScaled(x.all, float32(w.cols)/float32(r.x.rows))
		return moments, nil
	}
	if few := w.cols - len(r.choices[e]); few > 0 {
		count := min(sampledTokens, r.x.rows)
		sample := make([]int32, count)
		for t := range sample {
			sample[t] = int32(t * (r.x.rows / count) * r.perToken)
		}
		other := newMoments(w.cols, needs...)
		if err := sum(sample, other); err != nil {
			return nil, err
		}
		moments.AddScaled(other, float32(few)/float32(4*count))
	}
	return moments, nil
}
