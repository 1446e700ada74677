package execution

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/host"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// UsableMemory is the memory that a model can count on in bytes, 0 where that is not known. Tests set it.
var UsableMemory = func() int64 { return host.ReadMemory().Usable() }

// MemoryOf is the memory for a model in bytes, its device's or else the machine's, 0 where that is not known.
func MemoryOf(model *session.Model) int64 {
	if n, ok := model.DeviceMemory(); ok {
		return n
	}
	return UsableMemory()
}

// MemoryOn is the memory in bytes that programs have on an engine, 0 where that is not known, and the name of the
// device where it is the device's own; "" for the machine's. The engine is not auto: see devices.Chosen.
func MemoryOn(e engine.Engine) (bytes int64, device string) {
	e, _ = StorageOf(e)
	if d, ok := e.(engine.WithMemory); ok {
		if bytes, err := d.DeviceMemory(); err == nil { // else compiling says what is wrong
			return bytes, e.Name()
		}
	}
	return UsableMemory(), ""
}

// Fit is a program that is to be run, for the question whether it fits in memory.
type Fit struct {
	// File is the name for messages.
	File string
	// Need is the memory that the program needs.
	Need session.Memory
	// Context is its positions; 0: the program has none to speak of.
	Context int
	// Sessions is how many states there are to be.
	Sessions int
	// Taken is the memory of other models of the same command, in bytes.
	Taken int64
	// Device is where the memory is, "" for the machine's.
	Device string
	// Advice says what would fit; "": [Fit.Check] finds out.
	Advice string
}

// Check refuses what does not fit the available memory in bytes, 0 if that is not known, with what would.
func (f Fit) Check(available int64) error {
	left := available - f.Taken
	if available == 0 || f.Need.Need(f.Sessions) <= left {
		return nil
	}
	size := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	state := "state of " + size(f.Need.State)
	if f.Sessions > 1 {
		state = fmt.Sprintf("%d times a %s", f.Sessions, state)
	}
	if f.Context > 0 {
		state += fmt.Sprintf(" for %d positions", f.Context)
	}
	where := ""
	if f.Device != "" {
		where = " on " + f.Device
	}
	if f.Taken > 0 {
		where += fmt.Sprintf(" beside the other program, which takes %s", size(f.Taken))
	}
	advice := "a shorter context would not help"
	if f.Advice != "" {
		advice = f.Advice
	} else if f.Context == 0 {
		advice = "it needs a machine with more, or a higher limit (ulimit -v, the container's)"
	} else if n := f.Need.Longest(f.Context, f.Sessions, left); n > 1 {
		advice = fmt.Sprintf("it fits when exported with --max-seq-len %d", n)
	}
	return kind.Of(kind.ErrMemory, fmt.Errorf(
		"%s would not fit in memory: weights of %s and %s, but %s are available%s; %s",
		f.File, size(f.Need.Weights), state, size(left), where, advice))
}

// Budget chooses the memory for the caches of so many answers at a time, in bytes: for each of them two states, one of
// it and one of a prefix, and what a call keeps that verifies so many drafts of each, the states behind all of its rows
// of what does not grow with the context. It is at most half of what the weights leave of the available memory in
// bytes, 0 if that is not known, and at least two states, which must fit: f says whose memory it is.
func (f Fit) Budget(answers, drafts int, available int64) (int64, error) {
	f.Sessions = 2
	state := max(f.Need.State, 1)
	budget := 2 * state * int64(answers)
	if drafts > 0 {
		budget += (f.Need.State - f.Need.Position*int64(f.Context)) * int64((drafts+1)*answers)
	}
	if available > 0 {
		budget = min(budget, (available-f.Need.Weights)/2)
	}
	if budget >= 2*state {
		return budget, nil
	}
	return 2 * state, f.Check(available)
}

// NeedOf is what a module needs on an engine: the reference engine, which also has precision strict, decodes all of it.
func NeedOf(m *ir.Module, context int, e engine.Engine, p eval.Precision) session.Memory {
	_, s := StorageOf(e)
	if p == eval.Strict || e.Name() == (reference.Engine{}).Name() {
		return withStorage(session.MeasureDecoded(m, context), m, context, p, s)
	}
	return withStorage(session.MeasureMemory(m, context, p), m, context, p, s)
}

// CheckMemory refuses a language model whose weights and sessions do not fit into the memory that it runs in, and names
// a context that would fit. taken is the memory of the command's other models.
func CheckMemory(file string, m *ir.Module, model *session.Model, e engine.Engine, p eval.Precision,
	sessions int, taken int64) error {
	f := Fit{File: file, Need: NeedOf(m, model.MaxSeqLen, e, p), Context: model.MaxSeqLen,
		Sessions: sessions, Taken: taken}
	if _, ok := model.DeviceMemory(); ok {
		f.Device = model.Device
	}
	return f.Check(MemoryOf(model))
}
