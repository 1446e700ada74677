package session

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// String names the form: "logits", "sampler" or "authors-sampler".
func (f Form) String() string {
	switch f {
	case Logits:
		return "logits"
	case Sampler:
		return "sampler"
	case AuthorsSampler:
		return "authors-sampler"
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

// Description is what a module says about its language model, without an engine.
type Description struct {
	// Form of forward.
	Form Form
	// MaxSeqLen, MaxChunk, MinChunk and Vocab are as in [Model].
	MaxSeqLen, MaxChunk, MinChunk, Vocab int
	// DeclaredChunk is the value of get_max_prefill_chunk, 0 where there is no such method. MaxChunk is smaller if ring
	// buffers or the bounds of the inputs allow less.
	DeclaredChunk int
	// Rings are the lengths of the buffers in which positions wrap around, each once, in ascending order.
	Rings []int
}

// Describe recognises the form of a module's entry as [Load] does, and compiles nothing.
func Describe(m *ir.Module) (Description, error) {
	model, err := recognise(m)
	if err != nil {
		return Description{}, err
	}
	declared, err := metadataInt(m, "get_max_prefill_chunk", 0)
	rings := ringSlots(m, model.MaxSeqLen)
	slices.Sort(rings)
	return Description{Form: model.Form, MaxSeqLen: model.MaxSeqLen, MaxChunk: model.MaxChunk, MinChunk: model.MinChunk,
		Vocab: model.Vocab, DeclaredChunk: declared, Rings: slices.Compact(rings)}, err
}
