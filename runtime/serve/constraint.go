package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// maxGrammars is how many compiled constraints a model keeps.
const maxGrammars = 64

// spelling is a model's vocabulary as constraints need it, made when it is first asked for.
type spelling struct {
	once     sync.Once
	vocab    *constrain.Vocab
	grammars *constrain.Cache
	newlines []int // tokens of nothing but ends of lines
	err      error

	calls     sync.Once
	callVocab *constrain.Vocab // of the bodies of calls
	callErr   error
}

// spell gives the bytes of a model's tokens.
func (l *Loaded) spell() (*spelling, error) {
	s := &l.spelling
	s.once.Do(func() {
		n := l.Runner.Limits().Vocab
		if n == 0 {
			n = l.Text.Tokenizer.VocabSize()
		}
		tokens := tokenBytes(l.Text.Tokenizer, n, l.Text.Stop)
		for id, b := range tokens {
			if string(b) == "\n" || string(b) == "\n\n" {
				s.newlines = append(s.newlines, id)
			}
		}
		s.grammars = constrain.NewCache(maxGrammars)
		s.vocab, s.err = constrain.NewVocab(tokens, l.Text.Stop)
	})
	return s, s.err
}

// tokenBytes are the bytes of the first n tokens of a vocabulary, none of those that end an answer.
func tokenBytes(t *tokenizer.Tokenizer, n int, stop []int) [][]byte {
	tokens := make([][]byte, n)
	for id := range tokens {
		if !slices.Contains(stop, id) {
			tokens[id] = t.TokenBytes(id)
		}
	}
	return tokens
}

// form is a constraint as a request writes it.
type form struct {
	param  string
	source constrain.Source
}

// form reads the parameters that hold an answer to a form: at most one of them.
func (o *object) form() *form {
	var out *form
	add := func(param string, kind constrain.Kind, text string) {
		if out != nil {
			o.fail(param, "%s and %s: give one of them", out.param, param)
		}
		out = &form{param, constrain.Source{Kind: kind, Text: text}}
	}
	if o.has("response_format") {
		o.responseFormat("response_format", add)
	}
	for _, x := range []struct {
		param string
		kind  constrain.Kind
	}{{"grammar", constrain.GBNF}, {"regex", constrain.Regex}} {
		if o.has(x.param) {
			var text string
			o.get(x.param, &text)
			add(x.param, x.kind, text)
		}
	}
	return out
}

// responseFormat reads OpenAI's response_format.
func (o *object) responseFormat(param string, add func(param string, kind constrain.Kind, text string)) {
	var f struct {
		Type   string `json:"type"`
		Schema *struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"json_schema"`
	}
	o.get(param, &f)
	switch {
	case f.Type == "text":
	case f.Type == "json_object":
		add(param, constrain.JSONObject, "")
	case f.Type == "json_schema" && f.Schema != nil:
		schema := string(f.Schema.Schema)
		if schema == "" {
			schema = "{}"
		}
		add(param, constrain.JSONSchema, schema)
	case f.Type == "json_schema":
		o.fail(param, "%s: json_schema is missing", param)
	default:
		o.fail(param, "%s: the type is %q, want text, json_object or json_schema", param, f.Type)
	}
}

// constrain compiles a form for a model and gives what makes the constraint of each choice.
func (l *Loaded) constrain(f *form) (func() (batch.Constraint, error), error) {
	if f == nil {
		return nil, nil
	}
	s, err := l.spell()
	if err != nil {
		return nil, fmt.Errorf("the model's vocabulary: %w", err)
	}
	g, err := s.grammars.Compile(f.source)
	if err != nil {
		return nil, invalid(f.param, "%s: %v", f.param, err)
	}
	return func() (batch.Constraint, error) { return matching{constrain.NewMatcher(g, s.vocab), s.vocab}, nil }, nil
}

// matching is a matcher as a constraint.
type matching struct {
	*constrain.Matcher
	vocab *constrain.Vocab
}

func (m matching) MaskWords() int { return m.vocab.MaskWords() }
func (m matching) Mask(dst []uint64) bool {
	m.Matcher.Mask(dst)
	return true
}

// guide is the constraint of an answer that may think first, and may call tools: what it holds to a form is the text.
type guide struct {
	loaded *Loaded
	inner  batch.Constraint          // of the text; nil: any
	must   func() *constrain.Matcher // makes the constraint of a call that has to come; nil: none has to
	call   *constrain.Matcher        // of the call that the next token is in
	once   bool                      // one call only
	words  int
	// thinking and calling say where the next token is. start says that the text has not begun: thoughts may come
	// (opens) and calls (calls). gap says that thoughts have just ended, behind which ends of lines stand; called that
	// the answer is calls, and so no text is to come.
	thinking, calling, start, opens, calls, gap, called bool
	budget, spent                                       int
}

// guide makes the constraint of a choice. tools says that calls are looked for, budget bounds the thoughts.
func (j *job) guide(inner batch.Constraint) (batch.Constraint, error) {
	s, err := j.loaded.spell()
	if err != nil {
		return nil, err
	}
	f := j.loaded.Text.format
	tail := j.prompt[j.history:]
	g := &guide{loaded: j.loaded, inner: inner, words: s.vocab.MaskWords(), start: true, budget: j.budget,
		must: j.must, once: j.oneCall || j.named}
	if j.parse {
		g.thinking = f.Inside(tail)
		g.opens = f.Thinks() && j.mayThink && !slices.Contains(tail, f.Close)
		g.calls = f.Calls() && j.tools != nil
	}
	return g, nil
}

func (g *guide) MaskWords() int { return g.words }

func (g *guide) Mask(dst []uint64) bool {
	f := g.loaded.Text.format
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
		for _, t := range g.loaded.Text.Stop {
			dst[t/64] &^= 1 << (t % 64)
		}
		return true
	case g.called:
		clear(dst)
		for _, t := range slices.Concat(g.loaded.Text.Stop, g.loaded.spelling.newlines) {
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
		for _, t := range g.loaded.spelling.newlines {
			set(dst, t)
		}
	}
	return true
}

func set(dst []uint64, token int) { dst[token/64] |= 1 << (token % 64) }

func (g *guide) Accept(token int) error {
	f := g.loaded.Text.format
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
			g.call = g.must()
		}
		return nil
	case g.called:
		return nil
	case g.gap && slices.Contains(g.loaded.spelling.newlines, token):
		g.gap = false
		return nil
	}
	g.start, g.gap = false, false
	if g.inner == nil {
		return nil
	}
	return g.inner.Accept(token)
}
