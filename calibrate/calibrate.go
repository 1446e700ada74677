package calibrate

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// Options are the settings of [Run].
type Options struct {
	// Windows are the tokens of the text; each window is run by itself from position 0.
	Windows [][]int
	// HeldOut are windows that nothing is fitted to, for the [Quality]; there may be none.
	HeldOut [][]int
	// Recipe says how weights are quantized.
	Recipe passes.Recipe
	// Dir is the directory for the quantized weights. It must stay until the data of the [Result] has been read.
	Dir string
	// Identity stands for all that the result depends on: checkpoint, text, recipe and the version of the program.
	// Weights that Dir holds of the same identity are not computed again.
	Identity string
	// Jobs is the number of workers; 0 stands for one per CPU.
	Jobs int
	// Progress, if not nil, is called after every weight, with the operations that are done and their total.
	Progress func(done, total int, name string)
}

// Result is what [Run] has computed.
type Result struct {
	// Quality is nil if Options.HeldOut is empty.
	Quality *Quality
	store   *store
}

// Close closes the files of the result. Its data cannot be read any more.
func (r *Result) Close() error { return r.store.close() }

// Calibrated returns the quantized form of the weight with a name. It implements passes.Calibration.
func (r *Result) Calibrated(name string, s quantize.Scheme) (passes.CalibratedWeight, bool) {
	x := r.store.open[name]
	if x == nil || *x.scheme != s {
		return passes.CalibratedWeight{}, false
	}
	return passes.CalibratedWeight{Packed: x.part(packedOutput), Scales: x.part(scalesOutput),
		Biases: x.part(biasesOutput),
		Noise:  x.noise, Signal: x.signal}, true
}

// Prepare turns a module that a loader has built into one to calibrate: it runs the passes that precede quantization,
// and leaves the logits of all tokens in place. It returns the recipe.
func Prepare(m *ir.Module, o passes.Options) (passes.Recipe, error) {
	m.More = nil // drafts
	o.Disable = append([]string{"last-token", "sampling-head"}, o.Disable...)
	o.Backend, o.After = passes.MLX, nil
	err := passes.Through(m, &o, "allocate-bits")
	return o.Recipe, err
}

// Run quantizes the weights of m, which [Prepare] has made.
func Run(ctx context.Context, m *ir.Module, o Options) (*Result, error) {
	if err := check(m, o); err != nil {
		return nil, err
	}
	s, err := openStore(o.Dir, o.Identity)
	if err != nil {
		return nil, err
	}
	count := o.Jobs
	if count < 1 {
		count = runtime.GOMAXPROCS(0)
	}
	d := &driver{ctx: ctx, module: m, options: o, store: s, each: workers(count),
		ends: ir.LastUses(m.Entry.Body, m.Entry.Body.Results)}
	d.text = newStream(m, o.Windows, true)
	if Follows(o.Recipe) {
		d.exact = newStream(m, o.Windows, false)
	}
	d.held = [2]*stream{newStream(m, o.HeldOut, false), newStream(m, o.HeldOut, true)}
	if err := d.run(); err != nil {
		return nil, fmt.Errorf("calibration: %w", joinClose(err, s))
	}
	r := &Result{store: s}
	if len(o.HeldOut) > 0 {
		r.Quality = d.quality.sum()
	}
	return r, nil
}

// Follows reports whether a method of the recipe also compares with the inputs that the checkpoint's weights give.
// Run then runs the text twice, so [Memory] has to be asked about twice the tokens.
func Follows(r passes.Recipe) bool {
	return slices.ContainsFunc(r.Rules, func(rule passes.Rule) bool {
		return rule.Scheme != nil && rule.Scheme.Method.Follows() && rule.Kind == passes.LinearWeight
	})
}

func joinClose(err error, s *store) error {
	if also := s.close(); also != nil {
		return fmt.Errorf("%w; %w", err, also)
	}
	return err
}

func check(m *ir.Module, o Options) error {
	if err := checkEntry(m); err != nil {
		return err
	}
	if len(o.Windows) == 0 {
		return fmt.Errorf("calibration needs a text of at least one window")
	}
	return checkWindows(append(o.Windows[:len(o.Windows):len(o.Windows)], o.HeldOut...))
}

func checkEntry(m *ir.Module) error {
	f := m.Entry
	if len(f.Params) != 2 || f.Params[0].Type.Rank() != 2 || f.Params[1].Type.Rank() != 1 || len(f.Body.Results) != 1 {
		return fmt.Errorf("calibration needs a module forward(tokens, input_pos) → logits")
	}
	return nil
}

func checkWindows(windows [][]int) error {
	for _, w := range windows {
		if len(w) == 0 {
			return fmt.Errorf("calibration: a window without tokens")
		}
	}
	return nil
}

// driver runs a module over all windows, operation by operation.
type driver struct {
	ctx     context.Context
	module  *ir.Module
	options Options
	store   *store
	each    eachFunc
	ends    [][]*ir.Value // by operation, the values that no later operation reads
	// exact runs the text's windows with the checkpoint's weights; nil if no method needs that.
	exact *stream
	// text runs the text's windows with quantized weights. held runs the held-out windows, with the checkpoint's
	// weights and with quantized ones.
	text    *stream
	held    [2]*stream
	quality scores
	head    int // the index of the last operation with a weight
	// source, if not nil, has the quantized weights; then no weight is solved for.
	source Source
}

// streams returns all streams.
func (d *driver) streams() []*stream {
	if d.exact == nil {
		return []*stream{d.text, d.held[0], d.held[1]}
	}
	return []*stream{d.text, d.exact, d.held[0], d.held[1]}
}

// hasWeights reports whether the driver itself runs op, since op multiplies by a weight that may be quantized.
func hasWeights(op *ir.Op) bool {
	switch op.Def.Name {
	case "linear", "embedding", "switch_mlp", "switch_geglu":
		return true
	}
	return false
}

func (d *driver) run() error {
	ops := d.module.Entry.Body.Ops
	for i, op := range ops {
		if hasWeights(op) {
			d.head = i
		}
	}
	for first := 0; first < d.head; {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if hasWeights(ops[first]) {
			if err := d.site(ops[first]); err != nil {
				return fmt.Errorf("%w\n\tin %s", err, ir.Describe(d.module, ops[first]))
			}
			for _, s := range d.streams() {
				s.drop(d.ends[first])
			}
			d.progress(first, ops[first])
			first++
			continue
		}
		last := first + 1
		for last < d.head && !hasWeights(ops[last]) {
			last++
		}
		k, other := &constants{}, &constants{source: d.source}
		for _, s := range d.streams() {
			if err := s.run(ops[first:last], d.ends[first:last], pick(s, k, other), d.each); err != nil {
				return err
			}
		}
		first = last
	}
	return d.tail(ops)
}

// pick returns the constants that a stream computes with.
func pick(s *stream, given, quantized *constants) *constants {
	if s.quantized {
		return quantized
	}
	return given
}

func (d *driver) progress(at int, op *ir.Op) {
	if d.options.Progress == nil {
		return
	}
	names := []string{}
	op.EachArg(func(a *ir.Arg) {
		if a.Kind == ir.ValueArg && a.Value.Constant != nil {
			names = append(names, a.Value.Constant.Name)
		}
	})
	d.options.Progress(at+1, len(d.module.Entry.Body.Ops), strings.Join(names, ", "))
}

// weightOf returns the weight in an operand of op.
func (d *driver) weightOf(op *ir.Op, operand string) (*weight, error) {
	v := op.Input(operand)
	if v == nil || v.Constant == nil {
		return newWeight(nil, nil)
	}
	kind := passes.LinearWeight
	if op.Def.Name == "embedding" {
		kind = passes.EmbeddingWeight
	}
	scheme := d.options.Recipe.Scheme(kind, v.Constant.Name)
	return newWeight(v.Constant, scheme)
}

// site runs an operation that has weights, for all windows.
func (d *driver) site(op *ir.Op) error {
	switch op.Def.Name {
	case "embedding":
		return d.embedding(op)
	case "linear":
		return d.linear(op)
	}
	return d.experts(op)
}

// embedding runs an embedding with rows of the checkpoint's weight: calibration does not quantize embeddings.
func (d *driver) embedding(op *ir.Op) error {
	w, err := d.weightOf(op, "weight")
	if err != nil {
		return err
	}
	for _, s := range d.streams() {
		from := w.given
		if s.quantized && d.source != nil {
			if from, err = d.source.Rows(w.constant, passes.EmbeddingWeight); err != nil {
				return err
			}
		}
		if err := d.embed(s, op, w, from); err != nil {
			return err
		}
	}
	return nil
}

// embed runs an embedding for one stream, with rows of its weight.
func (d *driver) embed(s *stream, op *ir.Op, w *weight, from rows) error {
	calls, indices := s.calls(), op.Input("indices")
	return d.each.try(len(calls), func(i int) error {
		t := calls[i].env[indices].Tensor
		out := eval.Tensor{DType: op.Result().Type.DType, Shape: append(append([]int{}, t.Shape...), w.cols)}
		for _, id := range t.I {
			if id < 0 || id >= int64(w.rows) {
				return fmt.Errorf("token %d, want 0 to %d", id, w.rows-1)
			}
			row, err := from(int(id), 1)
			if err != nil {
				return err
			}
			out.F = append(out.F, row.Values...)
		}
		calls[i].env[op.Result()] = eval.Value{Tensor: &out}
		return nil
	})
}

// linear quantizes the weight of a linear, and runs the linear for all windows.
func (d *driver) linear(op *ir.Op) error {
	w, quantized, err := d.solveLinear(op)
	if err != nil {
		return err
	}
	for _, s := range d.streams() {
		source := w.given
		if s.quantized {
			source = quantized
		}
		if err := d.multiply(s, op, w, source); err != nil {
			return err
		}
	}
	return nil
}

// multiply runs a linear for one stream, with rows of its weight.
func (d *driver) multiply(s *stream, op *ir.Op, w *weight, from rows) error {
	if len(s.windows) == 0 {
		return nil
	}
	x, err := s.gather(op.Input("x"))
	if err != nil {
		return err
	}
	y, err := product(x, from, 0, w.rows, d.each)
	if err != nil {
		return err
	}
	s.scatter(op.Result(), op.Input("x"), y)
	return nil
}

// solveLinear returns the weight of a linear, and its quantized rows. If the recipe's method needs the inputs, and
// the directory lacks the weight, it quantizes the weight now.
func (d *driver) solveLinear(op *ir.Op) (*weight, rows, error) {
	if op.Input("bias") != nil {
		return nil, nil, fmt.Errorf("calibration knows no linear with a bias")
	}
	w, err := d.weightOf(op, "weight")
	if err != nil {
		return nil, nil, err
	}
	if d.source != nil {
		other, err := d.source.Rows(w.constant, passes.LinearWeight)
		return w, other, err
	}
	if !w.calibrated() {
		return w, w.plain, nil
	}
	if x, err := d.store.find(w); err != nil || x != nil {
		return w, x.quantizedRows, err
	}
	inputs, err := d.text.gather(op.Input("x"))
	if err != nil {
		return nil, nil, err
	}
	m := quantize.NewMoments(w.cols)
	m.Add(inputs.Values, inputs.Rows, quantize.Each(d.each))
	solver, err := newSolver(w, m, d.each)
	if err != nil {
		return nil, nil, err
	}
	if d.exact != nil {
		exact, err := d.exact.gather(op.Input("x"))
		if err != nil {
			return nil, nil, err
		}
		follow(solver, w, exact, inputs, d.each)
	}
	x, err := d.store.create(w)
	if err != nil {
		return nil, nil, err
	}
	err = d.each.try((w.rows+weightRows-1)/weightRows, func(b int) error {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		return x.solve(solver, b*weightRows, min(weightRows, w.rows-b*weightRows))
	})
	if err != nil {
		return nil, nil, err
	}
	if err := d.store.finish(x); err != nil {
		return nil, nil, err
	}
	x, err = d.store.find(w)
	return w, x.quantizedRows, err
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

// follow gives a solver the inputs that a weight gets (x) beside those that it would get from the checkpoint's
// weights (exact), if its method uses them. With no more inputs than columns they say nothing, and follow does
// nothing.
func follow(s *quantize.Solver, w *weight, exact, x dot.Matrix, each eachFunc) {
	if !w.scheme.Method.Follows() || x.Rows <= w.cols {
		return
	}
	drift := quantize.NewDrift(w.cols)
	drift.Add(exact.Values, x.Values, x.Rows, quantize.Each(each))
	s.Follow(drift, quantize.Each(each))
}

// calibrated reports whether the method of the weight needs its inputs.
func (w *weight) calibrated() bool { return w.scheme != nil && w.scheme.Method.Calibrated() }

// solve quantizes rows [first, first+n) and writes them to the file.
func (x *stored) solve(s *quantize.Solver, first, n int) error {
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

// tail quantizes the last weight, usually lm_head, and runs the remaining operations for the held-out windows, call
// by call since logits are large.
func (d *driver) tail(ops []*ir.Op) error {
	op := ops[d.head]
	if op.Def.Name != "linear" {
		return fmt.Errorf("calibration needs a module whose last weight is that of a linear, found %s",
			ir.Describe(d.module, op))
	}
	w, quantized, err := d.solveLinear(op)
	if err != nil {
		return fmt.Errorf("%w\n\tin %s", err, ir.Describe(d.module, op))
	}
	d.progress(d.head, op)
	k, other := &constants{}, &constants{source: d.source}
	for i, window := range d.held[0].windows {
		for j := range window {
			var logits [2]dot.Matrix
			for at, s := range d.held {
				source := w.given
				if s.quantized {
					source = quantized
				}
				one := &stream{module: d.module, windows: [][]*call{{s.windows[i][j]}}}
				x, err := one.gather(op.Input("x"))
				if err != nil {
					return err
				}
				y, err := product(x, source, 0, w.rows, d.each)
				if err != nil {
					return err
				}
				one.scatter(op.Result(), op.Input("x"), y)
				if err := one.run(ops[d.head+1:], d.ends[d.head+1:], pick(s, k, other), d.each); err != nil {
					return err
				}
				if logits[at], err = one.gather(d.module.Entry.Body.Results[0]); err != nil {
					return err
				}
				clear(s.windows[i][j].env)
			}
			if err := d.ctx.Err(); err != nil {
				return err
			}
			next := d.options.HeldOut[i][1:]
			for _, before := range window[:j] {
				next = next[before.tokens:]
			}
			d.quality.add(logits[0], logits[1], next, d.each)
		}
	}
	return nil
}
