package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// fragile is an engine, an executable and an instance that panic where they are told to.
type fragile struct{ at string }

func (f fragile) reach(at string) {
	if f.at == at {
		panic(at + " went wrong")
	}
}

func (f fragile) Name() string { return "fragile" }
func (f fragile) Compile(*ir.Module, engine.Options) (engine.Executable, error) {
	f.reach("compile")
	if f.at == "refused" {
		return nil, errors.New("refused")
	}
	return executable{f}, nil
}

type executable struct{ fragile }

func (x executable) NewInstance() (engine.Instance, error) {
	x.reach("instance")
	return instance(x), nil
}
func (x executable) Close() error  { x.reach("close"); return nil }
func (x executable) Memory() int64 { return 42 }

type instance struct{ fragile }

func (x instance) Run(context.Context, []eval.Value) ([]eval.Value, error) {
	x.reach("run")
	return []eval.Value{{Int: 7}}, nil
}
func (x instance) RunPipelined(context.Context, []eval.Value, []eval.Value) ([]eval.Value, error) {
	x.reach("ahead")
	return nil, nil
}
func (x instance) Call(context.Context, string, []eval.Value) ([]eval.Value, error) {
	x.reach("call")
	return nil, nil
}
func (x instance) Reset() error                      { x.reach("reset"); return nil }
func (x instance) Close() error                      { x.reach("close instance"); return nil }
func (x instance) Snapshot() ([]engine.State, error) { x.reach("snapshot"); return nil, nil }
func (x instance) Restore([]engine.State) error      { x.reach("restore"); return nil }

// call makes every call of an engine and gives the first error.
func call(e engine.Engine) error {
	x, err := engine.Compile(e, &ir.Module{Entry: &ir.Func{Name: "forward"}}, engine.Options{})
	if err != nil {
		return err
	}
	i, err := x.NewInstance()
	if err != nil {
		return err
	}
	_, run := i.Run(context.Background(), nil)
	_, ahead := i.(engine.Pipelined).RunPipelined(context.Background(), nil, nil)
	_, entry := i.(engine.Entries).Call(context.Background(), "draft", nil)
	_, snapshot := i.(engine.Stateful).Snapshot()
	return errors.Join(run, ahead, entry, snapshot, i.(engine.Stateful).Restore(nil), i.Reset(), i.Close(), x.Close())
}

func TestGuardedCallsDoNotPanic(t *testing.T) {
	require.NoError(t, call(fragile{}))
	require.EqualError(t, call(fragile{"refused"}), "refused")
	for _, at := range []string{"compile", "instance", "run", "ahead", "call", "snapshot", "restore", "reset",
		"close instance", "close"} {
		err := call(fragile{at})
		var f *fault.Error
		require.ErrorAs(t, err, &f, at)
		require.ErrorContains(t, err, at+" went wrong")
	}
}

// plain is an engine whose executables and instances have no more than they must.
type plain struct{ engine.Engine }

func (p plain) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := p.Engine.Compile(m, o)
	return plainExecutable{x}, err
}

type plainExecutable struct{ inner engine.Executable }

func (x plainExecutable) NewInstance() (engine.Instance, error) {
	i, err := x.inner.NewInstance()
	return struct{ engine.Instance }{i}, err
}
func (x plainExecutable) Close() error { return x.inner.Close() }

func TestGuardKeepsWhatAnEngineCan(t *testing.T) {
	m := &ir.Module{Entry: &ir.Func{Name: "forward"}}
	x, err := engine.Compile(fragile{}, m, engine.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(42), x.(engine.Bounded).Memory())
	x, err = engine.Compile(plain{fragile{}}, m, engine.Options{})
	require.NoError(t, err)
	require.NotImplements(t, (*engine.Bounded)(nil), x)
	i, err := x.NewInstance()
	require.NoError(t, err)
	require.NotImplements(t, (*engine.Pipelined)(nil), i)
	require.NotImplements(t, (*engine.Stateful)(nil), i)
	require.NotImplements(t, (*engine.Entries)(nil), i)
}
