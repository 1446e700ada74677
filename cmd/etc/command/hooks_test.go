package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/outfile/outfiletest"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// Variables of the environment that change the test binary when it serves as etc.
const (
	memoryHook    = "ETC_TEST_MEMORY"        // usable memory in bytes
	deviceHook    = "ETC_TEST_DEVICE_MEMORY" // memory of every device in bytes
	delayHook     = "ETC_TEST_DELAY"         // time that every call of a program takes more
	faultHook     = "ETC_TEST_FAULT"         // of the disk, as outfiletest.Parse reads it
	panicHook     = "ETC_TEST_PANIC"         // call of a program that panics, from 1; 0: when it is compiled
	tuneHook      = "ETC_TEST_TUNE"          // error of measuring kernels
	interruptHook = "ETC_TEST_INTERRUPT"     // bytes after which writing a program is interrupted
)

// setHooks does what the environment asks for.
func setHooks() {
	setWriteHooks()
	if v := os.Getenv(faultHook); v != "" {
		f, err := outfiletest.Parse(v)
		must(err)
		outfile.SetFileSystem(f)
	}
	if v := os.Getenv(memoryHook); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		must(err)
		execution.UsableMemory = func() int64 { return n }
	}
	if v := os.Getenv(deviceHook); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		must(err)
		for i, e := range devices.Engines {
			devices.Engines[i] = small{e, n}
		}
	}
	if v := os.Getenv(panicHook); v != "" {
		n, err := strconv.Atoi(v)
		must(err)
		for i, e := range devices.Engines {
			devices.Engines[i] = panicking{e, n}
		}
	}
	if v := os.Getenv(tuneHook); v != "" {
		for i, e := range devices.Engines {
			devices.Engines[i] = untunable{e, errors.New(v)}
		}
	}
	if v := os.Getenv(delayHook); v != "" {
		d, err := time.ParseDuration(v)
		must(err)
		for i, e := range devices.Engines {
			devices.Engines[i] = slow{e, d}
		}
	}
}

// setWriteHooks does what the environment asks for where programs are written.
func setWriteHooks() {
	if v := os.Getenv(interruptHook); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		must(err)
		beforeWriting = func(ctx context.Context, file *codegen.File) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			file.Progress = func(written, _ int64) {
				if written >= n {
					cancel()
				}
			}
			return ctx
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(100)
	}
}

// small is an engine of a device with memory of its own.
type small struct {
	engine.Engine
	memory int64
}

func (e small) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := e.Engine.Compile(m, o)
	return smallExecutable{x, e.memory}, err
}

// DeviceMemory implements engine.WithMemory.
func (e small) DeviceMemory() (int64, error) { return e.memory, nil }

type smallExecutable struct {
	engine.Executable
	memory int64
}

func (x smallExecutable) Memory() int64 { return x.memory }

// otherInstances is an executable that gives another instance in the place of each of its own.
type otherInstances struct {
	engine.Executable
	instead func(engine.Instance) engine.Instance
}

func (x otherInstances) NewInstance() (engine.Instance, error) {
	i, err := x.Executable.NewInstance()
	if err != nil {
		return nil, err
	}
	return x.instead(i), nil
}

// slow is an engine whose calls take longer.
type slow struct {
	engine.Engine
	delay time.Duration
}

func (e slow) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := e.Engine.Compile(m, o)
	return otherInstances{x, func(i engine.Instance) engine.Instance {
		if s, ok := i.(engine.Stateful); ok {
			return slowStateful{slowInstance{i, e.delay}, s}
		}
		return slowInstance{i, e.delay}
	}}, err
}

type slowStateful struct {
	slowInstance
	engine.Stateful
}

type slowInstance struct {
	engine.Instance
	delay time.Duration
}

func (i slowInstance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	time.Sleep(i.delay)
	return i.Instance.Run(ctx, inputs)
}

// panicking is an engine that panics at a call.
type panicking struct {
	engine.Engine
	call int
}

func (e panicking) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	if e.call == 0 {
		panic("compiling\ngoes wrong")
	}
	x, err := e.Engine.Compile(m, o)
	return otherInstances{x, func(i engine.Instance) engine.Instance { return &panickingInstance{i, e.call} }}, err
}

type panickingInstance struct {
	engine.Instance
	call int
}

func (i *panickingInstance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	if i.call--; i.call == 0 {
		var none []int
		_ = none[len(inputs)]
	}
	return i.Instance.Run(ctx, inputs)
}

// untunable is an engine that cannot measure its kernels.
type untunable struct {
	engine.Engine
	why error
}

func (e untunable) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := e.Engine.Compile(m, o)
	return otherInstances{x, func(i engine.Instance) engine.Instance {
		return untunableInstance{i, i.(engine.Stateful), e.why}
	}}, err
}

type untunableInstance struct {
	engine.Instance
	engine.Stateful
	why error
}

func (i untunableInstance) Tune(context.Context) error { return i.why }
