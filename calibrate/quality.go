package calibrate

import (
	"math"
	"slices"

	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/ir/numeric/dot"
)

// Quality compares the predictions of the quantized weights with those of the checkpoint, over the held-out windows.
type Quality struct {
	// Tokens is the number of predictions.
	Tokens int `json:"tokens"`
	// Mean, Median and P99 (the 99th percentile) are of the Kullback-Leibler divergence D(checkpoint ‖ quantized), in
	// nats.
	Mean   float64 `json:"kl_mean"`
	Median float64 `json:"kl_median"`
	P99    float64 `json:"kl_p99"`
	// Top1 is the share of predictions for which both have the same most likely token.
	Top1 float64 `json:"top1_agreement"`
	// Perplexity is that of the quantized weights, Reference that of the checkpoint.
	Perplexity float64 `json:"perplexity"`
	Reference  float64 `json:"reference_perplexity"`
}

// scores collects the figures of the predictions.
type scores struct {
	divergence []float64
	same       int
	loss       [2][]float64 // by the checkpoint and by the quantized weights
}

// add compares the predictions of a call. next are the tokens that follow its rows, as far as they are known.
func (x *scores) add(given, quantized dot.Matrix, next []int, each eachFunc) {
	figures := make([]figure, given.Rows)
	each(given.Rows, func(t int) {
		token := -1
		if t < len(next) {
			token = next[t]
		}
		figures[t] = compare(given.Row(t), quantized.Row(t), token)
	})
	for t, f := range figures {
		x.divergence = append(x.divergence, f.divergence)
		if f.same {
			x.same++
		}
		if t < len(next) {
			for i := range x.loss {
				x.loss[i] = append(x.loss[i], f.loss[i])
			}
		}
	}
}

// figure has the figures of one prediction.
type figure struct {
	divergence float64
	same       bool
	loss       [2]float64
}

// compare compares the logits p of the checkpoint with the logits q of the quantized weights. token is the one that
// follows.
func compare(p, q []float32, token int) (f figure) {
	top := [2]int{}
	var normalizer [2]float64 // logarithm of the sum of exponentials
	for i, v := range [2][]float32{p, q} {
		for j, x := range v {
			if x > v[top[i]] {
				top[i] = j
			}
		}
		sum := 0.0
		for _, x := range v {
			sum += numeric.Exp(float64(x) - float64(v[top[i]]))
		}
		normalizer[i] = float64(v[top[i]]) + numeric.Log(sum)
		if token >= 0 {
			f.loss[i] = normalizer[i] - float64(v[token])
		}
	}
	for j, x := range p {
		log := float64(x) - normalizer[0]
		f.divergence += float64(numeric.Exp(log) * (log - (float64(q[j]) - normalizer[1])))
	}
	f.same = top[0] == top[1]
	return f
}

// sum returns the quality over all predictions.
func (x *scores) sum() *Quality {
	sorted := slices.Sorted(slices.Values(x.divergence))
	n := len(sorted)
	q := &Quality{Tokens: n, Mean: mean(x.divergence), Median: sorted[n/2], P99: sorted[min(n-1, n*99/100)],
		Top1: float64(x.same) / float64(n)}
	q.Reference, q.Perplexity = numeric.Exp(mean(x.loss[0])), numeric.Exp(mean(x.loss[1]))
	return q
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / math.Max(float64(len(v)), 1)
}
