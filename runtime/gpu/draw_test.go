package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/session"
)

// drawing is the runtime's sampler with all that it has, on two rows of logits that the device computes.
const drawing = `module {
  constant @w : f32[97,32]
  entry forward(%x: f32[2,32], %ids: i64[2,3], %bias: f32[2,3], %counts: i64[2,3,2], %penalties: f32[2,3], %fed: i64[2], %mask: i64[2,2], %mask_row: i64[2], %temperature: f32[2], %top_k: i64[2], %top_p: f32[2], %min_p: f32[2], %key: i64[2], %wanted: i64[2]) {
    %logits = linear(x=%x, weight=@w) : f32[2,97]
    %0 = adjust_logits(logits=%logits, ids=%ids, bias=%bias, counts=%counts, penalties=%penalties, fed=%fed, mask=%mask, mask_row=%mask_row) : f32[2,97]
    %1 = draw(logits=%0, temperature=%temperature, top_k=%top_k, top_p=%top_p, min_p=%min_p, key=%key) : i64[2]
    %2, %3, %4 = logprobs(logits=%logits, token=%1, wanted=%wanted) {top=4} : f32[2], i64[2,4], f32[2,4]
    return %1: i64[2], %2: f32[2], %3: i64[2,4], %4: f32[2,4]
  }
}
`

// TestDraw: the runtime's sampler gives the answers of the reference kernels, on kernels of the device alone.
func TestDraw(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the emulator compiles kernels of their own")
	}
	m, err := ir.Parse(drawing)
	require.NoError(t, err)
	weights := make([]float32, 97*32)
	for i := range weights {
		weights[i] = float32(i*29%7 - 3) // sums of products with them are exact
	}
	m.Constants[0].Data = ir.Float32s([]int64{97, 32}, weights...)
	x, err := onDevice(t).Compile(m, engine.Options{NoTune: true, Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	instance, err := x.NewInstance()
	require.NoError(t, err)
	defer func() {
		require.NoError(t, instance.Close())
		require.NoError(t, x.Close())
	}()
	machine, err := eval.NewMachine(m, eval.FP32, nil)
	require.NoError(t, err)
	floats := func(shape []int, v ...float32) eval.Value { return eval.Value{Tensor: eval.Floats(ir.F32, shape, v)} }
	longs := func(shape []int, v ...int64) eval.Value { return eval.Value{Tensor: eval.Ints(ir.I64, shape, v)} }
	rows := make([]float32, 2*32)
	for i := range rows {
		rows[i] = float32(i*37%11)/16 - 0.25
	}
	row, list := []int{2}, []int{2, 3}
	for round := range int64(12) {
		inputs := []eval.Value{floats([]int{2, 32}, rows...), longs(list, 3, -1, 96, 5, 6, 7),
			floats(list, 4, 0, -2, 9, 1, 3),
			longs([]int{2, 3, 2}, 1, 1, 0, 0, 2, 0, 0, 0, 3, 2, 1, 0), floats(list, 1.5, 0.25, 0.5, 2, -1, 0.125),
			longs(row, round-1, 6),
			longs([]int{2, 2}, -1, -1, 0x5555555555555555, 0x155555555), longs(row, round%3-1, -1),
			floats(row, float32(round%4)/2, 0.8), longs(row, 0, 20*(round%2)), floats(row, 1, 0.9),
			floats(row, 0.02, 0), longs(row, round<<33+5, -round), longs(row, 4, round%5-1)}
		want, err := machine.Run(inputs)
		require.NoError(t, err)
		got, err := instance.Run(t.Context(), inputs)
		require.NoError(t, err)
		require.Equal(t, want[0].Tensor.I, got[0].Tensor.I, "round %d", round)
		require.Equal(t, want[2].Tensor.I, got[2].Tensor.I, "round %d", round)
		require.InDeltaSlice(t, want[1].Tensor.F, got[1].Tensor.F, 1e-4)
		require.InDeltaSlice(t, want[3].Tensor.F, got[3].Tensor.F, 1e-4)
	}
}

// TestDrawsAreTheHeads: sessions with the runtime's sampler, whose calls are pipelined as those with a head are, give
// the head's tokens.
func TestDrawsAreTheHeads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whole models on the emulator")
	}
	m, e := fusetest.Load(t, "etc-qwen35moe-chat-sample"), onDevice(t)
	o := engine.Options{NoTune: true}
	answer := func(model *session.Model, err error) []int {
		require.NoError(t, err)
		s, err := model.NewSession()
		require.NoError(t, err)
		a, err := s.Generate(t.Context(), session.Request{Prompt: []int{5, 9, 3}, MaxNewTokens: 8,
			Sampling: session.Sampling{Temperature: 1.5, TopK: 20, TopP: 0.9, Seed: -7}})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, model.Close())
		return a.Tokens
	}
	want := answer(session.Load(m, e, o))
	require.Equal(t, want, answer(session.LoadDraws(m, e, o, session.Draws{})))
	require.Equal(t, want, answer(session.LoadDraws(m, e, o,
		session.Draws{MinP: true, Window: 4, Mask: true, Logprobs: true, Top: 2})))
}
