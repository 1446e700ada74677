package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/speculate"
)

// drafter is what a session of a model that drafts has beside others. A round drafts some tokens behind the one
// that was drawn last, feeds that one and them in one call, and takes back what was fed behind the last right one.
type drafter struct {
	*drafting
	control *speculate.Control
	log     speculate.Log

	index speculate.Index // of prompt and answer, where drafts come from the text
	// of the last tokens that were fed, which the draft was not given yet; an assistant keeps one
	hidden [][]float32
}

func newDrafter(x *drafting) *drafter {
	return &drafter{drafting: x, control: speculate.NewControl(&x.times, x.Most, x.Fixed)}
}

// reset forgets the text.
func (d *drafter) reset() {
	*d = *newDrafter(d.drafting)
}

// catchUp is the number of hidden states from which on the draft is given them, before a round asks for it.
const catchUp = 64

// catchUp gives the draft the hidden states that it lacks, but for the last one, whose next token is not known.
func (s *Session) catchUp(ctx context.Context, p Sampling) error {
	d := s.drafter
	if d.Kind != speculate.MultiToken || len(d.hidden) < catchUp {
		return nil
	}
	n := len(d.hidden) - 1
	first := len(s.tokens) - len(d.hidden)
	p.Temperature = 0 // what it drafts is dropped
	start := time.Now()
	for at := 0; at < n; {
		rows := min(n-at, s.model.MaxChunk)
		known := s.tokens[first+at+1 : first+at+1+rows]
		if _, _, err := s.callEntry(ctx, speculate.Method, known, first+at, p, d.hidden[at:at+rows]); err != nil {
			return err
		}
		at += rows
	}
	d.hidden = append(d.hidden[:0], d.hidden[n])
	d.control.Charge(time.Since(start))
	return nil
}

// take keeps the hidden states [1, R, H] or [1, H] that a call gave for the rows that it fed.
func (d *drafter) take(t *eval.Tensor, rows int) {
	size := t.Shape[len(t.Shape)-1]
	all := slices.Collect(slices.Chunk(t.F, size))
	all = all[:min(rows, len(all))]
	if d.Kind == speculate.Assistant {
		d.hidden = d.hidden[:0]
		all = all[len(all)-1:]
	}
	for _, h := range all {
		d.hidden = append(d.hidden, slices.Clone(h))
	}
}

// emitter is the end of [Session.Generate] for one token: it adds a token to the answer, or tells why that ends.
type emitter struct {
	ctx   context.Context
	r     *Request
	a     *Answer
	limit int // of tokens
	most  int // of tokens that the context takes behind the prompt
}

// emit adds a token, and reports whether the answer goes on behind it.
func (e *emitter) emit(token int) bool {
	switch {
	case len(e.a.Tokens) == e.limit:
		e.a.Reason = StopLength
	case slices.Contains(e.r.Stop, token):
		e.a.Reason = StopEOS
	case e.ctx.Err() != nil:
		e.a.Reason = StopCancelled
	default:
		e.a.Tokens = append(e.a.Tokens, token)
		if e.r.Step != nil {
			e.r.Step(Step{Token: token})
		}
		if e.r.Token != nil && !e.r.Token(token) {
			e.a.Reason = StopCancelled
			return false
		}
		if len(e.a.Tokens) == e.limit || len(e.a.Tokens) > e.most {
			e.a.Reason = StopLength
			return false
		}
		return true
	}
	return false
}

// speculate is the part of [Session.Generate] behind the prompt for a model that drafts: token is the first of the
// answer. Its tokens are those of a model that does not draft.
func (s *Session) speculate(ctx context.Context, r *Request, a *Answer, token, limit int) error {
	d := s.drafter
	e := &emitter{ctx, r, a, limit, s.model.MaxSeqLen - len(s.tokens)}
	defer func() { a.Drafts, a.Rounds = d.control.Totals(), d.log }()
	for e.emit(token) {
		start := time.Now()
		drafts, err := s.drafts(e, token)
		if err != nil {
			return err
		}
		next, right, ends, err := s.round(e, token, drafts)
		if err != nil {
			return err
		}
		a.Decoded += right + 1
		d.control.Done(len(drafts), right, time.Since(start))
		if ends {
			return nil
		}
		token = next
	}
	return nil
}

// drafts drafts tokens behind one that was drawn and not fed yet.
func (s *Session) drafts(e *emitter, token int) ([]int, error) {
	d := s.drafter
	k := d.control.Next(min(s.model.MaxSeqLen-len(s.tokens)-1, e.limit-len(e.a.Tokens)))
	if k+1 < d.gap || d.reads() && len(d.hidden) == 0 { // a call takes one row, or no less than the gap
		k = 0
	}
	if d.reads() {
		if k == 0 {
			return nil, nil
		}
		return s.chain(context.WithoutCancel(e.ctx), token, k, e.r.Sampling, len(e.a.Tokens))
	}
	if d.index.Len() > len(s.tokens) { // with the token that was drawn before
		d.index.Truncate(len(s.tokens))
	}
	d.index.Append(int32s(s.tokens[d.index.Len():])...)
	d.index.Append(int32(token))
	var out []int
	if k > 0 {
		for _, t := range d.index.Draft(k, leastMatch) {
			out = append(out, int(t))
		}
	}
	return out, nil
}

// leastMatch is how many tokens of the end of a text must occur before for what follows to be a draft.
const leastMatch = 2

// chain drafts k tokens with the method draft. It draws the i-th token of the answer with the noise that forward draws
// it with, so that sampled tokens are right as often as can be. done is the number of tokens of the answer.
func (s *Session) chain(ctx context.Context, token, k int, p Sampling, done int) ([]int, error) {
	d := s.drafter
	// The tokens behind the hidden states.
	known := append(s.tokens[len(s.tokens)-len(d.hidden)+1:len(s.tokens):len(s.tokens)], token)
	position := len(s.tokens) - len(d.hidden)
	hidden := d.hidden
	if d.Kind == speculate.Assistant {
		known, position = []int{token}, len(s.tokens)
	}
	var out []int
	for len(out) < k {
		n := min(len(known), s.model.MaxChunk)
		q := p
		q.Seed += int64(done + len(out))
		drawn, states, err := s.callEntry(ctx, speculate.Method, known[:n], position, q, hidden[:n])
		if err != nil {
			return nil, err
		}
		if n < len(known) { // of several chunks only the last one's token counts
			known, hidden, position = known[n:], hidden[n:], position+n
			continue
		}
		out = append(out, drawn[0])
		known, hidden = []int{drawn[0]}, states[len(states)-1:]
		if d.Kind == speculate.MultiToken {
			position += n
		}
	}
	if d.Kind == speculate.MultiToken { // entries of drafts are written again, behind what was known
		d.hidden = d.hidden[:0]
	}
	return out, nil
}

// round feeds a token and the drafts behind it. It gives the token that follows the right ones, which are added to the
// answer, and how many they are. ends tells that the answer ended among them.
func (s *Session) round(e *emitter, token int, drafts []int) (next, right int, ends bool, err error) {
	d, p := s.drafter, e.r.Sampling
	ctx := context.WithoutCancel(e.ctx)
	p.Seed += int64(len(e.a.Tokens))
	if len(drafts) == 0 {
		step, err := s.Decode(ctx, token, p)
		return step.Token, 0, false, err
	}
	if d.saves {
		if _, err := s.enter(ctx, saveEntry, nil); err != nil {
			return 0, 0, false, err
		}
	}
	at := len(s.tokens)
	rows := append([]int{token}, drafts...)
	drawn, states, err := s.callEntry(ctx, verifyEntry, rows, at, p, nil)
	if err != nil {
		return 0, 0, false, err
	}
	for right < len(drafts) && drawn[right] == drafts[right] {
		right++
	}
	d.log = append(d.log, speculate.Round{At: at + 1, Draft: int32s(drafts), Accepted: right})
	kept := right + 1
	for i := range right {
		if !e.emit(drawn[i]) {
			kept, ends = i+1, true
			break
		}
	}
	if err := s.keep(ctx, rows, kept, p); err != nil {
		return 0, right, ends, err
	}
	for _, h := range states[:min(kept, len(states))] {
		if d.Kind == speculate.Assistant {
			d.hidden = d.hidden[:0]
		}
		d.hidden = append(d.hidden, h)
	}
	return drawn[right], right, ends, nil
}

// keep takes back the rows that were fed from the kept-th on.
func (s *Session) keep(ctx context.Context, rows []int, kept int, p Sampling) error {
	if kept == len(rows) || !s.drafter.saves {
		s.tokens = append(s.tokens, rows[:kept]...)
		return nil
	}
	if _, err := s.enter(ctx, restoreEntry, nil); err != nil {
		return err
	}
	p.Temperature = 0 // the token is known already
	for part := range slices.Chunk(rows[:kept], s.most(kept)) {
		if _, err := s.forward(ctx, s.instance.Run, part, p); err != nil {
			return err
		}
	}
	return nil
}

// most is the most rows of a call for so many: one by one where the program takes no call of so few.
func (s *Session) most(rows int) int {
	if rows < s.model.MinChunk {
		return 1
	}
	return rows
}

// enter calls an entry.
func (s *Session) enter(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error) {
	if s.torn {
		return nil, ErrAbandoned
	}
	out, err := s.instance.(engine.Entries).Call(ctx, entry, inputs)
	if err != nil {
		var abandoned *engine.AbandonedError
		s.torn = errors.As(err, &abandoned)
	}
	return out, err
}

// callEntry calls draft or verify: it gives the tokens that were drawn, the first with the seed of p, and hidden
// states.
func (s *Session) callEntry(
	ctx context.Context, entry string, tokens []int, position int, p Sampling, hidden [][]float32,
) (drawn []int, states [][]float32, err error) {
	ids, positions := make([]int64, len(tokens)), make([]int64, len(tokens))
	for i, t := range tokens {
		ids[i], positions[i] = int64(t), int64(position+i)
	}
	inputs := []eval.Value{
		{Tensor: eval.Ints(ir.I64, []int{1, len(ids)}, ids)}, {Tensor: eval.Ints(ir.I64, []int{len(ids)}, positions)},
	}
	draws := len(tokens)
	if entry == speculate.Method {
		draws = 1
		shape := []int{1, len(hidden), len(hidden[0])}
		inputs = append(inputs, eval.Value{Tensor: eval.Floats(ir.F32, shape, slices.Concat(hidden...))})
	}
	out, err := s.enter(ctx, entry, append(inputs, drawSettings(p, draws)...))
	if err != nil {
		return nil, nil, err
	}
	for _, t := range out[0].Tensor.I {
		drawn = append(drawn, int(t))
	}
	if len(out) > 1 {
		t := out[1].Tensor
		states = slices.Collect(slices.Chunk(slices.Clone(t.F), t.Shape[len(t.Shape)-1]))
	}
	return drawn, states, nil
}

// drawSettings are the settings of draws of so many rows, in the order of [Draws.inputs]; every row has the next seed.
func drawSettings(p Sampling, rows int) []eval.Value {
	topK, keys := slices.Repeat([]int64{p.TopK}, rows), make([]int64, rows)
	for i := range keys {
		keys[i] = int64(int32(p.Seed + int64(i)))
	}
	shape := []int{rows}
	return []eval.Value{
		{Tensor: eval.Floats(ir.F32, shape, slices.Repeat([]float32{p.Temperature}, rows))},
		{Tensor: eval.Ints(ir.I64, shape, topK)},
		{Tensor: eval.Floats(ir.F32, shape, slices.Repeat([]float32{p.TopP}, rows))},
		{Tensor: eval.Ints(ir.I64, shape, keys)},
	}
}

func int32s(tokens []int) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = int32(t)
	}
	return out
}
