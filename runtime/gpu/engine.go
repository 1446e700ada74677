package gpu

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/reference"
)

// Engine runs modules on a GPU.
type Engine struct {
	// Device is the name, as --device takes it: "metal" or "cuda".
	Device string
	// Open opens the device, or says why it cannot be used.
	Open func() (device.Device, error)
	// Tune says where choices among the ways to divide the work of kernels are kept, and what making them may cost; nil
	// takes the defaults.
	Tune *tune.Options
	// SelfTest says where results of self-tests are kept, which kernels pass before they are used; nil takes
	// kernels on trust.
	SelfTest *selftest.Options
}

// Name of the device.
func (e Engine) Name() string { return e.Device }

// RunsRagged reports that there are kernels for calls of many sequences: see engine.Ragged.
func (e Engine) RunsRagged() bool { return true }

// DrawsOnDevice reports that tokens travel, and logits need not: see engine.Drawing.
func (e Engine) DrawsOnDevice() bool { return true }

// DeterministicRows is how many rows the kernels of a few rows take, which are those of all calls then: see
// engine.RowsOfCalls. More have tiles, whose sums have other orders.
func (e Engine) DeterministicRows() int { return lower.FewRows }

// DeviceMemory is what buffers may take on the device in all, in bytes: see engine.WithMemory.
func (e Engine) DeviceMemory() (int64, error) {
	d, err := e.Open()
	if err != nil {
		return 0, err
	}
	return d.Info().Memory, d.Close()
}

// available opens the device and closes it. The error is that of Compile where there is none.
func (e Engine) available() error {
	d, err := e.Open()
	if err != nil {
		return fmt.Errorf("--device %s: %w", e.Device, err)
	}
	return d.Close()
}

// Compile fuses the module and opens the device. Precision strict, which rounds every result, runs on the
// reference engine, as does a module that cannot be fused or has control flow that is left after that;
// Options.Warn is told.
func (e Engine) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	warn := o.Warn
	if warn == nil {
		warn = func(text string) { fmt.Fprintln(os.Stderr, "etc: "+text) }
	}
	if o.Precision == eval.Strict {
		warn(fmt.Sprintf("--device %s has no precision strict: this runs on the reference engine, slowly", e.Device))
		return reference.Engine{}.Compile(m, o)
	}
	control := passes.Control{Disable: o.DisablePasses, Verify: o.VerifyIR}
	entries, err := fuse.Entries(m, control)
	for _, fused := range entries {
		for _, op := range fused.Entry.Body.Ops {
			if len(op.Regions) > 0 {
				err = fmt.Errorf("--device %s has no %s", e.Device, op.Def.Name)
			}
		}
	}
	if err != nil {
		if err := e.available(); err != nil { // --device auto takes another engine then
			return nil, err
		}
		warn(fmt.Sprintf("this runs on the reference engine, slowly: %v", err))
		return reference.Engine{}.Compile(m, o)
	}
	constants, err := plan.NewConstants(entries, o.Precision)
	if err != nil {
		return nil, err
	}
	d, err := e.Open()
	if err != nil {
		return nil, fmt.Errorf("--device %s: %w", e.Device, err)
	}
	x := &executable{name: e.Device, device: d, machine: d.Info().Machine, module: m,
		fused: entries[0], entries: entries,
		precision: o.Precision, observe: o.Observe, exact: o.Exact, control: control, warn: warn,
		constants: constants, weights: map[plan.WeightKey]*weight{},
		memory: map[memoryKey]*slot{}, kernels: map[string]device.Kernel{},
		products: map[device.Product]device.Kernel{}}
	if e.Tune != nil && !o.NoTune && !o.Deterministic { // bits must not follow from times
		x.tuner, x.choices = tune.New(d, *e.Tune, warn), map[string]kernels.Launch{}
	}
	if e.SelfTest != nil {
		x.selfTests = selfTests{selftest.New(d, tune.Identity(d.Info()), *e.SelfTest),
			map[string]bool{}, map[slowKey]bool{}}
		if x.tuner != nil {
			x.tuner.Sound = x.sound
		}
	}
	return x, nil
}

// executable is a fused module with what its instances share.
type executable struct {
	name          string
	device        device.Device
	machine       kernels.Machine
	module, fused *ir.Module   // fused is the main entry
	entries       []*ir.Module // fused, the main one first
	constants     *plan.Constants
	precision     eval.Precision
	exact         bool
	control       passes.Control // of the rows of the device
	warn          func(string)
	observe       func(*engine.Step) // nil for nobody

	tuner   *tune.Tuner               // nil for none
	choices map[string]kernels.Launch // of the tuner, by the launch they take the place of

	selfTests selfTests

	// timeline is held by an instance that uses the device: calls must not overlap.
	timeline sync.Mutex

	mu        sync.Mutex
	weights   map[plan.WeightKey]*weight
	memory    map[memoryKey]*slot // constants on the device
	buffers   []device.Buffer     // those that Close frees
	kernels   map[string]device.Kernel
	libraries []device.Library
	products  map[device.Product]device.Kernel // nil where the device has none
	noted     bool
	failure   error // why a constant could not be brought to the device
}

// Memory is what buffers may take on the device in all, in bytes.
func (x *executable) Memory() int64 { return x.device.Info().Memory }

// Close frees what the engine holds.
func (x *executable) Close() error {
	err := x.device.Wait()
	for _, k := range x.kernels {
		err = errors.Join(err, k.Close())
	}
	for _, k := range x.products {
		if k != nil {
			err = errors.Join(err, k.Close())
		}
	}
	for _, l := range x.libraries {
		err = errors.Join(err, l.Close())
	}
	for _, m := range x.buffers {
		err = errors.Join(err, m.Close())
	}
	return errors.Join(err, x.device.Close())
}

// wrap makes memory of the host readable by kernels; nil where that fails.
func (x *executable) wrap(p []byte) *slot {
	m, err := x.device.Wrap(p)
	return x.hold(m, len(p), err)
}

// upload copies bytes to the device; nil where that fails.
func (x *executable) upload(p []byte) *slot {
	if len(p) == 0 {
		return nil
	}
	m, err := x.device.NewBuffer(max(len(p), alignment))
	if err == nil {
		if err = m.Write(0, p); err != nil {
			m.Close()
		}
	}
	return x.hold(m, len(p), err)
}

// hold keeps a buffer until Close.
func (x *executable) hold(m device.Buffer, size int, err error) *slot {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.failure = err
		return nil
	}
	x.buffers = append(x.buffers, m)
	return &slot{Slot: plan.Slot{Size: size}, buffer: m, fixed: true}
}

// note warns, once, of an operation that runs on its reference kernel.
func (x *executable) note(op *ir.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.noted {
		x.noted = true
		x.warn(fmt.Sprintf("--device %s has no kernel for %s and perhaps other operations of this program: they run on reference kernels, slowly", x.name, op.Def.Name))
	}
}

// lowered is an entry for inputs of these shapes, in the operations of the device.
func (x *executable) lowered(entry int, shapes [][]int) (*ir.Module, error) {
	return lower.Run(x.entries[entry], shapes, x.target(), x.control)
}

// target is what the rows of the table ask.
func (x *executable) target() *lower.Target {
	return &lower.Target{Machine: x.machine, Precision: x.precision, Exact: x.exact, Refuses: x.selfTests.refuses,
		Library: func(rows, n, k int) bool {
			return x.product(device.Product{M: rows, N: n, K: k,
				Float32: true}) != nil
		}}
}

func constantOf(t *eval.Tensor) *value {
	return &value{place: onHost, dtype: t.DType, shape: append([]int{}, t.Shape...),
		hostValue: &hostValue{constant: true, content: eval.Value{Tensor: t}}}
}

// constant is a constant, decoded. Large weights do not come here: kernels read them where they are.
func (x *executable) constant(v *ir.Value) (*value, error) {
	t, err := x.constants.Tensor(v)
	if err != nil {
		return nil, err
	}
	return constantOf(t), nil
}
