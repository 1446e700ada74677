package engine

import (
	"context"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Options are the options of Engine.Compile.
type Options struct {
	// Precision says where floating-point results are rounded.
	Precision eval.Precision
	// Threads bounds the worker threads; 0 means one per CPU.
	Threads int
	// Exact keeps activations in float32 where an engine would round them for speed.
	Exact bool
	// Deterministic makes the results of a row in a call of many sequences independent, to the bit, of the other rows
	// in the call. See [RowsOfCalls] for engines whose kernels depend on the number of rows.
	Deterministic bool
	// LongCalls lets the engine take calls of more rows than the program declares, where it gains by that. See
	// [LongCalls].
	LongCalls bool
	// NoTune keeps the default launch of every kernel. Otherwise an engine may measure once per machine which variant
	// is the fastest.
	NoTune bool
	// TuneLater puts those measurements off until Tune is called ([Tunable]): calls take what is known already. An
	// engine may still measure before a call where Tune could not do so without a change of the state.
	TuneLater bool
	// DisablePasses names passes of the runtime's table that are not run, to measure what they gain; see Lowerer.
	DisablePasses []string
	// VerifyIR runs the verifier after every pass of that table, not only at the end.
	VerifyIR bool
	// Observe is called after every step, on the goroutine of the call. Nil costs nothing. Instances that run at the
	// same time call it at the same time. An engine that has no steps does not call it.
	Observe func(*Step)
	// Warn is called where something does not run as was asked for. Nil prints to stderr.
	Warn func(text string)
}

// Engine compiles modules.
type Engine interface {
	// Name of the device, as --device takes it.
	Name() string
	// Compile prepares a verified module. The module must live as long as the result.
	Compile(m *ir.Module, o Options) (Executable, error)
}

// Lowerer is implemented by engines that can show the graphs that they run.
type Lowerer interface {
	// PassNames lists the passes of the runtime's table for this engine, in the order in which they run.
	PassNames() []string
	// Lower returns the module that the engine runs for calls in which every symbolic dim is rows. m has to be
	// verified. After every pass it calls after with the module, if after is not nil.
	Lower(m *ir.Module, rows int, o Options, after func(pass string, m *ir.Module) error) (*ir.Module, error)
}

// BindShapes is the name of the pass that replaces the symbolic dims of a module by the sizes of a call. The passes
// before it are the same for all engines; those after it belong to one engine.
const BindShapes = "bind-shapes"

// Executable is a compiled module. It is safe for concurrent use.
type Executable interface {
	// NewInstance makes an instance whose buffers are zeros.
	NewInstance() (Instance, error)
	// Close frees the engine's memory. Instances have to be closed before.
	Close() error
}

// Instance is a module with its state: one session, one user. It is not safe for concurrent use.
type Instance interface {
	// Run calls the main entry. Inputs and outputs are given by position.
	//
	// If the context has ended before the call, the state stays as it is, and Run returns the context's error. If it
	// ends during the call, the call is abandoned: within 100 ms on a CPU, between two sequences of kernels on other
	// devices. Run then returns an [*AbandonedError], and the content of the buffers is undefined. Until Reset or
	// Restore sets the buffers again, the results of Run mean nothing.
	Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error)
	// Reset sets every buffer to zeros.
	Reset() error
	// Close frees the instance.
	Close() error
}

// Pipelined is implemented by instances that can submit the next call before the result of this one was read.
type Pipelined interface {
	// RunPipelined is Run with a hint which call is likely to follow. next are the inputs of that call, except for the
	// first one: that will be the first output of this call, whatever next has there. The instance may start it while
	// this call runs, or ignore the hint. Results and state are the same as without the hint; only a next call with
	// those inputs returns sooner.
	RunPipelined(ctx context.Context, inputs, next []eval.Value) ([]eval.Value, error)
}

// Pipelining is implemented by engines whose instances are [Pipelined].
type Pipelining interface {
	// PipelinesCalls reports whether instances begin calls that are likely to follow.
	PipelinesCalls() bool
}

// Entries is implemented by instances on which every entry of the module can be called. All entries share one state: a
// buffer that several entries use is one buffer. Instances of other engines have only the main entry.
type Entries interface {
	// Call calls the entry of that name, as Run calls the main one.
	Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error)
}

// PipelinedEntries is implemented by instances on which a call of an entry for many sequences can be submitted before
// the result of the call before it was read.
type PipelinedEntries interface {
	Entries
	// PipelinesEntries reports whether CallPipelined heeds hints. If not, it is Call.
	PipelinesEntries() bool
	// CallPipelined is Call with a hint which call of the same entry is likely to follow; nil: none. The instance may
	// start it while this call runs, or ignore the hint. A call that was started and is not made next leaves what it
	// wrote: indices of buffers that the tables in its inputs name. So the caller names only indices that are written
	// again before they are read, and none that the same call reads, except for rows of a cache, of which a row sees
	// those up to its own position.
	CallPipelined(ctx context.Context, entry string, inputs []eval.Value, next *Next) ([]eval.Value, error)
}

// Next is a call that is likely to follow another one.
type Next struct {
	// Inputs are its inputs. The first Fed elements of the first one will be those of the first output of the call
	// before, whatever they are here. Later elements count for nothing: they are of rows of no sequence.
	Inputs []eval.Value
	Fed    int
}

// State is the content of a buffer of an instance.
type State struct {
	// Buffer is the buffer's name.
	Buffer string
	// Tensor holds the elements, bit for bit as the instance stores them.
	Tensor *eval.Tensor
}

// Stateful is implemented by instances whose state can be copied and set, so that a session can return to an earlier
// point or be saved in a file. After Restore, calls give the same bits as they would have given at the time of the
// Snapshot.
type Stateful interface {
	// Snapshot copies the content of every buffer, in the order of the module.
	Snapshot() ([]State, error)
	// Restore sets every buffer. If a buffer is missing, unknown or of another shape, Restore returns an error and
	// changes nothing.
	Restore(states []State) error
}

// Tunable is implemented by instances that measure which variants of kernels are the fastest. Those of [Compile] all
// are; where there is nothing to measure, Tune does nothing.
type Tunable interface {
	// Tune measures what Options.TuneLater put off, for the calls that were made so far. It takes seconds, once per
	// machine; it ends early when the context ends, with its error. The state of the instance stays as it is.
	Tune(ctx context.Context) error
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

// Bounded is implemented by executables on a device with its own memory, or with a limited share of the machine's
// memory.
type Bounded interface {
	// Memory is the number of bytes that weights and the state of all instances may take on the device.
	Memory() int64
}

// Stored is implemented by executables whose buffers differ from those of the compiled module.
type Stored interface {
	// StateBuffers returns the buffers of a snapshot, or nil where they are the module's.
	StateBuffers() []*ir.Buffer
}

// LongCalls is implemented by executables that may take calls of more rows than the program declares.
type LongCalls interface {
	// CallRows is the largest number of rows of a call, 0 where it is what the program declares. With a number, ring
	// buffers may have more rows than the module's ([Stored] tells): in a buffer [1, heads, rows, width], position p
	// lies in row p mod rows.
	CallRows() int
}

// WithMemory is implemented by engines that know the memory of their device before anything is compiled.
type WithMemory interface {
	// DeviceMemory returns what [Bounded] returns after compiling.
	DeviceMemory() (int64, error)
}

// Ragged is implemented by engines with kernels for calls of many sequences (ir/ragged.go).
type Ragged interface {
	// RunsRagged reports whether modules with these operations run on kernels of the engine.
	RunsRagged() bool
}

// RowsOfCalls is implemented by engines that choose kernels for calls of many sequences by the number of rows, also
// with Options.Deterministic. In calls with the same number of rows, all rows get the same arithmetic.
type RowsOfCalls interface {
	// DeterministicRows is the number of rows that every call needs for Options.Deterministic; 0 stands for any number.
	DeterministicRows() int
}

// AnyRows is implemented by engines that plan a call of a new number of rows in less time than a few more rows take.
// Calls of many sequences then have nearly the rows that they need. Without it they are filled up to few numbers of
// rows, each of which the engine plans once.
type AnyRows interface {
	// RunsAnyRows reports whether the engine is such a one.
	RunsAnyRows() bool
}

// PromptRows is implemented by engines on which prompts are faster in long calls.
type PromptRows interface {
	// PromptRows is the number of rows up to which a longer call of prompts takes less time for each row; 0: no such
	// number is known.
	PromptRows() int
}

// Drawing is implemented by engines that can draw tokens on their device (ir/infer_draw.go), in less time than it takes
// to copy logits to the host.
type Drawing interface {
	// DrawsOnDevice reports whether programs should end with a draw on the device instead of logits.
	DrawsOnDevice() bool
}
