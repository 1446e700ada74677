package requirements

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// families are the trained checkpoints, one of each model family, with the dtype of their logits and the tokens that
// end an answer.
var families = []struct {
	name   string
	vocab  int64
	logits ir.DType
	stop   []int
}{{"qwen35moe-chat", 768, ir.BF16, []int{762, 760}}, {"gemma4-chat", 960, ir.F32, []int{1, 5}}}

func checkpoint(name string) string { return filepath.Join(root, "testdata", "checkpoints", name) }

// authors builds the forward of the model's authors.
func authors(t *testing.T, name string, o loaders.Options) *ir.Module {
	t.Helper()
	c, err := loaders.Open(checkpoint(name))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	o.MaxSeqLen = 64
	m, err := c.Build(o)
	require.NoError(t, err)
	return m
}

// lower runs the passes.
func lower(t *testing.T, m *ir.Module, o passes.Options) *ir.Module {
	t.Helper()
	o.Verify = true
	require.NoError(t, passes.Run(m, &o))
	return m
}

// compile is etc export without the file.
func compile(t *testing.T, name string, o passes.Options) *ir.Module {
	t.Helper()
	return lower(t, authors(t, name, loaders.Options{}), o)
}

// fourBits is the recipe of --qlinear 4w.
func fourBits(group int) passes.Recipe {
	return passes.DefaultRecipe(&quantize.Scheme{Method: quantize.MinMax, Bits: 4, GroupSize: group}, nil)
}

// head makes a module whose forward gives its input, logits of rows × vocab, and puts the sampling head on it.
func head(t *testing.T, d ir.DType, rows, vocab int64) *ir.Module {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	logits := m.Entry.NewParam("logits", ir.StaticType(d, rows, vocab))
	m.Entry.Body.Results, m.Entry.Outputs = []*ir.Value{logits}, []ir.Type{logits.Type}
	return lower(t, m, passes.Options{Sample: true})
}

// nodes counts the nodes of the delegate's graph by type, over all chains.
func nodes(t *testing.T, m *ir.Module) map[string]int {
	t.Helper()
	g, err := codegen.Encode(m)
	require.NoError(t, err)
	counts := map[string]int{}
	for _, chain := range g.InstructionChains {
		for _, in := range chain.Instructions {
			counts[in.Op.Type.String()]++
		}
	}
	return counts
}

// machine runs a module with the reference semantics.
func machine(t *testing.T, m *ir.Module, p eval.Precision) *eval.Machine {
	t.Helper()
	x, err := eval.NewMachine(m, p, nil)
	require.NoError(t, err)
	return x
}

func call(t *testing.T, x *eval.Machine, inputs ...*eval.Tensor) *eval.Tensor {
	t.Helper()
	values := make([]eval.Value, len(inputs))
	for i, in := range inputs {
		values[i].Tensor = in
	}
	out, err := x.Run(values)
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0].Tensor
}

func float(v float32) *eval.Tensor { return eval.Floats(ir.F32, nil, []float32{v}) }
func integer(v int64) *eval.Tensor { return eval.Ints(ir.I64, nil, []int64{v}) }

// text is the inputs tokens and input_pos for n tokens from position 0.
func text(n int) []*eval.Tensor {
	ids, positions := make([]int64, n), make([]int64, n)
	for i := range ids {
		ids[i], positions[i] = int64((37*i*i+11*i+5)%700), int64(i)
	}
	return []*eval.Tensor{eval.Ints(ir.I64, []int{1, n}, ids), eval.Ints(ir.I64, []int{n}, positions)}
}

// write writes a module to a file.
func write(t *testing.T, m *ir.Module) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.pte")
	require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: m}))
	return path
}
