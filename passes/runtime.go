package passes

import "github.com/etc-ml/etc/ir"

// What the runtime shares with the compiler when it fuses lifted graphs.

// Rewrite walks the operations of r and of its nested regions in order and lets f replace each. f gets a
// builder that inserts before the operation; it returns the values that stand for the operation's
// results from there on and true, or false to keep the operation.
func Rewrite(m *ir.Module, r *ir.Region, f func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool)) {
	rewrite(m, r, f)
}

// Clean merges equal operations of the entry and removes those that nothing needs.
func Clean(m *ir.Module) error {
	if err := eliminateCommon(m, nil); err != nil {
		return err
	}
	return eliminateDead(m, nil)
}

// EliminateDead removes the operations of the entry that nothing needs, and the constants that nothing uses.
func EliminateDead(m *ir.Module) error { return eliminateDead(m, nil) }
