package kerneltest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// schedules are the orders in which lanes and simdgroups run: in order, reversed, two shuffles.
var schedules = []uint32{0, 1, 2, 3}

// MetalMemory is the threadgroup memory that every Metal device has, in bytes.
const MetalMemory = 32 << 10

// CUDAMemory is the threadgroup memory that a CUDA kernel may declare.
const CUDAMemory = 48 << 10

const onLinux = "the emulator of kernels runs on Linux, on amd64 and arm64"

// Run runs a launch under every schedule (two of them with -short), each on fresh copies of the buffers, requires equal
// results, and that nothing is written that the kernel's text declares const, and leaves the results in the buffers:
// slices of 1-, 2-, 4- or 8-byte numbers. The launch must fit Metal's threadgroup memory.
func Run(t testing.TB, l kernels.Launch, a kernels.Arguments[any]) {
	t.Helper()
	RunWithin(t, MetalMemory, l, a)
}

// RunWithin is Run with another limit of threadgroup memory; texts that exceed Metal's are not for Metal.
func RunWithin(t testing.TB, memory int, l kernels.Launch, a kernels.Arguments[any]) {
	t.Helper()
	buffers, written := kernels.List(l, a)
	run(t, memory, l, buffers, written)
}

// run runs a launch on the emulator under every schedule and compares. It is long because it is one sequence of steps,
// each of which needs what those before it made.
func run(t testing.TB, memory int, l kernels.Launch, buffers []any, written []bool) {
	t.Helper()
	if memory <= MetalMemory {
		metal, err := l.Source(kernels.Metal)
		require.NoError(t, err)
		require.NoError(t, Lint(metal), l.Key())
	}
	cuda, err := l.Source(kernels.CUDA)
	require.NoError(t, err)
	require.NoError(t, CompileCUDA(cuda), l.Key())
	if deviceName() == "metal" && memory > MetalMemory {
		t.Skipf("%d bytes of threadgroup memory are not for Metal", memory)
	}
	if deviceName() != "" {
		d, err := openDevice()
		require.NoError(t, err)
		if most := d.Info().TransferMemory; l.Memory > most {
			t.Skipf("%d bytes of TG_MEMORY, the device has %d", l.Memory, most)
		}
		text, err := l.Source(d.Info().Target)
		require.NoError(t, err)
		require.NoError(t, runOnDevice(d, text, l, buffers), l.Key())
		return
	}
	if !HasEmulator {
		t.Skip(onLinux)
	}
	text, err := l.Source(kernels.CPU)
	require.NoError(t, err)
	library, err := open(text)
	require.NoError(t, err, l.Key())
	var first [][]byte
	some := schedules
	if testing.Short() {
		some = schedules[1:3]
	}
	for _, schedule := range some {
		got, err := library.launch(l, memory, schedule, buffers)
		require.NoError(t, err, "%s, schedule %d", l.Key(), schedule)
		if first == nil {
			first = got
		}
		for i := range got {
			require.True(t, bytes.Equal(first[i], got[i]), "%s: buffer %d is not the same under schedule %d", l.Key(),
				i, schedule)
		}
	}
	var results [][]byte
	for i, b := range buffers {
		if written[i] {
			results = append(results, raw(b))
		}
	}
	for i, b := range buffers {
		memory := raw(b)
		if !slices.ContainsFunc(results, func(r []byte) bool { return same(r, memory) }) {
			require.True(t, bytes.Equal(memory, first[i]), "%s writes %s", l.Key(), l.Signature().Arguments[i].Name)
		}
	}
	for i, b := range buffers {
		copy(raw(b), first[i])
	}
}

// Outcome is what a kernel given as a text for the emulator does under a schedule.
type Outcome struct {
	Err     error
	Buffers [][]byte
}

// Schedules runs a kernel of a text for the emulator under every schedule.
func Schedules(t testing.TB, text string, l kernels.Launch, buffers ...any) []Outcome {
	t.Helper()
	if !HasEmulator {
		t.Skip(onLinux)
	}
	library, err := open(text)
	require.NoError(t, err)
	var out []Outcome
	for _, schedule := range schedules {
		got, err := library.launch(l, MetalMemory, schedule, buffers)
		out = append(out, Outcome{err, got})
	}
	return out
}

// raw is the memory of a slice of numbers.
func raw(slice any) []byte {
	switch s := slice.(type) {
	case []byte:
		return s
	case []uint16:
		return bytesOf(s)
	case []uint32:
		return bytesOf(s)
	case []int32:
		return bytesOf(s)
	case []int64:
		return bytesOf(s)
	case []float32:
		return bytesOf(s)
	}
	panic(fmt.Sprintf("kerneltest: a buffer of type %T", slice))
}

func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
