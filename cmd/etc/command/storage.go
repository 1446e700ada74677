package command

import (
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
)

// storageFlags choose the form in which state is kept.
type storageFlags struct {
	caches, state string
}

// addStorage adds --kv-cache and --state.
func (f *modelFlags) addStorage(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.storage.caches, "kv-cache", "declared",
		"keep keys and values as `declared|q8`: as the program declares them, or in codes of 8 bits with a scale "+
			"for each 32")
	fl.StringVar(&f.storage.state, "state", "declared",
		"keep the recurrent state of delta rules as `declared|bf16`: bf16 also where the program declares f32")
}

// storing returns the engine that keeps state in the form that the flags ask for: e itself where that is the declared
// one.
func (f storageFlags) storing(e engine.Engine, p eval.Precision) (engine.Engine, error) {
	s, err := execution.FormOf("--kv-cache", f.caches, "--state", f.state, p)
	if err != nil || s == (ragged.Storage{}) {
		return e, err
	}
	if e, err = chosen(e, p); err != nil {
		return nil, err
	}
	return execution.Storing(e, s), nil
}
