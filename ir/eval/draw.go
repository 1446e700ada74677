package eval

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{"adjust_logits": adjustLogits, "draw": draw, "logprobs": logprobs,
		"fill_drafts": fillDrafts})
}

// adjustLogits changes logits [R, V] before a draw, each row by itself, in float32 and in this order:
//
//   - The list of a row, ids [E], names tokens of which no two are equal; an id below 0 is nothing. bias [E] is added
//     to their logits.
//   - counts [E, 2] says of each how often it stands among the last tokens of the prompt and the answer, and among
//     those of the answer. penalties [3] are repeat, presence and frequency. Where the first count is above 0 the
//     logit is divided by repeat if it is above 0, and multiplied by it otherwise; presence is subtracted where the
//     second count is above 0, and so is frequency times that count. (Keskar et al., CTRL, 2019, section 4.1; the
//     penalties of OpenAI's API. llama.cpp has the same.)
//   - fed, where it is there, is a token that the counts leave out: both of its counts are one more, whether it is in
//     the list or not; below 0 it is nothing. So a call can be prepared before the token that it feeds is known.
//   - mask [M, ceil(V/64)] holds sets of tokens: bit t%64 of word t/64 is that of token t. mask_row is the set that the
//     row's tokens must be in, or below 0 for none. All other logits become −∞.
func adjustLogits(c *Call) ([]Value, error) {
	logits := c.Tensor("logits")
	if len(logits.Shape) != 2 {
		return nil, fmt.Errorf("logits have shape %v, want rows of a vocabulary", logits.Shape)
	}
	rows, vocab := logits.Shape[0], logits.Shape[1]
	a, err := NewAdjustment(c.Tensor, rows, vocab)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(ir.F32, rows, vocab)
	if err != nil {
		return nil, err
	}
	copy(out.F, c.as(logits, ir.F32))
	for r := range rows {
		if err := a.Row(out.F[r*vocab:(r+1)*vocab], r); err != nil {
			return nil, fmt.Errorf("row %d: %w", r, err)
		}
	}
	return c.result(out, nil)
}

// Adjustment are the operands of adjust_logits beside the logits; those that are absent are nil.
type Adjustment struct{ ids, bias, counts, penalties, fed, mask, maskRow *Tensor }

// NewAdjustment reads the operands of adjust_logits, whose logits are [rows, vocab], by name.
func NewAdjustment(operand func(name string) *Tensor, rows, vocab int) (*Adjustment, error) {
	a := &Adjustment{
		ids: operand("ids"), bias: operand("bias"), counts: operand("counts"), penalties: operand("penalties"),
		fed:  operand("fed"),
		mask: operand("mask"), maskRow: operand("mask_row"),
	}
	return a, a.check(rows, vocab)
}

// check checks shapes that programs get right, as the verifier sees to it.
func (a *Adjustment) check(rows, vocab int) error {
	listed, words := 0, (vocab+63)/64
	if a.ids != nil && len(a.ids.Shape) == 2 {
		listed = a.ids.Shape[1]
	}
	masks := 0
	if a.mask != nil && len(a.mask.Shape) == 2 {
		masks = a.mask.Shape[0]
	}
	for _, want := range []struct {
		name  string
		t     *Tensor
		shape []int
	}{
		{"ids", a.ids, []int{rows, listed}},
		{"bias", a.bias, []int{rows, listed}},
		{"counts", a.counts, []int{rows, listed, 2}},
		{"penalties", a.penalties, []int{rows, 3}},
		{"fed", a.fed, []int{rows}},
		{"mask", a.mask, []int{masks, words}},
		{"mask_row", a.maskRow, []int{rows}},
	} {
		float := want.name == "bias" || want.name == "penalties"
		if t := want.t; t != nil && (!slices.Equal(t.Shape, want.shape) || float != (t.F != nil)) {
			return fmt.Errorf("%s is %s%v, want %v", want.name, t.DType, t.Shape, want.shape)
		}
	}
	if a.counts != nil && a.penalties == nil || a.fed != nil && a.counts == nil ||
		(a.mask == nil) != (a.maskRow == nil) {
		return fmt.Errorf("counts need penalties, fed needs counts, and mask and mask_row go together")
	}
	return nil
}

// Row adjusts the logits of row r in place.
func (a *Adjustment) Row(logits []float32, r int) error {
	fed := int64(-1)
	if a.fed != nil {
		fed = a.fed.I[r]
	}
	if a.ids != nil {
		listed := a.ids.Shape[1]
		seen := map[int64]bool{}
		for e := range listed {
			id := a.ids.I[r*listed+e]
			if id < 0 {
				continue
			}
			if id >= int64(len(logits)) || seen[id] {
				return fmt.Errorf("ids: row %d has id %d twice, or it is not in the vocabulary of %d", r, id,
					len(logits))
			}
			seen[id] = true
			if a.bias != nil {
				logits[id] += a.bias.F[r*listed+e]
			}
			if a.counts != nil {
				counts := [2]int64(a.counts.I[2*(r*listed+e):])
				if id == fed {
					counts[0], counts[1] = counts[0]+1, counts[1]+1
				}
				logits[id] = a.penalize(logits[id], counts, r)
			}
		}
		if fed >= 0 && !seen[fed] {
			if fed >= int64(len(logits)) {
				return fmt.Errorf("token %d was fed, which is outside of the vocabulary of %d", fed, len(logits))
			}
			logits[fed] = a.penalize(logits[fed], [2]int64{1, 1}, r)
		}
	}
	if a.mask == nil || a.maskRow.I[r] < 0 {
		return nil
	}
	set, words := a.maskRow.I[r], a.mask.Shape[1]
	if set >= int64(a.mask.Shape[0]) {
		return fmt.Errorf("mask_row is %d of %d masks", set, a.mask.Shape[0])
	}
	for w, word := range a.mask.I[int(set)*words:][:words] {
		if word == -1 {
			continue
		}
		for i := range min(64, len(logits)-64*w) {
			if word>>i&1 == 0 {
				logits[64*w+i] = float32(math.Inf(-1))
			}
		}
	}
	return nil
}

// penalize gives a logit of row r for what its token's counts are.
func (a *Adjustment) penalize(v float32, counts [2]int64, r int) float32 {
	repeat, presence, frequency := a.penalties.F[3*r], a.penalties.F[3*r+1], a.penalties.F[3*r+2]
	switch {
	case counts[0] <= 0:
	case v > 0:
		v /= repeat
	default:
		v *= repeat
	}
	if counts[1] > 0 {
		v = float32(v-float32(float32(counts[1])*frequency)) - presence
	}
	return v
}

// fillDrafts gives, of row r of a call, draft index[r] if index[r] is not negative, else token r.
func fillDrafts(c *Call) ([]Value, error) {
	tokens, drafts, index := c.Tensor("tokens"), c.Tensor("drafts"), c.Tensor("index")
	if tokens.Len() != index.Len() {
		return nil, fmt.Errorf("an index of %d elements for %d tokens", index.Len(), tokens.Len())
	}
	out := &Tensor{DType: tokens.DType, Shape: tokens.Shape, I: slices.Clone(tokens.I)}
	for r, at := range index.I {
		if at >= int64(drafts.Len()) {
			return nil, fmt.Errorf("row %d has draft %d of %d", r, at, drafts.Len())
		}
		if at >= 0 {
			out.I[r] = drafts.I[at]
		}
	}
	return []Value{{Tensor: out}}, nil
}

// draw chooses a token of every row of logits [R, V], as sample does with the settings of the row, which see to that:
// the random words of a row are those of a draw of V words under its key, a number of 64 bits. A seed's is the seed's
// lower 32 bits, sign-extended. Last of the filters comes min-p: it keeps the tokens that are at least min_p times as
// likely as the most likely one, by their scaled logits. min_p ≤ 0 is off.
func draw(c *Call) ([]Value, error) {
	logits := c.Tensor("logits")
	if len(logits.Shape) != 2 || logits.Shape[1] == 0 {
		return nil, fmt.Errorf("logits have shape %v, want rows of a vocabulary", logits.Shape)
	}
	rows, vocab := logits.Shape[0], logits.Shape[1]
	for _, name := range []string{"temperature", "top_k", "top_p", "min_p", "key"} {
		float := name != "top_k" && name != "key"
		if t := c.Tensor(name); t != nil && (t.Len() != rows || float != (t.F != nil)) {
			return nil, fmt.Errorf("%s is %s%v, want a number for each of %d rows", name, t.DType, t.Shape, rows)
		}
	}
	tokens, err := NewTensor(ir.I64, rows)
	if err != nil {
		return nil, err
	}
	values := c.as(logits, ir.F32)
	parallel(rows, 64*vocab, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			key := numeric.Key(uint64(c.Tensor("key").I[r]))
			p := &sampling{
				temperature: c.Tensor("temperature").F[r], topK: c.Tensor("top_k").I[r], topP: c.Tensor("top_p").F[r],
				word: func(i int) uint32 { return numeric.Word(key, vocab, i) },
			}
			if t := c.Tensor("min_p"); t != nil {
				p.minP = t.F[r]
			}
			tokens.I[r] = int64(p.token(values[r*vocab:(r+1)*vocab], 0))
		}
	})
	return c.result(tokens, nil)
}

// logprobs returns natural logarithms of probabilities under the softmax of logits [R, V], in which a NaN has none:
// that of the row's token, and the wanted most likely tokens with theirs, the most likely first, of equals the one of
// the lowest id. Behind them, and everywhere in a row that wants fewer than 0, ids are −1 and numbers 0.
func logprobs(c *Call) ([]Value, error) {
	logits, token, wanted := c.Tensor("logits"), c.Tensor("token"), c.Tensor("wanted")
	if len(logits.Shape) != 2 || token.Len() != logits.Shape[0] || wanted.Len() != logits.Shape[0] ||
		token.I == nil || wanted.I == nil {
		return nil, fmt.Errorf("logits have the shape %v, token %v and wanted %v: expected [R, V], and an integer for "+
			"each of the R rows in both others", logits.Shape, token.Shape, wanted.Shape)
	}
	rows, vocab, top := logits.Shape[0], logits.Shape[1], ir.Attrs[ir.LogprobsAttrs](c.Op).Top
	out := make([]Value, 3)
	var err error
	for i, shape := range [][]int{{rows}, {rows, top}, {rows, top}} {
		if out[i].Tensor, err = NewTensor([]ir.DType{ir.F32, ir.I64, ir.F32}[i], shape...); err != nil {
			return nil, err
		}
	}
	values := c.as(logits, ir.F32)
	for i := range out[1].Tensor.I {
		out[1].Tensor.I[i] = -1
	}
	for r := range rows {
		if wanted.I[r] < 0 {
			continue
		}
		row := values[r*vocab : (r+1)*vocab]
		if t := token.I[r]; t < 0 || t >= int64(vocab) {
			return nil, fmt.Errorf("token %d of row %d is outside of the vocabulary of %d", t, r, vocab)
		}
		highest, sum := softmaxScale(row)
		logprob := func(id int) float32 { return float32(float32(row[id]-highest) - sum) }
		out[0].Tensor.F[r] = logprob(int(token.I[r]))
		for i, id := range likeliest(row, min(int(min(wanted.I[r], math.MaxInt32)), top)) {
			out[1].Tensor.I[r*top+i], out[2].Tensor.F[r*top+i] = int64(id), logprob(id)
		}
	}
	return out, nil
}

// softmaxScale returns the highest of the logits and the logarithm of the sum of e^(v - highest).
func softmaxScale(row []float32) (highest, logSum float32) {
	highest = row[argmaxOf(row)]
	sum := 0.0
	for _, v := range row {
		if v == v {
			sum += float64(numeric.Exp32(v - highest))
		}
	}
	return highest, numeric.Log32(float32(sum))
}

// likeliest returns the ids of the n greatest logits, the greatest first.
func likeliest(row []float32, n int) []int {
	ids := make([]int, 0, len(row))
	for i, v := range row {
		if v == v {
			ids = append(ids, i)
		}
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		switch {
		case row[a] > row[b]:
			return -1
		case row[a] < row[b]:
			return 1
		}
		return 0
	})
	return ids[:min(n, len(ids))]
}
