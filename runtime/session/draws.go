package session

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
)

// Draws says which parameters a program with the runtime's own sampler supports in addition to temperature, top-k,
// top-p and seed. Parameters that are not asked for cost nothing.
type Draws struct {
	// MinP is for [Sampling.MinP].
	MinP bool
	// Biases is the most tokens that [Sampling.Bias] may have.
	Biases int
	// Window is the most last tokens that [Sampling.LastN] may count; 0 is for no penalties.
	Window int
	// Mask is for [Sampling.Mask].
	Mask bool
	// Logprobs is for [Sampling.Logprobs]; Top is the most tokens that [Sampling.TopLogprobs] may ask for.
	Logprobs bool
	Top      int
	// Logits gives the logits, too.
	Logits bool
}

// DrawsOf returns the draws that a parameter set needs.
func DrawsOf(s Sampling) Draws {
	d := Draws{MinP: s.MinP > 0, Biases: len(s.Bias), Mask: s.Mask != nil, Logprobs: s.Logprobs, Top: s.TopLogprobs}
	if s.penalizes() {
		d.Window = s.window()
	}
	return d
}

// LoadDraws is [Load] for a program that draws with the runtime's own sampler. It removes the sampling head, if there
// is one, and appends the operations of ir/infer_draw.go to the logits. They run on the program's device, which then
// gives a token and what d asks for. For parameters that a sampling head has, the tokens are the same as with the head.
func LoadDraws(m *ir.Module, e engine.Engine, o engine.Options, d Draws) (*Model, error) {
	model, err := recognise(m)
	if err != nil {
		return nil, err
	}
	m, width, err := d.attach(m)
	if err != nil {
		return nil, err
	}
	model.Form, model.draws = Drawn, d
	return model.compileDrawn(m, width, e, o)
}

// compileDrawn compiles what [Draws.attach] returned.
func (m *Model) compileDrawn(program *ir.Module, width int, e engine.Engine, o engine.Options) (*Model, error) {
	m.drawn, m.width, m.params = true, width, program.Entry.Params
	if m.Vocab == 0 {
		m.Vocab = width
	}
	if err := m.compile(program, e, o); err != nil {
		return nil, err
	}
	return m, nil
}

// LoadTokens is [Load] for callers that need tokens and no logits. If a program gives logits and the engine draws on
// its device in less time than it takes to copy logits to the host ([engine.Drawing]), the runtime's own sampler draws
// there. The form stays [Logits], and parameters are those of a program of that form: a temperature, and draws without
// a seed. [Model.GivesLogits] tells whether steps have logits.
func LoadTokens(m *ir.Module, e engine.Engine, o engine.Options) (*Model, error) {
	model, err := recognise(m)
	if err != nil {
		return nil, err
	}
	if d, ok := e.(engine.Drawing); model.Form != Logits || !ok || !d.DrawsOnDevice() {
		return Load(m, e, o)
	}
	drawn, width, err := Draws{}.attach(m)
	if err != nil {
		return Load(m, e, o) // logits that the sampler does not take, of a file of unknown origin
	}
	return model.compileDrawn(drawn, width, e, o)
}

// GivesLogits reports whether the steps of a session have logits.
func (m *Model) GivesLogits() bool { return !m.givesToken() || m.draws.Logits }

// givesToken reports whether the first result of a call is a token.
func (m *Model) givesToken() bool { return m.Form != Logits || m.drawn }

// Draws returns what a model that draws with the runtime's sampler was loaded for.
func (m *Model) Draws() Draws { return m.draws }

// listed returns the number of tokens that a call lists with biases and counts.
func (d Draws) listed() int { return d.Biases + d.Window }

// attach returns a copy of m that returns a token instead of logits, and what else d asks for: token i64[1], logprob
// f32[1], ids i64[1, Top] and their logprobs f32[1, Top], logits f32[1, V]; and V.
func (d Draws) attach(m *ir.Module) (*ir.Module, int, error) {
	m, err := fuse.StripSampler(m)
	if err != nil {
		return nil, 0, err
	}
	if m, err = LastRow(m); err != nil {
		return nil, 0, err
	}
	m = m.Clone()
	f := m.Entry
	f.Params = slices.Clone(f.Params)
	var vocab int64
	err = ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		logits := f.Body.Results[0]
		var ok bool
		if vocab, ok = logits.Type.Shape[logits.Type.Rank()-1].Const(); !ok || vocab == 0 {
			b.Fail("the size of the vocabulary must be known, found logits %s", logits.Type)
		}
		if logits.Type.Rank() != 2 {
			logits = b.Value("reshape", nil, logits, []any{1, vocab})
		}
		f.Body.Results = d.build(b, f, logits, int(vocab))
	})
	if err != nil {
		return nil, 0, fmt.Errorf("%s: the runtime's sampler: %w", f.Name, err)
	}
	f.Outputs = nil
	for _, v := range f.Body.Results {
		f.Outputs = append(f.Outputs, v.Type)
	}
	m.Metadata = slices.DeleteFunc(slices.Clone(m.Metadata), func(k ir.Method) bool { return k.Name == "use_sampling" })
	if err := ir.Verify(m); err != nil {
		return nil, 0, fmt.Errorf("the runtime's sampler: %w", err)
	}
	return m, int(vocab), nil
}

// build adds the operations of the sampler after logits [1, vocab], and their parameters.
func (d Draws) build(b *ir.Builder, f *ir.Func, logits *ir.Value, vocab int) []*ir.Value {
	params := map[string]*ir.Value{}
	for _, in := range d.inputs(vocab) {
		params[in.name] = f.NewParam(in.name, in.typ)
	}
	adjusted := logits
	if d.listed() > 0 || d.Mask {
		adjusted = b.Value("adjust_logits", nil, logits, params["ids"], params["bias"],
			params["counts"], params["penalties"],
			nil, params["mask"], params["mask_row"])
	}
	token := b.Value("draw", nil, adjusted, params["temperature"], params["top_k"], params["top_p"],
		params["min_p"], params["key"])
	results := []*ir.Value{token}
	if d.Logprobs {
		op := b.Op("logprobs", &ir.LogprobsAttrs{Top: min(max(d.Top, 1), vocab)}, logits, token, params["wanted"])
		results = append(results, op.Results...)
	}
	if d.Logits {
		results = append(results, logits)
	}
	return results
}

// drawInput is a parameter of the sampler, and what a call gives for it.
type drawInput struct {
	name string
	typ  ir.Type
	give func(c *drawCall) eval.Value
}

// drawCall is a call that draws.
type drawCall struct {
	Sampling
	keep   bool  // the token is kept: where it is not, it is chosen in the cheapest way
	tokens []int // all that the session was fed when the token is drawn
	answer int   // where the answer begins among them
	mask   []uint64
	list   *tokenList
}

// inputs returns the parameters of the sampler in their order, after tokens and input_pos.
func (d Draws) inputs(vocab int) []drawInput {
	row := func(t *eval.Tensor) eval.Value { return eval.Value{Tensor: t} }
	float := func(v float32) eval.Value { return row(eval.Floats(ir.F32, []int{1}, []float32{v})) }
	integer := func(v int64) eval.Value { return row(eval.Ints(ir.I64, []int{1}, []int64{v})) }
	in := []drawInput{
		{"temperature", ir.StaticType(ir.F32, 1), func(c *drawCall) eval.Value { return float(c.Temperature) }},
		{"top_k", ir.StaticType(ir.I64, 1), func(c *drawCall) eval.Value { return integer(c.TopK) }},
		{"top_p", ir.StaticType(ir.F32, 1), func(c *drawCall) eval.Value { return float(c.TopP) }},
		{"key", ir.StaticType(ir.I64, 1), func(c *drawCall) eval.Value { return integer(int64(int32(c.Seed))) }},
	}
	if d.MinP {
		in = append(in, drawInput{"min_p", ir.StaticType(ir.F32, 1),
			func(c *drawCall) eval.Value { return float(c.MinP) }})
	}
	if n := d.listed(); n > 0 {
		in = append(in, drawInput{"ids", ir.StaticType(ir.I64, 1, int64(n)),
			func(c *drawCall) eval.Value { return row(eval.Ints(ir.I64, []int{1, n}, c.list.ids)) }})
		if d.Biases > 0 {
			in = append(in, drawInput{"bias", ir.StaticType(ir.F32, 1, int64(n)),
				func(c *drawCall) eval.Value { return row(eval.Floats(ir.F32, []int{1, n}, c.list.bias)) }})
		}
		if d.Window > 0 {
			in = append(in, drawInput{"counts", ir.StaticType(ir.I64, 1, int64(n), 2),
				func(c *drawCall) eval.Value { return row(eval.Ints(ir.I64, []int{1, n, 2}, c.list.counts)) }},
				drawInput{"penalties", ir.StaticType(ir.F32, 1, 3), func(c *drawCall) eval.Value {
					return row(eval.Floats(ir.F32, []int{1, 3},
						[]float32{c.repeat(), c.PresencePenalty, c.FrequencyPenalty}))
				}})
		}
	}
	if d.Mask {
		words := (vocab + 63) / 64
		in = append(in, drawInput{"mask", ir.StaticType(ir.I64, 1, int64(words)),
			func(c *drawCall) eval.Value { return row(maskTensor(c.mask, words)) }},
			drawInput{"mask_row", ir.StaticType(ir.I64, 1), func(c *drawCall) eval.Value {
				if c.mask == nil {
					return integer(-1)
				}
				return integer(0)
			}})
	}
	if d.Logprobs {
		in = append(in, drawInput{"wanted", ir.StaticType(ir.I64, 1), func(c *drawCall) eval.Value {
			if !c.Logprobs || !c.keep {
				return integer(-1)
			}
			return integer(int64(c.TopLogprobs))
		}})
	}
	return in
}

func maskTensor(mask []uint64, words int) *eval.Tensor {
	t := eval.Ints(ir.I64, []int{1, words}, make([]int64, words))
	for i, w := range mask {
		t.I[i] = int64(w)
	}
	return t
}

// tokenList are the tokens of a call that have a bias or a count.
type tokenList struct {
	ids    []int64
	bias   []float32
	counts []int64 // two of each token
}

// list makes the list of a call, of n places.
func (c *drawCall) makeList(n int) {
	l := &tokenList{ids: make([]int64, n), bias: make([]float32, n), counts: make([]int64, 2*n)}
	for i := range l.ids {
		l.ids[i] = -1
	}
	c.list = l
	if !c.keep {
		return
	}
	at := map[int]int{}
	place := func(token int) int {
		i, ok := at[token]
		if !ok {
			i = len(at)
			at[token], l.ids[i] = i, int64(token)
		}
		return i
	}
	for token, v := range c.Bias {
		l.bias[place(token)] = v
	}
	if !c.penalizes() {
		return
	}
	for i := max(0, len(c.tokens)-c.window()); i < len(c.tokens); i++ {
		to := place(c.tokens[i])
		if l.counts[2*to]++; i >= c.answer {
			l.counts[2*to+1]++
		}
	}
}

// check reports what a call asks for that the program was not loaded for.
func (d Draws) check(s Sampling, vocab int) error {
	need := DrawsOf(s)
	for token, v := range s.Bias {
		if token < 0 || token >= vocab {
			return fmt.Errorf("the bias of token %d: it is not in the vocabulary of %d tokens", token, vocab)
		}
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 1) {
			return fmt.Errorf("the bias of token %d is %g, want a number, or -Inf to forbid it", token, v)
		}
	}
	if need.Top > vocab {
		return fmt.Errorf("log-probabilities of %d tokens, of a vocabulary of %d", need.Top, vocab)
	}
	switch {
	case need.MinP && !d.MinP:
		return fmt.Errorf("the program was not loaded for min-p")
	case need.Biases > d.Biases:
		return fmt.Errorf("%d tokens have a bias, and the program was loaded for %d", need.Biases, d.Biases)
	case need.Window > d.Window:
		return fmt.Errorf("penalties count the last %d tokens, and the program was loaded for %d", need.Window,
			d.Window)
	case need.Mask && !d.Mask:
		return fmt.Errorf("the program was not loaded for token masks")
	case need.Logprobs && !d.Logprobs, need.Top > d.Top:
		return fmt.Errorf("log-probabilities of %d tokens beside the drawn one, and the program was loaded for %d",
			need.Top, d.Top)
	}
	return nil
}
