package ir

import "fmt"

// The runtime's own sampler is three operations on rows of logits [R, V]. Every row has settings of its own, so that
// sequences of many users can be drawn together, and no row depends on another. Options that no row of a program uses
// are operands, or operations, that are not there.
//
//	adjusted = adjust_logits(logits, …)   what changes logits before the draw: biases, penalties, a mask
//	token = draw(adjusted, …)             temperature, top-k, top-p, min-p, noise
//	… = logprobs(logits, token, wanted)   log-probabilities under the raw logits
//
// What they compute is said at the reference kernels, ir/eval/draw.go.

// rowSettings checks the operands of an operation on rows of logits [R, V]: each has the dim R and then certain others.
type rowSettings struct {
	c    *Inference
	rows *Expr
	err  error
}

// need checks that an operand, where it is there, is of type dtype[R, more...]; nil stands for any dim.
func (s *rowSettings) need(operand string, d DType, more ...*Expr) {
	if s.err != nil || !s.c.Has(operand) {
		return
	}
	t := s.c.Type(operand)
	if t.DType != d || t.Rank() != 1+len(more) {
		s.err = fmt.Errorf("%s must be %s with %d dims, found %s", operand, d, 1+len(more), t)
		return
	}
	s.agree("rows of logits and "+operand, s.rows, t.Shape[0])
	for i, dim := range more {
		if dim != nil {
			s.agree(fmt.Sprintf("dim %d of %s", i+1, operand), dim, t.Shape[i+1])
		}
	}
}

func (s *rowSettings) agree(what string, a, b *Expr) {
	if s.err == nil {
		_, s.err = agree(what, a, b)
	}
}

// together checks that an operand is there only with another.
func (s *rowSettings) together(operand, with string) {
	if s.err == nil && s.c.Has(operand) && !s.c.Has(with) {
		s.err = fmt.Errorf("%s needs %s", operand, with)
	}
}

// rowsOfLogits checks logits [R, V].
func rowsOfLogits(c *Inference) (*rowSettings, Type, error) {
	logits, err := c.rank("logits", 2)
	if err != nil {
		return nil, logits, err
	}
	if err := needFloat("logits", logits.DType); err != nil {
		return nil, logits, err
	}
	return &rowSettings{c: c, rows: logits.Shape[0]}, logits, nil
}

// inferAdjustLogits infers the type of adjust_logits. It takes logits [R, V] and for each row a list of E tokens: ids
// i64[R, E], with bias f32[R, E], counts i64[R, E, 2] or both; with counts come penalties f32[R, 3] and fed i64[R];
// mask is i64[M, ceil(V/64)], with mask_row i64[R]. The result is f32[R, V].
func inferAdjustLogits(c *Inference) ([]Type, error) {
	s, logits, err := rowsOfLogits(c)
	if err != nil {
		return nil, err
	}
	for _, pair := range [][2]string{{"bias", "ids"}, {"counts", "ids"}, {"counts", "penalties"},
		{"penalties", "counts"}, {"fed", "counts"},
		{"mask", "mask_row"}, {"mask_row", "mask"}} {
		s.together(pair[0], pair[1])
	}
	var listed *Expr
	if s.need("ids", I64, nil); s.err == nil && c.Has("ids") {
		if listed = c.Type("ids").Shape[1]; !c.Has("bias") && !c.Has("counts") {
			s.err = fmt.Errorf("ids needs bias or counts")
		}
	}
	s.need("bias", F32, listed)
	s.need("counts", I64, listed, Const(2))
	s.need("penalties", F32, Const(3))
	s.need("fed", I64)
	s.need("mask_row", I64)
	if s.err == nil && c.Has("mask") {
		mask, err := c.rank("mask", 2)
		if err != nil {
			return nil, err
		}
		if mask.DType != I64 {
			return nil, fmt.Errorf("mask must be i64, 64 tokens in a word, found %s", mask)
		}
		words := logits.Shape[1].Add(Const(63)).FloorDiv(Const(64))
		s.agree("words of mask and of the vocabulary", words, mask.Shape[1])
	}
	if s.err != nil {
		return nil, s.err
	}
	return single(TensorType(F32, logits.Shape...))
}

// inferDraw infers the type of draw. It takes logits [R, V], temperature, top_p and min_p f32[R], top_k and key i64[R].
// The result is a token of each row, i64[R].
func inferDraw(c *Inference) ([]Type, error) {
	s, logits, err := rowsOfLogits(c)
	if err != nil {
		return nil, err
	}
	for _, setting := range []struct {
		operand string
		dtype   DType
	}{{"temperature", F32}, {"top_k", I64}, {"top_p", F32}, {"min_p", F32}, {"key", I64}} {
		s.need(setting.operand, setting.dtype)
	}
	if s.err != nil {
		return nil, s.err
	}
	return single(TensorType(I64, logits.Shape[0]))
}

// inferFillDrafts infers the type of fill_drafts. It takes tokens i64[1, R], drafts i64[N] and index i64[R]. Token r of
// the result, i64[1, R], is draft index[r] if index[r] is not negative, else token r. So the tokens of a call may be
// drafts that the same program has drawn before.
func inferFillDrafts(c *Inference) ([]Type, error) {
	tokens, err := c.rank("tokens", 2)
	if err != nil {
		return nil, err
	}
	drafts, index := c.Type("drafts"), c.Type("index")
	if tokens.DType != I64 || drafts.DType != I64 || drafts.Rank() != 1 || index.DType != I64 || index.Rank() != 1 ||
		!tokens.Shape[0].IsConst(1) {
		return nil, fmt.Errorf("want tokens i64[1,R], drafts i64[N] and index i64[R], found %s, %s and %s", tokens, drafts,
			index)
	}
	if _, err := agree("tokens and index", tokens.Shape[1], index.Shape[0]); err != nil {
		return nil, err
	}
	return single(tokens)
}

// inferLogprobs infers the type of logprobs. It takes logits [R, V], token and wanted i64[R]. The results are f32[R],
// i64[R, Top] and f32[R, Top].
func inferLogprobs(c *Inference) ([]Type, error) {
	s, logits, err := rowsOfLogits(c)
	if err != nil {
		return nil, err
	}
	s.need("token", I64)
	s.need("wanted", I64)
	if s.err != nil {
		return nil, s.err
	}
	top := Attrs[LogprobsAttrs](c.Op).Top
	if top < 1 || less(logits.Shape[1], Const(int64(top))) {
		return nil, fmt.Errorf("top must be between 1 and the last dim of logits %s, found %d", logits, top)
	}
	rows, room := logits.Shape[0], Const(int64(top))
	return []Type{TensorType(F32, rows), TensorType(I64, rows, room), TensorType(F32, rows, room)}, nil
}
