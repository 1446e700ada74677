package engine

import (
	"context"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Compile compiles a module by an engine. No call of the engine, of what it gives, and of the instances of that can
// panic: a panic is an error of type [*fault.Error], after which an instance is good for Close only. Bounded, Ahead
// and Stateful are implemented where the engine does.
func Compile(e Engine, m *ir.Module, o Options) (x Executable, err error) {
	fault.Readable()
	defer fault.Recover("compiling for device "+e.Name(), &err)
	inner, err := e.Compile(m, o)
	if err != nil {
		return nil, err
	}
	guarded := guardedExecutable{inner, m.Entry.Name}
	if b, ok := inner.(Bounded); ok {
		return struct {
			guardedExecutable
			Bounded
		}{guarded, b}, nil
	}
	return guarded, nil
}

type guardedExecutable struct {
	Executable
	name string // of the function
}

func (x guardedExecutable) NewInstance() (i Instance, err error) {
	fault.Readable()
	defer fault.Recover(x.name, &err)
	inner, err := x.Executable.NewInstance()
	if err != nil {
		return nil, err
	}
	guarded := guardedInstance{inner, x.name}
	ahead, isAhead := inner.(Ahead)
	state, isStateful := inner.(Stateful)
	switch {
	case isAhead && isStateful:
		return struct {
			guardedInstance
			guardedAhead
			guardedState
		}{guarded, guardedAhead{ahead, x.name}, guardedState{state, x.name}}, nil
	case isAhead:
		return struct {
			guardedInstance
			guardedAhead
		}{guarded, guardedAhead{ahead, x.name}}, nil
	case isStateful:
		return struct {
			guardedInstance
			guardedState
		}{guarded, guardedState{state, x.name}}, nil
	}
	return guarded, nil
}

func (x guardedExecutable) Close() (err error) {
	defer fault.Recover(x.name+": closing", &err)
	return x.Executable.Close()
}

type guardedInstance struct {
	inner Instance
	name  string
}

func (x guardedInstance) Run(ctx context.Context, inputs []eval.Value) (out []eval.Value, err error) {
	fault.Readable()
	defer fault.Recover(x.name, &err)
	return x.inner.Run(ctx, inputs)
}

func (x guardedInstance) Reset() (err error) {
	defer fault.Recover(x.name+": reset", &err)
	return x.inner.Reset()
}

func (x guardedInstance) Close() (err error) {
	defer fault.Recover(x.name+": closing", &err)
	return x.inner.Close()
}

type guardedAhead struct {
	inner Ahead
	name  string
}

func (x guardedAhead) RunAhead(ctx context.Context, inputs, next []eval.Value) (out []eval.Value, err error) {
	fault.Readable()
	defer fault.Recover(x.name, &err)
	return x.inner.RunAhead(ctx, inputs, next)
}

type guardedState struct {
	inner Stateful
	name  string
}

func (x guardedState) Snapshot() (out []State, err error) {
	defer fault.Recover(x.name+": snapshot", &err)
	return x.inner.Snapshot()
}

func (x guardedState) Restore(states []State) (err error) {
	defer fault.Recover(x.name+": restoring", &err)
	return x.inner.Restore(states)
}
