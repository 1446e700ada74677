package fuse

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
)

// StripSampler returns a copy of m whose main entry returns the logits that its sampling head draws a token from,
// without the parameters that only the head had. An entry that returns floats is taken for one without a head: then
// the result is m. It is an error where an entry returns integers that are not a token drawn by a head that this
// package knows: by one of the graphs that pass "sample" makes the operation of. m is not changed.
func StripSampler(m *ir.Module) (*ir.Module, error) {
	if len(m.Entry.Outputs) == 1 && m.Entry.Outputs[0].Kind == ir.TensorKind && m.Entry.Outputs[0].DType.IsFloat() {
		return m, nil
	}
	m = m.Clone()
	f := m.Entry
	s := headOf(f)
	if s == nil {
		return nil, fmt.Errorf("%s: no sampling head that is known is between the logits and its outputs", f.Name)
	}
	f.Body.Results, f.Outputs = []*ir.Value{s.logits}, []ir.Type{s.logits.Type}
	if err := passes.EliminateDead(m); err != nil {
		return nil, err
	}
	uses := ir.CountUses(f.Body)
	var kept []*ir.Value
	for i, p := range f.Params {
		if sampled := p == s.temperature || p == s.topK || p == s.topP || p == s.seed; !sampled || uses[p] > 0 {
			if i != len(kept) {
				return nil, fmt.Errorf("%s: input %d (%s) stands after those of the sampling head", f.Name, i, p.Param)
			}
			kept = append(kept, p)
		}
	}
	f.Params = kept
	return m, nil
}

// headOf finds the sampling head that the only output of f is the token of: sample itself, or a graph of it.
func headOf(f *ir.Func) *sampler {
	if len(f.Body.Results) != 1 {
		return nil
	}
	token := flatInts(f.Body.Results[0])
	if token == nil || token.Def == nil {
		return nil
	}
	var s *sampler
	switch op := token.Def; op.Def.Name {
	case "sample":
		s = &sampler{op.Input("logits"), op.Input("temperature"), op.Input("top_k"),
			op.Input("top_p"), op.Input("seed")}
	case "if":
		s = matchSampler(op)
	case "argmax":
		s = matchUnseeded(op)
	}
	if s == nil || s.logits.Type.Rank() != 2 || !s.logits.Type.DType.IsFloat() {
		return nil
	}
	return s
}
