package serve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/session"
)

// Bounds of parameters.
const (
	maxChoices  = 64
	maxStops    = 16
	maxLogprobs = 20
	maxBias     = 1024
)

// settings are the parameters that endpoints have in common.
type settings struct {
	sampling  batch.Sampling
	maxTokens int
	n         int
	stops     []string
	logprobs  int // below 0: none
	ignoreEOS bool
	stream    bool
	usage     bool // at the end of a stream
}

// settings reads them; defaults are the model's.
func (o *object) settings(defaults batch.Sampling) settings {
	s := settings{sampling: defaults, n: 1, logprobs: -1}
	number := func(name string, into *float32) {
		v := float64(*into)
		o.get(name, &v)
		if *into = float32(v); math.IsInf(float64(*into), 0) {
			o.fail(name, "%s: %g is too large", name, v)
		}
	}
	number("temperature", &s.sampling.Temperature)
	number("top_p", &s.sampling.TopP)
	number("min_p", &s.sampling.MinP)
	number("repeat_penalty", &s.sampling.Repeat)
	number("presence_penalty", &s.sampling.Presence)
	number("frequency_penalty", &s.sampling.Frequency)
	o.get("top_k", &s.sampling.TopK)
	if o.has("repeat_penalty") {
		s.sampling.RepeatLast = 0 // how far the file's penalties look back is not meant for the request's
	}
	o.get("repeat_last_n", &s.sampling.RepeatLast)
	if o.has("repeat_penalty") && !(s.sampling.Repeat > 0) {
		o.fail("repeat_penalty", "repeat_penalty: %g, want more than 0", s.sampling.Repeat)
	}
	if n := s.sampling.RepeatLast; o.has("repeat_last_n") && (n == 0 || n < -1) {
		o.fail("repeat_last_n", "repeat_last_n: %d, want 1 or more, or -1", n)
	}
	if s.sampling.Seed = randomSeed(); o.has("seed") {
		o.get("seed", &s.sampling.Seed)
	}
	o.bias(&s)
	o.stop(&s)
	o.get("n", &s.n)
	if s.n < 1 || s.n > maxChoices {
		o.fail("n", "n: %d, want 1 to %d", s.n, maxChoices)
	}
	o.get("ignore_eos", &s.ignoreEOS)
	o.get("stream", &s.stream)
	if o.has("stream_options") {
		var options struct {
			IncludeUsage       bool `json:"include_usage"`
			IncludeObfuscation bool `json:"include_obfuscation"`
		}
		o.get("stream_options", &options)
		if s.usage = options.IncludeUsage; !s.stream {
			o.fail("stream_options", "stream_options: only with stream")
		}
		if options.IncludeObfuscation {
			o.fail("stream_options", "stream_options: include_obfuscation is not supported")
		}
	}
	return s
}

// limit reads the length of the answer under one of some names.
func (o *object) limit(s *settings, names ...string) {
	given := ""
	for _, name := range names {
		if !o.has(name) {
			continue
		}
		n := 0
		if o.get(name, &n); n < 1 {
			o.fail(name, "%s: %d, want 1 or more", name, n)
		}
		if given != "" && n != s.maxTokens {
			o.fail(name, "%s and %s differ; give one of them", given, name)
		}
		given, s.maxTokens = name, n
	}
}

func (o *object) bias(s *settings) {
	var bias map[int]float32
	if o.get("logit_bias", &bias); len(bias) > maxBias {
		o.fail("logit_bias", "logit_bias: %d tokens, at most %d are taken", len(bias), maxBias)
	}
	for t, v := range bias {
		if v < -100 || v > 100 {
			o.fail("logit_bias", "logit_bias: %g for token %d, want -100 to 100", v, t)
		}
	}
	s.sampling.Bias = bias
}

// stop reads one stop text or an array of them.
func (o *object) stop(s *settings) {
	if !o.has("stop") {
		return
	}
	var one string
	if json.Unmarshal(o.fields["stop"], &one) == nil {
		s.stops = []string{one}
	} else {
		o.get("stop", &s.stops)
	}
	o.checkStops("stop", s.stops)
}

func (o *object) checkStops(name string, stops []string) {
	if len(stops) > maxStops {
		o.fail(name, "%s: %d texts, at most %d are taken", name, len(stops), maxStops)
	}
	for _, t := range stops {
		if t == "" || len(t) > 1000 {
			o.fail(name, "%s: a text of %d bytes, want 1 to 1000", name, len(t))
		}
	}
}

// randomSeed is in [0, 2^31), as that of etc run.
func randomSeed() int64 {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return int64(binary.LittleEndian.Uint64(b[:]) >> 33)
}

// newID makes the name of an answer.
func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return prefix + hex.EncodeToString(b[:])
}

// job is a request for one or more choices.
type job struct {
	settings
	loaded  *Loaded
	prompt  []int
	history int
	// parse says that thoughts are told apart from the text, and calls of tools where there are any.
	parse bool
	tools []format.Tool
	// must is the grammar of a call that has to come; nil: none has to. named says that exactly one tool may be called.
	must  *constrain.Grammar
	named bool
	// mayThink says that the template lets the model choose to think.
	mayThink bool
	// oneCall ends the answer after its first call.
	oneCall bool
	// budget bounds the tokens of thoughts; 0: no bound.
	budget int
	// hideThoughts leaves the texts of thoughts out of the answer.
	hideThoughts bool
	// text is the grammar of the text; nil: any.
	text *constrain.Grammar
}

// finish says how a choice ended.
type finish struct {
	reason  string // stop, length or tool_calls
	stop    string // the stop text that ended it
	count   int    // tokens
	thought int
	cached  int // tokens of the prompt
	end     batch.End
}

// update is news of a choice.
type update struct {
	choice int
	pieces []piece
	cached int // tokens of the prompt
	end    *finish
	err    error
}

// idleTime is how long a stream may be without an event.
const idleTime = 10 * time.Second

// run answers. emit gets the news of all choices on the goroutine of run, idle is called where there are none for a
// while. An error of the first choice before its first token comes before any call of emit.
func (j *job) run(ctx context.Context, emit func(update) error, idle func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	first, err := j.submit(ctx, 0)
	if err != nil {
		cancel()
		return err
	}
	news := make(chan update)
	begun := make(chan struct{}) // the first choice has its prompt in the cache
	var wait sync.WaitGroup
	wait.Go(func() { j.follow(ctx, 0, first, news, begun) })
	for i := 1; i < j.n; i++ {
		wait.Go(func() {
			select {
			case <-begun:
			case <-ctx.Done():
				return
			}
			s, err := j.submit(ctx, i)
			if err != nil {
				send(ctx, news, update{choice: i, err: err})
				return
			}
			j.follow(ctx, i, s, news, nil)
		})
	}
	defer wait.Wait()
	defer cancel()
	timer := time.NewTicker(idleTime)
	defer timer.Stop()
	for left := j.n; left > 0; {
		select {
		case u := <-news:
			if u.err != nil {
				return u.err
			}
			if u.end != nil {
				left--
			}
			if err := emit(u); err != nil {
				return err
			}
			timer.Reset(idleTime)
		case <-timer.C:
			if err := idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// submit begins a choice.
func (j *job) submit(ctx context.Context, choice int) (*batch.Stream, error) {
	q := batch.Request{Prompt: j.prompt, MaxTokens: j.maxTokens, Sampling: j.sampling, Logprobs: j.logprobs}
	q.Sampling.Seed = batch.Split(j.sampling.Seed, choice)
	if !j.ignoreEOS {
		q.Stop = j.loaded.Text.Stop
	}
	if j.history > 0 {
		q.Marks = []int{j.history}
	}
	var err error
	if q.Constraint, err = j.guide(); err != nil {
		return nil, err
	}
	return j.loaded.Runner.Submit(ctx, q)
}

// send hands news over, unless nobody waits for them any more.
func send(ctx context.Context, news chan<- update, u update) bool {
	select {
	case news <- u:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow reads a choice to its end. begun, where it is not nil, is closed with the first token.
func (j *job) follow(ctx context.Context, choice int, s *batch.Stream, news chan<- update, begun chan struct{}) {
	defer s.Cancel()
	defer tellPhases(ctx, choice, s)
	f := j.loaded.Text.format
	if !j.parse {
		f = f.Plain()
	}
	r := &reader{
		parser: f.NewParser(f.Inside(j.prompt[j.history:]), j.tools),
		stop:   session.NewTextStop(j.stops),
		keep:   j.logprobs >= 0,
	}
	for {
		t, ok := s.Next(ctx)
		if begun != nil {
			close(begun)
			begun = nil
		}
		if !ok {
			break
		}
		if list := r.push(t); len(list) > 0 {
			if !send(ctx, news, update{choice: choice, pieces: list, cached: s.Cached()}) {
				return
			}
		}
		if r.stop.Stopped() || j.oneCall && r.parser.Calls() > 0 {
			break
		}
	}
	u := update{choice: choice, cached: s.Cached()}
	end, err := s.End()
	switch {
	case err != nil:
		u.err = err
	case ctx.Err() != nil:
		return
	case end.Reason == batch.Cancelled:
		u.err = batch.ErrClosed
	default:
		u.pieces = r.finish()
		u.end = r.ended(end, s.Cached())
	}
	send(ctx, news, u)
}

// ended says how a choice ended; end is the zero value where a stop text ended it first.
func (r *reader) ended(end batch.End, cached int) *finish {
	out := &finish{reason: "stop", stop: r.stop.Hit(), count: r.count, thought: r.thought, cached: cached, end: end}
	switch {
	case r.stop.Stopped():
	case end.Reason == batch.Length:
		out.reason = "length"
	case r.parser.Calls() > 0:
		out.reason = "tool_calls"
	}
	return out
}
