package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/cuda"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/reference"
)

// gpus are the engines of GPUs, which a machine may have, in the order in which --device auto tries them.
var gpus = []gpu.Engine{
	{Device: "metal", Open: metal.Open, Tune: &tune.Options{}, SelfTest: &selftest.Options{}},
	{Device: "cuda", Open: func() (device.Device, error) { return cuda.Open(cuda.Options{}) }, Tune: &tune.Options{}, SelfTest: &selftest.Options{}},
}

// engines lists the engines that every machine has, the one that --device auto prefers first.
var engines = []engine.Engine{cpu.Engine{}, reference.Engine{}}

// auto is the engine that --device auto stands for: that of the first GPU that there is, else the first of the
// others; or the reference engine for precision strict, which no other has.
type auto struct{ engine.Engine }

func (a *auto) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	if a.Engine = engines[0]; o.Precision == eval.Strict {
		a.Engine = reference.Engine{}
		return a.Engine.Compile(m, o)
	}
	for _, g := range gpus {
		x, err := g.Compile(m, o)
		if err == nil {
			a.Engine = g
			return x, nil
		}
		if !errors.Is(err, device.ErrUnavailable) {
			return nil, err
		}
	}
	return a.Engine.Compile(m, o)
}

// chosen gives the engine that auto stands for, without compiling anything, and every other engine as it is.
func chosen(e engine.Engine, p eval.Precision) (engine.Engine, error) {
	if _, ok := e.(*auto); !ok {
		return e, nil
	}
	if p == eval.Strict {
		return reference.Engine{}, nil
	}
	for _, g := range gpus {
		_, err := g.DeviceMemory()
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, device.ErrUnavailable) {
			return nil, fmt.Errorf("--device %s: %w", g.Name(), err)
		}
	}
	return engines[0], nil
}

// engineNames are the names that --device takes, besides auto.
func engineNames() []string {
	var names []string
	for _, g := range gpus {
		names = append(names, g.Name())
	}
	for _, e := range engines {
		names = append(names, e.Name())
	}
	return names
}

// findEngine finds an engine by its name.
func findEngine(name string) (engine.Engine, error) {
	if name == "auto" {
		return &auto{engines[0]}, nil
	}
	for _, g := range gpus {
		if g.Name() == name {
			return g, nil
		}
	}
	for _, e := range engines {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, usagef("--device %q: this build has auto, %s", name, strings.Join(engineNames(), ", "))
}
