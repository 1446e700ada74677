package command

import (
	"errors"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// newExecutor compiles the program of a file for calls of many sequences as o asks or, where it cannot be made such a
// program, for one sequence at a time, each with a state of so many bytes. A sampling head is taken off: the runtime draws
// the same tokens from the logits, and can do more with them. check, where it is not nil, looks at a program of one
// sequence at a time before it is used. The engine is not auto: see chosen.
func newExecutor(path string, m *ir.Module, e engine.Engine, o batch.RaggedOptions, state int64,
	check func(m *ir.Module, model *session.Model) error) (batch.Executor, error) {
	e, o.Storage = storageOf(e)
	m, err := withoutHead(m)
	if err != nil {
		return nil, loadError(path, err)
	}
	x, err := batch.NewRagged(m, e, o)
	if err == nil {
		return x, nil
	}
	m = m.Only(m.Entry) // drafts go with shared calls only
	var single *batch.NotRaggedError
	if refused := refusedStorage(path, o.Storage, err); refused != nil {
		return nil, refused
	}
	if !errors.As(err, &single) {
		return nil, loadError(path, err)
	}
	model, err := session.Load(m, e, o.Engine)
	if err != nil {
		return nil, loadError(path, err)
	}
	if o.Engine.Deterministic {
		model.MaxChunk = 1 // rows of the same call would depend on their number
	}
	if check != nil {
		if err := check(m, model); err != nil {
			return nil, errors.Join(err, model.Close())
		}
	}
	if x, err = batch.NewOneByOne(model, state, o.Sequences, single.Why.Error()); err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return x, nil
}
