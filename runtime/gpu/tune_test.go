package gpu_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/tune"
)

// TestTune: what is tuned gives the same results, on the same state, and a second start measures nothing. The tuner
// runs on the emulator, by a clock on which a kernel is the faster the more threads it has.
func TestTune(t *testing.T) {
	t.Parallel()
	e := emulated(t).(gpu.Engine)
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	calls := []int{5, 1, 1}
	want := runCalls(t, m, compile(t, e, m, engine.Options{Precision: eval.FP32}), calls)

	var clock stopwatch
	recorded := 0
	tuned := gpu.Engine{Device: e.Device, Open: func() (device.Device, error) {
		d, err := e.Open()
		return timed{d, &clock, &recorded}, err
	}, Tune: &tune.Options{Dir: t.TempDir(), Clock: clock.time, Budget: time.Hour, Least: 25 << 10}}
	run := func(o engine.Options) (notes []string) {
		o.Precision, o.Warn = eval.FP32, func(text string) { notes = append(notes, text) }
		x, err := tuned.Compile(m, o)
		require.NoError(t, err)
		i, err := x.NewInstance()
		require.NoError(t, err)
		requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
		require.NoError(t, i.Close())
		require.NoError(t, x.Close())
		return notes
	}
	require.Empty(t, run(engine.Options{NoTune: true}))
	require.Zero(t, recorded)
	notes := run(engine.Options{})
	require.NotEmpty(t, notes)
	require.Regexp(t, `^tuned \d+ products for emulator on .*: [1-9]\d* differ from the default; kept in `, notes[0])
	require.NotZero(t, recorded)
	recorded = 0
	require.Empty(t, run(engine.Options{}))
	require.Zero(t, recorded)

	plan := func(o engine.Options) string {
		var out strings.Builder
		require.NoError(t, tuned.Describe(&out, m, 1, o))
		return out.String()
	}
	require.Regexp(t, `^engine emulator, tuned for emulator on .*: ([1-9]) of \d products, kept in /`, plan(engine.Options{Precision: eval.FP32}))
	require.Regexp(t, `^engine emulator, tuned for no device in particular\n`, plan(engine.Options{Precision: eval.FP32, NoTune: true}))
}

// stopwatch is a clock that dispatches move.
type stopwatch struct {
	mu  sync.Mutex
	now time.Time
}

func (s *stopwatch) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// timed is a device whose measurements take time by a clock of their own, and run twice only.
type timed struct {
	device.Device
	clock    *stopwatch
	recorded *int
}

func (d timed) Record(list []device.Dispatch) (device.Sequence, error) {
	if list[0].Label != "tuning" {
		return d.Device.Record(list)
	}
	*d.recorded++
	threads := 1
	for i := range 3 {
		threads *= list[0].Groups[i] * list[0].Threads[i]
	}
	s, err := d.Device.Record(list[:2])
	return &timedSequence{s, d.clock, time.Duration(len(list)) * 20 * time.Millisecond / time.Duration(threads), false}, err
}

type timedSequence struct {
	device.Sequence
	clock *stopwatch
	time  time.Duration
	done  bool
}

func (s *timedSequence) Submit() error {
	s.clock.mu.Lock()
	s.clock.now = s.clock.now.Add(s.time)
	s.clock.mu.Unlock()
	if s.done {
		return nil
	}
	s.done = true
	return s.Sequence.Submit()
}
