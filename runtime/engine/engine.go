package engine

import (
	"context"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Options are what an engine is asked for.
type Options struct {
	// Precision says where floating-point results are rounded.
	Precision eval.Precision
	// Threads bounds the worker threads; 0 means one per CPU.
	Threads int
	// Exact keeps activations in float32 where an engine would round them for speed.
	Exact bool
	// Deterministic makes the results of a row of a call of many sequences the same to the bit whatever other rows are
	// in the call. An engine whose kernels follow from the number of rows is [RowsOfCalls].
	Deterministic bool
	// NoTune takes the default of every kernel where an engine would measure once which way to divide its work is the
	// fastest on this machine.
	NoTune bool
	// DisablePasses names passes of the runtime's table that do not run, to measure what they are worth; see Lowerer.
	DisablePasses []string
	// VerifyIR runs the verifier after every pass of that table, not only at the end.
	VerifyIR bool
	// Observe is told of every step that ran, on the goroutine of the call; nil costs nothing. Instances that
	// run at the same time call it at the same time. An engine that has no steps does not call it.
	Observe func(*Step)
	// Warn is told what runs otherwise than asked for; nil prints to stderr.
	Warn func(text string)
}

// Engine compiles modules.
type Engine interface {
	// Name of the device, as --device takes it.
	Name() string
	// Compile prepares a verified module. The module must live as long as the result.
	Compile(m *ir.Module, o Options) (Executable, error)
}

// Lowerer is an engine that shows the graphs that it runs.
type Lowerer interface {
	// PassNames lists the passes of the runtime's table for this engine, in the order in which they run.
	PassNames() []string
	// Lower gives what the engine runs of a verified module for calls whose symbolic dims are all rows. after is called
	// with the module after every pass; nil for nothing.
	Lower(m *ir.Module, rows int, o Options, after func(pass string, m *ir.Module) error) (*ir.Module, error)
}

// BindShapes is the name of the pass that makes a module one for inputs of known sizes. The passes before it are the
// same for all engines, those after it are the engine's own.
const BindShapes = "bind-shapes"

// Executable is a compiled module. It is safe for concurrent use.
type Executable interface {
	// NewInstance makes an instance whose buffers are zeros.
	NewInstance() (Instance, error)
	// Close frees what the engine holds; instances must be closed before.
	Close() error
}

// Instance is a module with its state: one session, one user. It is not safe for concurrent use.
type Instance interface {
	// Run calls the main entry: inputs and outputs by position.
	//
	// A context that has ended when the call comes leaves the state as it was, and its error is given. One that ends
	// while the call runs abandons it, within 100 ms on a CPU and between two sequences of kernels on other devices;
	// the error is an [*AbandonedError]. What the buffers hold then is not defined: Reset and Restore define it again,
	// and until one of them was called nothing that Run gives means anything.
	Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error)
	// Reset sets every buffer to zeros.
	Reset() error
	// Close frees the instance.
	Close() error
}

// Ahead is an instance that can begin a call before the one before it was read.
type Ahead interface {
	// RunAhead is Run that is told which call is likely to follow: next are its inputs, but that its first one is to be
	// the first output of this call, whatever stands there. The instance may begin it while this call runs, or ignore
	// it. Whatever is called next gives and leaves what it would without; if it is a call with those inputs, sooner.
	RunAhead(ctx context.Context, inputs, next []eval.Value) ([]eval.Value, error)
}

// Entries is an instance of a module of which every entry can be called. All calls are of one state: a buffer that
// several entries use is one buffer. Engines that are not Entries compile the main entry.
type Entries interface {
	// Call is Run of the entry of that name.
	Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error)
}

// State is the content of a buffer of an instance.
type State struct {
	// Buffer is the buffer's name.
	Buffer string
	// Tensor holds the elements, exactly as the instance does.
	Tensor *eval.Tensor
}

// Stateful is an instance whose state can be taken out and put back, so that a session can go back to
// an earlier point, or be kept in a file. Running on after Restore gives the same bits as never having
// stopped.
type Stateful interface {
	// Snapshot copies the content of every buffer, in the order of the module.
	Snapshot() ([]State, error)
	// Restore sets every buffer. A buffer that is missing, unknown or of another shape is an error and
	// leaves the instance as it was.
	Restore(states []State) error
}

// Units is an instance whose buffers can be read and written in part: some indices of an axis. It is for those of
// modules of many sequences, whose buffers are pools of blocks and slots. Both give errors.ErrUnsupported where an
// instance cannot.
//
// A content is the bytes of a tensor with the dims of the buffer, but for that axis, which has as many indices as are
// asked for: row-major, little-endian, of the dtype that [eval.StateDType] tells for the dtype of the buffer and the
// precision of the instance. All engines have the same bytes for the same elements.
type Units interface {
	// ReadUnits copies indices of an axis of a buffer, exactly as the instance holds them.
	ReadUnits(buffer string, axis int, ids []int32) ([]byte, error)
	// WriteUnits sets indices of an axis of a buffer to what ReadUnits gave. A negative index leaves its part of the
	// content out. The content is not kept. After an error the indices that were to be written hold nothing that can be
	// trusted.
	WriteUnits(buffer string, axis int, ids []int32, content []byte) error
}

// Bounded is an executable on a device with a memory of its own, or with a part of the machine's.
type Bounded interface {
	// Memory is what weights and the state of all instances may take there in all, in bytes.
	Memory() int64
}

// Stored is an executable whose state is not that of the buffers of the module that it was compiled of.
type Stored interface {
	// StateBuffers are the buffers of a snapshot; nil where they are those of the module.
	StateBuffers() []*ir.Buffer
}

// WithMemory is an engine on a device with a memory of its own, or with a part of the machine's, which tells it before
// anything is compiled.
type WithMemory interface {
	// DeviceMemory is what [Bounded] gives.
	DeviceMemory() (int64, error)
}

// Ragged is an engine that has kernels for the operations of calls of many sequences (ir/ragged.go).
type Ragged interface {
	// RunsRagged reports whether modules of these operations run on kernels of the engine.
	RunsRagged() bool
}

// RowsOfCalls is an engine whose kernels for calls of many sequences follow from the number of rows, also with
// Options.Deterministic: in calls of one number of rows all rows have the same arithmetic.
type RowsOfCalls interface {
	// DeterministicRows is the number of rows that every call has to have for Options.Deterministic; 0: any.
	DeterministicRows() int
}

// Drawing is an engine that draws tokens on its device (ir/infer_draw.go) in less time than the host reads logits.
type Drawing interface {
	// DrawsOnDevice reports whether programs had better end with a draw than with logits.
	DrawsOnDevice() bool
}
