package schedule

import (
	"fmt"

	"github.com/etc-ml/etc/runtime/cache"
)

// Config bounds the calls of a scheduler.
type Config struct {
	Rows            int // the largest number of rows of a call, at least Sequences
	Chunk           int // the largest number of rows of prompts in a call that has decoding rows too; at most Rows
	Quantum         int // the number of rows that a prompt feeds in its turn; at most Chunk
	Sequences       int // the largest number of sequences that run at a time
	CheckpointEvery int // positions between checkpoints of a prompt; 0: checkpoints at marks and ends alone
	// CheckpointMost is the largest number of checkpoints of CheckpointEvery that a prompt gets, 0: any. Where it would
	// have more, twice the distance is between them, or four times, and so on.
	CheckpointMost int
}

func (c Config) validate() error {
	if c.Sequences < 1 || c.Rows < c.Sequences {
		return fmt.Errorf("schedule: %d rows a call for %d sequences, want at least one of each and a row for "+
			"every sequence", c.Rows, c.Sequences)
	}
	if c.Quantum < 1 || c.Chunk < c.Quantum || c.Chunk > c.Rows {
		return fmt.Errorf("schedule: a quantum of %d, a chunk of %d and %d rows a call, want 1 <= quantum <= chunk "+
			"<= rows", c.Quantum, c.Chunk, c.Rows)
	}
	if c.CheckpointEvery < 0 || c.CheckpointMost < 0 {
		return fmt.Errorf("schedule: a checkpoint every %d positions, at most %d of a prompt, want 0 or more",
			c.CheckpointEvery, c.CheckpointMost)
	}
	return nil
}

// ID names a sequence. The caller chooses it; it is never used for two sequences at a time.
type ID int64

// Request is a sequence that arrives.
type Request struct {
	ID        ID
	Prompt    []int32
	MaxTokens int // the largest number of tokens to draw, at least 1
	Drafts    int // the largest number of drafts that a call of the sequence verifies
	// DraftLast lets a call verify a draft of the last token too; the token drawn after it is then left out of the
	// result.
	DraftLast bool
	Marks     []int // positions in the prompt that get a checkpoint, ascending: ends of turns
}

func (r Request) validate() error {
	if len(r.Prompt) == 0 || r.MaxTokens < 1 || r.Drafts < 0 {
		return fmt.Errorf("sequence %d: %d prompt tokens, at most %d tokens to draw and %d drafts, want at least 1, 1 "+
			"and 0", r.ID, len(r.Prompt), r.MaxTokens, r.Drafts)
	}
	last := 0
	for _, m := range r.Marks {
		if m <= last || m > len(r.Prompt) {
			return fmt.Errorf("sequence %d: the marks %v do not ascend within a prompt of %d tokens", r.ID, r.Marks,
				len(r.Prompt))
		}
		last = m
	}
	return nil
}

// Call is the table of the next call. Its rows are in order, those of each entry together.
type Call struct {
	Copies  []cache.Copy // copies of blocks that come before any row is written, one after the other
	Tokens  []int32      // the id of each row
	Entries []Entry      // oldest sequence first
}

// Entry is the part of a call for one sequence.
type Entry struct {
	ID     ID
	First  int           // the first of its rows in the call
	Rows   int           // how many it has
	Start  int           // position of the first row
	Drafts int           // how many of its last rows are drafts to verify
	Wanted int           // how many of its last rows want logits or tokens: 0, or 1 + Drafts
	Blocks []int32       // blocks of full attention: block i has the positions from i * Layout.BlockRows on
	Rings  []cache.Span  // the blocks of each sliding window
	Reads  int32         // the slot with the state before the first row; -1: the state of no positions
	Writes []cache.State // slots to write, each with the state after the first Pos positions
}

// Result is what a call gave for an entry that wanted tokens.
type Result struct {
	ID     ID
	Tokens []int32 // the tokens that the sequence gets: the accepted drafts and the token drawn after them
	Ended  bool    // the last of Tokens ends the sequence
	// Drafts are proposals for the tokens after these, which the next call verifies. Where the drafts become known only
	// after the next call is planned, there are as many here, of any value, and Scheduler.Drafted gets the right ones.
	Drafts []int32
}

// Reason says why a sequence is no longer known.
type Reason int

// The reasons for which a sequence ends.
const (
	Stopped   Reason = iota // Result.Ended
	Length                  // Request.MaxTokens
	Cancelled               // Cancel
	Failed                  // Fail
)

// End is a sequence that has ended.
type End struct {
	ID     ID
	Reason Reason
	Cached int // tokens of its prompt that were not computed, because the prefix tree had them
}

// Stats counts what a scheduler did.
type Stats struct {
	Calls, Rows, DecodeRows, PromptRows, DraftRows int
	Preempted                                      int // how often a sequence lost its cache before it had ended
	Stalled                                        int // how often a sequence had a turn but memory had no room
	CachedTokens                                   int // prompt tokens that the prefix tree had
	Waiting, Running                               int // sequences now
}
