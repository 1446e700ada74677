package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu/pool"
)

// referenceToken is what the reference kernel of sample chooses.
func referenceToken(t *testing.T, logits []float32, temperature float32, topK int64, topP float32, seed int64) int64 {
	t.Helper()
	op := &ir.Op{Def: ir.LookupOp("sample"), Results: []*ir.Value{{Type: ir.StaticType(ir.I64, 1)}}}
	number := func(v float32) []eval.Value {
		return []eval.Value{{Tensor: eval.Floats(ir.F32, nil, []float32{v})}}
	}
	integer := func(v int64) []eval.Value { return []eval.Value{{Tensor: eval.Ints(ir.I64, nil, []int64{v})}} }
	out, err := eval.Run(&eval.Call{Op: op, Args: [][]eval.Value{
		{{Tensor: eval.Floats(ir.F32, []int{1, len(logits)}, logits)}}, number(temperature), integer(topK),
		number(topP), integer(seed)}})
	require.NoError(t, err)
	return out[0].Tensor.I[0]
}

// TestSampler: the tokens are those of the reference kernel, whatever the parameters, with equal logits,
// infinities and NaNs too.
func TestSampler(t *testing.T) {
	threads := pool.New(2)
	defer threads.Close()
	random := rand.New(rand.NewPCG(3, 4))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for round := range 3000 {
		n := 1 + random.IntN(3000)
		if round%3 > 0 {
			n = 1 + random.IntN(20)
		}
		logits := make([]float32, n)
		for i := range logits {
			switch logits[i] = float32(random.NormFloat64() * 4); round % 5 {
			case 1: // many are equal
				logits[i] = float32(math.Round(float64(logits[i])))
			case 2:
				if random.IntN(10) == 0 {
					logits[i] = []float32{nan, inf, -inf}[random.IntN(3)]
				}
			case 3:
				if random.IntN(3) == 0 {
					logits[i] = -inf
				}
			}
		}
		temperature := []float32{0, 1, 0.7, 1e-3, 50, -1}[random.IntN(6)]
		topK := []int64{0, 1, 2, 5, 40, int64(n), int64(n) + 1, math.MaxInt64, -3}[random.IntN(9)]
		topP := []float32{1, 0.95, 0.5, 1e-6, 0.999999, 2}[random.IntN(6)]
		seed := random.Int64()
		s := &sampler{pool: threads, vocab: n, scaled: &slot{f: make([]float32, n)},
			other: &slot{f: make([]float32, n)}}
		s.temperature, s.topK, s.topP = temperature, topK, topP
		s.words(n, [3]*value{{}, {}, {slot: &slot{i: []int64{seed}}}})
		require.Equal(t, referenceToken(t, logits, temperature, topK, topP, seed), int64(s.token(logits, 0)),
			"round %d: %d logits, temperature %g, top-k %d, top-p %g", round, n, temperature, topK, topP)
	}
}
