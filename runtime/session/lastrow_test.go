package session_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// allLogits gives the graph of that name with logits for every position, as files from elsewhere have them.
func allLogits(t *testing.T, name string) *ir.Module {
	m, ok := session.AllRows(fusetest.Load(t, name))
	require.True(t, ok)
	m.Metadata = metadata(method("get_max_seq_len", int64(64)), method("get_vocab_size", int64(0)))
	require.NoError(t, ir.Verify(m))
	require.Equal(t, 3, m.Entry.Outputs[0].Rank())
	return m
}

// A session of a program with logits for every position has the last one's, on every engine: those that the program
// itself gives, token by token and in chunks.
func TestLastRow(t *testing.T) {
	open := func() (device.Device, error) { return emulator.Open(emulator.Options{}) }
	engines := []engine.Engine{reference.Engine{}, cpu.Engine{}}
	d, err := open()
	if !errors.Is(err, device.ErrUnavailable) { // the emulator needs a C++ compiler
		require.NoError(t, err)
		require.NoError(t, d.Close())
		engines = append(engines, gpu.Engine{Device: "emulator", Open: open})
	}
	for _, name := range []string{"etc-qwen35moe-chat-portable", "gemma4-chat-bf16-ropefix"} {
		m := allLogits(t, name)
		exe, err := reference.Engine{}.Compile(m, engine.Options{})
		require.NoError(t, err)
		plain, err := exe.NewInstance()
		require.NoError(t, err)
		vocab, _ := m.Entry.Outputs[0].Shape[2].Const()
		var want [][]float32
		position := 0
		lengths := []int{11, 1, 6}
		for _, n := range lengths {
			out, err := plain.Run(t.Context(), fusetest.Inputs(m, position, n))
			require.NoError(t, err)
			require.Equal(t, []int{1, n, int(vocab)}, out[0].Tensor.Shape)
			want = append(want, out[0].Tensor.F[(n-1)*int(vocab):])
			position += n
		}
		for _, e := range engines {
			t.Run(name+"/"+e.Name(), func(t *testing.T) {
				_, s := start(t, m, e)
				for i, n := range lengths {
					var tokens []int
					for _, id := range fusetest.Inputs(m, s.Position(), n)[0].Tensor.I {
						tokens = append(tokens, int(id))
					}
					step, err := s.Prefill(context.Background(), tokens, session.Greedy)
					require.NoError(t, err)
					require.Len(t, step.Logits, int(vocab))
					if e.Name() == "reference" {
						require.Equal(t, want[i], step.Logits)
						continue
					}
					largest := 0.0
					for _, v := range want[i] {
						largest = max(largest, math.Abs(float64(v)))
					}
					require.InDeltaSlice(t, want[i], step.Logits, 3e-4*largest, "after %d tokens", s.Position())
				}
			})
		}
	}
}

// What LastRow leaves is one row of lm_head, after the stages of runtime/fuse; the module that it is given stays as
// it was, as does one whose logits are of one row.
func TestLastRowComputesOneRow(t *testing.T) {
	m := allLogits(t, "etc-qwen35moe-chat-portable")
	before := m.String()
	last, err := session.LastRow(m)
	require.NoError(t, err)
	require.NoError(t, ir.Verify(last))
	require.Equal(t, before, m.String())
	for _, c := range []struct {
		m    *ir.Module
		rows bool // of every position
	}{{m, true}, {last, false}} {
		fused, err := fuse.Fuse(c.m)
		require.NoError(t, err)
		head := fused.Entry.Body.Results[0].Def
		for head.Def.Name != "linear" {
			head = head.Input(head.Def.Operands[0].Name).Def
		}
		_, symbolic := head.Input("x").Type.Shape[1].Symbol()
		require.Equal(t, c.rows, symbolic, "%s", head.Input("x").Type)
	}
	again, err := session.LastRow(last)
	require.NoError(t, err)
	require.Same(t, last, again)
	for _, m := range []*ir.Module{samplerModule(), logitsModule()} {
		same, err := session.LastRow(m)
		require.NoError(t, err)
		require.Same(t, m, same)
	}
}
