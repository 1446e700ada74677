package command

import (
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// fit is a program that is to be run, for the question whether it fits in memory.
type fit = execution.Fit

// Shorter names of what internal/execution knows of memory, and of the form of state.
var (
	memoryOn    = execution.MemoryOn
	needOf      = execution.NeedOf
	checkMemory = execution.CheckMemory
	storageOf   = execution.StorageOf
)

// usableMemory returns the memory that a model can count on in bytes, 0 where that is not known.
func usableMemory() int64 { return execution.UsableMemory() }

// checkExecutable refuses a method whose weights and state do not fit in memory. The method may be any, not only one
// of a language model (see checkMemory).
func checkExecutable(file string, m *ir.Module, x engine.Executable, e engine.Engine, p eval.Precision) error {
	f := fit{File: file, Need: needOf(m, 0, e, p), Sessions: 1}
	available := usableMemory()
	if b, ok := x.(engine.Bounded); ok {
		available, f.Device = b.Memory(), e.Name()
	}
	return f.Check(available)
}

// checkComparison refuses a program and its checkpoint which do not fit beside each other, decoded.
func checkComparison(path, checkpoint string, file, original *ir.Module) error {
	f := fit{File: checkpoint, Need: session.MeasureDecoded(original, 0), Sessions: 1}
	if err := f.Check(usableMemory()); err != nil {
		return err
	}
	f = fit{File: path, Need: session.MeasureDecoded(file, 0), Sessions: 1, Taken: f.Need.Need(1)}
	return f.Check(usableMemory())
}
