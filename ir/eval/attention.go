package eval

import (
	"errors"
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
)

func init() {
	register(map[string]Kernel{
		"sdpa": attention,
		"update_and_attend": func(*Call) ([]Value, error) {
			return nil, errors.New("needs a key-value cache that a runner installs; this file can run only in a " +
				"runner that has one")
		},
	})
}

// attention is softmax(scale·q·kᵀ + mask)·v for q [B, H, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv];
// query head h reads head h/(H/Hkv). Causal masks are aligned to the lower right: query i sees keys
// j ≤ i + Lk − Lq. A bool mask says which keys a query sees, any other mask is added to the scores.
// A masked key gets the smallest finite score, so that a query that sees none averages v; a row of −inf
// in an additive mask gives NaN. Everything in between is float32, as in MLX's Metal kernels.
func attention(c *Call) ([]Value, error) {
	attrs := ir.Attrs[ir.SdpaAttrs](c.Op)
	q, k, v, mask := c.Tensor("q"), c.Tensor("k"), c.Tensor("v"), c.Tensor("mask")
	if len(q.Shape) != 4 || len(k.Shape) != 4 || len(v.Shape) != 4 {
		return nil, fmt.Errorf("q %v, k %v, v %v: want four dims, [B, H, L, D]", q.Shape, k.Shape, v.Shape)
	}
	batch, heads, queries, width := q.Shape[0], q.Shape[1], q.Shape[2], q.Shape[3]
	kvHeads, keys, valueWidth := k.Shape[1], k.Shape[2], v.Shape[3]
	switch {
	case k.Shape[0] != batch || v.Shape[0] != batch || v.Shape[1] != kvHeads ||
		v.Shape[2] != keys || k.Shape[3] != width:
		return nil, fmt.Errorf("q %v, k %v and v %v do not agree", q.Shape, k.Shape, v.Shape)
	case kvHeads == 0 || heads%kvHeads != 0:
		return nil, fmt.Errorf("%d query heads, want a multiple of the %d key heads", heads, kvHeads)
	case mask != nil && attrs.Causal:
		return nil, errors.New("a mask and causal together, want one of them")
	}
	d := c.Result(0).DType
	qs, ks, vs := c.as(q, d), c.as(k, d), c.as(v, d)
	hidden, bias, err := c.attentionMask(mask, d, []int{batch, heads, queries, keys})
	if err != nil {
		return nil, err
	}
	shape := []int{batch, heads, queries, valueWidth}
	out, err := room(shape)
	if err != nil {
		return nil, err
	}
	parallelUntil(c.Done, batch*heads*queries, keys*(width+valueWidth+16), func(lo, hi int) {
		query, scores := make([]float32, width), make([]float32, keys)
		for r := lo; r < hi; r++ {
			for i, x := range qs[r*width : (r+1)*width] {
				query[i] = x * attrs.Scale
			}
			matrix := r/queries/heads*kvHeads + r/queries%heads/(heads/kvHeads)
			k, v := ks[matrix*keys*width:], vs[matrix*keys*valueWidth:]
			seen := keys
			if attrs.Causal {
				seen = max(0, min(keys, r%queries+1+keys-queries))
			}
			for j := range scores {
				switch {
				case j >= seen || hidden != nil && hidden[r*keys+j] == 0:
					scores[j] = -math.MaxFloat32
				default:
					scores[j] = dot.Product(query, k[j*width:(j+1)*width])
					if bias != nil {
						scores[j] += bias[r*keys+j]
					}
				}
			}
			softmaxRow(scores, scores)
			weighted(out[r*valueWidth:(r+1)*valueWidth], scores, v)
		}
	})
	return one(c.floatResult(0, shape, out))
}

// attentionMask broadcasts a mask to the scores: which keys are seen, or what is added in dtype d.
func (c *Call) attentionMask(mask *Tensor, d ir.DType, shape []int) (hidden []int64, bias []float32, err error) {
	if mask == nil {
		return nil, nil, nil
	}
	if mask.DType != ir.Bool {
		mask = c.cast(mask, d)
	}
	if mask, err = mask.broadcast(shape); err != nil {
		return nil, nil, fmt.Errorf("mask: %w", err)
	}
	if mask.DType == ir.Bool {
		return mask.I, nil, nil
	}
	return nil, mask.F, nil
}

// weighted sets out to Σ_j weights[j]·rows[j]. A weight of zero drops its row whatever it holds, so that
// what lies in unused slots of a cache is never seen.
func weighted(out, weights, rows []float32) {
	n := len(out)
	for j, w := range weights {
		if w == 0 {
			continue
		}
		for i, x := range rows[j*n : (j+1)*n] {
			out[i] += float32(w * x)
		}
	}
}
