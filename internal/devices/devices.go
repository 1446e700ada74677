package devices

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

// GPUs are the engines of GPUs, in the order in which auto tries them. A machine may lack them.
var GPUs = []gpu.Engine{
	{Device: "metal", Open: metal.Open, Tune: &tune.Options{}, SelfTest: &selftest.Options{}},
	{Device: "cuda", Open: func() (device.Device, error) { return cuda.Open(cuda.Options{}) }, CallRows: 2048,
		Tune:     &tune.Options{},
		SelfTest: &selftest.Options{}},
}

// Engines are the engines that every machine has; auto prefers the first. Tests replace them.
var Engines = []engine.Engine{cpu.Engine{}, reference.Engine{}}

// auto is the engine that the name auto selects: the first GPU that is available, else the first of Engines. For
// precision strict it is the reference engine, the only one that supports it.
type auto struct{ engine.Engine }

func (a *auto) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	if a.Engine = Engines[0]; o.Precision == eval.Strict {
		a.Engine = reference.Engine{}
		return a.Engine.Compile(m, o)
	}
	for _, g := range GPUs {
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

// Chosen returns the engine that auto selects, without compiling anything. It returns every other engine unchanged.
func Chosen(e engine.Engine, p eval.Precision) (engine.Engine, error) {
	if _, ok := e.(*auto); !ok {
		return e, nil
	}
	if p == eval.Strict {
		return reference.Engine{}, nil
	}
	for _, g := range GPUs {
		_, err := g.DeviceMemory()
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, device.ErrUnavailable) {
			return nil, fmt.Errorf("device %s: %w", g.Name(), err)
		}
	}
	return Engines[0], nil
}

// Names returns the names of the engines, without auto.
func Names() []string {
	var names []string
	for _, g := range GPUs {
		names = append(names, g.Name())
	}
	for _, e := range Engines {
		names = append(names, e.Name())
	}
	return names
}

// Find returns the engine with a name, or auto. It also returns engines of GPUs that the machine lacks: compiling
// with them gives [device.ErrUnavailable].
func Find(name string) (engine.Engine, error) {
	if name == "auto" {
		return &auto{Engines[0]}, nil
	}
	for _, g := range GPUs {
		if g.Name() == name {
			return g, nil
		}
	}
	for _, e := range Engines {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("device %q: this build has auto, %s", name, strings.Join(Names(), ", "))
}
