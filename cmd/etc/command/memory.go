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

// memoryOf is the memory for a model in bytes, its device's or else the machine's, 0 where that is not known.
func memoryOf(model *session.Model) int64 {
	if n, ok := model.DeviceMemory(); ok {
		return n
	}
	return usableMemory()
}

// checkMemory refuses a language model whose weights and sessions do not fit the memory that it runs in, with the
// context that would.
func checkMemory(file string, m *ir.Module, model *session.Model, p eval.Precision, sessions int) error {
	available := memoryOf(model)
	need := session.MeasureMemory(m, model.MaxSeqLen, p)
	if available == 0 || need.Need(sessions) <= available {
		return nil
	}
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	state := "state of " + size(need.State)
	if sessions > 1 {
		state = fmt.Sprintf("%d times a %s", sessions, state)
	}
	where := ""
	if _, ok := model.DeviceMemory(); ok {
		where = " on " + model.Device
	}
	advice := "a shorter context would not help"
	if n := need.Longest(model.MaxSeqLen, sessions, available); n > 1 {
		advice = fmt.Sprintf("it fits when exported with --max-seq-len %d", n)
	}
	return memoryError{fmt.Errorf("%s would not fit in memory: weights of %s and %s for %d positions, but %s are available%s; %s",
		file, size(need.Weights), state, model.MaxSeqLen, size(available), where, advice)}
}
