package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Adjust changes logits [Rows, Vocab] before a token is drawn, as adjust_logits of ir/eval does.
type Adjust struct {
	Rows, Vocab int
	// Listed is the number of tokens in the list of a row, 0 for none. Listed tokens have biases, or counts with
	// penalties, or both.
	Listed       int
	Bias, Counts bool
	// Fed says that a token was fed that the counts do not include yet.
	Fed bool
	// Mask says that there are masks.
	Mask bool
}

// words returns the number of 32-bit words of a mask.
func (a Adjust) words() int { return 2 * ceil(a.Vocab, 64) }

const adjustBlock = 1024

// Launch is the dispatch. It takes LogitsAdjustArguments: ids i32 [Rows, Listed], bias f32 [Rows, Listed], counts i32
// [Rows, Listed, 2], penalties f32 [Rows, 3], fed and mask_row i32 [Rows], masks i64 [any, ceil(Vocab/64)].
func (a Adjust) Launch() (Launch, error) {
	if a.Vocab <= 0 || a.Vocab > 1<<19 || a.Rows <= 0 || a.Rows > maxSampleRows || a.Listed < 0 || a.Listed > 1<<16 ||
		(a.Listed > 0) != (a.Bias || a.Counts) || a.Fed && !a.Counts {
		return Launch{}, fmt.Errorf("adjustments %+v of logits: not supported", a)
	}
	return Launch{File: "logits", Kernel: "logits_adjust", Groups: [3]int{ceil(a.Vocab, adjustBlock), a.Rows, 1},
		Threads: [3]int{256, 1, 1},
		Defines: define("LOGITS_VOCAB", a.Vocab, "LOGITS_LISTED", a.Listed, "LOGITS_BIAS", a.Bias, "LOGITS_COUNTS",
			a.Counts, "LOGITS_FED", a.Fed,
			"LOGITS_MASK", a.Mask, "LOGITS_WORDS", a.words(), "LOGITS_PARTS", 1, "LOGITS_EACH", 32, "LOGITS_TOP", 1),
		Case: a.newCase}, nil
}

// Adjustments are the operands of an Adjust other than the logits. Those that it does not have are nil.
type Adjustments struct {
	IDs, Counts, Fed, MaskRow []int32
	Bias, Penalties           []float32
	Mask                      []int64
}

// Reference changes the logits in place.
func (a Adjust) Reference(logits []float32, o Adjustments) {
	for r := range a.Rows {
		row := logits[r*a.Vocab:][:a.Vocab]
		penalize := func(v float32, all, answer int32) float32 {
			p := o.Penalties[3*r:]
			switch {
			case all <= 0:
			case v > 0:
				v /= p[0]
			default:
				v *= p[0]
			}
			if answer > 0 {
				v = float32(v-float32(float32(answer)*p[2])) - p[1]
			}
			return v
		}
		fed, found := int32(-1), false
		if a.Fed {
			fed = o.Fed[r]
		}
		for i := r * a.Listed; i < (r+1)*a.Listed; i++ {
			id := o.IDs[i]
			if id < 0 {
				continue
			}
			if a.Bias {
				row[id] += o.Bias[i]
			}
			if a.Counts {
				more := int32(btoi(id == fed))
				found = found || id == fed
				row[id] = penalize(row[id], o.Counts[2*i]+more, o.Counts[2*i+1]+more)
			}
		}
		if a.Fed && fed >= 0 && !found {
			row[fed] = penalize(row[fed], 1, 1)
		}
		if !a.Mask || o.MaskRow[r] < 0 {
			continue
		}
		for t := range row {
			if o.Mask[int(o.MaskRow[r])*a.words()/2+t/64]>>(t%64)&1 == 0 {
				row[t] = float32(math.Inf(-1))
			}
		}
	}
}

// Logprobs computes log-probabilities for Rows rows of logits [Vocab]: of one token each, and of up to Top most likely
// ones, as logprobs of ir/eval does.
type Logprobs struct{ Rows, Vocab, Top int }

// Parts of the vocabulary, and the logits of each.
func (l Logprobs) Parts() (parts, each int) { return Sample{Vocab: l.Vocab}.Parts() }

// Launches are the dispatches, which take LogprobsPartArguments and LogprobsChooseArguments: token and wanted i32
// [Rows], tops, sums f32 and places i32 [Rows, Parts], logprob f32 [Rows], ids i32 and likely f32 [Rows, Top].
func (l Logprobs) Launches() (part, choose Launch, err error) {
	if l.Vocab <= 0 || l.Vocab > 1<<19 || l.Rows <= 0 || l.Rows > maxSampleRows || l.Top <= 0 || l.Top > l.Vocab {
		return part, choose, fmt.Errorf("log-probabilities %+v: not supported", l)
	}
	parts, each := l.Parts()
	launch := func(kernel string, groups, threads int) Launch {
		return Launch{File: "logits", Kernel: kernel, Groups: [3]int{groups, l.Rows, 1}, Threads: [3]int{threads, 1, 1},
			Defines: define("LOGITS_VOCAB", l.Vocab, "LOGITS_LISTED", 0, "LOGITS_BIAS", 0,
				"LOGITS_COUNTS", 0, "LOGITS_FED", 0,
				"LOGITS_MASK", 0, "LOGITS_WORDS", 2, "LOGITS_PARTS", parts, "LOGITS_EACH", each, "LOGITS_TOP", l.Top)}
	}
	part = launch("logprobs_part", ceil(parts, sampleSimdgroups), sampleSimdgroups*32)
	choose = launch("logprobs_choose", 1, 1024)
	choose.Case = l.newCase
	return part, choose, nil
}

// Reference gives the answers of one row.
func (l Logprobs) Reference(logits []float32, token, wanted int, ids []int32, likely []float32) (logprob float32) {
	for i := range ids {
		ids[i], likely[i] = -1, 0
	}
	if wanted < 0 {
		return 0
	}
	var order []int32
	for i, v := range logits {
		if v == v {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	highest, sum := logits[order[0]], 0.0
	for _, i := range order {
		sum += math.Exp(float64(logits[i] - highest))
	}
	of := func(id int32) float32 { return float32(float64(logits[id]-highest) - math.Log(sum)) }
	for i, id := range order[:min(wanted, l.Top, len(order))] {
		ids[i], likely[i] = id, of(id)
	}
	return of(int32(token))
}
