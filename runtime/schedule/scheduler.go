package schedule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/cache"
)

// sequence is a request on its way.
type sequence struct {
	Request
	order     int     // the order of arrival, which never changes
	tokens    []int32 // the prompt and all tokens that were drawn
	table     *cache.Table
	drafts    []int32 // draft tokens after tokens, which the next call verifies
	deficit   int     // prompt rows that the sequence may still feed in its turn of the round robin
	junction  int     // position where a prompt with the same beginning goes on differently; 0: none. It gets a checkpoint
	admitted  bool    // it was running before
	cached    int     // prompt tokens that it did not compute when it was first admitted
	cancelled bool
}

// left returns how many known tokens are not fed yet. The last one asks for the next token.
func (q *sequence) left() int { return len(q.tokens) - q.table.Pos() }

// decoding reports whether nothing but the last token is left to feed.
func (q *sequence) decoding() bool { return q.left() == 1 && len(q.tokens) > len(q.Prompt) }

// drawn returns the number of tokens that were drawn.
func (q *sequence) drawn() int { return len(q.tokens) - len(q.Prompt) }

// mayDraft returns how many drafts the next call can verify before the sequence has all its tokens.
func (q *sequence) mayDraft() int {
	if q.DraftLast {
		return q.MaxTokens - q.drawn()
	}
	return q.MaxTokens - q.drawn() - 1
}

// Scheduler plans calls for many sequences.
type Scheduler struct {
	config  Config
	memory  *cache.Memory
	prefix  *cache.Prefix
	known   map[ID]*sequence
	waiting []*sequence // by order
	running []*sequence // by order
	turns   []*sequence // running sequences with a prompt to feed; the first one has its turn
	flight  []*pick     // the parts of the call that Next returned
	ahead   *ahead      // the call that follows it, as Ahead has planned it; nil: none
	short   bool        // a sequence of the call that Next returned had ended before
	ended   []End       // the sequences that have ended since the last Done
	stuck   bool        // memory had no room for the first that waits, and none was freed since
	arrived int
	stats   Stats
}

// New returns a scheduler without sequences. prefix is a tree of the same memory.
func New(c Config, m *cache.Memory, prefix *cache.Prefix) (*Scheduler, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Scheduler{config: c, memory: m, prefix: prefix, known: map[ID]*sequence{}}, nil
}

// ErrTooLong is the error of a sequence that the whole memory would not be enough for.
var ErrTooLong = errors.New("the sequence does not fit in memory")

// Arrive queues a request. Prompt and Marks must not change afterwards. It is ErrTooLong when the memory
// could not hold the sequence even alone.
func (s *Scheduler) Arrive(r Request) error {
	if err := r.validate(); err != nil {
		return err
	}
	if s.known[r.ID] != nil {
		return fmt.Errorf("sequence %d is known already", r.ID)
	}
	l := s.memory.Layout()
	if most := l.Most(len(r.Prompt)+r.MaxTokens, s.config.Rows); !s.memory.FitsEmpty(most) {
		return fmt.Errorf("%w: sequence %d of %d prompt tokens and at most %d more needs %d bytes of the budget of %d",
			ErrTooLong, r.ID, len(r.Prompt), r.MaxTokens, l.Bytes(most), s.memory.Budget())
	}
	q := &sequence{Request: r, order: s.arrived, tokens: slices.Clone(r.Prompt)}
	s.arrived++
	s.known[r.ID] = q
	s.waiting = append(s.waiting, q)
	return nil
}

// Cancel ends a sequence: now, or with the call that it is in. An unknown one has ended already.
func (s *Scheduler) Cancel(id ID) {
	q := s.known[id]
	if q == nil {
		return
	}
	q.cancelled = true
	if !s.flying(q) {
		s.finish(q, Cancelled)
	}
}

func (s *Scheduler) flying(q *sequence) bool {
	return slices.ContainsFunc(s.flight, func(p *pick) bool { return p.q == q })
}

// Stats returns what was done so far.
func (s *Scheduler) Stats() Stats {
	st := s.stats
	st.Waiting, st.Running = len(s.waiting), len(s.running)
	return st
}

// Check recounts the memory and compares the scheduler's lists; it is for tests.
func (s *Scheduler) Check() error {
	var tables []*cache.Table
	for _, q := range s.running {
		if q.table == nil || s.known[q.ID] != q {
			return fmt.Errorf("sequence %d runs and has no table or is not known", q.ID)
		}
		tables = append(tables, q.table)
	}
	for _, q := range s.waiting {
		if q.table != nil || s.known[q.ID] != q {
			return fmt.Errorf("sequence %d waits and has a table or is not known", q.ID)
		}
	}
	byOrder := func(a, b *sequence) int { return a.order - b.order }
	if !slices.IsSortedFunc(s.running, byOrder) || !slices.IsSortedFunc(s.waiting, byOrder) {
		return errors.New("the queues are not in order of arrival")
	}
	if len(s.known) != len(s.running)+len(s.waiting) || len(s.running) > s.config.Sequences {
		return fmt.Errorf("%d sequences are known, %d run and %d wait", len(s.known), len(s.running), len(s.waiting))
	}
	for _, q := range s.turns {
		if !slices.Contains(s.running, q) {
			return fmt.Errorf("sequence %d has a turn and does not run", q.ID)
		}
	}
	if s.ahead != nil {
		for _, p := range s.ahead.picks {
			if !slices.Contains(s.running, p.q) {
				return fmt.Errorf("sequence %d has a row in the call ahead and does not run", p.q.ID)
			}
		}
	}
	return cache.Check(s.memory, s.prefix, tables...)
}

// admit starts waiting sequences in order of arrival, while there is room for what all are known to need.
func (s *Scheduler) admit() {
	for len(s.waiting) > 0 && len(s.running) < s.config.Sequences && !s.stuck {
		q := s.waiting[0]
		// The last token is always fed: its row gives the next one.
		table, hit := s.prefix.Open(q.tokens[:len(q.tokens)-1])
		q.table = table
		if len(s.running) > 0 && !s.room(q) {
			table.Close()
			q.table, s.stuck = nil, true
			return
		}
		q.junction = 0
		if hit.Matched > hit.Pos {
			q.junction = hit.Matched
		}
		if !q.admitted {
			q.admitted, q.cached = true, hit.Pos
			s.stats.CachedTokens += hit.Pos
		}
		s.waiting = s.waiting[1:]
		s.running = insert(s.running, q)
		if !q.decoding() {
			s.turns = append(s.turns, q)
		}
	}
}

// room reports whether all running sequences and q find room for the tokens that they have and one more.
func (s *Scheduler) room(q *sequence) bool {
	need := make(cache.Demand, s.memory.Layout().Pools())
	for _, r := range append(s.running[:len(s.running):len(s.running)], q) {
		need.Add(r.table.Outstanding(len(r.tokens)+1, s.config.Rows, r.Drafts))
	}
	return s.memory.FitsIdle(need)
}

// insert puts q into a list by order of arrival.
func insert(list []*sequence, q *sequence) []*sequence {
	i, _ := slices.BinarySearchFunc(list, q.order, func(e *sequence, order int) int { return e.order - order })
	return slices.Insert(list, i, q)
}

// remove takes q out of a list.
func remove(list []*sequence, q *sequence) []*sequence {
	if i := slices.Index(list, q); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// preempt releases the cache of a running sequence, of which the tree keeps what it can. The sequence waits at its old
// place in the queue, and is later filled again from the tree and from its tokens.
func (s *Scheduler) preempt(q *sequence) {
	s.prefix.Insert(q.tokens, q.table, q.table.Pos())
	q.table.Close()
	q.table, q.drafts, q.deficit = nil, nil, 0
	s.running, s.turns = remove(s.running, q), remove(s.turns, q)
	s.waiting, s.stuck = insert(s.waiting, q), false
	s.stats.Preempted++
}

// finish forgets a sequence. The tree keeps what it holds, unless the call failed.
func (s *Scheduler) finish(q *sequence, why Reason) {
	if q.table != nil {
		if why != Failed {
			s.retract(q)
			s.prefix.Insert(q.tokens, q.table, q.table.Pos())
		}
		q.table.Close()
		q.table = nil
	}
	s.running, s.turns, s.waiting = remove(s.running, q), remove(s.turns, q), remove(s.waiting, q)
	s.stuck = false
	delete(s.known, q.ID)
	s.ended = append(s.ended, End{ID: q.ID, Reason: why, Cached: q.cached})
	s.prefix.Trim()
}
