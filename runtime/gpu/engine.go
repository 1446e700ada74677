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
	// Device is the name that --device takes: "metal" or "cuda".
	Device string
	// Open opens the device. Its error says why the device cannot be used.
	Open func() (device.Device, error)
	// Tune says where the tuner stores its choices and how long it may measure. Nil: the default launches are used.
	Tune *tune.Options
	// CallRows is the number of rows of the longest calls that prompts are fed in, where that is more than the program
	// declares; 0: what it declares. A device whose library of products needs weights in bf16 makes them anew in each
	// call, so a call of more rows costs less for each; from some thousand rows on that gains little.
	CallRows int
	// SelfTest says where results of self-tests are stored. Nil: kernels are used without a self-test.
	SelfTest *selftest.Options
}

// Name returns the name that --device takes.
func (e Engine) Name() string { return e.Device }

// RunsRagged reports that there are kernels for calls of many sequences: see engine.Ragged.
func (e Engine) RunsRagged() bool { return true }

// DrawsOnDevice reports that the sampler runs on the device, so that tokens are copied to the host and logits need not
// be: see engine.Drawing.
func (e Engine) DrawsOnDevice() bool { return true }

// DeterministicRows returns the largest number of rows of a call whose results do not depend on how many rows there
// are. Larger calls use tiled kernels, which add in another order: see engine.RowsOfCalls.
func (e Engine) DeterministicRows() int { return lower.FewRows }

// PipelinesCalls reports that instances begin the next call early, where their plans allow it: see engine.Pipelining.
func (e Engine) PipelinesCalls() bool { return true }

// PromptRows returns CallRows: see engine.PromptRows.
func (e Engine) PromptRows() int { return e.CallRows }

// DeviceMemory returns the number of bytes that buffers may take on the device in all: see engine.WithMemory.
func (e Engine) DeviceMemory() (int64, error) {
	d, err := e.Open()
	if err != nil {
		return 0, err
	}
	return d.Info().Memory, d.Close()
}

// Compile fuses the module and opens the device. The reference engine takes the module instead, and Options.Warn is
// told, where the precision is strict (every result is rounded), where the module cannot be fused, or where control
// flow is left after fusion.
func (e Engine) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	warn := o.Warn
	if warn == nil {
		warn = func(text string) { fmt.Fprintln(os.Stderr, "etc: "+text) }
	}
	if o.Precision == eval.Strict {
		warn(fmt.Sprintf("--device %s has no precision strict: this runs on the reference engine, slowly", e.Device))
		return reference.Engine{}.Compile(m, o)
	}
	d, err := e.Open()
	if err != nil { // --device auto takes another engine then
		return nil, fmt.Errorf("--device %s: %w", e.Device, err)
	}
	x, unfused, err := e.compileOn(d, m, o, warn)
	switch {
	case err != nil:
		return nil, err
	case unfused != nil:
		warn(fmt.Sprintf("this runs on the reference engine, slowly: %v", unfused))
		return reference.Engine{}.Compile(m, o)
	}
	return x, nil
}

// compileOn compiles for an open device, which belongs to the executable from then on. unfused says why there is no
// executable of a module that cannot be fused. Where there is none, after a panic too, the device is closed.
func (e Engine) compileOn(d device.Device, m *ir.Module, o engine.Options, warn func(string)) (x *executable,
	unfused, err error) {
	var weights *uploads
	defer func() {
		if x == nil {
			err = errors.Join(err, weights.close(), d.Close())
		}
	}()
	weights = newUploads(d, m)
	control := passes.Control{Disable: o.DisablePasses, Verify: o.VerifyIR}
	entries, callRows, unfused := e.fused(m, d.Info().Memory, o, control)
	if unfused != nil {
		return nil, unfused, nil
	}
	constants, err := plan.NewConstants(entries, o.Precision)
	if err != nil {
		return nil, nil, err
	}
	made := &executable{name: e.Device, device: d, machine: d.Info().Machine, module: m,
		fused: entries[0], entries: entries, callRows: callRows,
		precision: o.Precision, observe: o.Observe, exact: o.Exact, control: control, warn: warn,
		constants: constants, uploads: weights, weights: map[plan.WeightKey]*weight{},
		memory: map[memoryKey]*slot{}, kernels: map[string]device.Kernel{},
		products: map[device.Product]device.Kernel{}}
	if e.Tune != nil && !o.NoTune && !o.Deterministic { // with Deterministic, results must not depend on measured times
		made.tuner, made.choices = tune.New(d, *e.Tune, warn), map[string]kernels.Launch{}
		made.tuneLater = o.TuneLater
	}
	if e.SelfTest != nil {
		made.selfTests = selfTests{selftest.New(d, tune.Identity(d.Info()), *e.SelfTest),
			map[string]bool{}, map[slowKey]bool{}}
		if made.tuner != nil {
			made.tuner.Sound = made.sound
		}
	}
	return made, nil, nil
}

// fused fuses every entry of a module. Where the options allow it, a module of one entry is made to take long calls.
// For that the state may grow by an eighth of the device's memory that weights and state leave free. fused also returns
// the number of rows of the longest call, or 0 where that stays what the module declares.
func (e Engine) fused(m *ir.Module, memory int64, o engine.Options, c passes.Control) ([]*ir.Module, int, error) {
	entries, rows := make([]*ir.Module, 1), 0
	var err error
	if o.LongCalls && e.CallRows > 0 && len(m.More) == 0 {
		long := fuse.LongCalls{Rows: e.CallRows, Room: max(0, memory-held(m, o.Precision)) / 8, Precision: o.Precision}
		entries[0], rows, err = fuse.Lengthened(m, long, c)
	} else {
		entries, err = fuse.Entries(m, c)
	}
	if err != nil {
		return nil, 0, err
	}
	for _, entry := range entries {
		for _, op := range entry.Entry.Body.Ops {
			if len(op.Regions) > 0 {
				return nil, 0, fmt.Errorf("--device %s has no %s", e.Device, op.Def.Name)
			}
		}
	}
	return entries, rows, nil
}

// held returns the bytes that the weights and the state of a module take.
func held(m *ir.Module, p eval.Precision) (bytes int64) {
	for _, c := range m.Constants {
		if c.Data != nil {
			bytes += ir.Elements(c.Data.Shape()) * int64(c.Data.DType().Size())
		}
	}
	for _, b := range m.Buffers {
		dims, _ := b.Type.Static()
		bytes += ir.Elements(dims) * int64(eval.StateDType(b.Type.DType, p).Size())
	}
	return bytes
}

// executable is a compiled module. Its instances share it.
type executable struct {
	name          string
	device        device.Device
	machine       kernels.Machine
	module, fused *ir.Module   // fused is the main entry after fusion
	entries       []*ir.Module // all entries after fusion, the main one first
	callRows      int          // the rows of the longest call, 0 where the module says it
	constants     *plan.Constants
	uploads       *uploads // nil where weights are not copied ahead
	precision     eval.Precision
	exact         bool
	control       passes.Control // which passes of the device's table run
	warn          func(string)
	observe       func(*engine.Step) // nil for nobody

	tuner     *tune.Tuner               // nil for none
	tuneLater bool                      // calls measure nothing: Tune does
	choices   map[string]kernels.Launch // of the tuner, by the Key of the default launch that they replace

	selfTests selfTests

	// timeline is locked while an instance uses the device: calls must not overlap.
	timeline sync.Mutex

	mu        sync.Mutex
	weights   map[plan.WeightKey]*weight
	memory    map[memoryKey]*slot // constants that are on the device already
	buffers   []device.Buffer     // those that Close frees
	kernels   map[string]device.Kernel
	libraries []device.Library
	products  map[device.Product]device.Kernel // nil where the device has no products of its own
	noted     bool
	failure   error // why a constant could not be brought to the device
}

// StateBuffers returns the buffers of snapshots where long calls made rings longer: see engine.Stored.
func (x *executable) StateBuffers() []*ir.Buffer {
	if x.callRows == 0 {
		return nil
	}
	return x.fused.Buffers
}

// CallRows returns the largest number of rows of a call where the pass long-calls chose it: see engine.LongCalls.
func (x *executable) CallRows() int { return x.callRows }

// Memory returns the number of bytes that buffers may take on the device in all.
func (x *executable) Memory() int64 { return x.device.Info().Memory }

// Close frees the device's memory and closes the device.
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
	return errors.Join(err, x.uploads.close(), x.device.Close())
}

// wrap makes memory of the host readable for kernels without a copy. It returns nil where the device cannot do that.
func (x *executable) wrap(p []byte) *slot {
	m, err := x.device.Wrap(p)
	return x.hold(m, len(p), err)
}

// upload copies bytes to the device. It returns nil where that fails.
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

// hold registers a buffer that Close frees.
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

// note warns, once, that an operation runs on its reference kernel.
func (x *executable) note(op *ir.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.noted {
		x.noted = true
		x.warn(fmt.Sprintf("--device %s has no kernel for %s and perhaps other operations of this program: they run "+
			"on reference kernels, slowly", x.name, op.Def.Name))
	}
}

// lowered returns an entry, lowered to the operations of the device for inputs of these shapes.
func (x *executable) lowered(entry int, shapes [][]int) (*ir.Module, error) {
	return lower.Run(x.entries[entry], shapes, x.target(), x.control)
}

// target returns the properties of the device that the lowering passes ask for.
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

// constant returns the decoded value of a constant. Large weights are not decoded: kernels read them as they are
// stored.
func (x *executable) constant(v *ir.Value) (*value, error) {
	t, err := x.constants.Tensor(v)
	if err != nil {
		return nil, err
	}
	return constantOf(t), nil
}
