package batch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Drafting says how the streams of a runner draft tokens. A draft is accepted when it equals the token that the
// program draws, so a stream has the same tokens as without drafts.
type Drafting struct {
	// Kind selects the draft method of the executor's program. [speculate.None] drafts from the stream's own text
	// (n-grams).
	Kind speculate.Kind
	// Most is the largest number of drafts of a stream in one call; 0 turns drafting off.
	Most int
	// Fixed asks for Most drafts in every call. Otherwise as many are made as are expected to pay.
	Fixed bool
}

// drafts is the part of a runner that drafts. It is nil in a runner without drafts.
type drafts struct {
	Drafting
	drafter   Drafter // nil: drafts come from the text
	shared    *speculate.Shared
	suspected bool // Options.Suspect has been called
}

// leastMatch is the number of tokens at the end of a text that must have occurred before, for what followed them to
// be a draft.
const leastMatch = 2

// newDrafts makes the drafting part of a runner. It returns an error if the executor cannot draft that way.
func newDrafts(x Executor, d Drafting) (*drafts, error) {
	if d.Most <= 0 {
		return nil, nil
	}
	l := x.Limits()
	if l.OneByOne {
		return nil, fmt.Errorf("drafts are verified in calls of several rows, and the program runs one sequence "+
			"at a time: %s",
			l.Why)
	}
	out := &drafts{Drafting: d, shared: speculate.NewShared(d.Most, d.Fixed)}
	if d.Kind == speculate.None {
		return out, nil
	}
	drafter, ok := x.(Drafter)
	if !ok || drafter.Drafts() != d.Kind {
		return nil, fmt.Errorf("the program of the executor has no draft of kind %s", d.Kind)
	}
	out.drafter = drafter
	return out, nil
}

// most returns the largest number of drafts of a stream. Streams with a constraint do not draft, since the allowed
// tokens depend on all tokens before.
func (d *drafts) most(s *Stream) int {
	if d == nil || s.request.Constraint != nil {
		return 0
	}
	if n := s.request.Drafts; n != 0 {
		return max(0, min(n, d.shared.Most()))
	}
	return d.shared.Most()
}

// totals returns the counts of all streams.
func (d *drafts) totals() speculate.Totals {
	if d == nil {
		return speculate.Totals{}
	}
	return d.shared.Totals()
}

// suspect calls Options.Suspect, once, if hardly any draft of the executor's program was right. Drafts from the text
// may all be wrong.
func (r *Runner) suspect() {
	tell := r.options.Suspect
	if tell == nil || r.drafts == nil || r.drafts.drafter == nil || r.drafts.suspected {
		return
	}
	if t := r.drafts.totals(); t.Suspicious() {
		r.drafts.suspected = true
		tell(t)
	}
}

// chains returns the starts of the drafts that the executor is to make for a call.
func (r *Runner) chains(call *schedule.Call) (out []Chain) {
	if r.drafts == nil || r.drafts.drafter == nil {
		return nil
	}
	for i, e := range call.Entries {
		if e.Drafts > 0 {
			s := r.streams[e.ID]
			out = append(out, Chain{Entry: i, Hidden: s.hidden, Draws: s.draws(e.Drafts)})
		}
	}
	return out
}

// draft has the executor draft the tokens that a call is to verify, and writes them into the call.
func (r *Runner) draft(ctx context.Context, call *schedule.Call, chains []Chain) (err error) {
	if len(chains) == 0 {
		return nil
	}
	defer fault.Recover("drafts of many sequences", &err)
	found, err := r.drafts.drafter.Draft(ctx, call, chains)
	if err != nil {
		return err
	}
	return r.drafted(call, chains, found)
}

// drafted writes drafts into a call.
func (r *Runner) drafted(call *schedule.Call, chains []Chain, found [][]int32) error {
	for i, c := range chains {
		e := &call.Entries[c.Entry]
		copy(call.Tokens[e.First+e.Rows-e.Drafts:e.First+e.Rows], found[i])
		if err := r.sched.Drafted(e.ID, found[i]); err != nil {
			return err
		}
	}
	return nil
}

// draws returns the parameters of the next n draws. A draft is drawn with the noise that its token will be drawn
// with, so that it is right as often as possible.
func (s *Stream) draws(n int) []Draw {
	out := make([]Draw, n)
	for i := range out {
		out[i] = s.draw()
		out[i].MinP = s.request.Sampling.MinP
		out[i].Seed += int64(i)
	}
	return out
}

// rowsBehind says what the executor gives after each of the drafts. Each row is made as if the drafts up to it were
// part of the answer.
func (s *Stream) rowsBehind(drafts []int32, samples bool) []Row {
	if len(drafts) == 0 {
		return nil
	}
	n := len(s.answer)
	var rows []Row
	for _, t := range drafts {
		s.add(Token{ID: int(t)})
		rows = append(rows, s.row(samples, nil))
	}
	s.answer = s.answer[:n]
	for _, t := range drafts {
		if s.counts != nil {
			if s.counts[int(t)]--; s.counts[int(t)] == 0 {
				delete(s.counts, int(t))
			}
		}
	}
	return rows
}

// pauses reports whether this call and the next one go without drafts. Then the next call can begin ahead. It starts no
// draft, so this call need not give hidden states. If drafts become worthwhile meanwhile, the call after the next one
// is the first to have some.
func (d *drafts) pauses(call *schedule.Call, streams map[schedule.ID]*Stream) bool {
	if d == nil {
		return true
	}
	may, matches := false, false
	for _, e := range call.Entries {
		if s := streams[e.ID]; s != nil && d.most(s) > 0 {
			may = true
			matches = matches || d.drafter == nil && len(d.propose(s, 1)) > 0
		}
	}
	switch {
	case !may:
		return true
	case d.Fixed:
		return false
	case d.drafter == nil && !matches: // nothing follows from the text now, and little will after one token more
		return true
	}
	return d.shared.Pause() >= 2
}

// askForHidden has rows give their hidden states where the call after them may have drafts. They cost nothing to speak
// of, unless the call could begin ahead without them.
func (r *Runner) askForHidden(rows []Row, pauses bool) {
	if r.drafts == nil || r.drafts.drafter == nil || pauses && r.pipelines() {
		return
	}
	for i := range rows {
		rows[i].Hidden = true
	}
}

// isTypical reports whether the time of a call that did not begin ahead is a measure of other calls with as many rows
// and drafts. A call with drafts never begins ahead, so its time is one. A call without drafts takes longer than those
// that begin ahead. Its time is a measure only where calls with such rows cannot begin ahead, or where the next one
// could but nothing was foreseen.
func (r *Runner) isTypical(call *schedule.Call, rows []Row, pauses bool) bool {
	return hasDrafts(call) || !r.pipelines() || !areTokens(rows) || pauses && r.foreseen == nil
}

// hasDrafts reports whether a call verifies drafts.
func hasDrafts(call *schedule.Call) bool {
	return slices.ContainsFunc(call.Entries, func(e schedule.Entry) bool { return e.Drafts > 0 })
}

// book learns from a call which drafts were right and how long it took, and sets the drafts of the next call in
// results, unless that has been planned without any. took is 0 if it says nothing of other calls.
func (d *drafts) book(call *schedule.Call, all []*booked, results []schedule.Result, took time.Duration,
	planned bool) {
	if d == nil {
		return
	}
	if len(all) != len(call.Entries) || hasPrompts(call) {
		took = 0
	}
	var members []*speculate.Member
	var drafted, accepted []int
	for _, b := range all {
		members, drafted = append(members, &b.s.member), append(drafted, b.drafts)
		accepted = append(accepted, b.right)
	}
	d.shared.Done(members, drafted, accepted, took)

	members = members[:0]
	var goOn, left []int
	for i, b := range all {
		if b.ended {
			continue
		}
		goOn, members = append(goOn, i), append(members, &b.s.member)
		left = append(left, min(d.most(b.s), d.left(b.s)))
	}
	for i, k := range d.shared.Next(members, left) {
		if k > 0 && !planned {
			results[goOn[i]].Drafts = d.propose(all[goOn[i]].s, k)
		}
	}
}

// left returns how many more tokens of a stream may be drafted. A fixed number of drafts goes to the end of the
// answer. Otherwise the last token is not drafted: it comes with the next call anyway, and a draft would only cost a
// row.
func (d *drafts) left(s *Stream) int {
	left := s.request.MaxTokens - len(s.answer)
	if !d.Fixed {
		left--
	}
	return left
}

// hasPrompts reports whether a call has rows of prompts.
func hasPrompts(call *schedule.Call) bool {
	for _, e := range call.Entries {
		if e.Rows > 1+e.Drafts || e.Wanted == 0 {
			return true
		}
	}
	return false
}

// propose returns k drafts of a stream from its text. If the executor drafts, it returns k placeholders.
func (d *drafts) propose(s *Stream, k int) []int32 {
	if d.drafter != nil {
		if s.hidden == nil {
			return nil
		}
		return make([]int32, k)
	}
	if s.index.Len() == 0 {
		s.index.Append(int32s(s.request.Prompt)...)
	}
	s.index.Append(int32s(s.answer[s.index.Len()-len(s.request.Prompt):])...)
	return s.index.Draft(k, leastMatch)
}
