// Package engine is the interface between what runs a module and what uses it: sessions, the command
// line, the server. An engine compiles a module once; every instance of the result has state of its own.
//
// Package engine imports ir and must never import an engine.
package engine

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Options are what an engine is asked for.
type Options struct {
	// Precision says where floating-point results are rounded.
	Precision eval.Precision
	// Threads bounds the worker threads; 0 means one per CPU.
	Threads int
}

// Engine compiles modules.
type Engine interface {
	// Name of the device, as --device takes it.
	Name() string
	// Compile prepares a verified module. The module must live as long as the result.
	Compile(m *ir.Module, o Options) (Executable, error)
}

// Executable is a compiled module. It is safe for concurrent use.
type Executable interface {
	// NewInstance makes an instance whose buffers are zeros.
	NewInstance() (Instance, error)
	// Close frees what the engine holds; instances must be closed before.
	Close() error
}

// Instance is a module with its state: one session, one user. It is not safe for concurrent use.
type Instance interface {
	// Run calls the entry function: inputs and outputs by position.
	Run(inputs []eval.Value) ([]eval.Value, error)
	// Reset sets every buffer to zeros.
	Reset() error
	// Close frees the instance.
	Close() error
}
