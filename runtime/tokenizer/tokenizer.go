package tokenizer

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// A Tokenizer is a tokenizer.json, ready for use. All methods may be called concurrently.
type Tokenizer struct {
	normalizers  []normalizer
	preTokenizer preTokenizer
	model        *bpe
	added        *addedVocabulary
	template     template
	decoder      decoder
	warnings     []string

	mergers sync.Pool // of *merger
}

// maxFile is how large a file Load reads, in bytes. The largest known is 35 MB.
const maxFile = 1 << 29

// Load reads a tokenizer.json. Its errors are those of Parse and of the file system.
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, &Error{File: path, Reason: fmt.Sprintf(
			"the file is larger than %d bytes, which no tokenizer.json is", maxFile)}
	}
	return Parse(data, path)
}

// Parse reads the text of a tokenizer.json. name is what errors call it. Whatever in it is malformed, not known or not
// supported is an *Error that names its place; see the package comment for what is supported.
func Parse(data []byte, name string) (t *Tokenizer, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			e.File = name
			t, err = nil, e
		default:
			panic(e)
		}
	}()
	return parse(&reader{data: string(data)}), nil
}

// sectionNames are the keys of a tokenizer.json.
var sectionNames = []string{
	"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
	"post_processor", "decoder", "model",
}

func parse(r *reader) *Tokenizer {
	t := &Tokenizer{template: onlyText, decoder: decoder{growth: 1}}
	sections := map[string]value{}
	r.object(func(key string) {
		at := &place{key: key}
		if _, twice := sections[key]; twice {
			fail(nil, "the key %q comes twice", abridge(key))
		}
		if key != "model" {
			v := r.value(at)
			if v.kind != null && !slices.Contains(sectionNames, key) {
				fail(at, "found %s; this key is not known, those of a tokenizer.json are %s", v.describe(),
					strings.Join(sectionNames, ", "))
			}
			sections[key] = v
			return
		}
		sections[key] = value{at: at, kind: object}
		t.model, t.warnings = readModel(r, at)
	})
	if r.peek() != 0 || r.at < len(r.data) {
		r.fail("expected the end, found %s", r.found())
	}
	if t.model == nil {
		fail(nil, "%q is missing", "model")
	}
	if v, ok := sections["version"]; ok && v.str() != "1.0" {
		fail(v.at, "found %s; supported is 1.0", v.describe())
	}
	for _, key := range []string{"truncation", "padding"} {
		if v := sections[key]; v.kind != null {
			v.want(object)
			t.warnings = append(t.warnings, key+": is not applied; texts are encoded whole, and as they are")
		}
	}
	t.readNormalizer(sections["normalizer"])
	t.readAdded(sections)
	t.readPreTokenizer(sections["pre_tokenizer"])
	if v := sections["post_processor"]; v.kind != null {
		t.template = readPostProcessor(v)
	}
	t.readDecoder(sections["decoder"])
	t.mergers.New = func() any { return &merger{model: t.model} }
	return t
}

func (t *Tokenizer) readNormalizer(v value) {
	if v.kind == null {
		return
	}
	t.normalizers = readNormalizers(nil, v)
	growth := 1.0
	for _, n := range t.normalizers {
		growth *= n.growth
	}
	limitGrowth(v, growth)
}

func limitGrowth(v value, growth float64) {
	if growth > maxGrowth {
		fail(v.at, "it can make a text %.0f times longer; at most %d is supported", growth, maxGrowth)
	}
}

func (t *Tokenizer) readAdded(sections map[string]value) {
	var tokens []addedToken
	if v, ok := sections["added_tokens"]; ok {
		tokens = readAdded(v)
	}
	var warnings []string
	t.added, warnings = newAdded(tokens, t.model.vocab, t.normalize, &place{key: "added_tokens"})
	t.warnings = append(t.warnings, warnings...)
}

func (t *Tokenizer) readPreTokenizer(v value) {
	if v.kind != null {
		starts := len(t.normalizers) == 0 || t.added.normalized == nil &&
			!slices.ContainsFunc(t.normalizers, func(n normalizer) bool { return !n.keepsStart })
		t.preTokenizer.read(v, starts)
	}
	byteLevel := t.preTokenizer.byteLevel
	if byteLevel && !t.model.takeBytes() {
		t.preTokenizer.writeByteLevel()
	}
	if m := t.model; m.unknownAt != nil && !m.closed(byteLevel) {
		fail(m.unknownAt, "the token is not in model.vocab, which lacks tokens for some characters too")
	}
}

func (t *Tokenizer) readDecoder(v value) {
	if v.kind == null {
		t.decoder.add(func() stage { return &spaced{} })
		return
	}
	t.decoder.read(v)
	limitGrowth(v, t.decoder.growth)
}

func (t *Tokenizer) normalize(s string) string {
	for _, n := range t.normalizers {
		s = n.apply(s)
	}
	return s
}

// EncodeOptions are the options of encoding.
type EncodeOptions struct {
	// AddSpecial adds the tokens of the post-processor, such as <bos> (the library's add_special_tokens).
	AddSpecial bool
	// ParseSpecial makes special tokens of their names in the text, such as <|im_end|>. Without it they are text like
	// any other (the library's encode_special_tokens), which is how text from outside should be encoded.
	ParseSpecial bool
	// Mark, if not 0, is a character that stands for nothing. The name of an added token with a mark inside it, or
	// directly after it, is not read as that token, and all marks are removed from the text. So a text with parts of
	// several origins can be encoded at once, although some parts must not name tokens; see [Shield]. In a tokenizer
	// with added tokens that are looked for in normalized text, characters on both sides of a mark do not compose.
	Mark rune
}

// Encode returns the ids of a text. What is not UTF-8 in it counts as U+FFFD.
func (t *Tokenizer) Encode(text string, opts EncodeOptions) []int {
	text = validText(text)
	g := t.mergers.Get().(*merger)
	defer t.mergers.Put(g)
	ids := make([]int, 0, len(text)/3+8)
	for _, piece := range t.template {
		if piece.text {
			ids = t.encode(ids, g, text, opts, true)
		} else if opts.AddSpecial {
			ids = append(ids, piece.ids...)
		}
	}
	return ids
}

// encode appends the ids of a text. first says that the text is the beginning of what was given to Encode.
func (t *Tokenizer) encode(ids []int, g *merger, text string, opts EncodeOptions, first bool) []int {
	parseSpecial := opts.ParseSpecial
	token := func(id int32) { ids = append(ids, int(id)) }
	word := func(s string) { ids = g.word(ids, s) }
	t.added.find(t.added.plain, text, parseSpecial, opts.Mark, func(begin, end int) {
		s := text[begin:end]
		if t.added.normalized == nil {
			s = withoutMarks(s, opts.Mark) // so that characters compose as if there were no mark between them
		}
		s = t.normalize(s)
		t.added.find(t.added.normalized, s, parseSpecial, opts.Mark, func(from, to int) {
			plain := withoutMarks(s[from:to], opts.Mark)
			t.preTokenizer.cut(plain, first && begin == 0 && from == 0, word)
		}, token)
	}, token)
	return ids
}

// withoutMarks takes the marks out of a text; 0: it has none.
func withoutMarks(s string, mark rune) string {
	if mark == 0 {
		return s
	}
	return strings.ReplaceAll(s, string(mark), "")
}

// Decode returns the text of ids, leaving out special tokens if asked to. As in the library, ids that are no token are
// skipped. Bytes that are no UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		s.push(id)
	}
	return s.Flush()
}

// VocabSize returns how many tokens there are, the added ones too. Unless the file leaves holes, ids are below it.
func (t *Tokenizer) VocabSize() int { return t.model.vocab.size }

// TokenToID returns the id of a token by its name in the file, where a byte-level token is written in that alphabet.
func (t *Tokenizer) TokenToID(token string) (int, bool) {
	if id, ok := t.added.ids[token]; ok {
		return int(id), true
	}
	id, ok := t.model.vocab.ids[token]
	return int(id), ok
}

// IDToToken returns the name of a token. That of an added token that is looked for in normalized text is normalized.
func (t *Tokenizer) IDToToken(id int) (string, bool) {
	if id < 0 || id > maxID {
		return "", false
	}
	return t.model.vocab.token(int32(id))
}

// SpecialIDs returns the ids of the special tokens, in order.
func (t *Tokenizer) SpecialIDs() []int {
	var ids []int
	for _, id := range slices.Sorted(maps.Keys(t.added.tokens)) {
		if t.added.tokens[id].special {
			ids = append(ids, int(id))
		}
	}
	return ids
}

// AddedIDs returns the ids of the added tokens, special or not, in order: texts that are one token wherever they stand.
func (t *Tokenizer) AddedIDs() []int {
	var ids []int
	for _, id := range slices.Sorted(maps.Keys(t.added.tokens)) {
		ids = append(ids, int(id))
	}
	return ids
}

// Warnings returns what in the file is odd, but has a meaning in the library, which is followed.
func (t *Tokenizer) Warnings() []string { return slices.Clone(t.warnings) }
