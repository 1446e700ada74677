package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// drawModule draws rows of logits with everything that the runtime's sampler has.
func drawModule(t testing.TB, rows, vocab, listed, masks, top int64) *ir.Module {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	f := m.Entry
	in := func(name string, d ir.DType, shape ...int64) *ir.Value {
		return f.NewParam(name, ir.StaticType(d, shape...))
	}
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		logits := in("logits", ir.F32, rows, vocab)
		adjusted := b.Value("adjust_logits", nil, logits, in("ids", ir.I64, rows, listed),
			in("bias", ir.F32, rows, listed), in("counts", ir.I64, rows, listed, 2),
			in("penalties", ir.F32, rows, 3), in("fed", ir.I64, rows), in("mask", ir.I64, masks, (vocab+63)/64),
			in("mask_row", ir.I64, rows))
		token := b.Value("draw", nil, adjusted, in("temperature", ir.F32, rows), in("top_k", ir.I64, rows),
			in("top_p", ir.F32, rows), in("min_p", ir.F32, rows),
			in("key", ir.I64, rows))
		probabilities := b.Op("logprobs", &ir.LogprobsAttrs{Top: int(top)}, logits, token, in("wanted", ir.I64, rows))
		f.Body.Results = append([]*ir.Value{token, adjusted}, probabilities.Results...)
		for _, v := range f.Body.Results {
			f.Outputs = append(f.Outputs, v.Type)
		}
	}))
	require.NoError(t, ir.Verify(m))
	return m
}

// randomDraw are inputs of a drawModule.
func randomDraw(r *rand.Rand, m *ir.Module, special bool) []eval.Value {
	pick := map[string][]float32{"temperature": {0, 1, 0.7, 1e-3, 50, -1}, "top_p": {1, 0.95, 0.5, 1e-6, 2},
		"min_p": {0, 0.1, 0.9, 1, -1}, "penalties": {1, 1.5, 0.25, -1}}
	shape := func(i int) []int64 { dims, _ := m.Entry.Params[i].Type.Static(); return dims }
	rows, vocab := shape(0)[0], shape(0)[1]
	var out []eval.Value
	for i, p := range m.Entry.Params {
		dims := make([]int, len(shape(i)))
		for j, d := range shape(i) {
			dims[j] = int(d)
		}
		n := int(ir.Elements(shape(i)))
		floats, integers := make([]float32, n), make([]int64, n)
		for j := range n {
			switch p.Param {
			case "logits":
				floats[j] = float32(math.Round(r.NormFloat64()*64)) / 16
				if special && r.IntN(8) == 0 {
					floats[j] = []float32{float32(math.NaN()), float32(math.Inf(-1))}[r.IntN(2)]
				}
			case "bias":
				floats[j] = float32(r.IntN(9)) - 4
			case "ids":
				// distinct within a row of up to a third of the vocabulary
				integers[j] = int64(j) % shape(i)[1] * 3 % vocab
				if r.IntN(4) == 0 || 3*shape(i)[1] > vocab {
					integers[j] = -1
				}
			case "counts":
				integers[j] = int64(r.IntN(4))
			case "fed":
				integers[j] = r.Int64N(vocab+1) - 1
			case "mask":
				integers[j] = r.Int64() | r.Int64() | -r.Int64()
			case "mask_row":
				integers[j] = r.Int64N(4) - 2
			case "top_k":
				integers[j] = []int64{0, 1, 2, 40, vocab, math.MaxInt64, -3, 1200}[r.IntN(8)]
			case "key":
				integers[j] = r.Int64() - r.Int64()
			case "wanted":
				integers[j] = r.Int64N(8) - 1
			default:
				floats[j] = pick[p.Param][r.IntN(len(pick[p.Param]))]
			}
		}
		if p.Param == "penalties" { // the repeat penalty is above 0
			for j := range int(rows) {
				floats[3*j] = float32(math.Abs(float64(floats[3*j])))
			}
		}
		if v := (eval.Value{Tensor: eval.Ints(p.Type.DType, dims, integers)}); p.Type.DType.IsFloat() {
			out = append(out, eval.Value{Tensor: eval.Floats(p.Type.DType, dims, floats)})
		} else {
			out = append(out, v)
		}
	}
	return out
}

// TestDraw: all answers of the runtime's sampler are those of the reference kernels.
func TestDraw(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	tokens := map[int64]bool{}
	for _, vocab := range []int64{1, 2, 63, 300, 2500} {
		m := drawModule(t, 4, vocab, 5, 2, min(6, vocab))
		x, err := Engine{}.Compile(m, engine.Options{Threads: 2, Warn: func(text string) { t.Error(text) }})
		require.NoError(t, err)
		instance, err := x.NewInstance()
		require.NoError(t, err)
		machine, err := eval.NewMachine(m, eval.FP32, nil)
		require.NoError(t, err)
		for round := range 120 {
			inputs := randomDraw(r, m, round%3 == 1)
			want, err := machine.Run(inputs)
			require.NoError(t, err)
			got, err := instance.Run(t.Context(), inputs)
			require.NoError(t, err)
			for i := range want {
				// Printed, NaNs are equal.
				require.Equal(t, fmt.Sprint(want[i].Tensor), fmt.Sprint(got[i].Tensor),
					"output %d of %d logits, round %d", i, vocab, round)
			}
			for _, token := range want[0].Tensor.I {
				tokens[token] = true
			}
		}
		require.NoError(t, instance.Close())
		require.NoError(t, x.Close())
	}
	require.Greater(t, len(tokens), 200)
}
