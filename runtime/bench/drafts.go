package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
)

// DraftOptions are the options for measuring rounds that draft tokens and verify them.
type DraftOptions struct {
	// Drafts are the numbers of drafts of a round, each at least 1.
	Drafts []int
	// Depth is the number of tokens in the context, at least 1.
	Depth int
	// Text says that drafts come from the text, which costs nothing that shows: only their verification is measured.
	Text bool
	// Repetitions is the number of measurements.
	Repetitions int
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
}

// Check returns an error for options that cannot be measured in a context of context tokens.
func (o DraftOptions) Check(context int) error {
	most := 0
	for _, k := range o.Drafts {
		most = max(most, k)
	}
	switch {
	case o.Repetitions < 1 || o.Repetitions > maxRepetitions:
		return fmt.Errorf("%d repetitions, want 1 to %d", o.Repetitions, maxRepetitions)
	case o.Depth < 1 || o.Depth+most+1 > context:
		return fmt.Errorf("%d drafts after %d tokens do not fit the context of %d tokens", most, o.Depth, context)
	}
	return nil
}

// DraftRow has the times of a round with a number of drafts, in seconds. Each is a median, and so is Ratio, which
// compares times that were taken one after the other.
type DraftRow struct {
	Drafts int `json:"drafts"`
	// Draft is the time of all drafts, Verify the time of a call with one more row than drafts. Plain is the time of a
	// call with one row behind another one, which begins ahead where the device can do that, as calls without drafts do.
	// Rolling back is a part of the next call, which selects one of the stored states.
	Draft  float64 `json:"draft_seconds"`
	Verify float64 `json:"verify_seconds"`
	Plain  float64 `json:"plain_seconds"`
	// Round is the time of drafting and verifying as answers do it: in one call where the device can
	// (batch.Sequence.Round), else in as many as Draft and Verify take.
	Round float64 `json:"round_seconds"`
	// Ratio is Round divided by the time of a call with one row.
	Ratio float64 `json:"ratio"`
	// Curve is the speed at several acceptances, see DraftSpeed.
	Curve []DraftSpeed `json:"curve"`
}

// DraftSpeed is the speed at an acceptance: the chance that a draft is right if all drafts of the round before it are.
type DraftSpeed struct {
	Acceptance      float64 `json:"acceptance"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	// Gain is TokensPerSecond divided by the speed without drafts.
	Gain float64 `json:"gain"`
}

// acceptances returns the acceptances of the curve: 0 to 1 in steps of 0.05, and those of Published.
func acceptances() (out []float64) {
	for i := range 21 {
		out = append(out, float64(i)/20)
	}
	out = append(out, Published...)
	slices.Sort(out)
	return out
}

// Published are acceptances that were published for a model of 27B with one draft: of code, facts and prose.
var Published = []float64{0.91, 0.61, 0.49}

// Break returns the acceptance above which drafting is faster than not drafting; more than 1 where it never is.
func (r DraftRow) Break() float64 {
	for i := range 1001 {
		if a := float64(i) / 1000; expected(a, r.Drafts) >= r.Ratio {
			return a
		}
	}
	return math.Inf(1)
}

// expected returns the number of tokens of a round.
func expected(acceptance float64, drafts int) float64 {
	tokens, all := 1.0, 1.0
	for range drafts {
		all *= acceptance
		tokens += all
	}
	return tokens
}

// RunDrafts measures the rows of o on one sequence of a pool. Its executor is a [batch.Drafter], unless drafts come
// from the text. The rows are measured in turns, each together with a call of one row, so that disturbances of the
// machine affect all alike. [DraftOptions.Check] must have passed.
func RunDrafts(ctx context.Context, pool *batch.Pool, o DraftOptions) ([]DraftRow, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &draftMeasure{pool: pool, o: o, s: pool.Open()}
	defer m.close()
	for _, t := range randomTokens(o.Depth+16, pool.Limits().Vocab) {
		m.tokens = append(m.tokens, int32(t))
	}
	m.prompt, m.tokens = m.tokens[:o.Depth], m.tokens[o.Depth:]
	out, err := m.s.Feed(ctx, m.prompt, batch.Row{Draw: &batch.Draw{TopP: 1}, Hidden: true})
	if err != nil {
		return nil, err
	}
	m.hidden = out[0].Hidden
	samples := make([][5][]float64, len(o.Drafts))
	for i := range o.Repetitions + 1 { // the first is not measured
		for j, k := range o.Drafts {
			r, err := m.round(ctx, k)
			if err != nil {
				return nil, fmt.Errorf("%d drafts: %w", k, err)
			}
			if i > 0 {
				for n, v := range []float64{r.Draft, r.Verify, r.Plain, r.Round, r.Round / r.Plain} {
					samples[j][n] = append(samples[j][n], v)
				}
			}
		}
	}
	var rows []DraftRow
	for j, k := range o.Drafts {
		s := samples[j]
		r := DraftRow{Drafts: k, Draft: Median(s[0]), Verify: Median(s[1]), Plain: Median(s[2]), Round: Median(s[3]),
			Ratio: Median(s[4])}
		for _, a := range acceptances() {
			gain := expected(a, k) / r.Ratio
			r.Curve = append(r.Curve, DraftSpeed{a, gain / r.Plain, gain})
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// draftMeasure measures rounds of drafting, each from the same sequence on.
type draftMeasure struct {
	pool   *batch.Pool
	o      DraftOptions
	s      *batch.Sequence
	alone  *batch.Sequence // has calls of one row
	prompt []int32
	tokens []int32 // tokens to feed behind it
	hidden []float32
}

func (m *draftMeasure) close() {
	m.s.Close()
	if m.alone != nil {
		m.alone.Close()
	}
}

// plain measures a call of one row behind another one.
func (m *draftMeasure) plain(ctx context.Context) (seconds float64, err error) {
	row := batch.Row{Draw: &batch.Draw{TopP: 1}}
	if m.alone == nil || m.alone.Position()+4 > m.pool.Limits().Positions {
		if m.alone != nil {
			m.alone.Close()
		}
		m.alone = m.pool.Open()
		if _, err := m.alone.Feed(ctx, m.prompt, row); err != nil {
			return 0, err
		}
	}
	f := batch.Feed{Sequence: m.alone, Tokens: m.tokens[:1], Rows: []batch.Row{row}, Exact: true, Next: &row}
	out, err := m.pool.Feed(ctx, f)
	if err != nil {
		return 0, err
	}
	f.Tokens, f.Next = []int32{out[0][0].Token}, nil
	seconds, err = m.timed(func() error {
		_, err := m.pool.Feed(ctx, f)
		return err
	})
	if err != nil {
		return 0, err
	}
	return seconds, m.alone.Rollback(1)
}

// timed calls f and returns how long that took.
func (m *draftMeasure) timed(f func() error) (seconds float64, err error) {
	start := m.o.Now()
	err = f()
	return m.o.Now().Sub(start).Seconds(), err
}

// round measures a call of one row, and a round with k drafts: its parts, and as a whole. All drafts are rolled back.
func (m *draftMeasure) round(ctx context.Context, k int) (r DraftRow, err error) {
	rows, draws := make([]batch.Row, k+1), make([]batch.Draw, k)
	for i := range rows {
		rows[i] = batch.Row{Draw: &batch.Draw{TopP: 1}, Hidden: true}
	}
	for i := range draws {
		draws[i].TopP = 1
	}
	if r.Plain, err = m.plain(ctx); err != nil {
		return r, err
	}
	r.Verify, err = m.timed(func() error {
		f := batch.Feed{Sequence: m.s, Tokens: m.tokens[:k+1], Rows: rows, Exact: true}
		if _, err := m.pool.Feed(ctx, f); err != nil {
			return err
		}
		return m.s.Rollback(k + 1)
	})
	if r.Round = r.Verify; err != nil || m.o.Text {
		return r, err
	}
	r.Draft, err = m.timed(func() error {
		_, err := m.s.Draft(ctx, m.tokens[0], m.hidden, draws...)
		return err
	})
	if err != nil {
		return r, err
	}
	r.Round, err = m.timed(func() error {
		if _, _, err := m.s.Round(ctx, m.tokens[0], m.hidden, draws, rows); err != nil {
			return err
		}
		return m.s.Rollback(k + 1)
	})
	return r, err
}
