package passes

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// Allocation asks the pass allocate-bits to choose how each weight of a linear is quantized.
type Allocation struct {
	// BitsPerWeight is the most bits, scales and biases included, that a weight of the linears takes on average.
	BitsPerWeight float64
	// Schemes are the choices, in addition to leaving a weight as it is.
	Schemes []quantize.Scheme
}

// Tried returns the scheme that the damage of a weight with such rows is measured with: the first of the schemes that
// fits, with the method best in place of a calibrated one; nil where none fits.
func (a *Allocation) Tried(cols int) *quantize.Scheme {
	for _, s := range a.Schemes {
		if s.Check(cols) == nil {
			s = measurable(s)
			return &s
		}
	}
	return nil
}

// measurable returns a scheme whose error can be measured without a text. For a calibrated scheme that is best, since
// their errors rise and fall together.
func measurable(s quantize.Scheme) quantize.Scheme {
	if s.Method.Calibrated() {
		s.Method = quantize.Best
	}
	return s
}

// allocateBits puts a rule for each weight of a linear that the recipe does not name before the recipe's
// rules, so that the sum of the squared relative errors of the weights is small and their bits are those asked for.
//
// A linear's rounding adds noise to its output whose size, relative to the output, is about the relative
// error of its weight, whatever the size of the matrix. Taken as independent, these errors add up along the
// layers by their squares. So every weight counts once, and bits go where they lower the sum most for each
// byte: a greedy walk along the lower convex hulls of error against size, which is optimal up to the last
// step (Shoham and Gersho, Efficient Bit Allocation for an Arbitrary Set of Quantizers, IEEE Transactions
// on ASSP 36, 1988).
func allocateBits(m *ir.Module, o *Options) error {
	choices, total, err := linearWeights(m, o)
	if err != nil {
		return err
	}
	if len(choices) == 0 {
		return nil
	}
	if err := measure(choices); err != nil {
		return err
	}
	if o.Damage != nil {
		scaleErrors(choices, o.Allocate, o.Damage)
	}
	choices = tie(m, choices)
	least := int64(0)
	for _, c := range choices {
		c.hull()
		least += c.options[0].bytes
	}
	budget := int64(o.Allocate.BitsPerWeight * float64(total) / 8)
	if budget < least {
		return &BudgetError{o.Allocate.BitsPerWeight, 8 * float64(least) / float64(total)}
	}
	spend(choices, budget-least)
	var rules []Rule
	for _, c := range choices {
		for _, name := range append([]string{c.name}, c.tied...) {
			rules = append(rules, Rule{Kind: LinearWeight, Pattern: literal(name), Scheme: c.options[c.chosen].scheme})
		}
	}
	o.Recipe.Rules = append(rules, o.Recipe.Rules...)
	return nil
}

// scaleErrors converts errors of weights to damage. The damage of one scheme was measured; the damage of other schemes
// is scaled by the ratio of their errors.
func scaleErrors(choices []*choice, a *Allocation, damage map[string]float64) {
	factors := make([]float64, len(choices))
	sum, count := 0.0, 0
	for i, c := range choices {
		d, ok := damage[c.name]
		e := c.errorOf(a.Tried(c.cols()))
		if !ok || !(e > 0) {
			continue
		}
		factors[i] = d / e
		sum, count = sum+factors[i], count+1
	}
	for i, c := range choices {
		f := factors[i]
		if f == 0 && count > 0 {
			f = sum / float64(count)
		}
		for j := range c.options {
			c.options[j].error *= f
		}
	}
}

// tie joins the choices of gate and up projections of experts: engines compute both at a time, from codes of the same
// form.
func tie(m *ir.Module, choices []*choice) []*choice {
	partner := map[string]string{}
	for _, f := range m.Entries() {
		f.Body.Walk(func(op *ir.Op) {
			if op.Def.Name != "switch_mlp" && op.Def.Name != "switch_geglu" {
				return
			}
			if gate, up := op.Input("gate"), op.Input("up"); isWeight(gate) && isWeight(up) && gate != up {
				partner[up.Constant.Name] = gate.Constant.Name
			}
		})
	}
	byName := map[string]*choice{}
	for _, c := range choices {
		byName[c.name] = c
	}
	return slices.DeleteFunc(choices, func(c *choice) bool {
		to := byName[partner[c.name]]
		if to == nil || len(to.options) != len(c.options) {
			return false
		}
		for i, o := range c.options {
			to.options[i].bytes += o.bytes
			to.options[i].error += o.error
		}
		to.tied = append(to.tied, c.name)
		return true
	})
}

// errorOf returns the error of the option with a scheme, 0 where there is none.
func (c *choice) errorOf(s *quantize.Scheme) float64 {
	for _, o := range c.options {
		if s != nil && o.scheme != nil && measurable(*o.scheme) == *s {
			return o.error
		}
	}
	return 0
}

// choice is a weight and what can become of it.
type choice struct {
	name    string
	tied    []string // other weights that become the same
	data    ir.Data
	options []option
	chosen  int
}

// option is a way to store a weight.
type option struct {
	scheme *quantize.Scheme
	bytes  int64
	error  float64 // squared, relative
}

// linearWeights lists the weights of the linears, and counts their elements.
func linearWeights(m *ir.Module, o *Options) (choices []*choice, elements int64, err error) {
	seen := map[*ir.Constant]bool{}
	add := func(kind WeightKind, c *ir.Constant) error {
		if kind != LinearWeight || seen[c] {
			return nil
		}
		seen[c] = true
		x := &choice{name: c.Name, data: c.Data}
		if rule := o.Recipe.rule(kind, c.Name); rule != nil { // what the recipe says is not up for choice
			x.add(rule.Scheme)
		} else {
			x.add(nil)
			for _, s := range o.Allocate.Schemes {
				if s.Check(x.cols()) == nil {
					x.add(&s)
				}
			}
		}
		for _, option := range x.options {
			if option.scheme == nil {
				continue
			}
			if err := option.scheme.Check(x.cols()); err != nil {
				return &SchemeError{c.Name, c.Data.Shape(), err}
			}
		}
		choices = append(choices, x)
		elements += ir.Elements(c.Data.Shape())
		return nil
	}
	for _, f := range m.Entries() {
		if err := eachWeight(f.Body, add); err != nil {
			return nil, 0, err
		}
	}
	return choices, elements, nil
}

func (c *choice) cols() int { return int(c.data.Shape()[len(c.data.Shape())-1]) }

func (c *choice) add(s *quantize.Scheme) {
	x := option{scheme: s, bytes: ir.DataSize(c.data)}
	if s != nil {
		rows := ir.Elements(c.data.Shape()) / int64(c.cols())
		x.bytes = rows * int64(s.RowBytes(c.cols()))
	}
	c.options = append(c.options, x)
}

// sampledTiles bounds the pieces of a weight, of tileWeights each, that are quantized to measure a scheme.
const sampledTiles = 16

// measure fills in the errors of all options, with one worker for each CPU.
func measure(choices []*choice) error {
	queue := make(chan *choice)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var first error
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for c := range queue {
				if err := fault.Run("measuring", c.measure); err != nil {
					mu.Lock()
					first = cmp.Or(first, fmt.Errorf("tensor %s: %w", c.name, err))
					mu.Unlock()
				}
			}
		})
	}
	for _, c := range choices {
		if len(c.options) > 1 {
			queue <- c
		}
	}
	close(queue)
	wait.Wait()
	return first
}

// measure quantizes pieces of rows, spread evenly over the weight, by every scheme.
func (c *choice) measure() error {
	cols, size := c.cols(), c.data.DType().Size()
	rows := int(ir.Elements(c.data.Shape())) / cols
	tile := min(rows, max(1, tileWeights/cols))
	tiles := min(sampledTiles, rows/tile)
	raw, values := make([]byte, tile*cols*size), make([]float32, tile*cols)
	var result quantize.Result
	var stored []float32
	noise, signal := make([]float64, len(c.options)), 0.0
	for t := range tiles {
		first := int64(rows-tile) * int64(t) / int64(max(tiles-1, 1))
		if n, err := c.data.ReadAt(raw, first*int64(cols*size)); n < len(raw) {
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
		floatOf(c.data.DType()).Decode(values, raw)
		for i, option := range c.options {
			if option.scheme == nil {
				continue
			}
			err := quantize.Quantize(&result, values, tile, cols, measurable(*option.scheme))
			if err != nil {
				return err
			}
			var n float64
			if n, _, stored, err = squares(&result, values, stored); err != nil {
				return err
			}
			noise[i] += n
		}
		for _, x := range values {
			signal += float64(float64(x) * float64(x))
		}
	}
	for i := range c.options {
		if signal > 0 {
			c.options[i].error = noise[i] / signal
		}
	}
	return nil
}

// hull keeps the options on the lower convex hull of error against size, the smallest first.
func (c *choice) hull() {
	slices.SortStableFunc(c.options, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes),
			cmp.Compare(a.error, b.error))
	})
	var kept []option
	for _, x := range c.options {
		if len(kept) > 0 && x.error >= kept[len(kept)-1].error {
			continue
		}
		for len(kept) > 1 && gain(kept[len(kept)-2], kept[len(kept)-1]) <= gain(kept[len(kept)-1], x) {
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, x)
	}
	c.options = kept
}

// gain is how much of the error goes for each byte from one option to a larger one.
func gain(from, to option) float64 { return (from.error - to.error) / float64(to.bytes-from.bytes) }

// spend gives bytes to the choices. Each step moves one choice to the next larger option on its hull: the step with the
// largest gain for each byte comes first. A choice whose next step costs more than what is left stays where it is. The
// walk ends when no step fits.
func spend(choices []*choice, bytes int64) {
	open := slices.Clone(choices)
	for {
		var best *choice
		var bestGain float64
		kept := open[:0]
		for _, c := range open {
			if c.chosen+1 == len(c.options) || c.options[c.chosen+1].bytes-c.options[c.chosen].bytes > bytes {
				continue // its next step never fits again
			}
			kept = append(kept, c)
			if g := gain(c.options[c.chosen], c.options[c.chosen+1]); best == nil || g > bestGain {
				best, bestGain = c, g
			}
		}
		if open = kept; best == nil {
			return
		}
		bytes -= best.options[best.chosen+1].bytes - best.options[best.chosen].bytes
		best.chosen++
	}
}

// literal returns a pattern that matches only name.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}
