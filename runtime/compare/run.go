package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Layer is how far the residual stream of a program is from the checkpoint's at the input of a layer.
type Layer struct {
	Layer int `json:"layer"`
	// Error is the root mean square of the difference over that of the checkpoint's values.
	Error Number `json:"relative_error"`
	// Router is the share of the checkpoint's experts that the program chose too; -1 without a router.
	Router float64 `json:"router_agreement"`
}

// Logits is how far the logits of a program are from the checkpoint's at one position. Equal infinities do not differ;
// a NaN on either side makes NaN of the figures that it is part of.
type Logits struct {
	Position int    `json:"position"`
	Mean     Number `json:"mean_error"`
	Max      Number `json:"max_error"`
	// KL is the Kullback-Leibler divergence of the program's distribution from the checkpoint's, in nats.
	KL Number `json:"kl_divergence"`
	// Agrees reports whether the most likely token is the same. Logits with NaN have none.
	Agrees bool `json:"top1_agrees"`
}

// Run feeds prompts to both modules, a token at a time with the checkpoint's choice of tokens not
// consulted, and compares what flows through them. The modules must be language models of one checkpoint.
func Run(file, original *ir.Module, prompts [][]int) ([]Layer, []Logits, error) {
	a, err := newProbe(original)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint: %w", err)
	}
	b, err := newProbe(file)
	if err != nil {
		return nil, nil, fmt.Errorf("program: %w", err)
	}
	acc := newAccumulator()
	var logits []Logits
	for _, prompt := range prompts {
		if err := a.machine.Reset(); err != nil {
			return nil, nil, err
		}
		if err := b.machine.Reset(); err != nil {
			return nil, nil, err
		}
		for i, token := range prompt {
			if err := a.feed(token, i); err != nil {
				return nil, nil, fmt.Errorf("checkpoint: %w", err)
			}
			if err := b.feed(token, i); err != nil {
				return nil, nil, fmt.Errorf("program: %w", err)
			}
			acc.add(a, b)
			if a.logits != nil && b.logits != nil {
				l := compareLogits(a.logits.F, b.logits.F)
				l.Position = i
				logits = append(logits, l)
			}
		}
	}
	return acc.layers(), logits, nil
}

// probe is a machine that keeps the values that are compared.
type probe struct {
	machine *eval.Machine
	taps    map[*ir.Value]tap
	stream  map[int]*eval.Tensor // residual stream by layer
	chosen  map[int]*eval.Tensor // experts by layer
	logits  *eval.Tensor
	inputs  []*ir.Value
}

type tapKind uint8

const (
	tapStream tapKind = iota
	tapChosen
	tapLogits
)

type tap struct {
	kind  tapKind
	layer int
}

func newProbe(m *ir.Module) (*probe, error) {
	p := &probe{taps: map[*ir.Value]tap{}, inputs: m.Entry.Params}
	for _, op := range m.Entry.Body.Ops {
		if n, ok := LayerInput(op); ok {
			p.taps[op.Input("x")] = tap{tapStream, n}
		} else if op.Def.Name == "take_along_axis" {
			if n, ok := routerLayer(op.Input("x")); ok {
				p.taps[op.Input("indices")] = tap{tapChosen, n}
			}
		}
	}
	if v := logitsOf(m); v != nil {
		p.taps[v] = tap{tapLogits, 0}
	}
	var err error
	if p.machine, err = eval.NewMachine(m, eval.FP32, nil); err != nil {
		return nil, err
	}
	p.machine.Trace = func(op *ir.Op, results []eval.Value) {
		for i, v := range op.Results {
			t, ok := p.taps[v]
			if !ok || results[i].Tensor == nil {
				continue
			}
			switch t.kind {
			case tapStream:
				p.stream[t.layer] = results[i].Tensor
			case tapChosen:
				p.chosen[t.layer] = results[i].Tensor
			case tapLogits:
				p.logits = results[i].Tensor
			}
		}
	}
	return p, nil
}

// LayerInput returns the layer whose input op norms, as the first thing that a layer does.
func LayerInput(op *ir.Op) (layer int, ok bool) {
	if op.Def.Name != "rms_norm" {
		return 0, false
	}
	return layerOf(op.Input("weight"), "input_layernorm.weight")
}

// layerOf returns the layer of a constant v, if it has that name within its layer.
func layerOf(v *ir.Value, name string) (int, bool) {
	if v == nil || v.Constant == nil {
		return 0, false
	}
	_, n, rest, ok := ir.SplitLayer(v.Constant.Name)
	return n, ok && rest == name
}

// anyLayer returns the layer of a constant v.
func anyLayer(v *ir.Value) (int, bool) {
	if v == nil || v.Constant == nil {
		return 0, false
	}
	_, n, _, ok := ir.SplitLayer(v.Constant.Name)
	return n, ok
}

// routerLayer returns the layer whose router computes the scores v. It follows v back through casts and a softmax to
// the router's matrix.
func routerLayer(v *ir.Value) (int, bool) {
	for v != nil && v.Def != nil {
		switch v.Def.Def.Name {
		case "astype", "reshape", "softmax":
			v = v.Def.Input("x")
		case "quantized_matmul":
			return anyLayer(v.Def.Input("w"))
		case "addmm":
			if t := v.Def.Input("mat2"); t.Def != nil && t.Def.Def.Name == "transpose" {
				return anyLayer(t.Def.Input("x"))
			}
			return 0, false
		default:
			return 0, false
		}
	}
	return 0, false
}

// logitsOf finds the logits: what forward returns, or what its greedy branch takes the argmax of.
func logitsOf(m *ir.Module) *ir.Value {
	out := m.Entry.Body.Results[0]
	if out.Type.Kind == ir.TensorKind && out.Type.DType.IsFloat() {
		return out
	}
	outer := map[*ir.Value]bool{}
	for _, op := range m.Entry.Body.Ops {
		for _, v := range op.Results {
			outer[v] = true
		}
	}
	var found *ir.Value
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == "argmax" && outer[op.Input("x")] {
			found = op.Input("x")
		}
	})
	return found
}

// feed runs one token, greedily where the program samples.
func (p *probe) feed(token, position int) error {
	p.stream, p.chosen, p.logits = map[int]*eval.Tensor{}, map[int]*eval.Tensor{}, nil
	var in []eval.Value
	for i, v := range p.inputs {
		n := v.Type.Rank()
		shape := []int{1, 1}[:min(n, 2)]
		switch {
		case i == 0:
			in = append(in, eval.Value{Tensor: eval.Ints(ir.I64, shape, []int64{int64(token)})})
		case i == 1:
			in = append(in, eval.Value{Tensor: eval.Ints(ir.I64, shape, []int64{int64(position)})})
		case v.Type.DType == ir.F32:
			x := float32(0)
			if v.Param == "top_p" {
				x = 1
			}
			in = append(in, eval.Value{Tensor: eval.Floats(ir.F32, shape, []float32{x})})
		default:
			in = append(in, eval.Value{Tensor: eval.Ints(ir.I64, shape, []int64{0})})
		}
	}
	_, err := p.machine.Run(in)
	return err
}

// accumulator adds up the differences of the layers over tokens.
type accumulator struct {
	noise, signal map[int]float64
	same, chosen  map[int]int
}

func newAccumulator() *accumulator {
	return &accumulator{map[int]float64{}, map[int]float64{}, map[int]int{}, map[int]int{}}
}

func (c *accumulator) add(a, b *probe) {
	for n, want := range a.stream {
		got := b.stream[n]
		if got == nil || len(got.F) != len(want.F) {
			continue
		}
		for i, w := range want.F {
			d := float64(w) - float64(got.F[i])
			c.noise[n] += float64(d * d)
			c.signal[n] += float64(float64(w) * float64(w))
		}
	}
	for n, want := range a.chosen {
		got := b.chosen[n]
		if got == nil {
			continue
		}
		for _, e := range want.I {
			c.chosen[n]++
			if slices.Contains(got.I, e) {
				c.same[n]++
			}
		}
	}
}

func (c *accumulator) layers() []Layer {
	var out []Layer
	for n, signal := range c.signal {
		l := Layer{Layer: n, Router: -1}
		if c.noise[n] != 0 {
			l.Error = Number(math.Sqrt(c.noise[n] / signal))
		}
		if c.chosen[n] > 0 {
			l.Router = float64(c.same[n]) / float64(c.chosen[n])
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Layer) int { return a.Layer - b.Layer })
	return out
}

func compareLogits(want, got []float32) Logits {
	if len(want) != len(got) || len(want) == 0 {
		nan := Number(math.NaN())
		return Logits{Mean: nan, Max: nan, KL: nan}
	}
	sum, most, kl := 0.0, 0.0, 0.0
	p, q := logSoftmax(want), logSoftmax(got)
	for i, w := range want {
		if w != got[i] {
			d := math.Abs(float64(w) - float64(got[i]))
			sum += d
			most = max(most, d) // NaN stays, which math.Max drops for an infinity
		}
		// a token that cannot come adds nothing, whatever the program says of it
		if share := math.Exp(p[i]); share != 0 {
			kl += share * (p[i] - q[i])
		}
	}
	best, found := argmax(want), argmax(got)
	return Logits{Mean: Number(sum / float64(len(want))), Max: Number(most), KL: Number(kl),
		Agrees: best >= 0 && best == found}
}

func logSoftmax(x []float32) []float64 {
	most := float64(slices.Max(x))
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	log := math.Log(sum) + most
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v) - log
	}
	return out
}

// argmax returns the first place of the largest value, -1 where there is a NaN.
func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		switch {
		case v != v:
			return -1
		case v > x[best]:
			best = i
		}
	}
	return best
}
