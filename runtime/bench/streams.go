package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
)

// StreamOptions are the options for measuring many simultaneous streams.
type StreamOptions struct {
	// Streams are the numbers of sequences of the rows, Prompt and Generate the tokens of each sequence's prompt and
	// answer. There is a row for each number of streams with each prompt and each answer.
	Streams, Prompt, Generate []int
	// Repetitions is the number of measurements of each row.
	Repetitions int
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
	// Started is called before a row is measured; nil for none.
	Started func(streams, prompt, generate int)
}

// StreamRow is the speed of a number of sequences that run together, measured as llama-batched-bench does. First all
// prompts, each another one, are fed in calls of as many rows as the executor takes. Then all sequences answer: each
// call has one token of every sequence.
type StreamRow struct {
	Streams  int `json:"streams"`
	Prompt   int `json:"prompt"`
	Generate int `json:"generate"`
	// Samples are the measurements in order. Median has the median of each column.
	Samples []StreamSample `json:"samples"`
	Median  StreamSample   `json:"median"`
	// Spread is the range of the decode column divided by its median.
	Spread float64 `json:"spread"`
}

// StreamSample are tokens per second, of all sequences together.
type StreamSample struct {
	// Prefill counts prompts' tokens, Decode those of answers, Total both over the whole time.
	Prefill float64 `json:"prefill"`
	Decode  float64 `json:"decode"`
	Total   float64 `json:"total"`
}

// Noisy reports whether the row varies too much to compare it with another.
func (r StreamRow) Noisy() bool { return r.Spread > NoisySpread }

// Most returns the most streams of the rows, and the most tokens of a sequence.
func (o StreamOptions) Most() (streams, tokens int) {
	return slices.Max(o.Streams), slices.Max(o.Prompt) + slices.Max(o.Generate)
}

// Check returns an error for options that cannot be measured: lengths beyond a context of context tokens, or no
// streams.
func (o StreamOptions) Check(context int) error {
	if o.Repetitions < 1 || o.Repetitions > maxRepetitions {
		return fmt.Errorf("%d repetitions, want 1 to %d", o.Repetitions, maxRepetitions)
	}
	if len(o.Streams) == 0 || len(o.Prompt) == 0 || len(o.Generate) == 0 {
		return errors.New("nothing to measure: want a number of streams, a prompt length and an answer length")
	}
	for _, n := range slices.Concat(o.Streams, o.Prompt, o.Generate) {
		if n < 1 {
			return fmt.Errorf("%d: streams answer prompts, and each of the numbers must be positive", n)
		}
	}
	if _, n := o.Most(); n > context {
		return fmt.Errorf("%d tokens of prompt and answer do not fit the context of %d tokens", n, context)
	}
	return nil
}

// RunStreams measures the rows of o on sequences of a pool, the fewest streams first. [StreamOptions.Check] must have
// passed; the pool must have room for the most streams of the longest prompt and answer.
func RunStreams(ctx context.Context, pool *batch.Pool, o StreamOptions) ([]StreamRow, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	var rows []StreamRow
	for _, prompt := range o.Prompt {
		for _, generate := range o.Generate {
			for _, streams := range o.Streams {
				row := StreamRow{Streams: streams, Prompt: prompt, Generate: generate}
				if o.Started != nil {
					o.Started(streams, prompt, generate)
				}
				if err := row.measure(ctx, pool, o); err != nil {
					return nil, fmt.Errorf("%d streams of %d and %d tokens: %w", streams, prompt, generate, err)
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// measure runs the row once, unmeasured and with a short answer, and then as often as asked for.
func (r *StreamRow) measure(ctx context.Context, pool *batch.Pool, o StreamOptions) error {
	if _, err := r.run(ctx, pool, o.Now, min(r.Generate, warmUpTokens)); err != nil {
		return err
	}
	for range o.Repetitions {
		s, err := r.run(ctx, pool, o.Now, r.Generate)
		if err != nil {
			return err
		}
		r.Samples = append(r.Samples, s)
	}
	column := func(of func(StreamSample) float64) []float64 {
		var out []float64
		for _, s := range r.Samples {
			out = append(out, of(s))
		}
		return out
	}
	decode := column(func(s StreamSample) float64 { return s.Decode })
	r.Median = StreamSample{
		Prefill: Median(column(func(s StreamSample) float64 { return s.Prefill })),
		Decode:  Median(decode),
		Total:   Median(column(func(s StreamSample) float64 { return s.Total })),
	}
	r.Spread = (slices.Max(decode) - slices.Min(decode)) / r.Median.Decode
	return nil
}

// run opens the streams, feeds their prompts, has them answer, and closes them.
func (r *StreamRow) run(ctx context.Context, pool *batch.Pool, now func() time.Time,
	generate int) (StreamSample, error) {
	feeds := make([]batch.Feed, r.Streams)
	all := randomTokens(r.Streams*r.Prompt, pool.Limits().Vocab)
	for i := range feeds {
		s := pool.Open()
		defer s.Close()
		feeds[i] = batch.Feed{Sequence: s, Rows: []batch.Row{{}}}
		for _, token := range all[i*r.Prompt : (i+1)*r.Prompt] {
			feeds[i].Tokens = append(feeds[i].Tokens, int32(token))
		}
	}
	feed := func() error {
		out, err := pool.Feed(ctx, feeds...)
		for i := range out {
			feeds[i].Tokens = []int32{out[i][0].Token}
		}
		return err
	}
	start := now()
	if err := feed(); err != nil {
		return StreamSample{}, fmt.Errorf("prompts: %w", err)
	}
	answer := now()
	for i := range generate {
		for f := range feeds {
			if feeds[f].Next = (&batch.Row{}); i+1 == generate {
				feeds[f].Next = nil
			}
		}
		if err := feed(); err != nil {
			return StreamSample{}, fmt.Errorf("token %d of the answers: %w", i, err)
		}
	}
	end := now()
	prompts, answers := answer.Sub(start).Seconds(), end.Sub(answer).Seconds()
	if prompts <= 0 || answers <= 0 {
		return StreamSample{}, errors.New("the clock is too coarse to measure so few tokens: take more")
	}
	n := float64(r.Streams)
	return StreamSample{Prefill: n * float64(r.Prompt) / prompts, Decode: n * float64(generate) / answers,
		Total: n * float64(r.Prompt+generate) / (prompts + answers)}, nil
}
