package guide

import (
	"slices"

	"github.com/etc-ml/etc/runtime/constrain"
)

// Options say what an answer is held to.
type Options struct {
	// Text is the form of the text; nil: any text.
	Text *constrain.Grammar
	// Call is the form of the body of a call that has to come; nil: none has to. See [Model.CompileCall].
	Call *constrain.Grammar
	// Once says that at most one call comes.
	Once bool
	// Parse says that thoughts and calls are told from the text; without it all of the answer is text.
	Parse bool
	// Prompt is the end of the prompt, after its history: where it opens thoughts, the answer begins in them.
	Prompt []int
	// Thinks says that the model may think before its text, Calls that it may call tools.
	Thinks, Calls bool
	// Budget bounds the tokens of the thoughts; 0: no bound.
	Budget int
}

// Guide says which tokens of an answer may come next. It is not safe for concurrent use.
type Guide struct {
	model *Model
	inner *constrain.Matcher // what the text must match; nil: any text
	must  *constrain.Grammar // the grammar of a call that the answer must have; nil: it need not have one
	call  *constrain.Matcher // what the call must match that the next token is in
	once  bool               // the answer may have one call only
	// thinking and calling say where the next token is: in thoughts, in a call. start says that the text has not begun;
	// then thoughts may come (opens) and calls (calls). gap says that thoughts have just ended, so that ends of lines
	// may come. called says that the answer has calls, so that no text may come any more.
	thinking, calling, start, opens, calls, gap, called bool
	budget, spent                                       int
}

// New starts an answer. It returns an error if the bytes of the vocabulary's tokens are not known.
func (m *Model) New(o Options) (*Guide, error) {
	v, err := m.Vocab()
	if err != nil {
		return nil, err
	}
	f := m.format
	g := &Guide{model: m, must: o.Call, once: o.Once, start: true, budget: o.Budget}
	if o.Text != nil {
		g.inner = constrain.NewMatcher(o.Text, v)
	}
	if o.Call != nil {
		if _, err := m.CallVocab(); err != nil {
			return nil, err
		}
	}
	if o.Parse {
		g.thinking = f.Inside(o.Prompt)
		g.opens = f.Thinks() && o.Thinks && !slices.Contains(o.Prompt, f.Close)
		g.calls = f.Calls() && o.Calls
	}
	return g, nil
}

// MaskWords returns the length of a mask.
func (g *Guide) MaskWords() int { return g.model.vocab.MaskWords() }

// Mask writes to dst which tokens may come next: bit i%64 of word i/64 is set where token i may. It returns false where
// every token may come next; the content of dst then means nothing.
func (g *Guide) Mask(dst []uint64) bool {
	f := g.model.format
	switch {
	case g.thinking && g.budget > 0 && g.spent >= g.budget:
		clear(dst)
		set(dst, f.Close)
		return true
	case g.calling && g.call != nil:
		g.call.Mask(dst)
		return true
	case g.inner == nil && g.must == nil:
		return false
	case g.thinking || g.calling: // they have to end before the answer does
		for i := range dst {
			dst[i] = ^uint64(0)
		}
		for _, t := range g.model.stop {
			dst[t/64] &^= 1 << (t % 64)
		}
		return true
	case g.called:
		clear(dst)
		for _, t := range slices.Concat(g.model.stop, g.model.newlines) {
			set(dst, t)
		}
		if !g.once {
			set(dst, f.Tool)
		}
		return true
	case g.must != nil:
		clear(dst)
	default:
		g.inner.Mask(dst)
	}
	if g.start && g.opens {
		set(dst, f.Open)
	}
	if g.start && g.calls {
		set(dst, f.Tool)
	}
	if g.gap {
		for _, t := range g.model.newlines {
			set(dst, t)
		}
	}
	return true
}

func set(dst []uint64, token int) { dst[token/64] |= 1 << (token % 64) }

// Accept advances by a token, which may be a stop token.
func (g *Guide) Accept(token int) error {
	f := g.model.format
	switch {
	case g.thinking:
		if g.spent++; token == f.Close {
			g.thinking, g.opens, g.gap = false, false, true
		}
		return nil
	case g.calling:
		if token == f.End {
			g.calling, g.called = false, true
		}
		if g.call != nil {
			return g.call.Accept(token)
		}
		return nil
	case g.start && token == f.Open && (g.opens || g.inner == nil && g.must == nil):
		g.thinking = true
		return nil
	case g.start && token == f.Tool && g.calls:
		g.calling, g.opens, g.gap = true, false, false
		if g.must != nil {
			g.call = constrain.NewMatcher(g.must, g.model.callVocab)
		}
		return nil
	case g.called:
		return nil
	case g.gap && slices.Contains(g.model.newlines, token):
		g.gap = false
		return nil
	}
	g.start, g.gap = false, false
	if g.inner == nil {
		return nil
	}
	return g.inner.Accept(token)
}
