package calibrate

import (
	"context"
	"fmt"
	"maps"
	"runtime"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes/quantize"
)

// DamageOptions are the settings of [Damage].
type DamageOptions struct {
	// Windows are the tokens of the text. A few short ones are enough, and memory limits them: the values between two
	// operations exist once for each weight and window.
	Windows [][]int
	// Scheme returns the scheme to try a weight with, by the weight's name and the length of its rows; nil leaves the
	// weight out. Its method must be one that needs no text.
	Scheme func(name string, cols int) *quantize.Scheme
	// Jobs is the number of workers; 0 stands for one per CPU.
	Jobs int
	// Progress, if not nil, is called after every weight, with the operations that are done and their total.
	Progress func(done, total int, name string)
}

// Damage returns the damage of each weight of a linear or a mixture of experts, by the weight's name: the mean KL
// divergence of the predictions of m when only that weight is quantized. [Prepare] has made m.
//
// All variants run through the module together, each from its weight on, so every weight is read once. The result has
// the same bits on every CPU and for any number of workers.
func Damage(ctx context.Context, m *ir.Module, o DamageOptions) (map[string]float64, error) {
	if err := checkEntry(m); err != nil {
		return nil, err
	}
	if len(o.Windows) == 0 {
		return nil, fmt.Errorf("the damage of quantization needs a text of at least one window")
	}
	if err := checkWindows(o.Windows); err != nil {
		return nil, err
	}
	count := o.Jobs
	if count < 1 {
		count = runtime.GOMAXPROCS(0)
	}
	d := &damage{DamageOptions: o, n: len(o.Windows), lastUse: lastUses(m)}
	d.driver = &driver{ctx: ctx, module: m, each: workers(count), options: Options{Progress: o.Progress},
		ends: ir.LastUses(m.Entry.Body, m.Entry.Body.Results)}
	d.all = newStream(m, o.Windows, false)
	if err := d.run(); err != nil {
		return nil, fmt.Errorf("damage: %w", err)
	}
	out := map[string]float64{}
	for i, name := range d.names {
		out[name] = mean(d.divergence[i])
	}
	return out, nil
}

// damage runs variants of a module side by side. Each has one weight quantized.
type damage struct {
	DamageOptions
	driver *driver
	// all holds the windows of every variant: first those with the checkpoint's weights, then those of each of names.
	all        *stream
	n          int
	names      []string
	divergence [][]float64 // by name and token
	lastUse    map[*ir.Buffer]int
}

// lastUses returns, for each buffer, the index of the last operation that uses it.
func lastUses(m *ir.Module) map[*ir.Buffer]int {
	last := map[*ir.Buffer]int{}
	for i, op := range m.Entry.Body.Ops {
		for _, b := range op.Buffers() {
			last[b] = i
		}
	}
	return last
}

func (d *damage) run() error {
	ops := d.driver.module.Entry.Body.Ops
	for i, op := range ops {
		if hasWeights(op) {
			d.driver.head = i
		}
	}
	k := &constants{}
	for first := 0; first < d.driver.head; {
		if err := d.driver.ctx.Err(); err != nil {
			return err
		}
		if hasWeights(ops[first]) {
			if err := d.site(first); err != nil {
				return fmt.Errorf("%w\n\tin %s", err, ir.Describe(d.driver.module, ops[first]))
			}
			d.all.drop(d.driver.ends[first])
			d.driver.progress(first, ops[first])
			first++
			continue
		}
		last := first + 1
		for last < d.driver.head && !hasWeights(ops[last]) {
			last++
		}
		if err := d.all.run(ops[first:last], d.driver.ends[first:last], k, d.driver.each); err != nil {
			return err
		}
		first = last
	}
	last := ops[d.driver.head]
	if last.Def.Name != "linear" {
		return fmt.Errorf("expected a module whose last weight is that of a linear, found %s",
			ir.Describe(d.driver.module, last))
	}
	if err := d.site(d.driver.head); err != nil {
		return fmt.Errorf("%w\n\tin %s", err, ir.Describe(d.driver.module, last))
	}
	d.driver.progress(d.driver.head, last)
	return d.compare(ops[d.driver.head+1:], k)
}

// site runs an operation that has weights for all variants, and adds the variants of these weights.
func (d *damage) site(at int) error {
	op := d.driver.module.Entry.Body.Ops[at]
	switch op.Def.Name {
	case "embedding":
		w, err := d.driver.weightOf(op, "weight")
		if err != nil {
			return err
		}
		return d.driver.embed(d.all, op, w, w.given)
	case "linear":
		if op.Input("bias") != nil {
			return fmt.Errorf("calibration knows no linear with a bias")
		}
		w, err := d.driver.weightOf(op, "weight")
		if err != nil {
			return err
		}
		if err := d.driver.multiply(d.all, op, w, w.given); err != nil {
			return err
		}
		tried := d.tried(w)
		if tried == nil {
			return nil
		}
		return d.driver.multiply(d.fork(w, at), op, w, tried.plain)
	}
	m, err := d.driver.mixtureOf(op)
	if err != nil {
		return err
	}
	given := m.sources(false)
	if err := d.driver.runExperts(m, d.all, given); err != nil {
		return err
	}
	for i, w := range m.weights() {
		tried := d.tried(w)
		if tried == nil {
			continue
		}
		from := given
		from[i] = tried.plain
		if err := d.driver.runExperts(m, d.fork(w, at), from); err != nil {
			return err
		}
	}
	return nil
}

// tried returns the weight with the scheme that it is tried with, or nil if it is left out.
func (d *damage) tried(w *weight) *weight {
	s := d.Scheme(w.constant.Name, w.cols)
	if s == nil {
		return nil
	}
	tried := *w
	tried.scheme = s
	return &tried
}

// fork adds the variant in which w is quantized. It begins at operation at, whose result with the checkpoint's
// weights is known.
func (d *damage) fork(w *weight, at int) *stream {
	s := &stream{module: d.driver.module}
	for _, window := range d.all.windows[:d.n] {
		buffers := map[*ir.Buffer]*eval.Tensor{}
		for b, t := range window[0].buffers {
			if d.lastUse[b] > at {
				buffers[b] = t.Clone()
			}
		}
		var calls []*call
		for _, c := range window {
			calls = append(calls, &call{c.tokens, maps.Clone(c.env), buffers})
		}
		s.windows = append(s.windows, calls)
	}
	d.all.windows = append(d.all.windows, s.windows...)
	d.names = append(d.names, w.constant.Name)
	return s
}

// compare runs the operations behind the last weight, call by call, and compares the logits.
func (d *damage) compare(tail []*ir.Op, k *constants) error {
	d.divergence = make([][]float64, len(d.names))
	ends := d.driver.ends[d.driver.head+1:]
	for i := range d.n {
		for j := range d.all.windows[i] {
			var given dot.Matrix
			for v := 0; v <= len(d.names); v++ {
				if err := d.driver.ctx.Err(); err != nil {
					return err
				}
				one := &stream{module: d.driver.module, windows: [][]*call{{d.all.windows[v*d.n+i][j]}}}
				if err := one.run(tail, ends, k, d.driver.each); err != nil {
					return err
				}
				logits, err := one.gather(d.driver.module.Entry.Body.Results[0])
				if err != nil {
					return err
				}
				clear(one.windows[0][0].env)
				if v == 0 {
					given = logits
					continue
				}
				sums := make([]float64, given.Rows)
				d.driver.each(given.Rows, func(t int) { sums[t] = compare(given.Row(t), logits.Row(t), -1).divergence })
				d.divergence[v-1] = append(d.divergence[v-1], sums...)
			}
		}
	}
	return nil
}
