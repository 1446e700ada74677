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
	"github.com/etc-ml/etc/runtime/gpu/prove"
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

// TestTuneUnsound: what is fast and wrong is not chosen, and nobody is bothered.
func TestTuneUnsound(t *testing.T) {
	t.Parallel()
	m, e := fusetest.Load(t, "etc-qwen35moe-chat-sample"), emulated(t).(gpu.Engine)
	calls := []int{1, 1}
	want := runCalls(t, m, compile(t, e, m, engine.Options{Precision: eval.FP32}), calls)
	d := &faulty{compiled: map[string]int{}, changed: map[string]int{}, fault: func(file, text string) (string, error) {
		if strings.Contains(text, "#define MATVEC_ROWS 1\n") {
			return replace("matvec", "out[0];", "out[0] * 2.0f;")(file, text)
		}
		return text, nil
	}}
	var clock stopwatch
	recorded, dir := 0, t.TempDir()
	x, err := gpu.Engine{Device: e.Device, Prove: &prove.Options{Dir: dir}, Tune: &tune.Options{Dir: dir, Clock: clock.time, Budget: time.Hour, Least: 80 << 10}, Open: func() (device.Device, error) {
		var err error
		d.Device, err = e.Open()
		return timed{d, &clock, &recorded}, err
	}}.Compile(m, engine.Options{Precision: eval.FP32, Warn: func(text string) { require.Contains(t, text, "tuned ") }})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
	require.NotZero(t, recorded)
	require.NotZero(t, d.changed["matvec"])
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
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
