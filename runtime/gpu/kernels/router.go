package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Router chooses the experts of tokens: the Top largest of logits [T, Experts], in the order of top_k.
type Router struct {
	Experts, Top int
	// Logits says that scores are the logits themselves, not their softmax over all experts.
	Logits bool
	// Normalize says that the scores of a token are divided by their sum. Scale multiplies them (1 for none).
	Normalize bool
	Scale     float32
	// Scales is the dtype of the factors of scores, one for each expert; None for no factors.
	Scales DType
}

// Launch is the dispatch for up to tokens tokens. It takes RouterArguments: Logits f32 [T, Experts], Scales
// [Experts], Experts i32 and Scores f32 [T, Top].
func (r Router) Launch(tokens int) (Launch, error) {
	if err := r.check(4096); err != nil {
		return Launch{}, err
	}
	simds := min(8, ceil(r.Experts, 32)) // some 20 of 256 logits are ranked, and a simdgroup ranks four at a time
	return Launch{
		File: "router", Kernel: "router", Case: r.newCase,
		Defines: append(r.defines(), define("ROUTER_SIMDS", simds)...),
		Groups:  [3]int{tokens, 1, 1}, Threads: [3]int{simds * 32, 1, 1},
	}, nil
}

// check returns an error where a kernel cannot choose among the experts. most is the largest number of experts that it
// can choose among.
func (r Router) check(most int) error {
	if r.Experts < 1 || r.Experts > most || r.Top < 1 || r.Top > min(32, r.Experts) {
		return fmt.Errorf("router: the %d largest of %d experts, want at most 32 of at most %d", r.Top, r.Experts, most)
	}
	if r.Scales != None {
		return needFloat("scales", r.Scales)
	}
	return nil
}

// defines returns the definitions of prelude/router.h.
func (r Router) defines() []Define {
	list := define("ROUTER_EXPERTS", r.Experts, "ROUTER_TOP", r.Top, "ROUTER_SOFTMAX", !r.Logits,
		"ROUTER_NORMALIZE", r.Normalize,
		"ROUTER_SCALE", r.Scale)
	if r.Scales != None {
		list = append(list, define("ROUTER_SCALED", true, "ROUTER_SCALES_T", r.Scales.text())...)
	}
	return list
}

// Reference computes what the kernel computes, for len(logits)/Experts tokens. scales is not read without Scales.
func (r Router) Reference(logits, scales []float32, experts []int32, scores []float32) {
	for t := range len(logits) / r.Experts {
		row := logits[t*r.Experts : (t+1)*r.Experts]
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
		score := func(at int32) float64 {
			if r.Logits {
				return float64(row[at])
			}
			return math.Exp(float64(row[at]) - float64(row[order[0]]))
		}
		of := order // scores are divided by the sum of these
		if r.Normalize {
			of = order[:r.Top]
		}
		sum := 0.0
		for _, at := range of {
			sum += score(at)
		}
		if r.Logits && !r.Normalize {
			sum = 1
		}
		for j, at := range order[:r.Top] {
			experts[t*r.Top+j] = at
			scaled := score(at) / sum * float64(r.Scale)
			if r.Scales != None {
				scaled *= float64(scales[at])
			}
			scores[t*r.Top+j] = float32(scaled)
		}
	}
}
