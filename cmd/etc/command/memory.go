package command

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/host"
	"github.com/etc-ml/etc/runtime/reference"
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

// memoryOn is the memory in bytes that programs have on an engine, 0 where that is not known, and the name of the device
// where it is the device's own; "" for the machine's. The engine is not auto: see chosen.
func memoryOn(e engine.Engine) (bytes int64, device string) {
	e, _ = storageOf(e)
	if d, ok := e.(engine.WithMemory); ok {
		if bytes, err := d.DeviceMemory(); err == nil { // else compiling says what is wrong
			return bytes, e.Name()
		}
	}
	return usableMemory(), ""
}

// fit is a program that is to be run, for the question whether it fits in memory.
type fit struct {
	file     string
	need     session.Memory
	context  int // positions; 0: the program has none to speak of
	sessions int
	// taken is what others of the same command take of the memory, in bytes.
	taken int64
	// device is where the memory is, "" for the machine's.
	device string
	// advice says what would fit; "": check finds out.
	advice string
}

// check refuses what does not fit the available memory in bytes, 0 if that is not known, with what would.
func (f fit) check(available int64) error {
	left := available - f.taken
	if available == 0 || f.need.Need(f.sessions) <= left {
		return nil
	}
	size := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	state := "state of " + size(f.need.State)
	if f.sessions > 1 {
		state = fmt.Sprintf("%d times a %s", f.sessions, state)
	}
	if f.context > 0 {
		state += fmt.Sprintf(" for %d positions", f.context)
	}
	where := ""
	if f.device != "" {
		where = " on " + f.device
	}
	if f.taken > 0 {
		where += fmt.Sprintf(" beside the other program, which takes %s", size(f.taken))
	}
	advice := "a shorter context would not help"
	if f.advice != "" {
		advice = f.advice
	} else if f.context == 0 {
		advice = "it needs a machine with more, or a higher limit (ulimit -v, the container's)"
	} else if n := f.need.Longest(f.context, f.sessions, left); n > 1 {
		advice = fmt.Sprintf("it fits when exported with --max-seq-len %d", n)
	}
	return memoryError{fmt.Errorf("%s would not fit in memory: weights of %s and %s, but %s are available%s; %s",
		f.file, size(f.need.Weights), state, size(left), where, advice)}
}

// needOf is what a module needs on an engine: the reference engine, which also has precision strict, decodes all of it.
func needOf(m *ir.Module, context int, e engine.Engine, p eval.Precision) session.Memory {
	_, s := storageOf(e)
	if p == eval.Strict || e.Name() == (reference.Engine{}).Name() {
		return withStorage(session.MeasureDecoded(m, context), m, context, p, s)
	}
	return withStorage(session.MeasureMemory(m, context, p), m, context, p, s)
}

// checkMemory refuses a language model whose weights and sessions do not fit the memory that it runs in, with the
// context that would. taken is what other models of the command take there.
func checkMemory(file string, m *ir.Module, model *session.Model, e engine.Engine, p eval.Precision, sessions int, taken int64) error {
	f := fit{file: file, need: needOf(m, model.MaxSeqLen, e, p), context: model.MaxSeqLen, sessions: sessions, taken: taken}
	if _, ok := model.DeviceMemory(); ok {
		f.device = model.Device
	}
	return f.check(memoryOf(model))
}

// checkExecutable refuses a method of any form whose weights and state do not fit.
func checkExecutable(file string, m *ir.Module, x engine.Executable, e engine.Engine, p eval.Precision) error {
	f := fit{file: file, need: needOf(m, 0, e, p), sessions: 1}
	available := usableMemory()
	if b, ok := x.(engine.Bounded); ok {
		available, f.device = b.Memory(), e.Name()
	}
	return f.check(available)
}

// checkComparison refuses a program and its checkpoint which do not fit beside each other, decoded.
func checkComparison(path, checkpoint string, file, original *ir.Module) error {
	f := fit{file: checkpoint, need: session.MeasureDecoded(original, 0), sessions: 1}
	if err := f.check(usableMemory()); err != nil {
		return err
	}
	f = fit{file: path, need: session.MeasureDecoded(file, 0), sessions: 1, taken: f.need.Need(1)}
	return f.check(usableMemory())
}
