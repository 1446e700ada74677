package command

import (
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// engines lists the engines, the one that --device auto prefers first.
var engines = []engine.Engine{cpu.Engine{}, reference.Engine{}}

// auto is the engine that --device auto stands for: the first one, or the reference engine for precision
// strict, which no other has.
type auto struct{ engine.Engine }

func (a *auto) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	if a.Engine = engines[0]; o.Precision == eval.Strict {
		a.Engine = reference.Engine{}
	}
	return a.Engine.Compile(m, o)
}

// engineNames are the names that --device takes, besides auto.
func engineNames() []string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = e.Name()
	}
	return names
}

// findEngine finds an engine by its name.
func findEngine(name string) (engine.Engine, error) {
	if name == "auto" {
		return &auto{engines[0]}, nil
	}
	for _, e := range engines {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, usagef("--device %q: this build has auto, %s", name, strings.Join(engineNames(), ", "))
}
