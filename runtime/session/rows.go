package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
)

// rowsBytes bounds the logits of one call that gives them for every position.
const rowsBytes = 64 << 20

// LoadRows is [Load] for a program all of whose logits are read ([Session.Rows]), for example to score a text. It
// compiles the result of [AllRows], in chunks whose logits take at most 64 MiB; where that does not exist, it compiles
// what Load compiles.
func LoadRows(m *ir.Module, e engine.Engine, o engine.Options) (*Model, error) {
	model, err := recognise(m)
	if err != nil {
		return nil, err
	}
	all, ok := AllRows(m)
	chunk := rowsBytes / (4 * max(model.Vocab, 1))
	if model.Form != Logits || !ok || chunk < max(model.MinChunk, 2) {
		return Load(m, e, o)
	}
	model.MaxChunk = min(model.MaxChunk, chunk)
	model.rows = true
	if err := model.compile(all, e, o); err != nil {
		return nil, err
	}
	return model, nil
}

// Rows feeds tokens and gives the most likely token and the logits after each of them but the first skip; they are
// valid until the next call. A model of [LoadRows] takes tokens in chunks; any other takes those whose logits are given
// one by one.
func (s *Session) Rows(ctx context.Context, tokens []int, skip int) ([]Step, error) {
	if s.model.givesToken() {
		return nil, fmt.Errorf("logits of a program that gives tokens")
	}
	if skip < 0 || skip >= len(tokens) {
		return nil, fmt.Errorf("the logits after %d tokens but the first %d: none are left", len(tokens), skip)
	}
	if err := s.checkRoom(len(tokens)); err != nil {
		return nil, err
	}
	var steps []Step
	if !s.model.rows {
		step, err := s.Prefill(ctx, tokens[:skip+1], Greedy)
		for _, token := range tokens[skip+1:] {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, err
			}
			step.Logits = slices.Clone(step.Logits)
			steps = append(steps, step)
			step, err = s.Decode(ctx, token, Greedy)
		}
		return append(steps, step), err
	}
	for at := 0; at < len(tokens); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(len(tokens)-at, s.model.MaxChunk)
		if n < s.model.MinChunk {
			n = 1
		}
		out, err := s.forward(ctx, s.instance.Run, tokens[at:at+n], Greedy)
		if err != nil {
			return nil, err
		}
		logits := out[0].Tensor
		vocab := logits.Shape[len(logits.Shape)-1]
		if len(logits.F) != n*vocab {
			return nil, fmt.Errorf("the program gave %s%v for %d tokens, want logits for each",
				logits.DType, logits.Shape, n)
		}
		for i := max(skip-at, 0); i < n; i++ {
			row := *logits
			row.Shape, row.F = []int{1, vocab}, logits.F[i*vocab:(i+1)*vocab]
			if at+n < len(tokens) {
				row.F = slices.Clone(row.F) // the next call may write there
			}
			step, err := s.read(&row, Greedy)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
		at += n
	}
	return steps, nil
}
