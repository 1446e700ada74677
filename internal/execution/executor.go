package execution

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/session"
)

// NewExecutor compiles the program of a file for calls of many sequences. A program that cannot be made ragged runs
// one sequence at a time instead, each with a state of state bytes. A sampling head is removed: the runtime draws the
// same tokens from the logits, and supports more parameters. check, if not nil, checks a program of one sequence at a
// time before it is used. The engine is not auto: see devices.Chosen.
func NewExecutor(path string, m *ir.Module, e engine.Engine, o batch.RaggedOptions, state int64,
	check func(m *ir.Module, model *session.Model) error) (batch.Executor, error) {
	e, o.Storage = StorageOf(e)
	m, err := withoutHead(m)
	if err != nil {
		return nil, LoadError(path, err)
	}
	x, err := batch.NewRagged(m, e, o)
	if err == nil {
		return x, nil
	}
	m = m.Only(m.Entry) // only shared calls have drafts
	var single *batch.NotRaggedError
	if refused := RefusedStorage(path, o.Storage, err); refused != nil {
		return nil, refused
	}
	if !errors.As(err, &single) {
		return nil, LoadError(path, err)
	}
	model, err := session.Load(m, e, o.Engine)
	if err != nil {
		return nil, LoadError(path, err)
	}
	if o.Engine.Deterministic {
		model.MaxChunk = 1 // the result of a row would depend on the number of rows of its call
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

// LoadError gives an error of loading a program its kind: the file is invalid, unless the device is missing.
func LoadError(path string, err error) error {
	if refused := RefusedStorage(path, ragged.Storage{}, err); refused != nil {
		return refused
	}
	if errors.Is(err, device.ErrUnavailable) {
		return fmt.Errorf("%w; etc doctor tells which devices this machine has", err)
	}
	return kind.Invalidf("%s: %w", path, err)
}

// withoutHead removes the sampling head of a program, and says so in the constant method use_sampling.
func withoutHead(m *ir.Module) (*ir.Module, error) {
	stripped, err := fuse.StripSampler(m)
	if err != nil || stripped == m {
		return m, err
	}
	out := *stripped
	out.Metadata = slices.Clone(out.Metadata)
	for i := range out.Metadata {
		if out.Metadata[i].Name == "use_sampling" {
			out.Metadata[i].Values = []any{false}
		}
	}
	return &out, nil
}
