package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// evaluate runs an operation on its reference kernel.
func evaluate(t *testing.T, name string, attrs any, operands ...*eval.Tensor) []eval.Value {
	t.Helper()
	def := ir.LookupOp(name)
	if attrs == nil {
		attrs = def.NewAttrs()
	}
	c := &eval.Call{Op: &ir.Op{Def: def, Attrs: attrs, Args: make([][]ir.Arg, len(def.Operands))},
		Args: make([][]eval.Value, len(def.Operands))}
	for range def.Results {
		c.Op.Results = append(c.Op.Results,
			&ir.Value{Type: ir.Type{DType: map[string]ir.DType{"draw": ir.I64, "adjust_logits": ir.F32}[name]}})
	}
	for i, o := range operands {
		if o != nil {
			c.Args[i] = []eval.Value{{Tensor: o}}
		}
	}
	out, err := eval.Run(c)
	require.NoError(t, err)
	return out
}

// longs are integers as a tensor of the IR has them.
func longs(v []int32) []int64 {
	out := make([]int64, len(v))
	for i, n := range v {
		out[i] = int64(n)
	}
	return out
}

// TestDrawRows: every row is drawn with its own settings, and gets the token that the graph's draw chooses.
func TestDrawRows(t *testing.T) {
	t.Parallel()
	for i, settings := range [][]kernels.Draw{
		{{Temperature: 0, TopP: 1}, {Temperature: 1, TopP: 1}, {Temperature: 0.7, TopK: 20, TopP: 0.9},
			{Temperature: 0.7, TopK: 20, TopP: 0.9, MinP: 0.2}},
		// min-p by itself, with few and with very many tokens, and where it keeps one
		{{Temperature: 1, TopP: 1, MinP: 0.1}, {Temperature: 90, TopP: 1, MinP: 0.01},
			{Temperature: 2, TopP: 1, MinP: 1}, {Temperature: 0, TopP: 1, MinP: 0.5}},
		// behind top-p: where its candidates hold enough, where min-p bounds them, and where neither does
		{{Temperature: 0.7, TopP: 0.5, MinP: 0.05}, {Temperature: 3, TopP: 0.97, MinP: 0.3},
			{Temperature: 60, TopP: 0.97, MinP: 0.02}, {Temperature: 9, TopP: 0.97, MinP: -1}},
		{{Temperature: 9, TopK: 1500, TopP: 1, MinP: 0.4}, {Temperature: 30, TopK: 700, TopP: 0.9, MinP: 0.9},
			{Temperature: 30, TopK: 65, TopP: 0.3}, {Temperature: 1, TopK: 1, TopP: 1, MinP: 0.1}},
	} {
		for _, vocab := range []int{97, 3000} {
			if testing.Short() && (vocab > 97 || i > 1) {
				continue
			}
			settings := slices.Clone(settings)
			var logits, temperature, topP, minP []float32
			var topK, key []int64
			for r := range settings {
				d := &settings[r]
				d.Logits = seeded(uint64(10*i + r)).floats(vocab)
				for j := range d.Logits {
					d.Logits[j] *= 4
				}
				d.Key = [2]uint32{uint32(vocab * r), uint32(0xfffffff0 + i)}
				logits = append(logits, d.Logits...)
				temperature, topP, minP = append(temperature, d.Temperature), append(topP, d.TopP), append(minP, d.MinP)
				topK, key = append(topK, d.TopK), append(key, int64(d.Key[0])<<32|int64(d.Key[1]))
			}
			n := len(settings)
			floats := func(v []float32) *eval.Tensor { return eval.Floats(ir.F32, []int{n}, v) }
			want := evaluate(t, "draw", nil, eval.Floats(ir.F32, []int{n, vocab}, logits), floats(temperature),
				eval.Ints(ir.I64, []int{n}, topK),
				floats(topP), floats(minP), eval.Ints(ir.I64, []int{n}, key))[0].Tensor.I
			s := kernels.Sample{Vocab: vocab, Filters: true, Rows: n, MinP: true}
			for r, d := range settings {
				require.EqualValues(t, want[r], s.Reference(d), "row %d of %+v", r, settings)
			}
			t.Run(fmt.Sprintf("%d of %d", i, vocab), func(t *testing.T) {
				t.Parallel()
				kerneltest.Check(t, s.Case(settings...))
			})
		}
	}
	_, _, _, err := kernels.Sample{Vocab: 9, Rows: 1}.Launches()
	require.EqualError(t, err, "sampling of 1 rows (filters false, min-p false), want 1 to 4096, with filters, or 0 without min-p")
}

// TestAdjust: lists, penalties, a token that was fed and masks, together and by themselves.
func TestAdjust(t *testing.T) {
	t.Parallel()
	const vocab = 2100
	logits := seeded(3).floats(2 * vocab)
	all := kernels.Adjustments{
		IDs: []int32{2099, -1, 5, 1023, 1024, 7, -1, 5}, Bias: []float32{1, 2, -3, 4, 0.5, float32(math.Inf(-1)), 9, 2},
		Counts:    []int32{3, 2, 9, 9, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 4, 4},
		Penalties: []float32{1.5, 0.25, 0.5, 0.5, -1, 2},
		Fed:       []int32{1023, 1500}, MaskRow: []int32{-1, 1}, Mask: make([]int64, 2*33),
	}
	for i := range all.Mask {
		all.Mask[i] = 0x0123456789abcdef * int64(2*i+1)
	}
	for name, a := range map[string]kernels.Adjust{
		"bias":      {Listed: 4, Bias: true},
		"penalties": {Listed: 4, Counts: true},
		"fed":       {Listed: 4, Counts: true, Fed: true},
		"mask":      {Mask: true},
		"all":       {Listed: 4, Bias: true, Counts: true, Fed: true, Mask: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.Rows, a.Vocab = 2, vocab
			operands := make([]*eval.Tensor, 8)
			operands[0] = eval.Floats(ir.F32, []int{2, vocab}, logits)
			if a.Listed > 0 {
				operands[1] = eval.Ints(ir.I64, []int{2, 4}, longs(all.IDs))
			}
			if a.Bias {
				operands[2] = eval.Floats(ir.F32, []int{2, 4}, all.Bias)
			}
			if a.Counts {
				operands[3], operands[4] = eval.Ints(ir.I64, []int{2, 4, 2}, longs(all.Counts)),
					eval.Floats(ir.F32, []int{2, 3}, all.Penalties)
			}
			if a.Fed {
				operands[5] = eval.Ints(ir.I64, []int{2}, longs(all.Fed))
			}
			if a.Mask {
				operands[6], operands[7] = eval.Ints(ir.I64, []int{2, 33}, all.Mask),
					eval.Ints(ir.I64, []int{2}, longs(all.MaskRow))
			}
			want := evaluate(t, "adjust_logits", nil, operands...)[0].Tensor.F
			got := append([]float32{}, logits...)
			a.Reference(got, all)
			require.Equal(t, want, got)
			kerneltest.Check(t, a.Case(logits, all))
		})
	}
	_, err := kernels.Adjust{Rows: 1, Vocab: 9, Fed: true}.Launch()
	require.ErrorContains(t, err, "not supported")
}

// TestLogprobs: also where tokens are equally likely, have none, or are in one part of the vocabulary.
func TestLogprobs(t *testing.T) {
	t.Parallel()
	random := seeded(4).floats(2 * 3100)
	for i := range random {
		random[i] = float32(int(random[i] * 9)) // many that are equal
	}
	peak := seeded(5).floats(2 * 97)
	for i := range peak {
		switch {
		case i%3 == 0:
			peak[i] = float32(math.Inf(-1))
		case i%7 == 0:
			peak[i] = float32(math.NaN())
		case i%97 < 40:
			peak[i] += 30
		}
	}
	for name, c := range map[string]struct {
		l             kernels.Logprobs
		logits        []float32
		token, wanted []int32
	}{
		"many equal":  {kernels.Logprobs{Rows: 2, Vocab: 3100, Top: 70}, random, []int32{0, 3099}, []int32{70, 3}},
		"one part":    {kernels.Logprobs{Rows: 2, Vocab: 97, Top: 60}, peak, []int32{1, 8}, []int32{100, 0}},
		"none wanted": {kernels.Logprobs{Rows: 2, Vocab: 97, Top: 3}, peak, []int32{1, 8}, []int32{-1, 2}},
		"one token":   {kernels.Logprobs{Rows: 1, Vocab: 1, Top: 1}, []float32{4}, []int32{0}, []int32{1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := c.l.Rows
			want := evaluate(t, "logprobs", &ir.LogprobsAttrs{Top: c.l.Top},
				eval.Floats(ir.F32, []int{rows, c.l.Vocab}, c.logits),
				eval.Ints(ir.I64, []int{rows}, longs(c.token)), eval.Ints(ir.I64, []int{rows}, longs(c.wanted)))
			for r := range rows {
				ids, likely := make([]int32, c.l.Top), make([]float32, c.l.Top)
				p := c.l.Reference(c.logits[r*c.l.Vocab:][:c.l.Vocab], int(c.token[r]), int(c.wanted[r]), ids, likely)
				require.InDelta(t, want[0].Tensor.F[r], p, 1e-5)
				require.Equal(t, want[1].Tensor.I[r*c.l.Top:][:c.l.Top], longs(ids))
			}
			kerneltest.Check(t, c.l.Case(c.logits, c.token, c.wanted))
		})
	}
	_, _, err := kernels.Logprobs{Rows: 1, Vocab: 9, Top: 10}.Launches()
	require.ErrorContains(t, err, "not supported")
}
