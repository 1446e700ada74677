package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// additive is the additive form of a bool mask.
func additive(mask *Tensor, d ir.DType) *Tensor {
	out := Floats(d, mask.Shape, make([]float32, len(mask.I)))
	for i, v := range mask.I {
		if v == 0 {
			out.F[i] = float32(math.Inf(-1))
		}
	}
	return out
}

func TestAttentionAgreesWithMLX(t *testing.T) {
	a := answers(t, "attention")
	for _, test := range []struct {
		d, length string
		dtype     ir.DType
	}{{"f32", "L5", ir.F32}, {"bf16", "L1", ir.BF16}} {
		name := test.d + "_" + test.length + "_"
		q, k, v, window := a[name+"q"], a[test.d+"_k"], a[test.d+"_v"], a[name+"winmask"]
		attrs := ir.SdpaAttrs{Scale: 0.125}
		requireNear(t, a[name+"none"], run(t, "sdpa", &attrs, Strict, q, k, v)[0])
		requireNear(t, a[name+"bool"], run(t, "sdpa", &attrs, Strict, q, k, v, window)[0])
		requireNear(t, a[name+"add"], run(t, "sdpa", &attrs, Strict, q, k, v, additive(window, test.dtype))[0])
		causal := ir.SdpaAttrs{Scale: 0.125, Causal: true}
		requireNear(t, a[name+"causal"], run(t, "sdpa", &causal, Strict, q, k, v)[0])
		requireNear(t, a[test.d+"_mha_causal"], run(t, "sdpa", &causal, Strict, a[test.d+"_mha_q"], k, v)[0])
	}
	none := Ints(ir.Bool, []int{5, 12}, make([]int64, 60))
	requireNear(t, a["f32_L5_allfalse"], run(t, "sdpa", &ir.SdpaAttrs{Scale: 0.125}, Strict, a["f32_L5_q"],
		a["f32_k"], a["f32_v"], none)[0])
}

// TestAttentionAgreesWithExecuTorch: custom_sdpa at position 9, with caches cut to the tokens so far.
func TestAttentionAgreesWithExecuTorch(t *testing.T) {
	a := answers(t, "executorch")
	cut := func(x *Tensor) *Tensor {
		return run(t, "slice", &ir.StepAttrs{Step: 1}, FP32, x, 2, 0, 12)[0]
	}
	got := run(t, "sdpa", &ir.SdpaAttrs{Scale: 1, Causal: true}, FP32, a["sdpa2.q"],
		cut(a["sdpa2.k"]), cut(a["sdpa2.v"]))[0]
	requireNear(t, a["sdpa2.y"], got)
}

// TestAttentionByDefinition computes grouped queries with masks that broadcast, in float64.
func TestAttentionByDefinition(t *testing.T) {
	q, k, v := floats(2, 6, 3, 5), floats(2, 2, 4, 5), floats(2, 2, 4, 7)
	for _, mask := range []*Tensor{nil, floats(4), floats(6, 1, 4), floats(2, 1, 3, 4), floats(2, 6, 3, 4)} {
		got := run(t, "sdpa", &ir.SdpaAttrs{Scale: 0.5}, FP32, q, k, v, mask)[0]
		require.Equal(t, []int{2, 6, 3, 7}, got.Shape)
		var offsets []int
		if mask != nil {
			offsets = broadcastOffsets([]int{2, 6, 3, 4}, mask.Shape)
		}
		for r := range 2 * 6 * 3 {
			matrix := r/18*2 + r/3%6/3
			var weights [4]float64
			sum := 0.0
			for j := range weights {
				s := 0.0
				for e := range 5 {
					s += 0.5 * float64(q.F[r*5+e]) * float64(k.F[(matrix*4+j)*5+e])
				}
				if mask != nil {
					s += float64(mask.F[offsets[r*4+j]])
				}
				weights[j] = numeric.Exp(s)
				sum += weights[j]
			}
			for e := range 7 {
				want := 0.0
				for j, w := range weights {
					want += w / sum * float64(v.F[(matrix*4+j)*7+e])
				}
				require.InDelta(t, want, got.F[r*7+e], 1e-5)
			}
		}
	}
}

func TestAttentionMaskedRows(t *testing.T) {
	q, k, v := floats(1, 1, 3, 2), floats(1, 1, 2, 2), Floats(ir.F32, []int{1, 1, 2, 1}, []float32{1, 3})
	// Three queries over two keys: the first query comes before every key.
	require.Equal(t, float32(2), run(t, "sdpa", &ir.SdpaAttrs{Scale: 1, Causal: true}, FP32, q, k, v)[0].F[0])
	mask := Ints(ir.Bool, []int{3, 2}, []int64{0, 0, 1, 0, 1, 1})
	got := run(t, "sdpa", &ir.SdpaAttrs{Scale: 1}, FP32, q, k, v, mask)[0]
	require.Equal(t, []float32{2, 1}, got.F[:2])
	got = run(t, "sdpa", &ir.SdpaAttrs{Scale: 1}, FP32, q, k, v, additive(mask, ir.F32))[0]
	require.True(t, got.F[0] != got.F[0], "NaN")
	require.Equal(t, float32(1), got.F[1])
	// A masked slot of a cache may hold anything.
	v.F[1] = float32(math.NaN())
	require.Equal(t, float32(1), run(t, "sdpa", &ir.SdpaAttrs{Scale: 1}, FP32, q, k, v, mask)[0].F[1])
}

func TestAttentionRefusals(t *testing.T) {
	attrs := &ir.SdpaAttrs{Scale: 1}
	q, kv := floats(1, 4, 3, 8), floats(1, 2, 5, 8)
	requireError(t, "mask", "sdpa", &ir.SdpaAttrs{Scale: 1, Causal: true}, q, kv, kv, floats(3, 5))
	requireError(t, "heads", "sdpa", attrs, q, floats(1, 3, 5, 8), floats(1, 3, 5, 8))
	requireError(t, "4 dims", "sdpa", attrs, floats(4, 3, 8), kv, kv)
	requireError(t, "8 and 6", "sdpa", attrs, q, floats(1, 2, 5, 6), kv)
	requireError(t, "5 and 6", "sdpa", attrs, q, kv, floats(1, 2, 6, 8))
	requireError(t, "mask", "sdpa", attrs, q, kv, kv, floats(3, 4))
	layer, scale := 0, float32(1)
	requireError(t, "cache", "update_and_attend", &ir.UpdateAndAttendAttrs{LayerId: &layer, Scale: &scale},
		q, floats(1, 2, 3, 8), floats(1, 2, 3, 8), Ints(ir.I64, []int{1}, []int64{0}))
}
