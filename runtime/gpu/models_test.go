package gpu_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/reference"
)

// emulated is the engine on the emulator, which needs a C++ compiler.
func emulated(t testing.TB) engine.Engine {
	t.Helper()
	open := func() (device.Device, error) { return emulator.Open(emulator.Options{}) }
	d, err := open()
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return gpu.Engine{Device: "emulator", Open: open}
}

// What the tests of this package call by short names.
var (
	compile      = enginetest.Start
	runCalls     = enginetest.Run
	requireClose = enginetest.RequireClose
)

// graphs are a graph of each family and of each writer: the emulator takes seconds for one.
var graphs = []string{"etc-qwen35moe-chat-sample", "gemma4-chat-bf16-ropefix", "etc-gemma4-chat-sample"}

// TestNeighbours: a graph of a family that has operations of its own, experts with gelu and a scale each, gives on the
// emulator what the reference engine gives. That every family has kernels for all it does, TestDescribe says.
func TestNeighbours(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestExperts has its operations")
	}
	calls := []int{5, 1, 16, 1}
	m := fusetest.Load(t, "neighbours/gemma4moe-4w")
	for precision, tolerance := range map[eval.Precision]float64{eval.FP32: 3e-4, eval.Mixed: 2e-2} {
		o := engine.Options{Precision: precision, Exact: true, Threads: 1}
		want := enginetest.Run(t, m, compile(t, reference.Engine{}, m, o), calls)
		requireClose(t, want, runCalls(t, m, compile(t, onDevice(t), m, o), calls), tolerance)
	}
}

// TestModels: every graph gives what the reference engine gives, tokens exactly, with no operation on a
// reference kernel.
func TestModels(t *testing.T) {
	if os.Getenv("ETC_TEST_DEVICE") != "" {
		graphs = fusetest.Names()
	} else if testing.Short() {
		graphs = graphs[:1]
	}
	enginetest.Models(t, onDevice(t), graphs, nil)
}
