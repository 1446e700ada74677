package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// BenchmarkDraw compares a sampling head's sample with the runtime's draw, of the logits of a large vocabulary: at
// temperature 0.8, with top-k 20 and top-p 0.95, and with the adjustment of the logits before it.
func BenchmarkDraw(b *testing.B) {
	const vocab = 248_320
	random := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(random.NormFloat64() * 3)
	}
	for name, text := range map[string]string{
		"head": `%t = sample(logits=%x, temperature=%a, top_k=%b, top_p=%c, seed=%d) : i64[1]`,
		"draw": `%t = draw(logits=%x, temperature=%a, top_k=%b, top_p=%c, key=%d) : i64[1]`,
		"adjust and draw": `%y = adjust_logits(logits=%x, ids=%i, bias=%j) : f32[1,248320]
    %t = draw(logits=%y, temperature=%a, top_k=%b, top_p=%c, key=%d) : i64[1]`,
	} {
		b.Run(name, func(b *testing.B) {
			dims := "[1]"
			if name == "head" {
				dims = "[]"
			}
			m, err := ir.Parse("module {\n  entry forward(%x: f32[1,248320], %a: f32" + dims + ", %b: i64" +
				dims + ", %c: f32" + dims +
				", %d: i64" + dims + ", %i: i64[1,4], %j: f32[1,4]) {\n    " + text +
				"\n    return %t: i64[1]\n  }\n}\n")
			require.NoError(b, err)
			exe, err := Engine{}.Compile(m, engine.Options{Threads: 2})
			require.NoError(b, err)
			defer exe.Close()
			x, err := exe.NewInstance()
			require.NoError(b, err)
			defer x.Close()
			shape := []int{1}
			if name == "head" {
				shape = nil
			}
			float := func(v float32) eval.Value { return eval.Value{Tensor: eval.Floats(ir.F32, shape, []float32{v})} }
			integer := func(v int64) eval.Value { return eval.Value{Tensor: eval.Ints(ir.I64, shape, []int64{v})} }
			inputs := []eval.Value{{Tensor: eval.Floats(ir.F32, []int{1, vocab}, logits)}, float(0.8), integer(20),
				float(0.95), integer(7),
				{Tensor: eval.Ints(ir.I64, []int{1, 4}, []int64{1, 2, 3, -1})},
				{Tensor: eval.Floats(ir.F32, []int{1, 4}, []float32{1, 2, 3, 4})}}
			for b.Loop() {
				_, err := x.Run(b.Context(), inputs)
				require.NoError(b, err)
			}
		})
	}
}
