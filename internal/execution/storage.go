package execution

import (
	"errors"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/single"
)

// StorageOf splits an engine that [Storing] made into the engine and the form of its state.
func StorageOf(e engine.Engine) (engine.Engine, ragged.Storage) {
	if s, ok := e.(single.Engine); ok {
		return s.Engine, s.Storage
	}
	return e, ragged.Storage{}
}

// RefusedStorage returns the error of a program that cannot store its state in the form that was asked for; nil if
// err is another error.
func RefusedStorage(path string, s ragged.Storage, err error) error {
	var refused *single.RefusedError
	var alone *batch.NotRaggedError
	switch {
	case errors.As(err, &refused):
		return kind.Usagef("%s: Options.KVCache, Options.State: %w", path, err)
	case s != ragged.Storage{} && errors.As(err, &alone):
		return kind.Usagef("%s: Options.KVCache, Options.State: %s: %w", path, s, alone.Why)
	}
	return nil
}

// withStorage returns the memory that a program needs if its state is stored in another form than the declared one.
func withStorage(need session.Memory, m *ir.Module, context int, p eval.Precision, s ragged.Storage) session.Memory {
	if s == (ragged.Storage{}) {
		return need
	}
	layout := func(s ragged.Storage) (l cache.Layout, ok bool) {
		model, err := fuse.Sequences(m.Only(m.Entry), ragged.Options{Storage: s})
		if err != nil {
			return l, false // compiling says why
		}
		return model.Layout(64, p), true
	}
	declared, ok := layout(ragged.Storage{})
	stored, ok2 := layout(s)
	if !ok || !ok2 {
		return need
	}
	scale := func(n, by, of int64) int64 {
		if of == 0 {
			return n
		}
		return int64(float64(n) * float64(by) / float64(of))
	}
	need.State = scale(need.State, stored.Bytes(stored.Most(context, 1)), declared.Bytes(declared.Most(context, 1)))
	need.Position = scale(need.Position, stored.BlockBytes, declared.BlockBytes)
	return need
}

// FormOf reads the forms of caches, declared (as "") or q8, and of recurrent state, declared (as "") or bf16. caches
// and state are the names of the options that give them, for errors, which are of kind [kind.ErrUsage].
func FormOf(caches, cacheForm, state, stateForm string, p eval.Precision) (s ragged.Storage, err error) {
	switch cacheForm {
	case "", "declared":
	case "q8":
		s.Q8 = true
	default:
		return s, kind.Usagef("%s %q, want declared or q8", caches, cacheForm)
	}
	switch stateForm {
	case "", "declared":
	case "bf16":
		s.HalfState = true
	default:
		return s, kind.Usagef("%s %q, want declared or bf16", state, stateForm)
	}
	switch {
	case s != ragged.Storage{} && p == eval.Strict:
		return s, kind.Usagef("%s and %s with precision strict, which rounds what the program says and nothing else",
			caches, state)
	case s.HalfState && p == eval.FP32:
		return s, kind.Usagef("%s bf16 with precision fp32, which keeps every state in float32", state)
	}
	return s, nil
}

// Storing returns the engine with state in a form; e itself for the declared form. e is not auto: see devices.Chosen.
func Storing(e engine.Engine, s ragged.Storage) engine.Engine {
	if s == (ragged.Storage{}) {
		return e
	}
	return single.Engine{Engine: e, Storage: s}
}
