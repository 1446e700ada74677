package verify

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/session"
)

// method checks a method that computes: that it lifts, which verifies its module, and what the module does.
// It notes the names of its weights.
func (c *checker) method(m *container.Method, weights map[string]bool) {
	module, err := c.program.Module(m.Name)
	if len(m.Calls) == 1 && m.Delegates[m.Calls[0].Delegate].ID == container.MLXBackend {
		if mlx, err := c.file.MLX(m, 0); err == nil {
			for _, k := range mlx.Constants {
				weights[k.Name] = true
			}
			c.alignment(m, mlx.Constants)
		}
	}
	if err != nil {
		c.find(Error, "method", "%v", err)
		return
	}
	c.constants(m.Name, module)
	c.operations(m.Name, module)
	if m.Name == "forward" {
		c.languageModel(module)
	}
}

// constants notes constants that nothing uses.
func (c *checker) constants(name string, m *ir.Module) {
	uses := m.CountUses()
	unused, first := 0, ""
	for _, k := range m.Constants {
		if uses[k.Value] == 0 {
			if unused++; first == "" {
				first = k.Name
			}
		}
	}
	if unused > 0 {
		c.find(Note, "constants", "method %s: %d of %d constants are not used, the first is %q", name, unused,
			len(m.Constants), first)
	}
}

// operations looks for operations that not every runtime computes alike.
func (c *checker) operations(name string, m *ir.Module) {
	kernels, narrow := 0, ""
	m.Entry.Body.Walk(func(op *ir.Op) {
		switch op.Def.Name {
		case "metal_kernel":
			kernels++
		case "item_int":
			if x := op.Input("x"); x != nil && x.Type.DType.Size() < 4 && narrow == "" {
				narrow = ir.Describe(m, op)
			}
		}
	})
	if op := m.UndefinedIf(); op != nil {
		c.find(Warning, "if", "method %s: what it gives may be undefined: %s writes a value in one of its arms only; "+
			"a run that takes the other arm and reads it ends in an error", name, ir.Describe(m, op))
	}
	if kernels > 0 {
		c.find(Note, "metal", "method %s: %d nodes hold Metal source, which ExecuTorch runs on Apple GPUs only", name,
			kernels)
	}
	if narrow != "" {
		c.find(Warning, "item-int", "method %s: %s reads a tensor of less than 4 bytes; ExecuTorch's MLX runtime "+
			"reads 4, so the value depends on what lies behind it", name, narrow)
	}
}

// languageModel checks that forward is what the constant methods promise (requirement C13).
func (c *checker) languageModel(m *ir.Module) {
	has := map[string]bool{}
	for _, k := range m.Metadata {
		has[k.Name] = true
	}
	d, err := session.Describe(m)
	if err != nil {
		if has["get_max_seq_len"] || has["get_vocab_size"] || has["use_sampling"] {
			c.find(Error, "language-model", "%v", err)
		}
		return
	}
	c.vocab = d.Vocab
	if d.Form == session.Sampler && !has["use_sampling"] {
		c.find(Warning, "language-model",
			"forward gives a token, but there is no constant method use_sampling: ExecuTorch's runners take the "+
				"token for logits")
	}
	if d.DeclaredChunk > d.MaxChunk {
		c.find(Warning, "prefill-chunk",
			"get_max_prefill_chunk is %d, but only chunks up to %d are safe (%s): etc run uses those, ExecuTorch's "+
				"runners the declared ones, which answers long prompts wrong",
			d.DeclaredChunk, d.MaxChunk, limitReason(d))
	}
	if d.MinChunk > d.MaxChunk {
		c.find(Warning, "prefill-chunk",
			"get_min_prefill_chunk is %d, more than the largest chunk of %d: prompts are fed token by token",
			d.MinChunk, d.MaxChunk)
	}
	out := m.Entry.Outputs[0]
	if d.Form == session.Logits {
		if n, ok := out.Shape[out.Rank()-1].Const(); ok && int64(d.Vocab) != n {
			c.find(Error, "vocabulary", "get_vocab_size is %d, forward gives %d logits", d.Vocab, n)
		}
	}
}

// limitReason tells what keeps the chunk below the declared one.
func limitReason(d session.Description) string {
	for _, r := range d.Rings {
		if (r+1)/2 == d.MaxChunk {
			return "a buffer of " + plural(r, "position") + " wraps around"
		}
	}
	if d.MaxSeqLen == d.MaxChunk {
		return "the context has " + plural(d.MaxSeqLen, "position")
	}
	return "forward takes no more"
}
