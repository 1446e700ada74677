package command

import (
	"errors"

	"github.com/spf13/cobra"

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

// storageFlags choose the form in which state is kept.
type storageFlags struct {
	caches, state string
}

// addStorage adds --kv-cache and --state.
func (f *modelFlags) addStorage(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.storage.caches, "kv-cache", "declared",
		"keep keys and values as `declared|q8`: as the program declares them, or in codes of 8 bits with a scale for each 32")
	fl.StringVar(&f.storage.state, "state", "declared",
		"keep the recurrent state of delta rules as `declared|bf16`: bf16 also where the program declares f32")
}

// form reads the flags.
func (f storageFlags) form(p eval.Precision) (s ragged.Storage, err error) {
	switch f.caches {
	case "", "declared":
	case "q8":
		s.Q8 = true
	default:
		return s, usagef("--kv-cache %q, want declared or q8", f.caches)
	}
	switch f.state {
	case "", "declared":
	case "bf16":
		s.HalfState = true
	default:
		return s, usagef("--state %q, want declared or bf16", f.state)
	}
	switch {
	case s != ragged.Storage{} && p == eval.Strict:
		return s, usagef("--kv-cache and --state with --precision strict, which rounds what the program says and nothing else")
	case s.HalfState && p == eval.FP32:
		return s, usagef("--state bf16 with --precision fp32, which keeps every state in float32")
	}
	return s, nil
}

// storing is the engine that keeps state in the form that is asked for: e itself where that is the declared one.
func storing(e engine.Engine, s ragged.Storage, p eval.Precision) (engine.Engine, error) {
	if s == (ragged.Storage{}) {
		return e, nil
	}
	e, err := chosen(e, p)
	if err != nil {
		return nil, err
	}
	return single.Engine{Engine: e, Storage: s}, nil
}

// storageOf is the engine without the form of state, and that.
func storageOf(e engine.Engine) (engine.Engine, ragged.Storage) {
	if s, ok := e.(single.Engine); ok {
		return s.Engine, s.Storage
	}
	return e, ragged.Storage{}
}

// refusedStorage is the error of a program that cannot have the form of state that was asked for; nil where err is another.
func refusedStorage(path string, s ragged.Storage, err error) error {
	var refused *single.RefusedError
	var alone *batch.NotRaggedError
	switch {
	case errors.As(err, &refused):
		return usagef("%s: --kv-cache, --state: %w", path, err)
	case s != ragged.Storage{} && errors.As(err, &alone):
		return usagef("%s: --kv-cache, --state: %s: %w", path, s, alone.Why)
	}
	return nil
}

// withStorage is what a program needs that keeps its state in another form than the declared one.
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
