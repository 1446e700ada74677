package cpu_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/reference"
)

// entriesFile writes the module of two entries of codegen's testdata to a file and opens it.
func entriesFile(t *testing.T) *program.Program {
	t.Helper()
	text, err := os.ReadFile("../../codegen/testdata/entries.ir")
	require.NoError(t, err)
	m, err := ir.Parse(string(text))
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		shape := make([]int, len(dims))
		for i, d := range dims {
			shape[i] = int(d)
		}
		x, err := eval.NewTensor(c.Value.Type.DType, shape...)
		require.NoError(t, err)
		for i := range x.F {
			x.F[i] = float32(r.IntN(9)-4) / 4
		}
		for i := range x.I {
			x.I[i] = int64(r.Uint32())
			if x.DType != ir.U32 {
				x.I[i] >>= 1
			}
		}
		c.Data = ir.Bytes(x.DType, dims, x.Encode())
	}
	path := filepath.Join(t.TempDir(), "two.pte")
	require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: m, Jobs: 1}))
	p, err := program.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// TestEntries: the entries of a file run on one state: what forward writes the draft reads, a reset and a restored
// snapshot are of both, and the engine gives what the reference engine gives.
func TestEntries(t *testing.T) {
	m, err := entriesFile(t).Whole("forward")
	require.NoError(t, err)
	o := engine.Options{Precision: eval.FP32, Threads: 2}
	r := rand.New(rand.NewPCG(1, 2))
	input := func(shape ...int) eval.Value {
		x, err := eval.NewTensor(ir.F32, shape...)
		require.NoError(t, err)
		for i := range x.F {
			x.F[i] = float32(r.NormFloat64())
		}
		return eval.Value{Tensor: x}
	}
	fed, drafted := []eval.Value{input(1, 32)}, []eval.Value{input(3, 32), input()}
	type run struct{ fresh, forward, draft []*eval.Tensor }
	runs := map[string]run{}
	for _, e := range []engine.Engine{cpu.Engine{}, reference.Engine{}} {
		o.Warn = func(text string) {
			require.Contains(t, text, "has no kernel", "the module is for the wire, not for speed")
		}
		x := compile(t, e, m, o)
		call := func(entry string, in []eval.Value) (out []*eval.Tensor) {
			got, err := x.(engine.Entries).Call(t.Context(), entry, in)
			require.NoError(t, err)
			for _, v := range got {
				out = append(out, v.Tensor)
			}
			return out
		}
		var got run
		got.fresh = call("draft", drafted)
		require.NoError(t, x.Reset())
		got.forward = call("forward", fed)
		main, err := x.Run(t.Context(), fed)
		require.NoError(t, err)
		require.Equal(t, got.forward[0], main[0].Tensor, "Run is the main entry")
		saved, err := x.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		require.Equal(t, []string{"sum", "draft.sum"}, []string{saved[0].Buffer, saved[1].Buffer})
		require.Equal(t, fed[0].Tensor.F[0]*constant(t, m, "norm").F[0], saved[0].Tensor.F[0])
		got.draft = call("draft", drafted)
		require.NotEqual(t, got.fresh[0].F, got.draft[0].F, "the draft sees what forward wrote")
		after, err := x.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		require.Equal(t, saved[0], after[0])
		require.NotEqual(t, saved[1], after[1])
		require.NoError(t, x.Reset())
		require.Equal(t, got.fresh, call("draft", drafted), "after Reset")
		require.NoError(t, x.(engine.Stateful).Restore(saved))
		require.Equal(t, got.draft, call("draft", drafted), "after Restore")
		_, err = x.(engine.Entries).Call(t.Context(), "verify", fed)
		require.ErrorContains(t, err, `no entry "verify"`)
		_, err = x.(engine.Entries).Call(t.Context(), "draft", fed)
		require.ErrorContains(t, err, "1 inputs, want 2")
		runs[e.Name()] = got
	}
	a, b := runs["cpu"], runs["reference"]
	requireClose(t, b.fresh, a.fresh, 1e-5)
	requireClose(t, b.forward, a.forward, 1e-5)
	requireClose(t, b.draft, a.draft, 1e-5)
}

// constant is the content of a constant.
func constant(t *testing.T, m *ir.Module, name string) *eval.Tensor {
	t.Helper()
	for _, c := range m.Constants {
		if c.Name == name {
			x, err := eval.DecodeConstant(c)
			require.NoError(t, err)
			return x
		}
	}
	t.Fatalf("no constant %s", name)
	return nil
}
