package passes

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// stripSampler makes forward return what its sampler samples from: the module becomes the one that
// never had a sampler, down to the last operation and parameter (requirements E2, E3). A module without
// a sampler stays as it is.
func stripSampler(m *ir.Module, o *Options) error {
	f := m.Entry
	if len(f.Body.Results) != 1 {
		return nil
	}
	sample := f.Body.Results[0].Def
	if sample == nil || sample.Def.Name != "sample" {
		return nil
	}
	logits := sample.Input("logits")
	if take := logits.Def; isLastTake(take) {
		logits = take.Input("x") // the authors sample the last token of the logits that they return
	}
	f.Body.Results[0], f.Outputs[0] = logits, logits.Type
	if err := eliminateDead(m, o); err != nil {
		return err
	}
	uses := ir.CountUses(f.Body)
	for i, p := range slices.Backward(f.Params) {
		if p.Param == "temperature" && uses[p] == 0 {
			f.Params = slices.Delete(f.Params, i, i+1)
		}
	}
	for i, p := range f.Params {
		p.Index = i
	}
	return nil
}

// isLastTake reports whether op takes the last index of axis 1: the last token of (B, S, …).
func isLastTake(op *ir.Op) bool {
	if op == nil || op.Def.Name != "take" || ir.Attrs[ir.AxisAttrs](op).Axis != 1 {
		return false
	}
	index, _ := op.Arg("index")
	return index.Kind == ir.IntArg && index.Int == -1
}

// lastToken makes forward return the logits of the last token, (B, vocab), and computes lm_head for that
// token alone (requirements A1 to A4). Everything between lm_head and the logits works on each position
// by itself, so the last position of the result is the result for the last position.
func lastToken(m *ir.Module, _ *Options) error {
	return ir.Build(func() {
		f := m.Entry
		b := &ir.Builder{Module: m, Region: f.Body}
		if logits := f.Body.Results[0]; logits.Type.Kind == ir.TensorKind && logits.Type.Rank() == 3 {
			f.Body.Results[0] = b.Value("take", &ir.AxisAttrs{Axis: 1}, logits, -1)
			f.Outputs[0] = f.Body.Results[0].Type
		}
		for {
			take := hoistable(f.Body)
			if take == nil {
				return
			}
			hoistTake(m, f.Body, take)
		}
	})
}

// hoistable finds a last-token take that can move before the operation that it takes from: lm_head or
// what stands between it and the logits.
func hoistable(r *ir.Region) *ir.Op {
	uses := ir.CountUses(r)
	for _, op := range r.Ops {
		if !isLastTake(op) {
			continue
		}
		x := op.Input("x")
		if x.Def == nil || uses[x] != 1 || x.Type.Rank() != 3 || !slices.Contains(r.Ops, x.Def) {
			continue
		}
		if n, ok := ir.CarriesRows(x.Def, hasPositions); ok && n == 1 && len(x.Def.Results) == 1 {
			return op
		}
	}
	return nil
}

// hasPositions reports whether v has a row for each position: (B, S, …).
func hasPositions(v *ir.Value) bool { return v.Type.Kind == ir.TensorKind && v.Type.Rank() == 3 }

// hoistTake moves a take before the operation whose result it takes from.
func hoistTake(m *ir.Module, r *ir.Region, take *ir.Op) {
	before := take.Input("x").Def
	var ops []*ir.Op
	b := &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
	for _, op := range r.Ops {
		switch op {
		case before:
			moved := before.Like()
			moved.EachArg(func(a *ir.Arg) {
				if a.Value != nil && hasPositions(a.Value) {
					a.Value = b.Value("take", &ir.AxisAttrs{Axis: 1}, a.Value, -1)
				}
			})
			b.Append(moved)
			take.Results[0].Def, moved.Results = moved, take.Results
		case take:
		default:
			ops = append(ops, op)
		}
	}
	r.Ops = ops
}

// samplingHead fuses the sampler: forward takes temperature, top_k, top_p and seed after its own inputs
// and returns the sampled token (requirements B2, B5, C9). It takes logits (B, vocab) of any model.
func samplingHead(m *ir.Module, _ *Options) error {
	f := m.Entry
	if len(f.Body.Results) != 1 || f.Body.Results[0].Type.Kind != ir.TensorKind || f.Body.Results[0].Type.Rank() != 2 {
		return fmt.Errorf("the sampling head takes logits of shape (B, vocab), forward returns %s: slice the last "+
			"token before lm_head first", f.Body.Results[0].Type)
	}
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		logits := f.Body.Results[0]
		temperature := f.NewParam("temperature", ir.StaticType(ir.F32))
		topK := f.NewParam("top_k", ir.StaticType(ir.I64))
		topP := f.NewParam("top_p", ir.StaticType(ir.F32))
		seed := f.NewParam("seed", ir.StaticType(ir.I64))
		token := b.Value("sample", nil, logits, temperature, topK, topP, seed)
		f.Body.Results[0], f.Outputs[0] = token, token.Type
	})
	if err != nil {
		return err
	}
	for i := range m.Metadata {
		if m.Metadata[i].Name == "use_sampling" {
			m.Metadata[i].Values = []any{true}
			return nil
		}
	}
	m.Metadata = append(m.Metadata, ir.Method{Name: "use_sampling", Values: []any{true}})
	return nil
}
