package command

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/host"
	"github.com/etc-ml/etc/runtime/session"
)

// usableMemory is the memory that a model can count on in bytes, 0 where that is not known. Tests set it.
var usableMemory = func() int64 { return host.ReadMemory().Usable() }

// checkMemory refuses a language model whose weights and sessions do not fit the memory, with the context
// that would. What is no language model is an invalid file.
func checkMemory(file string, m *ir.Module, p eval.Precision, sessions int) error {
	d, err := session.Describe(m)
	if err != nil {
		return invalidError{fmt.Errorf("%s: %w", file, err)}
	}
	available := usableMemory()
	need := session.MeasureMemory(m, d.MaxSeqLen, p)
	if available == 0 || need.Need(sessions) <= available {
		return nil
	}
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	state := "state of " + size(need.State)
	if sessions > 1 {
		state = fmt.Sprintf("%d times a %s", sessions, state)
	}
	advice := "a shorter context would not help"
	if n := need.Longest(d.MaxSeqLen, sessions, available); n > 1 {
		advice = fmt.Sprintf("it fits when exported with --max-seq-len %d", n)
	}
	return memoryError{fmt.Errorf("%s would not fit in memory: weights of %s and %s for %d positions, but %s are available; %s",
		file, size(need.Weights), state, d.MaxSeqLen, size(available), advice)}
}
