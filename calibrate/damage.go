package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes/quantize"
)

// DamageOptions are the settings of [Damage].
type DamageOptions struct {
	// Windows are the tokens of the text. A few short ones are enough: the values between two segments exist once for
	// each weight and window.
	Windows [][]int
	// Scheme returns the scheme to try a weight with, by the weight's name and the length of its rows; nil leaves the
	// weight out. Its method must be one that needs no text.
	Scheme func(name string, cols int) *quantize.Scheme
	// Jobs is the number of workers; 0 stands for one per CPU.
	Jobs int
	// Dir is a directory for values that do not fit into MaxRAM, the bound of the memory of the process in bytes; 0
	// stands for no bound. Damage creates the directory, and leaves it empty. [DamageMemory] gives the least that is
	// enough.
	Dir    string
	MaxRAM int64
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
	p, err := newDamagePlan(m, o)
	if err == nil {
		err = p.fit(o.MaxRAM)
	}
	if err != nil {
		return nil, fmt.Errorf("damage: %w", err)
	}
	if len(p.onDisk) > 0 {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, err
		}
	}
	d := &damage{DamageOptions: o, n: len(o.Windows)}
	d.driver = &driver{ctx: ctx, module: m, options: Options{Progress: o.Progress}, plan: p,
		ledger: &ledger{bounded: o.MaxRAM > 0}}
	if err := d.measure(); err != nil {
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
	*driver
	// all holds the windows of every variant: first those with the checkpoint's weights, then those of each of names.
	all        *stream
	n          int
	names      []string
	divergence [][]float64 // by name and token
	// last are the variants of the last weight: rows of it by name.
	last map[string]rows
}

func (d *damage) measure() (err error) {
	dir := d.DamageOptions.Dir
	if len(d.plan.onDisk) == 0 {
		dir = ""
	}
	if d.activations, err = newActivations(dir, d.ledger, d.plan.onDisk); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.activations.close()) }()
	if d.all, err = newStream(d.module, d.activations, d.DamageOptions.Windows, false); err != nil {
		return err
	}
	for i, g := range d.plan.segments {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		k := d.constants()
		x, last := d.plan.sites[i].site, i == len(d.plan.segments)-1
		if err := d.segment(g, x, d.plan.configs[i], k[0], last); err != nil {
			return err
		}
		if last {
			d.progress(g)
			return d.compare(x, d.plan.configs[i], k[0])
		}
		if err := d.leave(g, k, []*stream{d.all}); err != nil {
			return err
		}
	}
	return nil
}

// segment runs a segment for all variants, and adds the variants of its weights. The last one it does not run.
func (d *damage) segment(g *segment, x *site, c config, k *constants, last bool) error {
	var forks []*stream
	base := d.all.windows[:d.n]
	if x != nil && x.op.Def.Name != "embedding" {
		for i, w := range x.weights {
			tried := d.tried(w)
			if tried == nil {
				continue
			}
			fork := d.all.copyOf(base, d.ledger)
			forks = append(forks, fork)
			d.names = append(d.names, w.constant.Name)
			from := x.sources(false)
			from[i] = tried.plain
			if last {
				d.last = map[string]rows{w.constant.Name: tried.plain}
				continue
			}
			if err := d.advance(fork, g, x, from, c, k); err != nil {
				return err
			}
		}
	}
	if !last {
		if err := d.advance(d.all, g, x, x.sources(false), c, k); err != nil {
			return err
		}
	}
	for _, fork := range forks {
		d.all.windows = append(d.all.windows, fork.windows...)
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

// compare runs the last segment call by call, and compares the logits.
func (d *damage) compare(x *site, c config, k *constants) error {
	d.divergence = make([][]float64, len(d.names))
	each := workers(c.jobs)
	for i := range d.n {
		for j := range d.all.windows[i].calls {
			var given dot.Matrix
			var givenBytes int64
			for v := 0; v <= len(d.names); v++ {
				if err := d.ctx.Err(); err != nil {
					return err
				}
				from := rows(x.weights[0].given)
				if v > 0 && d.last[d.names[v-1]] != nil {
					from = d.last[d.names[v-1]]
				}
				w := d.all.windows[v*d.n+i]
				logits, bytes, err := d.logits(d.all, w, w.calls[j], x, from, k, each)
				if err != nil {
					return err
				}
				if v == 0 {
					given, givenBytes = logits, bytes
					continue
				}
				sums := make([]float64, given.Rows)
				each(given.Rows, func(t int) { sums[t] = compare(given.Row(t), logits.Row(t), -1).divergence })
				d.divergence[v-1] = append(d.divergence[v-1], sums...)
				d.ledger.give(bytes)
			}
			d.ledger.give(givenBytes)
		}
	}
	return nil
}
