package batch

import (
	"context"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Executor runs the calls of one model. It is not safe for concurrent use: one goroutine makes one call at a time.
type Executor interface {
	// Layout says what units a sequence needs, with sizes in bytes as the executor stores them.
	Layout() cache.Layout
	// Units returns the number of units of each pool that the executor has room for: the limits for [cache.NewMemory].
	Units() cache.Demand
	// Limits returns the bounds of a call.
	Limits() Limits
	// Execute runs a call: first its copies, in order, then its rows. rows says what the wanted rows give, those of the
	// first entry first; the wanted rows of entry e are the last e.Wanted of its rows. The outputs are in the same
	// order. If ctx ends, the call is abandoned, on a CPU within 100 ms.
	Execute(ctx context.Context, call *schedule.Call, rows []Row) ([]Output, error)
	// Close frees the program and all units.
	Close() error
}

// Limits are the bounds of the calls of an executor.
type Limits struct {
	// Rows is the largest number of rows of a call.
	Rows int
	// Sequences is the largest number of entries of a call.
	Sequences int
	// Positions is the largest number of positions of a sequence.
	Positions int
	// Vocab is the size of the vocabulary, 0 where the program does not say.
	Vocab int
	// OneByOne says that the entries of a call run one by one, because the program could not be transformed for many
	// sequences.
	OneByOne bool
	// Why is the reason for that, as etc inspect --plan prints it.
	Why string
	// NoLogits says that the program gives tokens, not logits: rows with Row.Logits are refused.
	NoLogits bool
	// NoSeed says that the program draws without a seed.
	NoSeed bool
	// Samples says that rows may have Draw.MinP, Adjust and Logprobs, which are then computed on the device.
	Samples bool
	// NoCopies says that states cannot be copied, so no prefix can be cached and no sequence forked.
	NoCopies bool
}

// Row says what a row of a call gives.
type Row struct {
	// Draw has the parameters of the token that is drawn after the row; nil: none is drawn.
	Draw *Draw
	// Logits asks for the logits too.
	Logits bool
	// Adjust changes the logits before the draw; nil: nothing does.
	Adjust *Adjust
	// Logprobs asks for the log-probability of the token, by the unchanged logits, and for those of the Top most likely
	// tokens.
	Logprobs bool
	Top      int
	// Hidden asks for the hidden state, which a draft starts from, if the executor is a [Drafter]. A call without it may
	// give none, and can begin before the call before it has ended.
	Hidden bool
}

// Adjust changes logits before a token is drawn: biases, then penalties, then a mask.
type Adjust struct {
	// List has the tokens that have a bias or came before, each once.
	List []Adjustment
	// Repeat, Presence and Frequency are those of Sampling; Repeat is not 0.
	Repeat, Presence, Frequency float32
	// Mask returns the tokens that may come next, as bit i%64 of word i/64 for token i, or nil where every token may.
	// It is called at most once, when the mask is needed. If Mask itself is nil, there is no mask.
	Mask func() []uint64
}

// Adjustment says how the logit of one token changes.
type Adjustment struct {
	Token int32
	Bias  float32
	// Repeats says that the repetition penalty applies to the token. Answered is the number of times that it occurs in
	// the answer.
	Repeats  bool
	Answered int
}

// Draw has the parameters of one draw.
type Draw struct {
	// Temperature divides the logits; 0 chooses the most likely token. Finite and not negative.
	Temperature float32
	// TopK keeps the k most likely tokens; 0 or less keeps all.
	TopK int64
	// TopP keeps the most likely tokens up to this probability; in (0, 1], 1 keeps all.
	TopP float32
	// MinP drops, after the other filters, tokens less likely than MinP times the most likely one; 0 drops none.
	MinP float32
	// Seed is the seed of this draw: for the i-th token after a prompt it is the user's seed + i. Its lower 32 bits
	// count.
	Seed int64
}

// Output is the result of a wanted row.
type Output struct {
	// Token was drawn; without a Draw it is the most likely token.
	Token int32
	// Logprob is the log-probability of Token, and Top are the most likely tokens, if they were asked for.
	Logprob float32
	Top     []Logprob
	// Logits are the logits of all tokens, float32 [vocab], if they were asked for. The caller owns them.
	Logits []float32
	// Hidden is the hidden state of the row, the input of lm_head, float32 [H], if the executor is a [Drafter] and it was
	// asked for. The caller owns it.
	Hidden []float32
}

// Drafter is implemented by executors whose program has a method that drafts tokens.
type Drafter interface {
	// Drafts returns the kind of draft, speculate.None for a program without one.
	Drafts() speculate.Kind
	// HiddenSize returns the number of elements of a hidden state, 0 for a program without a draft.
	HiddenSize() int
	// Draft drafts tokens for entries of a call that is to be executed next, and does that call's copies. The draft's
	// own caches are in the units of the call.
	Draft(ctx context.Context, call *schedule.Call, chains []Chain) ([][]int32, error)
}

// Chain is the start of the drafts of an entry. The first row of the entry is a token that was drawn but not fed yet.
type Chain struct {
	// Entry is the number of the entry in the call.
	Entry int
	// Hidden is the hidden state of the row before that token, float32 [H].
	Hidden []float32
	// Draws are the parameters of the draws, one for each draft.
	Draws []Draw
}
