package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Router chooses the experts of tokens: of the softmax of logits [T, Experts] the Top largest, in the order of top_k.
type Router struct {
	Experts, Top int
	// Logits says that scores are the logits themselves, not their softmax.
	Logits bool
	// Normalize divides the scores of a token by their sum; Scale multiplies them (1 for none).
	Normalize bool
	Scale     float32
}

// Launch is the dispatch for up to tokens tokens. Buffers: logits f32 [T, Experts], experts i32 [T, Top], scores f32
// [T, Top], step.
func (r Router) Launch(tokens int) (Launch, error) {
	if r.Experts < 1 || r.Experts > 4096 || r.Top < 1 || r.Top > min(32, r.Experts) {
		return Launch{}, fmt.Errorf("router: the %d largest of %d experts, want at most 32 of at most 4096", r.Top, r.Experts)
	}
	simds := min(16, ceil(r.Experts, 32))
	return Launch{
		File: "router", Kernel: "router", Trial: r.trial,
		Defines: define("ROUTER_EXPERTS", r.Experts, "ROUTER_TOP", r.Top, "ROUTER_SOFTMAX", !r.Logits, "ROUTER_NORMALIZE", r.Normalize, "ROUTER_SCALE", r.Scale, "ROUTER_SIMDS", simds),
		Groups:  [3]int{tokens, 1, 1}, Threads: [3]int{simds * 32, 1, 1},
	}, nil
}

// Twin computes what the kernel does for len(logits)/Experts tokens.
func (r Router) Twin(logits []float32, experts []int32, scores []float32) {
	for t := range len(logits) / r.Experts {
		row := slices.Clone(logits[t*r.Experts : (t+1)*r.Experts])
		if !r.Logits {
			total := 0.0
			for _, v := range row {
				total += math.Exp(float64(v) - float64(slices.Max(row)))
			}
			top := slices.Max(row)
			for i, v := range row {
				row[i] = float32(math.Exp(float64(v)-float64(top)) / total)
			}
		}
		order := make([]int32, r.Experts)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(i, j int32) int {
			a, b := row[i], row[j]
			switch {
			case a > b || a != a && b == b:
				return -1
			case a < b || b != b && a == a:
				return 1
			}
			return int(j - i)
		})
		sum := float32(1)
		if r.Normalize {
			sum = 0
			for _, at := range order[:r.Top] {
				sum += row[at]
			}
		}
		for j, at := range order[:r.Top] {
			experts[t*r.Top+j] = at
			scores[t*r.Top+j] = row[at] / sum * r.Scale
		}
	}
}
