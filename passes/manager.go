package passes

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// Row is a row of a table of passes whose options are of type O.
type Row[O any] struct {
	// Name of the pass, as --print-ir-after, --after and --disable-pass take it.
	Name string
	// Run changes the module.
	Run func(*ir.Module, O) error
	// When reports whether the pass applies; nil means always.
	When func(O) bool
	// After are the passes that must have run before, with the reason.
	After []Order
}

// Order is a constraint on the order of two passes.
type Order struct{ Pass, Because string }

// List is a table of passes in the order in which they run. There are two: the compiler's ([Table]) and the runtime's,
// which begins with runtime/fuse and ends with the rows of a device.
type List[O any] []Row[O]

// Ordered returns the rows as a table. It panics where a row stands before one that it must come after, where a name
// stands twice or where a constraint names no pass: tables are package variables, so the program does not start.
func Ordered[O any](rows ...Row[O]) List[O] {
	if err := checkOrder(rows); err != nil {
		panic(err)
	}
	return rows
}

// Names lists the passes in order.
func (l List[O]) Names() []string {
	names := make([]string, len(l))
	for i, p := range l {
		names[i] = p.Name
	}
	return names
}

// Control says how the passes of a table run.
type Control struct {
	// Disable names passes that do not run, to measure what they are worth. What follows may need them.
	Disable []string
	// Tidy is called after every pass, before the verifier; nil for nothing.
	Tidy func(*ir.Module) error
	// After is called after every pass with its name; nil for nothing.
	After func(pass string, m *ir.Module) error
	// Verify runs the verifier after every pass, not only after the last.
	Verify bool
	// Through names the last pass that runs; "" stands for the last one of the table.
	Through string
}

// Run runs the passes that apply. The error names the pass.
func (l List[O]) Run(m *ir.Module, o O, c Control) error {
	for i, p := range l {
		last := i == len(l)-1 || p.Name == c.Through
		if p.When != nil && !p.When(o) || slices.Contains(c.Disable, p.Name) {
			if last {
				return ir.Verify(m)
			}
			continue
		}
		if err := p.Run(m, o); err != nil {
			return fmt.Errorf("pass %s: %w", p.Name, err)
		}
		if c.Tidy != nil {
			if err := c.Tidy(m); err != nil {
				return fmt.Errorf("pass %s: %w", p.Name, err)
			}
		}
		if c.Verify || last {
			if err := ir.Verify(m); err != nil {
				return fmt.Errorf("after pass %s: %w", p.Name, err)
			}
		}
		if c.After != nil {
			if err := c.After(p.Name, m); err != nil {
				return err
			}
		}
		if last {
			break
		}
	}
	return nil
}

// checkOrder reports a row whose constraints the order of the table breaks.
func checkOrder[O any](table []Row[O]) error {
	var seen []string
	for _, p := range table {
		if slices.Contains(seen, p.Name) {
			return fmt.Errorf("pass %s stands twice", p.Name)
		}
		for _, c := range p.After {
			if !slices.Contains(seen, c.Pass) {
				return fmt.Errorf("pass %s must come after %s: %s", p.Name, c.Pass, c.Because)
			}
		}
		seen = append(seen, p.Name)
	}
	return nil
}
