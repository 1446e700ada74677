package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/etc-ml/etc/runtime/session"
)

// NoisySpread is the spread from which a row is too noisy to compare with another (requirement E10).
const NoisySpread = 0.14

// maxRepetitions bounds a measurement; beyond it more repetitions say nothing that is new.
const maxRepetitions = 1000

// warmUpTokens are generated before a tg row is measured: the first calls of a shape are slower, later ones
// are not.
const warmUpTokens = 4

// Options are the options of a measurement.
type Options struct {
	// Prompt are the prompt lengths of the pp rows, Generate the lengths of the tg rows, in tokens. Zeros
	// are left out.
	Prompt, Generate []int
	// Depth are the numbers of tokens that the context holds before each measurement, fed unmeasured; every
	// row is measured at each of them. None is an empty context.
	Depth []int
	// Repetitions is the number of measurements of each row; 3 to 6 are usual.
	Repetitions int
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
	// Started is called before a row is measured; nil for none.
	Started func(name string)
}

// Row is the result of one test.
type Row struct {
	// Test is "pp512" or "tg128", and "tg128 @ d4096" after a context of 4096 tokens.
	Test string `json:"test"`
	// Tokens is the number of tokens of one measurement, Depth of those in the context before it.
	Tokens int `json:"tokens"`
	Depth  int `json:"depth"`
	// Samples are tokens per second, in the order in which they were measured.
	Samples []float64 `json:"samples"`
	// Median, Min and Max of Samples, in tokens per second.
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Spread is (Max-Min)/Median.
	Spread float64 `json:"spread"`
}

// Noisy reports whether the row varies too much to compare it with another.
func (r Row) Noisy() bool { return r.Spread > NoisySpread }

// Check reports what of o cannot be measured on m: a length beyond the context, nothing to do.
func Check(m *session.Model, o Options) error {
	if o.Repetitions < 1 || o.Repetitions > maxRepetitions {
		return fmt.Errorf("%d repetitions, want 1 to %d", o.Repetitions, maxRepetitions)
	}
	deepest := 0
	for _, d := range o.Depth {
		if d < 0 {
			return fmt.Errorf("depth %d: a negative number of tokens", d)
		}
		deepest = max(deepest, d)
	}
	some := false
	for _, tests := range []struct {
		name  string
		sizes []int
	}{{"pp", o.Prompt}, {"tg", o.Generate}} {
		for _, n := range tests.sizes {
			switch {
			case n < 0:
				return fmt.Errorf("%s%d: a negative number of tokens", tests.name, n)
			case n > 0 && n > m.MaxSeqLen-deepest && deepest > 0:
				return fmt.Errorf("%s%d: %d tokens after %d do not fit the context of %d tokens", tests.name, n,
					n, deepest, m.MaxSeqLen)
			case n > m.MaxSeqLen:
				return fmt.Errorf("%s%d: %d tokens do not fit the context of %d tokens", tests.name, n, n, m.MaxSeqLen)
			}
			some = some || n > 0
		}
	}
	if !some {
		return fmt.Errorf("nothing to measure: every prompt and generation length is 0")
	}
	if m.Vocab < 1 {
		return fmt.Errorf("the program does not say how large its vocabulary is (get_vocab_size), so no token is " +
			"known to be valid")
	}
	return nil
}

// Run measures the rows of o, pp rows first. [Check] must have passed.
func Run(ctx context.Context, m *session.Model, o Options) ([]Row, error) {
	if err := Check(m, o); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s, err := m.NewSession()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b := &bench{session: s, options: o, vocab: m.Vocab}
	depths := o.Depth
	if len(depths) == 0 {
		depths = []int{0}
	}
	var rows []Row
	for _, depth := range depths {
		if err := b.fill(ctx, depth); err != nil {
			return nil, fmt.Errorf("context of %d tokens: %w", depth, err)
		}
		for _, tests := range []struct {
			name  string
			sizes []int
			warm  int
			run   func(context.Context, []int) error
		}{{"pp", o.Prompt, m.MaxSeqLen, b.prefill}, {"tg", o.Generate, warmUpTokens, b.generate}} {
			for _, n := range tests.sizes {
				if n == 0 {
					continue
				}
				row, err := b.measure(ctx, fmt.Sprintf("%s%d", tests.name, n), n, min(n, tests.warm), tests.run)
				if err != nil {
					return nil, err
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

type bench struct {
	session *session.Session
	options Options
	vocab   int
	// depth is the number of tokens in the context before a measurement. filled is the state after them; nil if depth
	// is 0.
	depth  int
	filled *session.Snapshot
}

// fill makes the context that measurements begin with.
func (b *bench) fill(ctx context.Context, depth int) error {
	b.depth, b.filled = depth, nil
	if depth == 0 {
		return nil
	}
	err := b.session.Reset()
	if err == nil {
		err = b.prefill(ctx, randomTokens(depth, b.vocab))
	}
	if err != nil {
		return err
	}
	b.filled, err = b.session.Snapshot()
	return err
}

// begin brings the session to the state before a measurement: empty, or with the context of Options.Depth tokens.
func (b *bench) begin() error {
	if b.filled == nil {
		return b.session.Reset()
	}
	return b.session.Restore(b.filled)
}

// measure runs one test: unmeasured on warm tokens, then as often as asked for on n.
func (b *bench) measure(ctx context.Context, name string, n, warm int, run func(context.Context, []int) error) (Row,
	error) {
	if b.depth > 0 {
		name += fmt.Sprintf(" @ d%d", b.depth)
	}
	if b.options.Started != nil {
		b.options.Started(name)
	}
	row := Row{Test: name, Tokens: n, Depth: b.depth}
	tokens := randomTokens(n, b.vocab)
	err := b.begin()
	if err == nil {
		err = run(ctx, tokens[:warm])
	}
	if err != nil {
		return row, fmt.Errorf("%s: warm-up: %w", name, err)
	}
	for range b.options.Repetitions {
		if err := b.begin(); err != nil {
			return row, err
		}
		start := b.options.Now()
		if err := run(ctx, tokens); err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		seconds := b.options.Now().Sub(start).Seconds()
		if seconds <= 0 {
			return row, fmt.Errorf("%s: the clock is too coarse to measure %d tokens: take more", name, n)
		}
		row.Samples = append(row.Samples, float64(n)/seconds)
	}
	row.sumUp()
	return row, nil
}

func (b *bench) prefill(ctx context.Context, tokens []int) error {
	_, err := b.session.Prefill(ctx, tokens, session.Greedy)
	return err
}

// generate feeds the first token, and then those that the program gives, as an answer does: an engine may begin a call
// on the token of the call before it.
func (b *bench) generate(ctx context.Context, tokens []int) error {
	token := tokens[0]
	for i := range tokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		decode := b.session.Decode
		if i+1 < len(tokens) {
			decode = b.decodeOn
		}
		step, err := decode(ctx, token, session.Greedy)
		if err != nil {
			return err
		}
		token = step.Token
	}
	return nil
}

func (b *bench) decodeOn(ctx context.Context, token int, p session.Sampling) (session.Step, error) {
	return b.session.DecodePipelined(ctx, token, p, p)
}

// sumUp fills the figures that follow from the samples.
func (r *Row) sumUp() {
	r.Median, r.Min, r.Max = Median(r.Samples), slices.Min(r.Samples), slices.Max(r.Samples)
	r.Spread = (r.Max - r.Min) / r.Median
}

// Median returns the middle of the samples, the mean of the two in the middle where their number is even. It panics
// when there are none.
func Median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	half := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, s, nil) }
	return (half(0.5) + half(math.Nextafter(0.5, 1))) / 2
}

// randomTokens returns n token ids, always the same for one vocabulary.
func randomTokens(n, vocab int) []int {
	r := rand.New(rand.NewPCG(0x5eed, 0))
	out := make([]int, n)
	for i := range out {
		out[i] = r.IntN(vocab)
	}
	return out
}
