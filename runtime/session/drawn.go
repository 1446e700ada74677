package session

import (
	"fmt"

	"github.com/etc-ml/etc/ir/eval"
)

// drawInputs adds the inputs of the runtime's sampler for tokens from a position on.
func (s *Session) drawInputs(inputs []eval.Value, tokens []int, position int, p Sampling) ([]eval.Value, error) {
	d := s.model.draws
	if err := d.check(p, s.model.width); err != nil {
		return nil, err
	}
	if s.model.Form == Logits {
		// Such a program has no seed and no filters. The key differs for each position, so that no two draws of an answer
		// use the same noise.
		p.TopK, p.TopP, p.Seed = 0, 1, s.key+int64(position+len(tokens))
	}
	c := &drawCall{Sampling: p, answer: s.answer}
	c.keep = position+len(tokens) >= s.answer // else a part of the prompt, whose token is dropped
	if n := d.listed(); n > 0 {
		if p.penalizes() {
			c.tokens = append(append(c.tokens, s.tokens[:min(position, len(s.tokens))]...), tokens...)
		}
		c.makeList(n)
	}
	if p.Mask != nil && c.keep {
		mask := make([]uint64, (s.model.width+63)/64)
		ok, err := p.Mask(mask)
		if err != nil {
			return nil, fmt.Errorf("the token mask: %w", err)
		}
		if ok {
			c.mask = mask
		}
	}
	for _, in := range s.given {
		inputs = append(inputs, in.give(c))
	}
	return inputs, nil
}

// drawn takes what the runtime's sampler gave out of the outputs.
func (s *Session) drawn(out []eval.Value, p Sampling) (Step, error) {
	d := s.model.draws
	step, err := s.read(out[0].Tensor, p)
	if err != nil {
		return step, err
	}
	out = out[1:]
	if d.Logprobs {
		if p.Logprobs {
			step.Logprob = out[0].Tensor.F[0]
			for i, id := range out[1].Tensor.I {
				if id >= 0 && i < p.TopLogprobs {
					step.Top = append(step.Top, Logprob{int(id), out[2].Tensor.F[i]})
				}
			}
		}
		out = out[3:]
	}
	if d.Logits {
		t := out[0].Tensor
		if len(t.F) != s.model.width {
			return step, fmt.Errorf("the program gave %s%v, want logits of %d tokens", t.DType, t.Shape, s.model.width)
		}
		step.Logits = t.F
	}
	return step, nil
}
