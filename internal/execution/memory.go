package execution

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/host"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// UsableMemory returns the bytes of memory that a model may use, 0 if that is not known. Tests replace it.
var UsableMemory = func() int64 { return host.ReadMemory().Usable() }

// MemoryOf returns the bytes of memory that a model may use: its device's, or the machine's; 0 if that is not known.
func MemoryOf(model *session.Model) int64 {
	if n, ok := model.DeviceMemory(); ok {
		return n
	}
	return UsableMemory()
}

// MemoryOn returns the bytes of memory that programs may use on an engine, 0 if that is not known, and the device's
// name if the memory is a device's own. The engine is not auto: see devices.Chosen.
func MemoryOn(e engine.Engine) (bytes int64, device string) {
	e, _ = StorageOf(e)
	if d, ok := e.(engine.WithMemory); ok {
		if bytes, err := d.DeviceMemory(); err == nil { // on an error, compiling says what is wrong
			return bytes, e.Name()
		}
	}
	return UsableMemory(), ""
}

// Fit describes a program, to ask whether it fits in memory.
type Fit struct {
	// File is the name of the program in errors.
	File string
	// Need is the memory that the program needs.
	Need session.Memory
	// Context is the number of positions; 0 if the program has no caches.
	Context int
	// Sessions is the number of states that run at a time.
	Sessions int
	// Taken is the number of bytes that other models of the same command use.
	Taken int64
	// Device is the name of the device with the memory; "" is the machine.
	Device string
	// Advice says in an error what would fit; if it is "", [Fit.Check] finds that out.
	Advice string
}

// Check returns an error, with what would fit, if the program does not fit in the available bytes of memory. 0
// available bytes stand for not known, and fit anything.
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

// Few answers at a time are not few conversations, so prefixes get at least leastPrefixes states, of at most
// leastPrefixesBytes together. A conversation of a model with recurrent state has two states and more: after its last
// prompt and after the answer.
const (
	leastPrefixes      = 16
	leastPrefixesBytes = 2 << 30
)

// Budget returns the bytes of memory for the caches of answers running at a time. Each gets two states, one for
// itself and one for a cached prefix, and the recurrent states that a call keeps when it verifies drafts drafts.
// Prefixes get at least 16 states, or 2 GiB where 16 would be more. The result is at most half of the available memory
// that the weights leave, and at least two states; if those do not fit, it returns an error. 0 available bytes stand
// for not known.
func (f Fit) Budget(answers, drafts int, available int64) (int64, error) {
	f.Sessions = 2
	state := max(f.Need.State, 1)
	running := state * int64(answers)
	budget := running + max(running, min(leastPrefixes*state, leastPrefixesBytes))
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

// Checkpoints returns the distance in positions between spare checkpoints (batch.Options.Checkpoints), 0: none.
// Programs that run one sequence at a time have none, since each is a copy of a whole state, caches of attention
// included.
func Checkpoints(l batch.Limits) int {
	if l.OneByOne {
		return 0
	}
	return 256
}

// NeedOf returns the memory that a module needs on an engine. The reference engine, which precision strict uses too,
// decodes all weights to float32.
func NeedOf(m *ir.Module, context int, e engine.Engine, p eval.Precision) session.Memory {
	_, s := StorageOf(e)
	if p == eval.Strict || e.Name() == (reference.Engine{}).Name() {
		return withStorage(session.MeasureDecoded(m, context), m, context, p, s)
	}
	return withStorage(session.MeasureMemory(m, context, p), m, context, p, s)
}

// CheckMemory returns an error if a language model's weights and sessions do not fit in the memory of its engine. The
// error names a context length that would fit. taken is the memory of the command's other models.
func CheckMemory(file string, m *ir.Module, model *session.Model, e engine.Engine, p eval.Precision,
	sessions int, taken int64) error {
	f := Fit{File: file, Need: NeedOf(m, model.MaxSeqLen, e, p), Context: model.MaxSeqLen,
		Sessions: sessions, Taken: taken}
	if _, ok := model.DeviceMemory(); ok {
		f.Device = model.Device
	}
	return f.Check(MemoryOf(model))
}
