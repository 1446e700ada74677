package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Pool is a set of sequences that a Go program feeds itself: to draw, to verify drafts, to branch. To get answers only,
// use a [Runner]. A Pool and its sequences are not safe for concurrent use.
type Pool struct {
	exec   Executor
	limits Limits
	memory *cache.Memory
	open   map[*Sequence]bool
	next   schedule.ID
	ahead  *begunCall // nil: none
}

// NewPool returns a pool with budget bytes of caches. It owns the executor from then on.
func NewPool(exec Executor, budget int64) (*Pool, error) {
	memory, err := cache.NewMemory(exec.Layout(), budget, exec.Units())
	if err != nil {
		return nil, err
	}
	return &Pool{exec: exec, limits: exec.Limits(), memory: memory, open: map[*Sequence]bool{}}, nil
}

// Limits returns the executor's limits.
func (p *Pool) Limits() Limits { return p.limits }

// Used returns the memory of the open sequences in bytes. What several of them share counts once.
func (p *Pool) Used() int64 { return p.memory.Used() }

// Close closes all sequences and the executor.
func (p *Pool) Close() error {
	for s := range p.open {
		s.Close()
	}
	return p.exec.Close()
}

// Open returns a new sequence without tokens.
func (p *Pool) Open() *Sequence { return p.add(p.memory.NewTable()) }

func (p *Pool) add(t *cache.Table) *Sequence {
	s := &Sequence{pool: p, table: t, id: p.next}
	p.next++
	p.open[s] = true
	return s
}

// Sequence is a list of tokens and the model's state after them.
type Sequence struct {
	pool  *Pool
	table *cache.Table
	id    schedule.ID
	err   error // of the call that left it undefined
}

// ErrNoMemory says that the budget is too small for the tokens to be fed. Close a sequence, then feed the tokens from
// Sequence.Position on.
var ErrNoMemory = errors.New("no memory is left for these tokens")

// Position returns the number of tokens that were fed.
func (s *Sequence) Position() int { return s.table.Pos() }

// Close frees what only this sequence uses. It may be called more than once.
func (s *Sequence) Close() {
	s.pool.retract()
	s.table.Close()
	delete(s.pool.open, s)
}

// Fork returns a second sequence with the same tokens. State is copied only when one of the two writes what the other
// reads.
func (s *Sequence) Fork() (*Sequence, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.pool.limits.NoCopies {
		return nil, errors.New("the state of this program cannot be copied")
	}
	s.pool.retract()
	return s.pool.add(s.table.Fork()), nil
}

// Rollback removes the last n tokens: at most those of the last Feed, which needs Exact if the program has recurrent
// state.
func (s *Sequence) Rollback(n int) error {
	if err := s.usable(); err != nil {
		return err
	}
	s.pool.retract()
	return s.table.Rollback(n)
}

// Draft drafts one token for each of draws. token is the last drawn token, to be fed next; hidden is the hidden state
// of the row before it (what [Row].Hidden asks for). The sequence does not change. Feed token and the drafts with a
// [Pool.Feed] with Exact; its outputs show which drafts are right. The executor must be a [Drafter] with a draft.
func (s *Sequence) Draft(ctx context.Context, token int32, hidden []float32, draws ...Draw) ([]int32, error) {
	d, err := s.drafter(token, hidden, draws)
	if err != nil {
		return nil, err
	}
	s.pool.retract()
	copies, ok := s.table.Begin(cache.Extent{Rows: len(draws), Exact: true})
	if !ok {
		return nil, ErrNoMemory
	}
	call := &schedule.Call{Copies: copies, Tokens: []int32{token}, Entries: []schedule.Entry{{ID: s.id, Rows: 1,
		Start: s.table.Pos(), Blocks: s.table.Blocks(), Rings: s.table.Rings()}}}
	out, err := d.Draft(ctx, call, []Chain{{Hidden: hidden, Draws: draws}})
	s.table.End()
	if err != nil {
		s.err = err
		return nil, err
	}
	return out[0], s.table.Rollback(len(draws))
}

// drafter returns the executor, if it can draft a token for each of draws behind token from a hidden state. What it
// refuses changes nothing, so the sequence can go on.
func (s *Sequence) drafter(token int32, hidden []float32, draws []Draw) (Drafter, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	d, ok := s.pool.exec.(Drafter)
	switch {
	case !ok || d.Drafts() == speculate.None:
		return nil, errors.New("the program of the executor has no draft")
	case len(draws) == 0 || s.Position() == 0:
		return nil, fmt.Errorf("%d drafts after %d tokens, want at least one after one", len(draws), s.Position())
	case token < 0 || s.pool.limits.Vocab > 0 && int(token) >= s.pool.limits.Vocab:
		return nil, fmt.Errorf("token %d, want one of %d", token, s.pool.limits.Vocab)
	case len(hidden) != d.HiddenSize():
		return nil, fmt.Errorf("a hidden state of %d numbers, want %d: that of the row before token", len(hidden),
			d.HiddenSize())
	case len(draws) > s.pool.limits.Rows:
		return nil, fmt.Errorf("%d drafts, want at most as many as a call has rows, %d", len(draws), s.pool.limits.Rows)
	case s.Position()+len(draws) > s.pool.limits.Positions:
		return nil, fmt.Errorf("%d drafts after %d tokens do not fit the context of %d tokens",
			len(draws), s.Position(),
			s.pool.limits.Positions)
	}
	return d, nil
}

// Round drafts a token for each of draws, as Draft does. It then feeds token and the drafts, as [Pool.Feed] does with
// Exact: rows[0] says what token gives, and rows[i] what draft i - 1 gives. It returns the drafts and an output for
// each row. Where the executor can (Rounder), that is one call of the engine. Roll back the tokens behind the last
// right draft. The errors are those of Draft and Feed.
func (s *Sequence) Round(ctx context.Context, token int32, hidden []float32, draws []Draw,
	rows []Row) ([]int32, []Output, error) {
	d, err := s.drafter(token, hidden, draws)
	if err == nil && len(rows) != len(draws)+1 {
		err = fmt.Errorf("%d rows, want %d: one for the token and one for each of %d drafts", len(rows), len(draws)+1,
			len(draws))
	}
	if err != nil {
		return nil, nil, err
	}
	f := Feed{Sequence: s, Tokens: append([]int32{token}, make([]int32, len(draws))...), Rows: rows, Exact: true}
	if err := s.pool.check([]Feed{f}); err != nil {
		return nil, nil, err
	}
	x, ok := d.(Rounder)
	if !ok || len(draws) > x.MostOfRound() || !areTokens(rows) {
		drafts, err := s.Draft(ctx, token, hidden, draws...)
		if err != nil {
			return nil, nil, err
		}
		copy(f.Tokens[1:], drafts)
		out, err := s.pool.Feed(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		return drafts, out[0], nil
	}
	s.pool.retract()
	call, err := s.pool.plan([]Feed{f})
	if err != nil {
		return nil, nil, err
	}
	found, out, err := x.Round(ctx, &call.Call, []Chain{{Hidden: hidden, Draws: draws}}, rows)
	if err != nil {
		s.err = err
		return nil, nil, err
	}
	s.table.End()
	return found[0], out, nil
}

func (s *Sequence) usable() error {
	if s.err != nil {
		return fmt.Errorf("the sequence's last call failed, close it: %w", s.err)
	}
	if !s.pool.open[s] {
		return errors.New("the sequence is closed")
	}
	return nil
}

// Feed says what is fed to a sequence in a call.
type Feed struct {
	Sequence *Sequence
	// Tokens are appended to the sequence; at least one.
	Tokens []int32
	// Rows say what the last len(Rows) tokens give.
	Rows []Row
	// Exact stores what a [Sequence.Rollback] of any number of these tokens needs.
	Exact bool
	// Next, if not nil, says that the token which is drawn will be the next one to be fed, and what its row gives then.
	// Where each of the feeds of a call has one token, one row and a Next, the executor may begin the next call before
	// this one has ended. The results are the same, but these tokens cannot be rolled back.
	Next *Row
}

// Feed feeds one sequence; see [Pool.Feed].
func (s *Sequence) Feed(ctx context.Context, tokens []int32, rows ...Row) ([]Output, error) {
	out, err := s.pool.Feed(ctx, Feed{Sequence: s, Tokens: tokens, Rows: rows})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Feed feeds sequences, each at most once, and returns for each what its rows give. All are fed in one call if the
// executor's limits allow, else in several. On [ErrNoMemory] the tokens of earlier calls stay fed. After an error of
// the executor the sequences of that call can only be closed.
func (p *Pool) Feed(ctx context.Context, feeds ...Feed) ([][]Output, error) {
	if err := p.check(feeds); err != nil {
		return nil, err
	}
	out := make([][]Output, len(feeds))
	left := make([]Feed, len(feeds))
	copy(left, feeds)
	for call := p.resume(feeds); ; call = nil {
		var err error
		if call == nil {
			call, err = p.plan(left)
		}
		if err != nil || len(call.picks) == 0 {
			return out, err
		}
		given, err := p.execute(ctx, call, left)
		if err == nil && len(given) != len(call.rows) {
			err = fmt.Errorf("the executor gave %d outputs for %d rows", len(given), len(call.rows))
		}
		for i, n := range call.picks {
			s := left[n].Sequence
			if err != nil {
				s.err = err
				continue
			}
			if !call.ended {
				s.table.End()
			}
			e := &call.Entries[i]
			out[n], given = append(out[n], given[:e.Wanted]...), given[e.Wanted:]
			left[n].Tokens, left[n].Rows = left[n].Tokens[e.Rows:], left[n].Rows[e.Wanted:]
		}
		if err != nil {
			p.ahead = nil
			return nil, err
		}
	}
}

// check returns an error for feeds that can never be fed.
func (p *Pool) check(feeds []Feed) error {
	seen := map[*Sequence]bool{}
	for _, f := range feeds {
		if err := f.Sequence.usable(); err != nil {
			return err
		}
		n := len(f.Tokens)
		switch {
		case f.Sequence.pool != p:
			return errors.New("a sequence of another pool")
		case seen[f.Sequence]:
			return errors.New("a sequence is fed twice in a call")
		case n == 0 || len(f.Rows) > n:
			return fmt.Errorf("%d tokens of which %d give something, want at least one and as many", n, len(f.Rows))
		case f.Exact && n > p.limits.Rows:
			return fmt.Errorf("%d tokens to take back, a call has at most %d", n, p.limits.Rows)
		case f.Sequence.Position()+n > p.limits.Positions:
			return fmt.Errorf("%d tokens after %d do not fit the context of %d tokens", n, f.Sequence.Position(),
				p.limits.Positions)
		}
		for _, t := range f.Tokens {
			if t < 0 || p.limits.Vocab > 0 && int(t) >= p.limits.Vocab {
				return fmt.Errorf("token %d is not in the vocabulary of %d tokens", t, p.limits.Vocab)
			}
		}
		seen[f.Sequence] = true
	}
	return nil
}

// planned is a call of a pool.
type planned struct {
	schedule.Call
	rows  []Row // that are wanted
	picks []int // the number of the feed of each entry
	ended bool  // tables count its rows already: see foresee
}

// entry returns the entry of the sequence in a call that its table is in.
func (s *Sequence) entry(first, rows, wanted int) schedule.Entry {
	t := s.table
	return schedule.Entry{ID: s.id, First: first, Rows: rows, Start: t.Pos(), Blocks: t.Blocks(),
		Rings: slices.Clone(t.Rings()), Reads: t.Reads(), Writes: t.Writes(), Wanted: wanted}
}

// plan returns the next call for what is left of the feeds, in order, as far as rows and memory suffice.
func (p *Pool) plan(feeds []Feed) (*planned, error) {
	c := &planned{}
	room := p.limits.Rows
	for n := range feeds {
		f := &feeds[n]
		count := min(len(f.Tokens), room)
		if count == 0 || f.Exact && count < len(f.Tokens) || len(c.picks) == p.limits.Sequences {
			continue
		}
		copies, ok := f.Sequence.table.Begin(cache.Extent{Rows: count, Exact: f.Exact})
		if !ok && len(c.picks) > 0 {
			return c, nil // this feed begins the next call
		}
		if !ok {
			return nil, ErrNoMemory
		}
		e := f.Sequence.entry(len(c.Tokens), count, max(0, count-(len(f.Tokens)-len(f.Rows))))
		c.Copies = append(c.Copies, copies...)
		c.Tokens = append(c.Tokens, f.Tokens[:count]...)
		c.rows = append(c.rows, f.Rows[:e.Wanted]...)
		c.Entries, c.picks = append(c.Entries, e), append(c.picks, n)
		room -= count
	}
	return c, nil
}
