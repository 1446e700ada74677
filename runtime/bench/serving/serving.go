package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"
)

// Bounds of a measurement.
const (
	maxConcurrent = 4096
	maxRequests   = 1 << 20
	// requestsPerStream are measured for each stream where nobody says how many.
	requestsPerStream = 4
	// warmUpTokens are the answer of the unmeasured requests.
	warmUpTokens = 4
)

// Options are the options of a measurement.
type Options struct {
	// URL is the server's address, as http://127.0.0.1:8080; Key its API key, "" for none.
	URL, Key string
	// Model is the name of the model, "" for the server's first.
	Model string
	// Concurrent are the numbers of simultaneous streams, Prompt the lengths of prompts and Generate the lengths of
	// answers, in tokens. Every combination of them is a row.
	Concurrent, Prompt, Generate []int
	// Requests is how many answers a row measures, all streams together; 0: four for each stream.
	Requests int
	// Seed chooses the prompts. Runs of equal seeds and otherwise equal options have equal prompts, which a server may
	// have in its prefix cache then.
	Seed uint64
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
	// Started is called before a row is measured; nil for none.
	Started func(Row)
}

// Row is what the clients of a server saw. Times are in seconds.
type Row struct {
	Concurrent int `json:"concurrent"`
	Requests   int `json:"requests"`
	// Prompt and Generate are the tokens of each prompt and each answer.
	Prompt   int `json:"prompt"`
	Generate int `json:"generate"`
	// Cached are the tokens of all prompts together that the server says it did not compute, because it had them
	// (usage.prompt_tokens_details.cached_tokens); 0 where it does not say.
	Cached int `json:"cached_tokens"`
	// First is the time until the first part of an answer, Between the time from part to part. A part is a token, or
	// more where a character has several.
	First   Times `json:"first"`
	Between Times `json:"between"`
	// Stream are the tokens per second of one stream after its first part, the median of all; 0 for answers of one
	// token.
	Stream float64 `json:"stream_tokens_per_second"`
	// Total are the tokens per second of all answers together, over the whole time.
	Total float64 `json:"tokens_per_second"`
}

// Times are percentiles of times in seconds: half, and all but one in a hundred, were no longer. Without times they are
// 0.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// timesOf returns the percentiles of some times.
func timesOf(seconds []float64) Times {
	if len(seconds) == 0 {
		return Times{}
	}
	slices.Sort(seconds)
	return Times{P50: stat.Quantile(0.5, stat.Empirical, seconds, nil),
		P99: stat.Quantile(0.99, stat.Empirical, seconds, nil)}
}

// most returns the largest number of streams.
func (o Options) most() int { return slices.Max(o.Concurrent) }

// Check reports what cannot be measured.
func (o Options) Check() error {
	if len(o.Concurrent) == 0 || len(o.Prompt) == 0 || len(o.Generate) == 0 {
		return errors.New("nothing to measure: want a number of streams, a prompt length and an answer length")
	}
	for _, n := range slices.Concat(o.Prompt, o.Generate) {
		if n < 1 {
			return fmt.Errorf("%d tokens: prompts and answers have one or more", n)
		}
	}
	for _, n := range o.Concurrent {
		if n < 1 || n > maxConcurrent {
			return fmt.Errorf("%d streams at a time, want 1 to %d", n, maxConcurrent)
		}
	}
	if o.Requests < 0 || o.Requests > maxRequests {
		return fmt.Errorf("%d requests, want 0 (four for each stream) to %d", o.Requests, maxRequests)
	}
	return nil
}

// Run measures the rows of o, and tells the name of the model. An error of any request ends it.
func Run(ctx context.Context, o Options) (model string, rows []Row, err error) {
	if err := o.Check(); err != nil {
		return "", nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := newClient(o)
	defer c.http.CloseIdleConnections()
	if model = o.Model; model == "" {
		if model, err = c.model(ctx); err != nil {
			return "", nil, err
		}
	}
	ids, err := c.tokens(ctx, model)
	if err != nil {
		return model, nil, err
	}
	m := &measurement{client: c, model: model, ids: ids, random: rand.New(rand.NewPCG(0x5eed, o.Seed))}
	for _, prompt := range o.Prompt {
		for _, generate := range o.Generate {
			for _, concurrent := range o.Concurrent {
				row := Row{Concurrent: concurrent, Requests: o.Requests, Prompt: prompt, Generate: generate}
				if row.Requests == 0 {
					row.Requests = requestsPerStream * concurrent
				}
				if o.Started != nil {
					o.Started(row)
				}
				if err := m.measure(ctx, &row); err != nil {
					return model, rows, fmt.Errorf("streams %d, prompt %d, answer %d: %w",
						concurrent, prompt, generate, err)
				}
				rows = append(rows, row)
			}
		}
	}
	return model, rows, nil
}

// measurement asks a server for answers.
type measurement struct {
	client *client
	model  string
	ids    []int // that prompts are made of
	random *rand.Rand
}

// measure runs a row, after a request of each stream that is not measured.
func (m *measurement) measure(ctx context.Context, row *Row) error {
	if _, err := m.ask(ctx, row, row.Concurrent, min(row.Generate, warmUpTokens)); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	start := m.client.now()
	answers, err := m.ask(ctx, row, row.Requests, row.Generate)
	if err != nil {
		return err
	}
	return row.fill(answers, m.client.now().Sub(start))
}

// ask requests answers, with as many streams at a time as the row says.
func (m *measurement) ask(ctx context.Context, row *Row, requests, generate int) ([]answer, error) {
	prompts := make([][]int, requests)
	for i := range prompts {
		prompts[i] = make([]int, row.Prompt)
		for k := range prompts[i] {
			prompts[i][k] = m.ids[m.random.IntN(len(m.ids))]
		}
	}
	answers := make([]answer, requests)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(row.Concurrent)
	for i := range answers {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() (err error) {
			answers[i], err = m.client.complete(ctx, m.model, prompts[i], generate)
			return err
		})
	}
	return answers, group.Wait()
}

// fill makes the figures of a row of its answers, which took so long together. Answers whose tokens have no text, as
// some of random weights, count in the total only: nobody sees when their tokens come.
func (r *Row) fill(answers []answer, took time.Duration) error {
	var first, between, speed []float64
	tokens := 0
	for _, a := range answers {
		tokens += a.usage.Tokens
		r.Cached += a.usage.Details.Cached
		if len(a.parts) == 0 {
			continue
		}
		first = append(first, a.parts[0].Sub(a.begun).Seconds())
		for i := 1; i < len(a.parts); i++ {
			between = append(between, a.parts[i].Sub(a.parts[i-1]).Seconds())
		}
		if last := a.parts[len(a.parts)-1].Sub(a.parts[0]).Seconds(); last > 0 {
			speed = append(speed, float64(a.usage.Tokens-1)/last)
		}
	}
	if len(first) == 0 {
		return errors.New("no answer has a text: their times cannot be seen")
	}
	r.First, r.Between = timesOf(first), timesOf(between)
	r.Stream = timesOf(speed).P50
	if s := took.Seconds(); s > 0 {
		r.Total = float64(tokens) / s
	}
	return nil
}
