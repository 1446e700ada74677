package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/artifact"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/ragged"
)

// TestTune: what is tuned gives the same results, on the same state, and a second start measures nothing. The tuner
// runs on the emulator, by a clock on which a kernel is the faster the more threads it has.
func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of a whole model on the emulator")
	}
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
	require.Regexp(t, `^engine emulator, tuned for emulator on .*: ([1-9]) of \d products, kept in /`,
		plan(engine.Options{Precision: eval.FP32}))
	require.Regexp(t, `(?m)^ +\d+  tuned matvec\w*: .*MATVEC_\w+=\d+ \(\d+\).*; [\d.]+[mµn]?s \([\d.]+[mµn]?s\)$`,
		plan(engine.Options{Precision: eval.FP32}))
	require.NotContains(t, plan(engine.Options{Precision: eval.FP32, NoTune: true}), "  tuned ")
	require.Regexp(t, `^engine emulator, tuned for no device in particular\n`,
		plan(engine.Options{Precision: eval.FP32, NoTune: true}))
}

// TestTuneLater: calls measure nothing, Tune measures what they ran, once, and changes neither the state nor the
// results. A context that ends in a measurement ends Tune; another Tune measures all of it.
func TestTuneLater(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of a whole model on the emulator")
	}
	t.Parallel()
	e := emulated(t).(gpu.Engine)
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	calls := []int{5, 1, 1}
	want := runCalls(t, m, compile(t, e, m, engine.Options{Precision: eval.FP32}), calls)
	var clock stopwatch
	recorded := 0
	var notes []string
	ctx, cancel := context.WithCancel(t.Context())
	ticks := 0 // of the tuner's clock, which it reads in a measurement
	tick := func() time.Time {
		if ticks++; ticks == 40 {
			cancel()
		}
		return clock.time()
	}
	x, err := gpu.Engine{Device: e.Device, Open: func() (device.Device, error) {
		d, err := e.Open()
		return timed{d, &clock, &recorded}, err
	}, Tune: &tune.Options{Dir: t.TempDir(), Clock: tick, Budget: time.Hour, Least: 150 << 10}}.Compile(m,
		engine.Options{Precision: eval.FP32, TuneLater: true, Warn: func(text string) { notes = append(notes, text) }})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	for round := range 2 {
		require.NoError(t, i.Reset())
		requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
		if round == 0 {
			require.Empty(t, notes)
			require.Zero(t, recorded)
		}
		state, err := i.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		if round == 0 {
			require.ErrorIs(t, i.(engine.Tunable).Tune(ctx), context.Canceled)
			require.Less(t, ticks, 60, "what was measured when the context ended comes to its end")
			require.Empty(t, notes)
			require.NoError(t, i.Reset())
			requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
		}
		before := recorded
		require.NoError(t, i.(engine.Tunable).Tune(t.Context()))
		require.Equal(t, round == 0, recorded > before, "the second time there is nothing to measure")
		require.NotEmpty(t, notes)
		after, err := i.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		require.Equal(t, state, after)
	}
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
}

// TestTuneResumed: Tune goes on with searches that the time had cut short, once, and calls before it have the choices
// of these.
func TestTuneResumed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of a whole model on the emulator")
	}
	t.Parallel()
	e, dir := emulated(t).(gpu.Engine), t.TempDir()
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	calls, recorded := []int{1, 1}, 0
	var clock stopwatch
	start := func() (engine.Executable, engine.Instance) {
		x, err := gpu.Engine{Device: e.Device, Open: func() (device.Device, error) {
			d, err := e.Open()
			return timed{d, &clock, &recorded}, err
		}, Tune: &tune.Options{Dir: dir, Clock: clock.time, Budget: time.Hour, Least: 150 << 10}}.Compile(m,
			engine.Options{Precision: eval.FP32, TuneLater: true, Warn: func(string) {}})
		require.NoError(t, err)
		i, err := x.NewInstance()
		require.NoError(t, err)
		runCalls(t, m, i, calls)
		return x, i
	}
	measures := func(i engine.Instance) bool {
		before := recorded
		require.NoError(t, i.(engine.Tunable).Tune(t.Context()))
		return recorded > before
	}
	for _, resumes := range []bool{true, false} { // the first start measures all
		x, i := start()
		require.Equal(t, resumes, measures(i))
		require.NoError(t, errors.Join(i.Close(), x.Close()))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tuning"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		lines := strings.SplitAfter(string(text), "\n")
		lines[4] = strings.TrimSuffix(lines[4], "\n") + ", cut short 1\n"
		cut := strings.Join(lines[:6], "")
		require.NoError(t, os.WriteFile(f, []byte(cut+"hash "+artifact.Hash(cut)+"\n"), 0o600))
	}
	x, i := start()
	require.True(t, measures(i))
	require.False(t, measures(i))
	require.NoError(t, errors.Join(i.Close(), x.Close()))
	x, i = start()
	require.False(t, measures(i), "now all is tried")
	require.NoError(t, errors.Join(i.Close(), x.Close()))
}

// TestTuneUnsound: what is fast and wrong is not chosen, and nobody is bothered.
func TestTuneUnsound(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of a whole model on the emulator")
	}
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
	x, err := gpu.Engine{Device: e.Device, SelfTest: &selftest.Options{Dir: dir},
		Tune: &tune.Options{Dir: dir, Clock: clock.time, Budget: time.Hour,
			Least: 80 << 10}, Open: func() (device.Device, error) {
			var err error
			d.Device, err = e.Open()
			return timed{d, &clock, &recorded}, err
		}}.Compile(m, engine.Options{Precision: eval.FP32,
		Warn: func(text string) { require.Contains(t, text, "tuned ") }})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
	require.NotZero(t, recorded)
	require.NotZero(t, d.changed["matvec"])
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
}

// TestTuneBesideFaults: where a kernel of a token gives wrong numbers, the others are tuned, in the plan that does
// without it.
func TestTuneBesideFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of a whole model on the emulator")
	}
	t.Parallel()
	m, e := fusetest.Load(t, "etc-qwen35moe-chat-sample"), emulated(t).(gpu.Engine)
	calls := []int{1, 1}
	want := runCalls(t, m, compile(t, e, m, engine.Options{Precision: eval.FP32}), calls)
	d := &faulty{compiled: map[string]int{}, changed: map[string]int{}, fault: refuse("embedding")}
	var clock stopwatch
	recorded, dir := 0, t.TempDir()
	var notes []string
	x, err := gpu.Engine{Device: e.Device, SelfTest: &selftest.Options{Dir: dir},
		Tune: &tune.Options{Dir: dir, Clock: clock.time, Budget: time.Hour,
			Least: 80 << 10}, Open: func() (device.Device, error) {
			var err error
			d.Device, err = e.Open()
			return timed{d, &clock, &recorded}, err
		}}.Compile(m, engine.Options{Precision: eval.FP32, Warn: func(text string) { notes = append(notes, text) }})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
	require.NotZero(t, d.changed["embedding"])
	require.NotEmpty(t, notes)
	require.Contains(t, notes[0], "embedding/embedding does not run: ")
	require.Regexp(t, `^tuned [1-9]`, notes[len(notes)-1])
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
}

// spy is a device that notes what is recorded, on which all measurements take as long. Of those of the same product
// only the first one runs to its end.
type spy struct {
	device.Device
	clock *stopwatch
	lists [][]device.Dispatch
	seen  map[string]bool
}

func (d *spy) Record(list []device.Dispatch) (device.Sequence, error) {
	d.lists = append(d.lists, slices.Clone(list))
	end := slices.IndexFunc(list, measured) + 1
	if end == 0 {
		return d.Device.Record(list)
	}
	if of := shape(list); !d.seen[of] {
		d.seen[of], end = true, len(list)
	}
	s, err := d.Device.Record(list[:end])
	return &timedSequence{s, d.clock, time.Millisecond, false}, err
}

func measured(x device.Dispatch) bool { return x.Label == "tuning" }

// shape is what tells lists of dispatches apart but for what is measured.
func shape(list []device.Dispatch) string {
	var b strings.Builder
	for _, x := range list {
		groups := fmt.Sprint(x.Groups, x.Threads)
		if measured(x) {
			groups = ""
		}
		fmt.Fprintln(&b, x.Label, x.Barrier, len(x.Arguments), groups)
	}
	return b.String()
}

// spied runs a module, tuned or not, and gives what comes of it, and what was recorded.
func spied(t *testing.T, m *ir.Module, o engine.Options, run func(engine.Instance) []*eval.Tensor) ([]*eval.Tensor,
	[][]device.Dispatch) {
	t.Helper()
	d := &spy{clock: &stopwatch{}, seen: map[string]bool{}}
	x, err := gpu.Engine{Device: "emulator", Open: func() (device.Device, error) {
		var err error
		d.Device, err = emulator.Open(emulator.Options{})
		return d, err
	}, Tune: &tune.Options{Dir: t.TempDir(), Clock: d.clock.time, Budget: time.Hour, Least: 1 << 10}}.Compile(m, o)
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	out := run(i)
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
	return out, d.lists
}

// once is one of the parts of a list that is the same for several positions of attention, which are one after the
// other.
func once(list []device.Dispatch) []device.Dispatch {
	for n := 11; n > 1; n-- {
		size := len(list) / n
		same := len(list)%n == 0
		for at := size; same && at < len(list); at += size {
			next := slices.Clone(list[at : at+size])
			same = next[0].Barrier
			next[0].Barrier = list[0].Barrier
			same = same && shape(next) == shape(list[:size])
		}
		if same {
			return list[:size]
		}
	}
	return list
}

// requireWindows requires that measurements are parts of recorded programs but for the dispatches of one product, for
// attention once for each position, and gives how many of these each part has.
func requireInPlace(t *testing.T, program, lists [][]device.Dispatch) (products []int) {
	t.Helper()
	for _, all := range lists {
		if !slices.ContainsFunc(all, measured) {
			continue
		}
		found, list := false, all
		if strings.HasPrefix(all[slices.IndexFunc(all, measured)].Kernel.Name(), "attention") {
			list = once(all)
		}
		for _, p := range program {
			for at := 0; at+len(list) <= len(p) && !found; at++ {
				kinds, part := map[string]bool{}, slices.Clone(p[at:at+len(list)])
				for i := range part {
					if measured(list[i]) {
						kinds[fmt.Sprint(part[i].Label, part[i].Groups)] = true
						part[i].Label = list[i].Label
					}
				}
				found = len(kinds) == 1 && shape(part) == shape(list)
			}
		}
		require.True(t, found, "no part of a program:\n%s", shape(all))
		n := 0
		for _, x := range list {
			if measured(x) {
				n++
			}
		}
		products = append(products, n)
	}
	return products
}

// TestTuneInPlace: for a token, products are measured among the kernels that stand around them in the program, as they
// are recorded, and tuning leaves nothing behind: where it chooses nothing, results and states are those without it, to
// the bit.
func TestTuneInPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of whole models on the emulator")
	}
	t.Parallel()
	emulated(t)
	for _, name := range []string{"etc-qwen35moe-chat-sample", "gemma4-chat-bf16-ropefix"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			// results and states, of tokens that follow others: states are not reset
			run := func(i engine.Instance) (out []*eval.Tensor) {
				for position := 7; position < 9; position++ {
					result, err := i.Run(t.Context(), fusetest.Inputs(m, position, 1))
					require.NoError(t, err)
					out = append(out, result[0].Tensor)
				}
				states, err := i.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				for _, s := range states {
					out = append(out, s.Tensor)
				}
				return out
			}
			var notes []string
			o := engine.Options{Precision: eval.Mixed, Warn: func(text string) { notes = append(notes, text) }}
			got, lists := spied(t, m, o, run)
			o.NoTune = true
			want, program := spied(t, m, o, run)
			require.Len(t, program, 1)
			require.Equal(t, want, got)
			require.Len(t, notes, 1)
			require.Regexp(t, `^tuned [1-9]\d* products for emulator on .*: 0 differ from the default; `, notes[0])
			require.Equal(t, shape(program[0]), shape(lists[0]), "a pass comes first")
			require.Equal(t, shape(program[0]), shape(lists[len(lists)-1]), "the program comes last")
			products := requireInPlace(t, program, lists)
			require.Equal(t, len(lists)-2, len(products))
			require.Greater(t, slices.Max(products), 1)
		})
	}
}

// TestTuneBetweenHostSteps: what stands around a product ends at a step of the host.
func TestTuneBetweenHostSteps(t *testing.T) {
	t.Parallel()
	emulated(t)
	m, err := ir.Parse(`module {
  constant @ones : f32[64]
  constant @a : bf16[64,64]
  constant @b : bf16[64,64]
  constant @c : bf16[64,64]
  entry forward(%in: f32[1,1]) {
    %w = multiply(a=%in, b=@ones) : f32[1,64]
    %x = linear(x=%w, weight=@a) : f32[1,64]
    %s = sort(x=%x) {axis=-1} : f32[1,64]
    %y = linear(x=%s, weight=@b) : f32[1,64]
    %e = exp(x=%y) : f32[1,64]
    %z = linear(x=%e, weight=@c) : f32[1,64]
    return %z: f32[1,64]
  }
}
`)
	require.NoError(t, err)
	normals(3).fill(t, m, 1.0/8)
	in := []eval.Value{{Tensor: normals(4).tensor(t, 1, 1)}}
	run := func(i engine.Instance) []*eval.Tensor {
		out, err := i.Run(t.Context(), in)
		require.NoError(t, err)
		return []*eval.Tensor{out[0].Tensor}
	}
	o := engine.Options{Precision: eval.FP32, Warn: func(string) {}}
	got, lists := spied(t, m, o, run)
	o.NoTune = true
	want, program := spied(t, m, o, run)
	require.Len(t, program, 2)
	require.Equal(t, want, got)
	products := requireInPlace(t, program, lists)
	require.NotEmpty(t, products)
	for _, n := range products {
		require.Equal(t, 2, n, "those behind the sort, which are most")
	}
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

// timed is a device whose measurements take time by a clock of their own, and run to the first of a product's
// dispatches only.
type timed struct {
	device.Device
	clock    *stopwatch
	recorded *int
}

func (d timed) Record(list []device.Dispatch) (device.Sequence, error) {
	var cost time.Duration
	end := len(list)
	for i, x := range list {
		if x.Label == "tuning" {
			threads := 1
			for i := range 3 {
				threads *= x.Groups[i] * x.Threads[i]
			}
			cost += 20 * time.Millisecond / time.Duration(threads)
			end = min(end, i+1)
		}
	}
	s, err := d.Device.Record(list[:end])
	if cost == 0 {
		return s, err
	}
	*d.recorded++
	return &timedSequence{s, d.clock, cost, false}, err
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

// TestTuneOnlyRow: calls of many sequences with one row are tuned, and give the same results on the same state: tables
// keep their content while kernels that read them are measured.
func TestTuneOnlyRow(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of a whole model on the emulator")
	}
	t.Parallel()
	e := emulated(t).(gpu.Engine)
	choose := func(*ragged.Model) (ragged.Options, error) {
		return ragged.Options{BlockRows: 4, Rows: 8, Sequences: 2, Units: cache.Demand{16, 3}}, nil
	}
	m, _, err := fuse.Ragged(fusetest.Load(t, "etc-qwen35moe-chat-sample"), ragged.Options{}, choose, passes.Control{})
	require.NoError(t, err)
	run := func(e gpu.Engine) (all []*eval.Tensor) {
		x := compile(t, e, m, engine.Options{Precision: eval.Mixed, Warn: func(string) {}})
		for position := range 6 {
			out, err := x.Run(t.Context(), onlyRow(t, m, position))
			require.NoError(t, err)
			all = append(all, out[0].Tensor)
		}
		return all
	}
	want := run(e)
	var clock stopwatch
	recorded := 0
	got := run(gpu.Engine{Device: e.Device, Open: func() (device.Device, error) {
		d, err := e.Open()
		return timed{d, &clock, &recorded}, err
	}, Tune: &tune.Options{Dir: t.TempDir(), Clock: clock.time, Budget: time.Hour, Least: 60 << 10}})
	require.NotZero(t, recorded)
	requireClose(t, want, got, 1e-4)
}

// onlyRow returns the inputs of a call whose only row is at a position of a sequence with its state in slot 2.
func onlyRow(t *testing.T, m *ir.Module, position int) (in []eval.Value) {
	t.Helper()
	from := int64(2)
	if position == 0 {
		from = -1
	}
	for _, p := range m.Entry.Params {
		var v *eval.Tensor
		switch p.Param {
		case "tokens":
			v = eval.Ints(ir.I64, []int{1, 1}, []int64{int64(5 + 3*position)})
		case "input_pos":
			v = eval.Ints(ir.I64, []int{1}, []int64{int64(position)})
		case "sequences", "wanted":
			v = eval.Ints(ir.I32, []int{1}, []int64{0})
		case "writes":
			v = eval.Ints(ir.I32, []int{1}, []int64{2})
		case "entries":
			v = eval.Ints(ir.I32, []int{2, 3}, []int64{0, 1, from, 0, 0, 0})
		case "blocks":
			columns, _ := p.Type.Shape[1].Const()
			v = eval.Ints(ir.I32, []int{2, int(columns)}, make([]int64, 2*columns))
			for i := range v.I {
				v.I[i] = int64(15 - i%16)
			}
		default:
			require.Fail(t, "input "+p.Param)
		}
		in = append(in, eval.Value{Tensor: v})
	}
	return in
}
