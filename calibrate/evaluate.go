package calibrate

import (
	"context"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes"
)

// Rows returns rows [first, first+n) of a matrix, or of a stack of matrices one below the other, in float32.
type Rows = func(first, n int) (dot.Matrix, error)

// Source supplies weights in place of a checkpoint's: those of a file that was made from it. It must be safe for
// concurrent use.
type Source interface {
	// Rows opens the weight that is used in place of the checkpoint's weight c. kind is the kind of the operation that
	// multiplies by it. If the file has no such weight, the error names c.
	Rows(c *ir.Constant, kind passes.WeightKind) (Rows, error)
	// Constant returns the data that replace a constant that is no weight, or nil to use c itself.
	Constant(c *ir.Constant) ir.Data
}

// Evaluation holds the settings of [Evaluate].
type Evaluation struct {
	// Windows are the tokens of the text. Each window runs by itself from position 0, and all of its predictions
	// count.
	Windows [][]int
	// Jobs is the number of workers; 0 stands for one per CPU.
	Jobs int
	// Progress, if not nil, is called after every weight, with the operations that are done and their total.
	Progress func(done, total int, name string)
}

// Evaluate returns the quality of a source's weights against those of the checkpoint, of which [Prepare] has made m.
// Both run in float32, layer by layer, so that one weight is in memory at a time. The result has the same bits on
// every CPU and for any number of workers.
func Evaluate(ctx context.Context, m *ir.Module, source Source, o Evaluation) (*Quality, error) {
	if err := checkEntry(m); err != nil {
		return nil, err
	}
	if len(o.Windows) == 0 {
		return nil, fmt.Errorf("an evaluation needs a text of at least one window")
	}
	if err := checkWindows(o.Windows); err != nil {
		return nil, err
	}
	x := Options{HeldOut: o.Windows, Jobs: o.Jobs, Progress: o.Progress}
	p, err := newPlan(m, x)
	if err == nil {
		err = p.fit(0)
	}
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	d := &driver{ctx: ctx, module: m, source: source, options: x, plan: p, ledger: &ledger{}}
	if err := d.calibrate(); err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	return d.quality.sum(), nil
}
