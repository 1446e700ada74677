package constrain

import (
	"fmt"
	"sync"
)

// Kind is a language that constraints are written in.
type Kind uint8

// The kinds of sources.
const (
	Regex      Kind = iota // a regular expression in RE2's syntax that the whole text has to match
	GBNF                   // a grammar in llama.cpp's notation; the rule root is the whole text
	JSONObject             // any JSON object; the source has no text
	JSONSchema             // JSON that a JSON schema (draft 2020-12) takes
)

// String names the kind as error messages do.
func (k Kind) String() string {
	switch k {
	case Regex:
		return "regular expression"
	case GBNF:
		return "grammar"
	case JSONObject:
		return "JSON object"
	case JSONSchema:
		return "JSON schema"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// maxSource bounds the length of a source, in bytes.
const maxSource = 1 << 20

// Source is a constraint as it was written.
type Source struct {
	Kind Kind
	Text string
}

// Grammar is a compiled constraint. It may be used by several goroutines at once.
type Grammar struct {
	source  Source
	program *program
	mu      sync.Mutex
	maskers map[*Vocab]*masker
}

// Compile makes an automaton of a constraint. Its error is an *Error: the source is not well-formed, asks for something
// that the automaton cannot express, or is satisfied by no text at all.
func Compile(src Source) (*Grammar, error) {
	if len(src.Text) > maxSource {
		reason := fmt.Sprintf("it has %d bytes; at most %d are taken", len(src.Text), maxSource)
		return nil, &Error{Kind: src.Kind, Reason: reason}
	}
	var rules *source
	var err error
	switch src.Kind {
	case Regex:
		rules, err = parseRegex(src.Text)
	case GBNF:
		rules, err = parseGBNF(src.Text)
	case JSONObject:
		rules, err = jsonObjectSource(src.Text)
	case JSONSchema:
		rules, err = parseSchema(src.Text)
	default:
		err = &Error{Kind: src.Kind, Reason: "there is no such kind of constraint"}
	}
	if err != nil {
		return nil, err
	}
	p, err := compileProgram(rules)
	if err != nil {
		return nil, &Error{Kind: src.Kind, Reason: err.Error()}
	}
	return &Grammar{source: src, program: p, maskers: map[*Vocab]*masker{}}, nil
}

// Source returns what the grammar was compiled from.
func (g *Grammar) Source() Source { return g.source }

// masker returns the grammar's masks over a vocabulary.
func (g *Grammar) masker(v *Vocab) *masker {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.maskers[v]
	if k == nil {
		k = newMasker(g.program, v)
		g.maskers[v] = k
	}
	return k
}

// Cache keeps compiled grammars by their source; the ones used least recently go first. It may be used by several
// goroutines at once.
type Cache struct {
	mu    sync.Mutex
	limit int
	clock uint64
	kept  map[Source]*cached
}

type cached struct {
	once sync.Once
	used uint64
	g    *Grammar
	err  error
}

// NewCache makes a cache of at most limit grammars, at least one.
func NewCache(limit int) *Cache { return &Cache{limit: max(limit, 1), kept: map[Source]*cached{}} }

// Compile returns the grammar of a source: the one kept, or a new one. Callers that ask for one source at once wait for
// one compilation. Errors are kept too.
func (c *Cache) Compile(src Source) (*Grammar, error) {
	c.mu.Lock()
	e := c.kept[src]
	if e == nil {
		if len(c.kept) >= c.limit {
			var oldest Source
			least := uint64(0)
			for s, e := range c.kept {
				if least == 0 || e.used < least {
					oldest, least = s, e.used
				}
			}
			delete(c.kept, oldest)
		}
		e = &cached{}
		c.kept[src] = e
	}
	c.clock++
	e.used = c.clock
	c.mu.Unlock()
	e.once.Do(func() { e.g, e.err = Compile(src) })
	return e.g, e.err
}
