package batch

import (
	"context"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
)

// Executor runs the calls of one model. It is not safe for concurrent use: one goroutine, that of the loop, makes one call at
// a time.
type Executor interface {
	// Layout says what one sequence holds, in bytes as the executor stores it.
	Layout() cache.Layout
	// Units is how many units of each pool the executor has room for: limits for [cache.NewMemory].
	Units() cache.Demand
	// Limits are the bounds of a call.
	Limits() Limits
	// Execute runs a call: its copies, in order, and then its rows. rows says what the wanted rows are to give, those of the
	// first entry first; entry e has the last e.Wanted of its rows. The outputs are in the same order. A context that ends
	// abandons the call, on a CPU within 100 ms.
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
	// NoCopies says that states cannot be copied: nobody can keep a prefix or fork a sequence.
	NoCopies bool
}

// Row says what a row of a call gives.
type Row struct {
	// Draw are the parameters of the token that is drawn behind the row; nil draws none.
	Draw *Draw
	// Logits asks for the logits too.
	Logits bool
}

// Draw are the parameters with which one token is drawn.
type Draw struct {
	// Temperature divides the logits; 0 chooses the most likely token. Finite and not negative.
	Temperature float32
	// TopK keeps the k most likely tokens; 0 or less keeps all.
	TopK int64
	// TopP keeps the most likely tokens up to this probability; in (0, 1], 1 keeps all.
	TopP float32
	// Seed of this draw: of the i-th token behind a prompt it is the user's seed + i. Its lower 32 bits count.
	Seed int64
}

// Output is what a wanted row gave.
type Output struct {
	// Token was drawn, or is the most likely one where no draw was asked for.
	Token int32
	// Logits of all tokens, float32 [vocab], where they were asked for. The caller owns them.
	Logits []float32
}
