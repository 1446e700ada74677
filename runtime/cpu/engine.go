package cpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/cpu/pool"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/strided"
)

// Engine is the CPU engine.
type Engine struct{}

// Name returns "cpu".
func (Engine) Name() string { return "cpu" }

// RunsRagged reports that there are kernels for calls of many sequences: see engine.Ragged.
func (Engine) RunsRagged() bool { return true }

// RunsAnyRows returns true: a plan is a list of closures. See engine.AnyRows.
func (Engine) RunsAnyRows() bool { return true }

// DrawsOnDevice returns true: the sampler runs on all threads. See engine.Drawing.
func (Engine) DrawsOnDevice() bool { return true }

// Compile fuses the module. The reference engine takes the module instead, and Options.Warn is told, where the
// precision is strict (every result is rounded), or where the module cannot be fused.
func (Engine) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	warn := o.Warn
	if warn == nil {
		warn = func(text string) { fmt.Fprintln(os.Stderr, "etc: "+text) }
	}
	if o.Precision == eval.Strict {
		warn("--device cpu has no precision strict: this runs on the reference engine, slowly")
		return reference.Engine{}.Compile(m, o)
	}
	if m.UndefinedIf() != nil { // kernels cannot tell whether a value was written
		warn("this runs on the reference engine, slowly: an if of the program leaves results undefined in one " +
			"of its arms")
		return reference.Engine{}.Compile(m, o)
	}
	entries, err := fuse.Entries(m, passes.Control{Disable: o.DisablePasses, Verify: o.VerifyIR})
	if err != nil {
		warn(fmt.Sprintf("this runs on the reference engine, slowly: %v", err))
		return reference.Engine{}.Compile(m, o)
	}
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	constants, err := plan.NewConstants(entries, o.Precision)
	if err != nil {
		return nil, err
	}
	x := &executable{module: m, fused: entries[0], entries: entries, precision: o.Precision, warn: warn,
		observe: o.Observe, path: pathOf(o),
		alone:     o.Deterministic,
		constants: constants, weights: map[plan.WeightKey]*weight{}}
	x.pool = pool.New(threads)
	return x, nil
}

// pathOf returns how products treat activations: rounded to 8 bits with precision mixed, unrounded with fp32 or
// Options.Exact.
func pathOf(o engine.Options) kernel.Path {
	if o.Exact || o.Precision != eval.Mixed {
		return kernel.Exact
	}
	return kernel.Integer
}

// layout returns the form of activations that a matrix needs.
func (x *executable) layout(w *kernel.Matrix) kernel.Layout {
	l := w.Layout(x.path)
	l.Alone = x.alone
	return l
}

// executable is a compiled module. Its instances share it.
type executable struct {
	module, fused *ir.Module   // fused is the main entry after fusion
	entries       []*ir.Module // all entries after fusion, the main one first
	constants     *plan.Constants
	precision     eval.Precision
	path          kernel.Path
	alone         bool // engine.Options.Deterministic: a row's result does not depend on the other rows of the call
	pool          *pool.Pool
	warn          func(string)
	observe       func(*engine.Step)

	mu      sync.Mutex
	weights map[plan.WeightKey]*weight
	noted   bool
}

// Close stops the threads.
func (x *executable) Close() error {
	x.pool.Close()
	return nil
}

// note warns, once, of an operation that runs on its reference kernel.
func (x *executable) note(op *ir.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.noted {
		x.noted = true
		x.warn(fmt.Sprintf("--device cpu has no kernel for %s and perhaps other operations of this program: they run "+
			"on reference kernels, slowly", op.Def.Name))
	}
}

func constantOf(t *eval.Tensor) *value {
	return &value{dtype: t.DType, slot: &slot{f: t.F, i: t.I}, shape: t.Shape, stride: strided.RowMajor(t.Shape)}
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

// NewInstance makes an instance whose buffers are zeros.
func (x *executable) NewInstance() (engine.Instance, error) {
	n := &instance{exe: x, states: map[*ir.Buffer]*state{}, bits: eval.UnseededBits()}
	for _, entry := range x.entries {
		n.plans = append(n.plans, plan.NewPlans[*boundPlan](entry))
	}
	coded := plan.CodedCaches(x.entries)
	for _, b := range x.fused.Buffers {
		s, err := newState(b, x.precision, coded[b])
		if err != nil {
			return nil, err
		}
		n.states[b] = s
	}
	return n, nil
}

// instance is the state of a module and the plans that were made for it.
type instance struct {
	exe    *executable
	states map[*ir.Buffer]*state
	bits   func(n int) []uint32
	plans  []plan.Plans[*boundPlan] // of each entry
	arena  []float32
	done   <-chan struct{} // of the context of the running call
	// activations are the inputs of products, in the forms that these need. Each step overwrites them.
	activations, gathered []*kernel.Activations
}

// Run calls the main entry: see Call.
func (x *instance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	return x.call(ctx, 0, inputs)
}

// Call calls the entry of that name. After an error the buffers hold what was written until then. The context is
// checked between steps, between the pieces of their loops, and inside of long pieces.
func (x *instance) Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error) {
	at := slices.IndexFunc(x.exe.entries, func(m *ir.Module) bool { return m.Entry.Name == entry })
	if at < 0 {
		return nil, fmt.Errorf("the module has no entry %q", entry)
	}
	return x.call(ctx, at, inputs)
}

// call calls an entry by its number.
func (x *instance) call(ctx context.Context, entry int, inputs []eval.Value) (out []eval.Value, err error) {
	f := x.exe.entries[entry].Entry
	defer func() {
		// Kernels do not repeat the checks that were made with the plan. If a program gets around those checks, the
		// panic must not end the process.
		if r := recover(); r != nil {
			out, err = nil, fault.Of(f.Name+": this program cannot run here", r)
		}
	}()
	if err := eval.CheckInputs(f, inputs); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.done = ctx.Done()
	defer func() { x.done = nil }()
	p, err := x.planFor(entry, inputs)
	if errors.Is(err, errEnded) {
		return nil, ctx.Err() // nothing has run
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	for i, v := range inputs {
		s := p.inputs[i].slot
		if v.Tensor != nil {
			s.f, s.i = v.Tensor.F, v.Tensor.I
		}
		s.n = v.Int
	}
	if err := p.run(x); errors.Is(err, errEnded) {
		return nil, fmt.Errorf("%s: %w", f.Name, &engine.AbandonedError{Cause: ctx.Err()})
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	out = make([]eval.Value, len(p.outputs))
	for i, v := range p.outputs {
		if out[i], err = x.content(f.Body.Results[i], v); err != nil {
			return nil, fmt.Errorf("%s: output %d: %w", f.Name, i, err)
		}
		if out[i].Tensor != nil {
			out[i].Tensor = eval.ConvertOutput(out[i].Tensor, f.Outputs[i].DType, x.exe.precision)
		}
	}
	return out, nil
}

// errEnded says that the context of the call has ended.
var errEnded = errors.New("the context has ended")

// ended reports whether the context of the call has ended. Any thread may call it.
func (x *instance) ended() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// planFor returns the plan of an entry for inputs of these shapes, with its memory. It makes the plan when it is first
// needed.
func (x *instance) planFor(entry int, inputs []eval.Value) (*boundPlan, error) {
	p, ok := x.plans[entry].Find(inputs)
	if !ok {
		var err error
		if p, err = x.bind(x.exe.entries[entry], plan.ShapesOf(inputs)); err != nil {
			return nil, err
		}
		x.plans[entry].Add(p.shapes, p)
	}
	if len(x.arena) < p.size {
		x.arena = make([]float32, p.size)
	}
	p.attach(x.arena)
	return p, nil
}

// Reset sets every buffer to zeros.
func (x *instance) Reset() error {
	for _, s := range x.states {
		s.reset()
	}
	return nil
}

// Close frees the instance.
func (x *instance) Close() error {
	x.states, x.plans, x.arena = nil, nil, nil
	return nil
}

// Snapshot copies the content of every buffer, in the order of the module.
func (x *instance) Snapshot() ([]engine.State, error) {
	out := make([]engine.State, len(x.exe.fused.Buffers))
	for i, b := range x.exe.fused.Buffers {
		s := x.states[b]
		v := &value{dtype: s.dtype, slot: s.slot, shape: s.shape, stride: strided.RowMajor(s.shape)}
		out[i] = engine.State{Buffer: b.Name, Tensor: v.tensor().Clone()}
	}
	return out, nil
}

// Restore sets every buffer.
func (x *instance) Restore(states []engine.State) error {
	if err := engine.CheckStates(x.exe.fused.Buffers, states); err != nil {
		return err
	}
	for i, b := range x.exe.fused.Buffers {
		x.states[b].store(states[i].Tensor)
	}
	return nil
}

// run divides [0, n) among the threads in pieces of grain. No piece starts after the call has ended.
func (x *instance) run(n, grain int, body func(lo, hi int)) {
	x.exe.pool.RunUntil(x.done, n, grain, body)
}

// parallel returns a function that divides [0, n) among the threads, as run does.
func (b *binder) parallel(n, grain int, body func(lo, hi int)) func() {
	return func() { b.x.run(n, grain, body) }
}

// expertActivations returns the inputs of the experts of a chunk. All layers share their memory.
func (x *instance) expertActivations(n int) []*kernel.Activations {
	for len(x.gathered) < n {
		x.gathered = append(x.gathered, &kernel.Activations{})
	}
	return x.gathered[:n]
}
