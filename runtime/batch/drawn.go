package batch

import (
	"context"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/speculate"
)

// This file draws tokens on the device. If the engine supports that, the ragged program has two or three entries beside
// the main one. They end with the operations of ir/infer_draw.go instead of giving logits, and share weights and state
// with the main entry. Of a program with a draft, the main entry also gives hidden states.

// The names of these entries.
const (
	// drawEntry gives a token for each wanted row, i64[W], and nothing else: only such calls can begin ahead (ahead.go).
	drawEntry = "draw"
	// hiddenEntry gives the hidden states, too. Programs without a draft do not have it.
	hiddenEntry = "draw_hidden"
	// sampleEntry also changes logits before the draw, and gives logprobs, and hidden states if there is a draft.
	sampleEntry = "sample"
)

// topLogprobs is the number of most likely tokens that the entry gives. A row that asks for more gets logits instead.
const topLogprobs = 20

// drawsOnDevice reports whether an engine draws tokens faster than the host reads logits.
func drawsOnDevice(e engine.Engine) bool {
	d, ok := e.(engine.Drawing)
	return ok && d.DrawsOnDevice()
}

// addDraws adds the entries to a ragged module.
func addDraws(m *ir.Module, vocab int) error {
	entries := []string{drawEntry, sampleEntry}
	if len(m.Entry.Body.Results) > 1 {
		entries = append(entries, hiddenEntry)
	}
	for _, name := range entries {
		f := m.Only(m.Entry).Clone().Entry
		f.Name, f.Params = name, slices.Clone(f.Params)
		if err := ir.Build(func() { buildDraws(m, f, vocab) }); err != nil {
			return fmt.Errorf("the runtime's sampler: %w", err)
		}
		m.More = append(m.More, f)
	}
	if f := m.Named(ragged.DraftEntry); f != nil {
		if err := ir.Build(func() { buildDraws(m, f, vocab) }); err != nil {
			return fmt.Errorf("the runtime's sampler of drafts: %w", err)
		}
	}
	return nil
}

// buildDraws appends the sampler to the logits of an entry, and what the entry of that name gives besides. It adds
// parameters after the entry's own, in this order:
//
//	temperature f32[W], top_k i64[W], top_p f32[W], min_p f32[W], key i64[W]
//
// and for sampleEntry
//
//	ids i64[W, L], bias f32[W, L], counts i64[W, L, 2], penalties f32[W, 3], mask i64[M, words], mask_row i64[W],
//	logprobs i64[W]
func buildDraws(m *ir.Module, f *ir.Func, vocab int) {
	b, logits, hidden := &ir.Builder{Module: m, Region: f.Body}, f.Body.Results[0], f.Body.Results[1:]
	rows := logits.Type.Shape[0]
	in := func(name string, d ir.DType, more ...*ir.Expr) *ir.Value {
		return f.NewParam(name, ir.TensorType(d, append([]*ir.Expr{rows}, more...)...))
	}
	temperature, topK, topP := in("temperature", ir.F32), in("top_k", ir.I64), in("top_p", ir.F32)
	minP, key := in("min_p", ir.F32), in("key", ir.I64)
	adjusted, sample := logits, f.Name == sampleEntry
	if sample {
		listed, masks := ir.Sym(&ir.Symbol{Name: "listed", Lo: 1, Hi: 1 << 16}),
			ir.Sym(&ir.Symbol{Name: "masks", Lo: 1, Hi: 1 << 20})
		ids, bias, counts := in("ids", ir.I64, listed), in("bias", ir.F32, listed),
			in("counts", ir.I64, listed, ir.Const(2))
		penalties := in("penalties", ir.F32, ir.Const(3))
		mask := f.NewParam("mask", ir.TensorType(ir.I64, masks, ir.Const(int64(vocab+63)/64)))
		adjusted = b.Value("adjust_logits", nil, logits, ids, bias, counts, penalties, nil, mask,
			in("mask_row", ir.I64))
	}
	token := b.Value("draw", nil, adjusted, temperature, topK, topP, minP, key)
	f.Body.Results = []*ir.Value{token}
	if sample {
		op := b.Op("logprobs", &ir.LogprobsAttrs{Top: min(topLogprobs, vocab)}, logits, token, in("logprobs", ir.I64))
		f.Body.Results = append(f.Body.Results, op.Results...)
	}
	if f.Name != drawEntry {
		f.Body.Results = append(f.Body.Results, hidden...)
	}
	f.Outputs = nil
	for _, v := range f.Body.Results {
		f.Outputs = append(f.Outputs, v.Type)
	}
}

// entryFor returns the name of the entry that gives what rows ask for; "" is the main entry, which gives logits.
func (x *raggedExecutor) entryFor(rows []Row) string {
	if !x.draws {
		return ""
	}
	entry := drawEntry
	for _, r := range rows {
		switch {
		case r.Logits || r.Logprobs && r.Top > topLogprobs:
			return ""
		case r.Adjust != nil || r.Logprobs:
			entry = sampleEntry
		case r.Hidden && x.kind != speculate.None && entry == drawEntry:
			entry = hiddenEntry
		}
	}
	return entry
}

// drawn runs a call whose tokens are drawn on the device.
func (x *raggedExecutor) drawn(ctx context.Context, entry string, inputs []eval.Value, rows []Row) ([]Output, error) {
	count := bucket(len(rows), x.options.Rows)
	inputs = append(inputs, drawInputs(rows, count)...)
	if entry == sampleEntry {
		inputs = append(inputs, x.sampleInputs(rows, count)...)
	}
	given, err := x.instance.(engine.Entries).Call(ctx, entry, inputs)
	if err != nil {
		return nil, err
	}
	return x.outputs(entry, rows, given), nil
}

// outputs returns what rows give, by what an entry that draws gave.
func (x *raggedExecutor) outputs(entry string, rows []Row, given []eval.Value) []Output {
	out := make([]Output, len(rows))
	if entry != drawEntry {
		x.giveHidden(out, given)
	}
	for i, r := range rows {
		out[i].Token = int32(given[0].Tensor.I[i])
		if !r.Logprobs {
			continue
		}
		out[i].Logprob = given[1].Tensor.F[i]
		width := given[2].Tensor.Shape[1]
		for j := range min(r.Top, width) {
			if id := given[2].Tensor.I[i*width+j]; id >= 0 {
				out[i].Top = append(out[i].Top, Logprob{int(id), given[3].Tensor.F[i*width+j]})
			}
		}
	}
	return out
}

// drawInputs returns the draw parameters of rows, padded to count rows. Padding rows take the most likely token.
func drawInputs(rows []Row, count int) []eval.Value {
	temperature, topP, minP := make([]float32, count), make([]float32, count), make([]float32, count)
	topK, key := make([]int64, count), make([]int64, count)
	for i := range count {
		topP[i] = 1
		if i < len(rows) && rows[i].Draw != nil {
			d := rows[i].Draw
			temperature[i], topK[i], topP[i], minP[i], key[i] = d.Temperature, d.TopK, d.TopP,
				d.MinP, int64(int32(d.Seed))
		}
	}
	floats := func(v []float32) eval.Value { return eval.Value{Tensor: eval.Floats(ir.F32, []int{count}, v)} }
	longs := func(v []int64) eval.Value { return eval.Value{Tensor: eval.Ints(ir.I64, []int{count}, v)} }
	return []eval.Value{floats(temperature), longs(topK), floats(topP), floats(minP), longs(key)}
}

// fewListed is the minimum size of the lists of tokens, so that few different sizes occur.
const fewListed = 16

// sampleInputs returns the inputs that change the logits of rows and say which logprobs are wanted.
func (x *raggedExecutor) sampleInputs(rows []Row, count int) []eval.Value {
	listed, words := fewListed, (x.model.Vocab+63)/64
	for _, r := range rows {
		if r.Adjust != nil {
			listed = max(listed, bucket(len(r.Adjust.List), 1<<16))
		}
	}
	ids, bias, counts := slices.Repeat([]int64{-1}, count*listed), make([]float32, count*listed),
		make([]int64, 2*count*listed)
	penalties := slices.Repeat([]float32{1, 0, 0}, count)
	maskRow, wanted := slices.Repeat([]int64{-1}, count), slices.Repeat([]int64{-1}, count)
	var masks []int64
	for i, r := range rows {
		if r.Logprobs {
			wanted[i] = int64(r.Top)
		}
		a := r.Adjust
		if a == nil {
			continue
		}
		copy(penalties[3*i:], []float32{a.Repeat, a.Presence, a.Frequency})
		n := i * listed
		for _, t := range a.List[:min(len(a.List), listed)] {
			if t.Token < 0 || int(t.Token) >= x.model.Vocab {
				continue
			}
			ids[n], bias[n], counts[2*n+1] = int64(t.Token), t.Bias, int64(t.Answered)
			if t.Repeats {
				counts[2*n] = 1
			}
			n++
		}
		if a.Mask == nil {
			continue
		}
		if mask := a.Mask(); mask != nil {
			maskRow[i] = int64(len(masks) / words)
			at := len(masks)
			masks = append(masks, make([]int64, words)...)
			for j := range min(words, len(mask)) {
				masks[at+j] = int64(mask[j])
			}
		}
	}
	n := bucket(len(masks)/words, 1<<20)
	masks = append(masks, make([]int64, n*words-len(masks))...)
	longs := func(v []int64, shape ...int) eval.Value { return eval.Value{Tensor: eval.Ints(ir.I64, shape, v)} }
	floats := func(v []float32, shape ...int) eval.Value {
		return eval.Value{Tensor: eval.Floats(ir.F32, shape, v)}
	}
	return []eval.Value{longs(ids, count, listed), floats(bias, count, listed), longs(counts, count, listed, 2),
		floats(penalties, count, 3),
		longs(masks, n, words), longs(maskRow, count), longs(wanted, count)}
}

// apply changes logits.
func (a *Adjust) apply(logits []float32) {
	for _, t := range a.List {
		if t.Token < 0 || int(t.Token) >= len(logits) {
			continue
		}
		v := &logits[t.Token]
		*v += t.Bias
		if t.Repeats {
			if *v > 0 {
				*v /= a.Repeat
			} else {
				*v *= a.Repeat
			}
		}
		if t.Answered > 0 {
			*v = float32(*v-float32(float32(t.Answered)*a.Frequency)) - a.Presence
		}
	}
	if a.Mask == nil {
		return
	}
	mask := a.Mask()
	for i := range logits {
		if mask != nil && (i/64 >= len(mask) || mask[i/64]>>(i%64)&1 == 0) {
			logits[i] = minusInfinity
		}
	}
}
