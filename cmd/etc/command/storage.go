package command

import (
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
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
