package gpu_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal/metaltest"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// diverge is a fault: some threads of a simdgroup take no part in the sums of norms, which is an error of the emulator
// and of Metal's stand-in.
var diverge = replace("norm", "  sum = simd_sum(sum);\n", "  if (lane < 5) sum = simd_sum(sum);\n")

const divergent = "norm/norm does not run: "

// TestKernelsThatFault: a kernel that ends in an error of the device is not used, and what comes after it runs.
func TestKernelsThatFault(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a whole model on the emulator and on Metal's stand-in")
	}
	m, calls := fusetest.Load(t, "gemma4-chat-bf16-ropefix"), []int{12, 1}
	want := runCalls(t, m, compile(t, reference.Engine{}, m, engine.Options{Precision: eval.FP32}), calls)
	for name, host := range map[string]func(*testing.T) func() (device.Device, error){
		"emulator":         func(t *testing.T) func() (device.Device, error) { return emulated(t).(gpu.Engine).Open },
		"Metal's stand-in": func(t *testing.T) func() (device.Device, error) { return metaltest.StandIn(t) },
	} {
		t.Run(name, func(t *testing.T) {
			got, d, warnings := testedOn(t, host(t), m, eval.FP32, t.TempDir(), calls, diverge)
			require.NotZero(t, d.changed["norm"])
			requireClose(t, want, got, 3e-4)
			require.Contains(t, strings.Join(warnings, "\n"), divergent)
			require.Contains(t, strings.Join(warnings, "\n"), "simd operation in divergent code")
		})
	}
}

// stuck is a device that does not recover from errors.
type stuck struct{ device.Device }

func (d stuck) Recover() error { return d.Wait() }

// TestLostDevice: where the device cannot be used after the error, the call says so, and the next start does without
// the kernel.
func TestLostDevice(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a whole model on the emulator, twice")
	}
	t.Parallel()
	open := emulated(t).(gpu.Engine).Open
	host := func() (device.Device, error) {
		d, err := open()
		return stuck{d}, err
	}
	m, calls, dir := fusetest.Load(t, "gemma4-chat-bf16-ropefix"), []int{12, 1}, t.TempDir()
	want := runCalls(t, m, compile(t, reference.Engine{}, m, engine.Options{Precision: eval.FP32}), calls)
	var first string
	var mu sync.Mutex
	one := func(file, text string) (string, error) { // of the kernels of norms, the one that is compiled first
		mu.Lock()
		defer mu.Unlock()
		if file == "norm" && first == "" {
			first = text
		}
		if text != first {
			return text, nil
		}
		return diverge(file, text)
	}
	d := &faulty{fault: one, compiled: map[string]int{}, changed: map[string]int{}}
	x, err := gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: dir}, Open: d.opener(host)}.Compile(m,
		engine.Options{Precision: eval.FP32})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	_, err = i.Run(t.Context(), fusetest.Inputs(m, 0, 12))
	require.ErrorContains(t, err, divergent)
	require.ErrorContains(t, err, "so that this process cannot use emulator on ")
	require.ErrorContains(t, err, "the next start does without this kernel")
	require.Error(t, i.Close())
	require.Error(t, x.Close())

	got, _, warnings := testedOn(t, host, m, eval.FP32, dir, calls, one)
	requireClose(t, want, got, 3e-4)
	require.Contains(t, strings.Join(warnings, "\n"), "so found a start before this one")
}
