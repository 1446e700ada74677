package command

import (
	"fmt"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// findEngine finds the engine that --device names.
func findEngine(name string) (engine.Engine, error) {
	e, err := devices.Find(name)
	if err != nil {
		return nil, usageError{fmt.Errorf("--%w", err)}
	}
	return e, nil
}

// chosen returns the engine that --device auto stands for, without compiling anything, and every other one as it is.
func chosen(e engine.Engine, p eval.Precision) (engine.Engine, error) {
	e, err := devices.Chosen(e, p)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return e, nil
}
