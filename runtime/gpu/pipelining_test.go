package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
)

// follower makes calls of two instances, one of which begins the next call before this one was read, and compares what
// they give.
type follower struct {
	*testing.T
	module       *ir.Module
	plain, ahead engine.Instance
	position     int
	token        int64
}

// inputs are those of the test's module at a position, with tokens from first on.
func (f *follower) inputs(position int, tokens ...int64) []eval.Value {
	in := fusetest.Inputs(f.module, position, len(tokens))
	copy(in[0].Tensor.I, tokens)
	return in
}

// feed makes a call; expect is how many tokens the instance is told that the call after it has, 0 for none.
func (f *follower) feed(expect int, tokens ...int64) {
	f.Helper()
	want, err := f.plain.Run(f.Context(), f.inputs(f.position, tokens...))
	require.NoError(f, err)
	var next []eval.Value
	if expect > 0 {
		next = f.inputs(f.position+len(tokens), make([]int64, expect)...)
	}
	got, err := f.ahead.(engine.Pipelined).RunPipelined(f.Context(), f.inputs(f.position, tokens...), next)
	require.NoError(f, err)
	require.Equal(f, want, got, "%d tokens at %d", len(tokens), f.position)
	f.position += len(tokens)
	f.token = want[0].Tensor.I[0]
}

// follow feeds n tokens, each of which the call before gave.
func (f *follower) follow(n int) {
	f.Helper()
	for range n {
		f.feed(1, f.token)
		require.True(f, gpu.Pending(f.ahead))
	}
}

// snapshots compares what is whole in a state: not caches, where a row that does not count may lie after the others.
func (f *follower) snapshots() (plain, ahead []engine.State) {
	f.Helper()
	plain, err := f.plain.(engine.Stateful).Snapshot()
	require.NoError(f, err)
	ahead, err = f.ahead.(engine.Stateful).Snapshot()
	require.NoError(f, err)
	require.False(f, gpu.Pending(f.ahead))
	for i, op := range plain {
		if writtenWhole(f.module, op.Buffer) {
			require.Equal(f, plain[i], ahead[i])
		}
	}
	return plain, ahead
}

func writtenWhole(m *ir.Module, buffer string) bool {
	for _, op := range m.Entry.Body.Ops {
		if op.Buffer != nil && op.Buffer.Name == buffer && op.Def.Name != "load" {
			return op.Def.Name != "buffer_slice_update" && op.Def.Name != "buffer_ring_update"
		}
	}
	return false
}

// TestAhead: a call that is begun before the one before it was read gives what it would have given, and one that is not
// asked for then leaves nothing behind.
func TestAhead(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whole models on the emulator")
	}
	for _, name := range []string{"etc-qwen35moe-chat-sample", "etc-gemma4-chat-sample"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			exe, err := onDevice(t).Compile(m, engine.Options{Precision: eval.Mixed})
			require.NoError(t, err)
			defer func() { require.NoError(t, exe.Close()) }()
			f := &follower{T: t, module: m}
			for _, i := range []*engine.Instance{&f.plain, &f.ahead} {
				*i, err = exe.NewInstance()
				require.NoError(t, err)
				defer func() { require.NoError(t, (*i).Close()) }()
			}
			prompt := func(n int) (out []int64) {
				for i := range n {
					out = append(out, int64(7+i*31%200))
				}
				return out
			}
			f.feed(1, prompt(20)...) // a prompt's plan begins nothing
			require.False(t, gpu.Pending(f.ahead))
			f.follow(4)
			f.feed(0, f.token) // asked for, and nothing to follow
			require.False(t, gpu.Pending(f.ahead))
			f.follow(2)
			f.feed(1, (f.token+1)%200) // another token than the one that was given
			require.True(t, gpu.Pending(f.ahead))
			f.feed(0, prompt(11)...) // a prompt
			f.follow(2)
			f.feed(2, f.token) // of two tokens nothing is begun
			require.False(t, gpu.Pending(f.ahead))
			f.follow(1)
			f.feed(1, f.token, 9, 8) // begins with the token, but goes on
			for _, n := range []int{20, 33, 60, 1} {
				f.feed(0, prompt(n)...) // to beyond the ends of windows and rings
				f.follow(2)
			}
			plain, ahead := f.snapshots()
			position, token := f.position, f.token
			f.follow(1)
			require.NoError(t, f.plain.Reset())
			require.NoError(t, f.ahead.Reset())
			f.position = 0
			f.feed(1, prompt(5)...)
			f.follow(1)
			// back to where each was
			require.NoError(t, f.plain.(engine.Stateful).Restore(plain))
			require.NoError(t, f.ahead.(engine.Stateful).Restore(ahead))
			f.position, f.token = position, token
			f.follow(2)
			// other parameters than those that were foreseen
			in := f.inputs(f.position, f.token)
			in[5].Tensor.I[0]++
			want, err := f.plain.Run(t.Context(), in)
			require.NoError(t, err)
			got, err := f.ahead.Run(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, want, got)
			f.snapshots()
		})
	}
}

// TestAheadOfNoToken: programs that give logits, or have buffers on the host, begin nothing.
func TestAheadOfNoToken(t *testing.T) {
	m := fusetest.Load(t, "etc-qwen35moe-chat-portable")
	exe, err := onDevice(t).Compile(m, engine.Options{Precision: eval.Mixed})
	require.NoError(t, err)
	i, err := exe.NewInstance()
	require.NoError(t, err)
	_, err = i.(engine.Pipelined).RunPipelined(t.Context(), fusetest.Inputs(m, 0, 1), fusetest.Inputs(m, 1, 1))
	require.NoError(t, err)
	require.False(t, gpu.Pending(i))
	require.NoError(t, i.Close())
	require.NoError(t, exe.Close())
}
