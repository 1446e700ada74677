package calibrate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// Options are the settings of [Run].
type Options struct {
	// Windows are the tokens of the text; each window is run by itself from position 0.
	Windows [][]int
	// HeldOut are windows of text that no weight is fitted to. [Quality] is measured on them; there may be none.
	HeldOut [][]int
	// Recipe says how weights are quantized.
	Recipe passes.Recipe
	// Dir is the directory for the quantized weights. It must stay until the data of the [Result] has been read.
	Dir string
	// Identity stands for all that the result depends on: checkpoint, text, recipe and the version of the program.
	// Weights that Dir holds of the same identity are not computed again.
	Identity string
	// Jobs is the number of workers; 0 stands for one per CPU. The result does not depend on it.
	Jobs int
	// MaxRAM bounds the memory of the process, in bytes; 0 stands for no bound. Values that do not fit lie in files of
	// Dir. The result does not depend on it. [Memory] gives the least that is enough.
	MaxRAM int64
	// Progress, if not nil, is called after every weight, with the operations that are done and their total.
	Progress func(done, total int, name string)

	// observe, if not nil, is called with the bytes that are held, at places where no worker runs: for tests.
	observe func(held int64)
}

// Result is what [Run] has computed.
type Result struct {
	// Quality is nil if Options.HeldOut is empty.
	Quality *Quality
	store   *store
	// planned is the memory for arrays that the plan allows for, held the most that there was at a time; onDisk is the
	// number of values that lay in files.
	planned, held int64
	onDisk        int
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
	p, err := newPlan(m, o)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	if err := p.fit(o.MaxRAM); err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	s, err := openStore(o.Dir, o.Identity)
	if err != nil {
		return nil, err
	}
	d := &driver{ctx: ctx, module: m, options: o, store: s, plan: p,
		ledger: &ledger{bounded: o.MaxRAM > 0}}
	if err := d.calibrate(); err != nil {
		return nil, fmt.Errorf("calibration: %w", joinClose(err, s))
	}
	r := &Result{store: s, planned: p.most(), held: d.ledger.most, onDisk: len(p.onDisk)}
	if len(o.HeldOut) > 0 {
		r.Quality = d.quality.sum()
	}
	return r, nil
}

// calibrate opens the streams and runs the module.
func (d *driver) calibrate() (err error) {
	if d.activations, err = newActivations(d.options.Dir, d.ledger, d.plan.onDisk); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.activations.close()) }()
	open := func(to **stream, windows [][]int, quantized bool) {
		if err == nil {
			*to, err = newStream(d.module, d.activations, windows, quantized)
		}
	}
	open(&d.text, d.options.Windows, true)
	if Follows(d.options.Recipe) {
		open(&d.exact, d.options.Windows, false)
	}
	open(&d.held[0], d.options.HeldOut, false)
	open(&d.held[1], d.options.HeldOut, true)
	if err != nil {
		return err
	}
	return d.run()
}

// Follows reports whether a method of the recipe also compares with the inputs that the checkpoint's weights give.
// Run then runs the text twice.
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

// jobsOf returns the number of workers that an option stands for.
func jobsOf(count int) int {
	if count < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return count
}

// driver runs a module over all windows, segment by segment.
type driver struct {
	ctx         context.Context
	module      *ir.Module
	options     Options
	store       *store
	plan        *plan
	ledger      *ledger
	activations *activations
	// exact runs the text's windows with the checkpoint's weights; nil if no method needs that.
	exact *stream
	// text runs the text's windows with quantized weights. held runs the held-out windows, with the checkpoint's
	// weights and with quantized ones.
	text    *stream
	held    [2]*stream
	quality scores
	// source, if not nil, gives weights that are quantized already; then the driver quantizes none.
	source Source
}

// streams returns all streams.
func (d *driver) streams() []*stream {
	if d.exact == nil {
		return []*stream{d.text, d.held[0], d.held[1]}
	}
	return []*stream{d.text, d.exact, d.held[0], d.held[1]}
}

func (d *driver) run() error {
	segments := d.plan.segments
	for i, g := range segments {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		x := d.plan.sites[i].site
		if x != nil {
			if err := d.prepare(x, d.plan.configs[i]); err != nil {
				return fmt.Errorf("%w\n\tin %s", err, ir.Describe(d.module, g.site))
			}
		}
		k := d.constants()
		if i == len(segments)-1 {
			d.progress(g)
			return d.tail(g, x, d.plan.configs[i], k)
		}
		for _, s := range d.streams() {
			if err := d.advance(s, g, x, x.sources(s.quantized), d.plan.configs[i], pick(s, k)); err != nil {
				return err
			}
		}
		if err := d.leave(g, k, d.streams()); err != nil {
			return err
		}
	}
	return nil
}

// leave ends segment g: it drops the values and constants that no later segment needs.
func (d *driver) leave(g *segment, k [2]*constants, streams []*stream) error {
	for _, s := range streams {
		s.drop(g.drops)
	}
	for _, v := range g.drops {
		if err := d.activations.remove(v); err != nil {
			return err
		}
	}
	d.progress(g)
	d.close(k)
	d.look()
	return nil
}

// look tells a test how many bytes the ledger counts.
func (d *driver) look() {
	if d.options.observe != nil {
		d.options.observe(d.ledger.held)
	}
}

// constants returns the constants of a segment, as a stream computes with them that is not quantized, and one that is.
func (d *driver) constants() (k [2]*constants) {
	k[0] = &constants{ledger: d.ledger}
	k[1] = k[0]
	if d.source != nil {
		k[1] = &constants{source: d.source, ledger: d.ledger}
	}
	return k
}

// close drops constants.
func (d *driver) close(k [2]*constants) {
	k[0].close()
	if k[1] != k[0] {
		k[1].close()
	}
}

// pick returns the constants that a stream computes with.
func pick(s *stream, k [2]*constants) *constants {
	if s.quantized {
		return k[1]
	}
	return k[0]
}

func (d *driver) progress(g *segment) {
	if d.options.Progress == nil || g.site == nil {
		return
	}
	var names []string
	for _, c := range g.weights() {
		names = append(names, c.Name)
	}
	all := d.module.Entry.Body.Ops
	d.options.Progress(slices.Index(all, g.site)+1, len(all), strings.Join(names, ", "))
}

// checkLast returns an error if the last segment does not begin with a linear, usually lm_head.
func (p *plan) checkLast() error {
	op := p.segments[len(p.segments)-1].site
	if op == nil || op.Def.Name != "linear" {
		return fmt.Errorf("calibration needs a module whose last weight is that of a linear")
	}
	return nil
}

// logits runs the last segment for one call, and returns the logits and the bytes that they take in the ledger.
func (d *driver) logits(s *stream, w *window, c *call, x *site, from rows, k *constants, each eachFunc) (
	dot.Matrix, int64, error) {
	g := d.plan.segments[len(d.plan.segments)-1]
	one := &window{calls: []*call{c}, buffers: w.buffers}
	given, n, err := d.siteResults(s, x, []rows{from}, []*window{one}, each)
	if err != nil {
		return dot.Matrix{}, 0, err
	}
	f := newFrame(s, w, c, d.ledger)
	defer f.close()
	defer d.ledger.give(n)
	if err := f.run(g, given[0], k, true); err != nil {
		return dot.Matrix{}, 0, err
	}
	t := f.values[d.module.Entry.Body.Results[0]].Tensor
	if t == nil || t.F == nil || len(t.Shape) == 0 {
		return dot.Matrix{}, 0, fmt.Errorf("the logits are no tensor of floats")
	}
	d.ledger.take(tensorBytes(t))
	cols := t.Shape[len(t.Shape)-1]
	return dot.Dense(t.F, len(t.F)/max(cols, 1), cols), tensorBytes(t), nil
}

// tail runs the last segment for the held-out windows, call by call since logits are large, and compares the logits.
func (d *driver) tail(g *segment, x *site, c config, k [2]*constants) error {
	each := workers(c.jobs)
	for i, w := range d.held[0].windows {
		for j, one := range w.calls {
			if err := d.ctx.Err(); err != nil {
				return err
			}
			var logits [2]dot.Matrix
			var bytes [2]int64
			for at, s := range d.held {
				var err error
				logits[at], bytes[at], err = d.logits(s, s.windows[i], s.windows[i].calls[j], x,
					x.sources(s.quantized)[0], pick(s, k), each)
				if err != nil {
					return fmt.Errorf("%w\n\tin %s", err, ir.Describe(d.module, g.site))
				}
			}
			d.quality.add(logits[0], logits[1], d.options.HeldOut[i][one.position+1:], each)
			d.ledger.give(bytes[0] + bytes[1])
		}
	}
	d.close(k)
	return nil
}
