package single_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/single"
)

// eager is the reference engine with instances that run every call which they are told is likely to follow, at once
// and on the state itself: what such a call writes stays, also where another call is made.
type eager struct {
	reference.Engine
	runs *int
}

func (eager) PipelinesCalls() bool { return true }

func (e eager) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := e.Engine.Compile(m, o)
	return eagerExecutable{x, e.runs}, err
}

type eagerExecutable struct {
	engine.Executable
	runs *int
}

func (x eagerExecutable) NewInstance() (engine.Instance, error) {
	i, err := x.Executable.NewInstance()
	return &eagerInstance{Instance: i, Stateful: i.(engine.Stateful), runs: x.runs}, err
}

type eagerInstance struct {
	engine.Instance
	engine.Stateful
	runs *int
	// The inputs and outputs of a call that ran early.
	begun, gave []eval.Value
}

func (x *eagerInstance) Run(ctx context.Context, inputs []eval.Value) (out []eval.Value, err error) {
	return x.RunPipelined(ctx, inputs, nil)
}

func (x *eagerInstance) RunPipelined(ctx context.Context, inputs, next []eval.Value) (out []eval.Value, err error) {
	run := func(inputs []eval.Value) []eval.Value {
		*x.runs++
		given, failed := x.Instance.Run(ctx, inputs)
		err = errors.Join(err, failed)
		for i := range given {
			given[i].Tensor = given[i].Tensor.Clone()
		}
		return given
	}
	if x.begun != nil && slices.EqualFunc(x.begun, inputs, func(a, b eval.Value) bool {
		return slices.Equal(a.Tensor.I, b.Tensor.I) && slices.Equal(a.Tensor.F, b.Tensor.F)
	}) {
		out = x.gave
	} else {
		out = run(inputs)
	}
	x.begun, x.gave = nil, nil
	if next != nil && err == nil {
		x.begun = slices.Clone(next)
		x.begun[0].Tensor = eval.Ints(ir.I64, []int{1, 1}, out[0].Tensor.I)
		x.gave = run(x.begun)
	}
	return out, err
}

func (x *eagerInstance) Snapshot() ([]engine.State, error) {
	x.begun = nil
	return x.Stateful.Snapshot()
}

func (x *eagerInstance) Restore(states []engine.State) error {
	x.begun = nil
	return x.Stateful.Restore(states)
}

func (x *eagerInstance) Reset() error {
	x.begun = nil
	return x.Instance.Reset()
}

// emulated is the GPU's engine on the emulator. It counts the sequences of kernels that are submitted.
func emulated(t *testing.T, submitted *int) engine.Engine {
	t.Helper()
	d, err := emulator.Open(emulator.Options{})
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return gpu.Engine{Device: "emulator", Open: func() (device.Device, error) {
		d, err := emulator.Open(emulator.Options{})
		return devicetest.Counting(d, submitted), err
	}}
}

// follower makes calls of two sessions, one of which is told of the calls that follow, and compares what they give.
type follower struct {
	*testing.T
	plain, ahead *session.Session
	calls        *int // that ran for ahead
	token        int
}

// draws are the parameters of a draw at a position.
func (f *follower) draws(position int) session.Sampling {
	return session.Sampling{Temperature: 0.9, TopK: 40, TopP: 0.95, Seed: int64(position)}
}

// prompt feeds tokens and requires that nothing is begun.
func (f *follower) prompt(n int) {
	f.Helper()
	p := f.draws(f.plain.Position())
	want, err := f.plain.Prefill(f.Context(), ids(n), p)
	require.NoError(f, err)
	got, err := f.ahead.Prefill(f.Context(), ids(n), p)
	require.NoError(f, err)
	require.Equal(f, want, got, "a prompt of %d tokens up to position %d", n, f.plain.Position())
	f.token = want.Token
}

// feed feeds a token; ran is how many calls that takes. Where expect is set, the next call is begun.
func (f *follower) feed(token, ran int, expect bool) {
	f.Helper()
	at := f.plain.Position()
	want, err := f.plain.Decode(f.Context(), token, f.draws(at))
	require.NoError(f, err)
	before := *f.calls
	var got session.Step
	if expect {
		got, err = f.ahead.DecodePipelined(f.Context(), token, f.draws(at), f.draws(at+1))
	} else {
		got, err = f.ahead.Decode(f.Context(), token, f.draws(at))
	}
	require.NoError(f, err)
	require.Equal(f, want, got, "position %d", at)
	require.Equal(f, ran, *f.calls-before, "calls at position %d", at)
	f.token = want.Token
}

// follow feeds n tokens that were drawn. It leaves a call that has begun, and finds one where begun is set.
func (f *follower) follow(n int, begun bool) {
	f.Helper()
	for i := range n {
		ran := 1
		if i == 0 && !begun {
			ran = 2
		}
		f.feed(f.token, ran, true)
	}
}

// snapshots requires that both have the same recurrent state and returns the one of ahead.
func (f *follower) snapshots(recurrent map[string]bool) *session.Snapshot {
	f.Helper()
	plain, err := f.plain.Snapshot()
	require.NoError(f, err)
	ahead, err := f.ahead.Snapshot()
	require.NoError(f, err)
	require.Equal(f, plain.Tokens, ahead.Tokens)
	for i, s := range plain.States {
		if recurrent[s.Buffer] { // caches have rows of dropped calls behind the others
			require.Equal(f, 1, s.Tensor.Shape[0])
			require.Equal(f, s, ahead.States[i])
		}
	}
	return ahead
}

func (f *follower) restore(p *session.Snapshot) {
	f.Helper()
	require.NoError(f, f.plain.Restore(p))
	require.NoError(f, f.ahead.Restore(p))
}

// TestAhead: a session whose calls begin before the tokens of those before them were read gives what it gives
// otherwise: where another token is fed, across the end of a window, after prompts and snapshots.
func TestAhead(t *testing.T) {
	for name, engineOf := range map[string]func(t *testing.T, calls *int) engine.Engine{
		"reference": func(_ *testing.T, calls *int) engine.Engine { return eager{runs: calls} },
		"emulator":  emulated,
	} {
		for _, test := range []struct {
			program string
			storage ragged.Storage
		}{
			{"etc-qwen35moe-chat-sample", ragged.Storage{HalfState: true}},
			{"etc-qwen35moe-chat-sample", ragged.Storage{HalfState: true, Q8: true}},
			{"etc-gemma4-chat-sample", ragged.Storage{Q8: true}},
		} {
			t.Run(name+"/"+test.program+"/"+test.storage.String(), func(t *testing.T) {
				if testing.Short() {
					t.Skip("-short: whole models")
				}
				t.Parallel()
				m := fusetest.Load(t, test.program)
				holds, err := fuse.Sequences(m.Only(m.Entry), ragged.Options{Storage: test.storage, One: true})
				require.NoError(t, err)
				recurrent := map[string]bool{}
				for _, b := range holds.Slots {
					recurrent[b.Name] = true
				}
				require.Equal(t, test.storage.HalfState, len(recurrent) > 0)
				var calls, ignored int
				open := func(e engine.Engine) *session.Session {
					e = single.Engine{Engine: e, Storage: test.storage}
					model, err := session.LoadDraws(m, e, engine.Options{Precision: eval.Mixed}, session.Draws{})
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, model.Close()) })
					s, err := model.NewSession()
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, s.Close()) })
					return s
				}
				f := &follower{T: t, plain: open(engineOf(t, &ignored)), ahead: open(engineOf(t, &calls)), calls: &calls}
				f.follow(2, false) // from the state of no positions
				f.prompt(7)
				f.follow(3, false)
				f.feed(f.token, 0, false) // asked for, and nothing to follow
				f.follow(2, false)
				f.feed((f.token+1)%200, 1, false) // another token than the one that was drawn
				f.follow(1, false)
				f.feed((f.token+1)%200, 2, true)
				f.feed((f.token+1)%200, 2, true)
				f.follow(2, true)
				f.prompt(4) // in the place of the call that has begun
				f.follow(2, false)
				kept := f.snapshots(recurrent) // at an odd number of calls and beside a call that has begun
				f.follow(1, false)
				further := f.snapshots(recurrent)
				require.NoError(t, open(reference.Engine{}).Restore(kept), "an engine that begins no calls")
				f.prompt(40) // to beyond the ends of windows
				f.follow(3, false)
				f.restore(kept)
				f.feed(kept.Tokens[0], 2, true)
				f.restore(further)
				f.feed(kept.Tokens[1], 2, true)
				require.NoError(t, f.plain.Reset())
				require.NoError(t, f.ahead.Reset())
				f.prompt(1)
				f.follow(2, false)
				f.snapshots(recurrent)
			})
		}
	}
}
