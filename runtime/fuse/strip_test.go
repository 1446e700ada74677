package fuse_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// TestStripSampler: without its head, a graph gives the logits whose token the head gives: the one that sample draws of
// them with the same parameters.
func TestStripSampler(t *testing.T) {
	stripped := 0
	for _, name := range append(fusetest.Names(), fusetest.Neighbours()...) {
		t.Run(name, func(t *testing.T) {
			m := fusetest.Load(t, name)
			before := text(t, m)
			logits, err := fuse.StripSampler(m)
			require.NoError(t, err)
			require.Equal(t, before, text(t, m), "the module was changed")
			if len(m.Entry.Params) == 2 {
				require.Same(t, m, logits)
				return
			}
			stripped++
			require.NoError(t, ir.Verify(logits))
			require.Len(t, logits.Entry.Params, 2)
			for _, name := range []string{"sample", "argmax", "random_bits"} {
				require.False(t, has(logits, name), name)
			}
			if testing.Short() && strings.HasPrefix(name, "neighbours/") {
				return
			}
			for _, p := range []eval.Precision{eval.FP32, eval.Strict} {
				requireHead(t, m, logits, p)
			}
		})
	}
	require.GreaterOrEqual(t, stripped, 10)
}

func has(m *ir.Module, name string) bool {
	found := false
	m.Entry.Body.Walk(func(op *ir.Op) { found = found || op.Def.Name == name })
	return found
}

// requireHead compares the tokens of a graph with a head of six inputs with what sample draws of the logits. One
// without a seed is asked for the most likely token.
func requireHead(t *testing.T, m, logits *ir.Module, p eval.Precision) {
	t.Helper()
	head, err := eval.NewMachine(m, p, nil)
	require.NoError(t, err)
	plain, err := eval.NewMachine(logits, p, nil)
	require.NoError(t, err)
	position := int64(0)
	for i, tokens := range [][]int64{{3, 1, 4, 1, 5}, {9}, {2}} {
		at := make([]int64, len(tokens))
		for j := range at {
			at[j], position = position, position+1
		}
		inputs := []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1, len(tokens)}, tokens)},
			{Tensor: eval.Ints(ir.I64, []int{len(tokens)}, at)}}
		row, err := plain.Run(inputs)
		require.NoError(t, err)
		temperature := []float32{0.7, 0, 1.3}[i]
		settings := []eval.Value{{}, {Tensor: eval.Ints(ir.I64, nil, []int64{20})},
			{Tensor: eval.Floats(ir.F32, nil, []float32{0.9})},
			{Tensor: eval.Ints(ir.I64, nil, []int64{int64(i) - 1})}}[:len(m.Entry.Params)-2]
		if len(settings) == 1 {
			temperature = 0
		}
		shape, _ := m.Entry.Params[2].Type.Static()
		settings[0].Tensor = eval.Floats(ir.F32, []int{1}[:len(shape)], []float32{temperature})
		token, err := head.Run(append(inputs, settings...))
		require.NoError(t, err)
		def := ir.LookupOp("sample")
		c := &eval.Call{Op: &ir.Op{Def: def, Args: make([][]ir.Arg, 5),
			Results: []*ir.Value{{Type: ir.StaticType(ir.I64, 1)}}}, Precision: p}
		for _, v := range append([]eval.Value{{Tensor: row[0].Tensor}}, settings...) {
			c.Args = append(c.Args, []eval.Value{v})
		}
		for len(c.Args) < 5 {
			c.Args = append(c.Args, nil)
		}
		if len(settings) == 1 { // the authors' sampler is greedy by a temperature that it bounds
			c.Args[4] = []eval.Value{{Tensor: eval.Ints(ir.I64, nil, []int64{0})}}
		}
		want, err := eval.Run(c)
		require.NoError(t, err)
		require.Equal(t, want[0].Tensor.I, token[0].Tensor.I)
	}
}

// TestStripSamplerRefuses: a token that is drawn in another way is not taken for one that the runtime could draw.
func TestStripSamplerRefuses(t *testing.T) {
	name := "etc-qwen35moe-chat-sample"
	m := fusetest.LoadEdited(t, name, "%405 = minimum(", "%405 = maximum(")
	_, err := fuse.StripSampler(m)
	require.EqualError(t, err, "forward: no sampling head that is known is between the logits and its outputs")
}
