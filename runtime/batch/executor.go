package batch

import (
	"context"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Executor runs the calls of one model. It is not safe for concurrent use: one goroutine, that of the loop, makes one
// call at a time.
type Executor interface {
	// Layout says what one sequence holds, in bytes as the executor stores it.
	Layout() cache.Layout
	// Units is how many units of each pool the executor has room for: limits for [cache.NewMemory].
	Units() cache.Demand
	// Limits are the bounds of a call.
	Limits() Limits
	// Execute runs a call: its copies, in order, and then its rows. rows says what the wanted rows are to give, those
	// of the first entry first; entry e has the last e.Wanted of its rows. The outputs are in the same order. A context
	// that ends abandons the call, on a CPU within 100 ms.
	Execute(ctx context.Context, call *schedule.Call, rows []Row) ([]Output, error)
	// Close frees the program and all units.
	Close() error
}

// Limits are the bounds of the calls of an executor.
type Limits struct {
	// Rows is the most rows of a call.
	Rows int
	// Sequences is the most entries of a call.
	Sequences int
	// Positions is the most positions of a sequence.
	Positions int
	// Vocab is the size of the vocabulary, 0 where the program does not tell.
	Vocab int
	// OneByOne says that the entries of a call run one by one, because the program could not be made ragged.
	OneByOne bool
	// Why is the reason for that, as etc inspect --plan prints it.
	Why string
	// NoLogits says that the program gives tokens: rows with Row.Logits are refused.
	NoLogits bool
	// NoSeed says that the program draws without a seed.
	NoSeed bool
	// Samples says that rows may have Draw.MinP, Adjust and Logprobs: what a token needs is computed where the logits
	// are.
	Samples bool
	// NoCopies says that states cannot be copied: nobody can keep a prefix or fork a sequence.
	NoCopies bool
}

// Row says what a row of a call gives.
type Row struct {
	// Draw are the parameters of the token that is drawn behind the row; nil draws none.
	Draw *Draw
	// Logits asks for the logits too.
	Logits bool
	// Adjust changes the logits before the draw; nil: nothing does.
	Adjust *Adjust
	// Logprobs asks for the logarithm of the probability of the token, before the logits are changed, and of Top of the
	// most likely ones.
	Logprobs bool
	Top      int
}

// Adjust changes logits before a token is drawn: biases, then penalties, then a mask.
type Adjust struct {
	// List are the tokens that have a bias or came before, each once.
	List []Adjustment
	// Repeat, Presence and Frequency are those of Sampling; Repeat is not 0.
	Repeat, Presence, Frequency float32
	// Mask gives the tokens that may come next, bit i%64 of word i/64 for token i; nil where every token may. It is
	// called at most once, when the mask is needed. A nil Mask is none.
	Mask func() []uint64
}

// Adjustment is what changes the logits of a token.
type Adjustment struct {
	Token int32
	Bias  float32
	// Repeats says that the token is one of those that Repeat is for; Answered is how often it came in the answer.
	Repeats  bool
	Answered int
}

// Draw are the parameters with which one token is drawn.
type Draw struct {
	// Temperature divides the logits; 0 chooses the most likely token. Finite and not negative.
	Temperature float32
	// TopK keeps the k most likely tokens; 0 or less keeps all.
	TopK int64
	// TopP keeps the most likely tokens up to this probability; in (0, 1], 1 keeps all.
	TopP float32
	// MinP drops tokens less likely than MinP times the most likely one, behind the other filters; 0 drops none.
	MinP float32
	// Seed of this draw: of the i-th token behind a prompt it is the user's seed + i. Its lower 32 bits count.
	Seed int64
}

// Output is what a wanted row gave.
type Output struct {
	// Token was drawn, or is the most likely one where no draw was asked for.
	Token int32
	// Logprob is the logarithm of the probability of Token, and Top are the most likely tokens, where they were asked
	// for.
	Logprob float32
	Top     []Logprob
	// Logits of all tokens, float32 [vocab], where they were asked for. The caller owns them.
	Logits []float32
	// Hidden is the hidden state behind the row that lm_head reads, float32 [H], where the executor is a [Drafter]. The
	// caller owns it.
	Hidden []float32
}

// Drafter is an executor whose program drafts tokens with a method of its own.
type Drafter interface {
	// Drafts is the kind of its draft, speculate.None for a program without one.
	Drafts() speculate.Kind
	// Draft drafts tokens for entries of a call that is to be executed next. Its copies are done then. What the draft
	// keeps of positions lies in the units of the call.
	Draft(ctx context.Context, call *schedule.Call, chains []Chain) ([][]int32, error)
}

// Chain is what the drafts of an entry start from: its first row, a token that was drawn and not fed yet.
type Chain struct {
	// Entry is the number of the entry in the call.
	Entry int
	// Hidden is the hidden state behind the token before, float32 [H].
	Hidden []float32
	// Draws are the parameters of the draws, one for each draft.
	Draws []Draw
}
