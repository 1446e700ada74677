package engine

import (
	"context"
	"errors"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Compile compiles a module with an engine and wraps the result so that panics become errors. A panic in a call of the
// engine, the executable or one of its instances is returned as a [*fault.Error]; after it the instance can only be
// closed. The results implement Bounded, Pipelined, Stateful and Entries where the engine's do, and PipelinedEntries
// and Units together with Entries.
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

// StateBuffers implements Stored for every executable.
func (x guardedExecutable) StateBuffers() []*ir.Buffer {
	if s, ok := x.Executable.(Stored); ok {
		return s.StateBuffers()
	}
	return nil
}

// CallRows implements LongCalls for every executable.
func (x guardedExecutable) CallRows() int {
	if l, ok := x.Executable.(LongCalls); ok {
		return l.CallRows()
	}
	return 0
}

func (x guardedExecutable) NewInstance() (i Instance, err error) {
	fault.Readable()
	defer fault.Recover(x.name, &err)
	inner, err := x.Executable.NewInstance()
	if err != nil {
		return nil, err
	}
	return guardInstance(inner, x.name), nil
}

// guardInstance wraps inner so that the result implements the same interfaces.
func guardInstance(inner Instance, name string) Instance {
	plain := guardedInstance{inner, name}
	pipelined, isPipelined := inner.(Pipelined)
	state, isStateful := inner.(Stateful)
	entries, isEntries := inner.(Entries)
	a, s, e := guardedPipelined{pipelined, name}, guardedState{state, name}, guardedEntries{entries}
	type i = guardedInstance
	switch [3]bool{isPipelined, isStateful, isEntries} {
	case [3]bool{true, true, true}:
		return struct {
			i
			guardedPipelined
			guardedState
			guardedEntries
		}{plain, a, s, e}
	case [3]bool{true, true, false}:
		return struct {
			i
			guardedPipelined
			guardedState
		}{plain, a, s}
	case [3]bool{true, false, true}:
		return struct {
			i
			guardedPipelined
			guardedEntries
		}{plain, a, e}
	case [3]bool{false, true, true}:
		return struct {
			i
			guardedState
			guardedEntries
		}{plain, s, e}
	case [3]bool{true, false, false}:
		return struct {
			i
			guardedPipelined
		}{plain, a}
	case [3]bool{false, true, false}:
		return struct {
			i
			guardedState
		}{plain, s}
	case [3]bool{false, false, true}:
		return struct {
			i
			guardedEntries
		}{plain, e}
	}
	return plain
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

// Tune implements Tunable for every instance.
func (x guardedInstance) Tune(ctx context.Context) (err error) {
	fault.Readable()
	defer fault.Recover(x.name+": tuning", &err)
	if t, ok := x.inner.(Tunable); ok {
		return t.Tune(ctx)
	}
	return nil
}

func (x guardedInstance) Close() (err error) {
	defer fault.Recover(x.name+": closing", &err)
	return x.inner.Close()
}

type guardedPipelined struct {
	inner Pipelined
	name  string
}

func (x guardedPipelined) RunPipelined(ctx context.Context, inputs, next []eval.Value) (out []eval.Value, err error) {
	fault.Readable()
	defer fault.Recover(x.name, &err)
	return x.inner.RunPipelined(ctx, inputs, next)
}

type guardedEntries struct{ inner Entries }

func (x guardedEntries) Call(ctx context.Context, entry string, inputs []eval.Value) (out []eval.Value, err error) {
	fault.Readable()
	defer fault.Recover(entry, &err)
	return x.inner.Call(ctx, entry, inputs)
}

// PipelinesEntries implements PipelinedEntries for all that are Entries.
func (x guardedEntries) PipelinesEntries() bool {
	p, ok := x.inner.(PipelinedEntries)
	return ok && p.PipelinesEntries()
}

// CallPipelined is Call where the instance does not pipeline entries.
func (x guardedEntries) CallPipelined(ctx context.Context, entry string, inputs []eval.Value,
	next *Next) (out []eval.Value, err error) {
	p, ok := x.inner.(PipelinedEntries)
	if !ok {
		return x.Call(ctx, entry, inputs)
	}
	fault.Readable()
	defer fault.Recover(entry, &err)
	return p.CallPipelined(ctx, entry, inputs, next)
}

// ReadUnits is for instances of modules of many sequences, which are Entries.
func (x guardedEntries) ReadUnits(buffer string, axis int, ids []int32) (content []byte, err error) {
	defer fault.Recover("reading buffer "+buffer, &err)
	u, ok := x.inner.(Units)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return u.ReadUnits(buffer, axis, ids)
}

// WriteUnits is for instances of modules of many sequences, which are Entries.
func (x guardedEntries) WriteUnits(buffer string, axis int, ids []int32, content []byte) (err error) {
	defer fault.Recover("writing buffer "+buffer, &err)
	u, ok := x.inner.(Units)
	if !ok {
		return errors.ErrUnsupported
	}
	return u.WriteUnits(buffer, axis, ids, content)
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
