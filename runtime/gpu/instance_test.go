package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
)

// TestInstances: instances share no state, Reset forgets everything, and going back to a snapshot gives the same
// bits again.
func TestInstances(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whole models on the emulator")
	}
	for _, name := range []string{"etc-qwen35moe-chat-portable", "gemma4-chat-bf16-ropefix"} {
		m := fusetest.Load(t, name)
		exe, err := onDevice(t).Compile(m, engine.Options{Precision: eval.Mixed})
		require.NoError(t, err)
		a, err := exe.NewInstance()
		require.NoError(t, err)
		b, err := exe.NewInstance()
		require.NoError(t, err)
		run := func(i engine.Instance, position, n int) *eval.Tensor {
			out, err := i.Run(t.Context(), fusetest.Inputs(m, position, n))
			require.NoError(t, err)
			return out[0].Tensor
		}
		first, second := run(a, 0, 20), run(a, 20, 1)
		// b begins while a is in the middle of something.
		require.Equal(t, first, run(b, 0, 20))
		third := run(a, 21, 1)
		require.Equal(t, second, run(b, 20, 1))
		state, err := b.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		require.Equal(t, third, run(b, 21, 1))
		run(b, 22, 20)
		require.NoError(t, b.(engine.Stateful).Restore(state))
		require.Equal(t, third, run(b, 21, 1))
		require.NoError(t, a.Reset())
		require.Equal(t, first, run(a, 0, 20))
		state[0].Buffer = "other"
		require.Error(t, b.(engine.Stateful).Restore(state))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.NoError(t, exe.Close())
	}
}

// TestSchedules: what runs at the same time may run in any order.
func TestSchedules(t *testing.T) {
	emulated(t)
	m := fusetest.Load(t, "etc-qwen35moe-chat-portable")
	var want []*eval.Tensor
	schedules := uint32(3)
	if testing.Short() {
		schedules = 2
	}
	for schedule := range schedules {
		e := gpu.Engine{Device: "emulator",
			Open: func() (device.Device, error) { return emulator.Open(emulator.Options{Schedule: schedule}) }}
		x := compile(t, e, m, engine.Options{Precision: eval.Mixed})
		var got []*eval.Tensor
		for _, c := range [][2]int{{0, 12}, {12, 1}, {13, 1}} {
			out, err := x.Run(t.Context(), fusetest.Inputs(m, c[0], c[1]))
			require.NoError(t, err)
			got = append(got, out[0].Tensor)
		}
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "schedule %d", schedule)
	}
}

func TestRefusals(t *testing.T) { enginetest.Refusals(t, onDevice(t)) }

// TestUnavailable: a device that is not there is an error of that kind.
func TestUnavailable(t *testing.T) {
	e := gpu.Engine{Device: "cuda", Open: func() (device.Device, error) { return nil, device.ErrUnavailable }}
	_, err := e.Compile(fusetest.Load(t, "qwen35moe-tiny-bf16"), engine.Options{})
	require.ErrorIs(t, err, device.ErrUnavailable)
	require.ErrorContains(t, err, "--device cuda")
}
