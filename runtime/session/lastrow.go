package session

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// LastRow returns the program that [Load] compiles of a language model's: m itself, or, where forward gives logits
// [1, S, vocab] or [S, vocab] for every position, one that gives those of the last position alone, [1, vocab] or
// [vocab]. A session reads no others; engines then compute lm_head for one row of a chunk (runtime/fuse, pass
// last-token), and one row leaves the device. m is not changed; the result shares its operations.
func LastRow(m *ir.Module) (*ir.Module, error) {
	f := m.Entry
	if len(f.Body.Results) != 1 || len(f.Outputs) != 1 {
		return m, nil
	}
	logits := f.Body.Results[0]
	rows := logits.Type.Rank() - 2
	if logits.Type.Kind != ir.TensorKind || !logits.Type.DType.IsFloat() || rows < 0 ||
		logits.Type.Shape[rows].IsConst(1) {
		return m, nil
	}
	entry, body := *f, *f.Body
	body.Ops = slices.Clone(f.Body.Ops)
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: &body}
		last := b.Value("take", &ir.AxisAttrs{Axis: rows}, logits, -1)
		body.Results, entry.Outputs = []*ir.Value{last}, []ir.Type{last.Type}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: the last of the logits %s: %w", f.Name, logits.Type, err)
	}
	entry.Body = &body
	out := *m
	out.Entry = &entry
	return &out, nil
}
