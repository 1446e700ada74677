package reference

import (
	"context"
	"errors"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// Engine is the reference engine.
type Engine struct{}

// Name is "reference".
func (Engine) Name() string { return "reference" }

// RunsRagged is true: see engine.Ragged.
func (Engine) RunsRagged() bool { return true }

// RunsAnyRows is true, since nothing is planned: see engine.AnyRows.
func (Engine) RunsAnyRows() bool { return true }

// Compile keeps the module; constants are decoded when they are first used and shared by the instances.
func (Engine) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	return &executable{m, o.Precision, eval.NewConstants()}, nil
}

type executable struct {
	module    *ir.Module
	precision eval.Precision
	constants *eval.Constants
}

func (x *executable) NewInstance() (engine.Instance, error) {
	m, err := eval.NewMachine(x.module, x.precision, x.constants)
	if err != nil {
		return nil, err
	}
	return instance{m}, nil
}

func (x *executable) Close() error { return nil }

type instance struct{ *eval.Machine }

// Run calls the main entry. A context is looked at between operations and inside long ones.
func (x instance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	return x.Call(ctx, x.Module().Entry.Name, inputs)
}

// Call calls the entry of that name.
func (x instance) Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, err := x.Machine.Call(ctx, entry, inputs)
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return nil, fmt.Errorf("%s: %w", entry, &engine.AbandonedError{Cause: ended})
	}
	return out, err
}

func (instance) Close() error { return nil }
