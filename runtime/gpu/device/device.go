package device

import (
	"time"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Target is the language that a device compiles.
type Target = kernels.Target

// Info describes a device.
type Info struct {
	// Description is the product's name and its driver or system.
	Description string
	// Machine has the properties that kernels depend on.
	kernels.Machine
	// Memory is the number of bytes that buffers may take in all.
	Memory int64
	// ThreadgroupMemory is the limit of a threadgroup's own memory in bytes, MaxThreads of its threads.
	ThreadgroupMemory, MaxThreads int
	// Unified is set where the processor and the device share memory: then Wrap does not copy.
	Unified bool
}

// Device is a GPU, or what stands in for one.
type Device interface {
	// Name is the host's name: metal, cuda or emulator.
	Name() string
	Info() Info
	// NewBuffer makes a buffer of a size > 0 in bytes. It holds zeros.
	NewBuffer(size int) (Buffer, error)
	// Wrap makes a buffer of memory that is only read, such as a part of a mapped file; it must stay as it is
	// until the buffer is closed. Where memory is shared, nothing is copied; CUDA copies in pieces. The buffer
	// refuses Write and Place, and a kernel must not write to it. Metal wants memory that begins at a page: the buffer
	// of other memory begins at the page before it, which is taken care of, but the rest of the first and the last page
	// must be readable.
	Wrap(memory []byte) (Buffer, error)
	// Compile compiles a source, or takes it from a cache.
	Compile(Source) (Library, error)
	// Record checks dispatches and makes them ready to be submitted any number of times. The slice and the
	// bytes of its arguments may be changed afterwards.
	Record([]Dispatch) (Sequence, error)
	// Wait waits for everything that was submitted. An error that a sequence ends in stays: Wait, Submit, Read and
	// Write give it from then on, until Recover.
	Wait() error
	// Recover waits for everything that was submitted and forgets the error that a sequence ended in, so that what is
	// submitted next runs. Buffers hold anything where that sequence or what came after it was to write. It gives an
	// error where the device stays unusable, as on CUDA: an error of a kernel stays with the context until the process
	// ends.
	Recover() error
	// Close waits, and gives up what the device holds. Buffers, libraries and sequences are closed before it.
	Close() error
}

// MaxHostBuffer is the largest buffer in the host's memory, in bytes.
const MaxHostBuffer = 4096

// MaxPlaced is the largest number of bytes of one call of Buffer.Place.
const MaxPlaced = 4096

// HostWriter is implemented by devices that have memory of their own, and can write to the host's, too.
type HostWriter interface {
	// NewHostBuffer makes a buffer of 1 to MaxHostBuffer bytes in the host's memory. It holds zeros. Kernels reach it,
	// slowly. Read and Fetch wait, but have the device copy nothing: a copy takes longer than the kernel that gives a
	// token. What is fetched is what is there when Bytes is called, and the buffer is closed after that. A word may be
	// given as soon as it is written, before what was submitted is done: a kernel writes it once. It refuses Write and
	// Place.
	NewHostBuffer(size int) (Buffer, error)
}

// Uploader is implemented by devices that have memory of their own, for which Wrap copies.
type Uploader interface {
	// Upload begins to copy parts of memory that is only read, such as parts of a mapped file, in about their order, by
	// several threads. They must stay as they are until the upload is closed. It returns when memory of the device is
	// allocated.
	Upload(parts [][]byte) (Upload, error)
}

// Upload is a copy to the device that is under way.
type Upload interface {
	// Buffer waits until a part is on the device, and returns its buffer: one as Wrap returns, which lives until Close.
	// It is an error if the part could not be copied.
	Buffer(part int) (Buffer, error)
	// Close ends the copies under way and frees the memory of all parts.
	Close() error
}

// Buffer is memory of a device.
type Buffer interface {
	// Size in bytes.
	Size() int
	// Write puts bytes at an offset, after what was submitted before and ahead of what will be. The bytes are
	// taken at once; up to 4096 of them cost no wait.
	Write(offset int, from []byte) error
	// Place puts at most MaxPlaced bytes at an offset at once, while what was submitted before may still run: nothing
	// of that may read or write these bytes; the zeros of a new buffer count as submitted. What is submitted afterwards
	// finds them there, and not one copy stands between it and what runs.
	Place(offset int, from []byte) error
	// Read waits for everything submitted and reads the bytes at an offset.
	Read(offset int, to []byte) error
	// Fetch asks for at most 4096 bytes at an offset as they are after what was submitted so far, without
	// waiting: later sequences can be submitted before Bytes is called, provided that they do not write there.
	Fetch(offset, size int) (Fetch, error)
	Close() error
}

// Fetch is a result on its way.
type Fetch interface {
	// Bytes waits for the sequences that were submitted before the Fetch, and for no others. It is called once,
	// and before the 16th Fetch after this one.
	Bytes() ([]byte, error)
}

// Source is the text of kernels, in the device's language and whole, as kernels.Launch.Source makes it.
type Source struct {
	// Name is the file's, for messages.
	Name string
	Text string
}

// Library is a compiled source.
type Library interface {
	// Kernel gives a kernel by the name that it has in the text for Metal; for CUDA and the emulator the entry
	// <name>_entry is taken.
	Kernel(name string) (Kernel, error)
	Close() error
}

// Kernel is a compiled kernel for dispatches; only the device that made it can use it.
type Kernel interface {
	// Name is the kernel's in the source.
	Name() string
	// MaxThreads is the largest threadgroup that it can run with.
	MaxThreads() int
	Close() error
}

// Binding is a place in a buffer.
type Binding struct {
	Buffer Buffer
	// Offset in bytes.
	Offset int
}

// Argument is a buffer, or bytes: a constant struct of at most MaxBytes, given as they lie in memory.
type Argument struct {
	Binding
	Bytes []byte
}

// MaxBytes is the largest constant argument.
const MaxBytes = 4096

// Dispatch is one run of a kernel.
type Dispatch struct {
	// Label is for messages and profiles.
	Label  string
	Kernel Kernel
	// Arguments in the order of [[buffer(n)]].
	Arguments []Argument
	// Groups is the grid in threadgroups, Threads the size of one.
	Groups, Threads [3]int
	// Memory is the bytes of TG_MEMORY of the kernel, at most Info.TransferMemory; 0 where it has none.
	Memory int
	// Barrier makes it wait for all dispatches before it.
	Barrier bool
}

// Sequence is a recorded list of dispatches.
type Sequence interface {
	// Submit puts the dispatches on the device's timeline and returns.
	Submit() error
	Close() error
}

// Timed is implemented by sequences that can be measured.
type Timed interface {
	// Times runs the dispatches one by one, none overlapping another, and gives the device's time for each.
	// Memory is changed as by Submit.
	Times() ([]time.Duration, error)
}

// MatrixMultiplier is implemented by devices with a library of matrix products that is better than a kernel
// of ours (cuBLAS). ErrUnavailable from MatrixProduct means that the library is not installed.
type MatrixMultiplier interface {
	// MatrixProduct gives a kernel for a product. Its dispatch ignores Groups and Threads.
	MatrixProduct(Product) (Kernel, error)
}

// Product is y = x·wᵀ, for each of Batch: the arguments of its dispatch are x [M, K] bf16, w [N, K] bf16 and
// y [M, N], bf16 or fp32, all dense rows, in this order. Sums are in fp32.
type Product struct {
	M, N, K int
	// Float32 makes y fp32, else it is bf16.
	Float32 bool
	// Batch is the number of products, 0 or 1 for one; the batches of x, w and y lie one after another.
	Batch int
}
