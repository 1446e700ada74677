package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/etc-ml/etc/internal/fault"
)

// A bpe is the model: byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909) over characters, with the variations
// of the library.
type bpe struct {
	vocab  *vocabulary
	merges *mergeTable
	pairs  *pairFilter // nil: any two symbols may merge

	unknown      int32  // the id of unk_token, -1 without one
	unknownAt    *place // of an unk_token that is not in the vocabulary
	fuseUnknown  bool
	byteFallback bool
	fallback     [256]int32       // with byteFallback: the ids of <0x00> to <0xFF>, or -1
	whole        map[string]int32 // with ignore_merges: the words that are tokens as they are
	prefix       string           // continuing_subword_prefix
	suffix       string           // end_of_word_suffix

	ascii [utf8.RuneSelf]int32 // the ids of the ASCII characters, or -1
	// byteLevel is set when words are taken as bytes, each standing for its character in the byte-level alphabet;
	// bytes then holds what each becomes, and the keys of whole are bytes too.
	byteLevel bool
	bytes     [256]symbols
	// uneven is set when a merge may not lengthen a symbol: then only the library's own order of merging will do.
	uneven bool
}

// symbols are the ids of one character before any merge: its id if it is known, else the ids of its byte tokens, or
// unk_token, or nothing.
type symbols struct {
	ids            []int32
	known, unknown bool
}

// readModel reads the section model, whose keys may come in any order. It is long because it is a list of checks,
// each with its message.
func readModel(r *reader, at *place) (*bpe, []string) {
	if c := r.peek(); c != '{' {
		fail(at, "found %s, expected an object", r.found())
	}
	m := &bpe{unknown: -1}
	settings := &component{value: value{at: at, kind: object}, asked: []string{"vocab", "merges"}}
	var merges [][2]string
	seen := map[string]bool{}
	r.object(func(key string) {
		if seen[key] {
			fail(at, "the key %q comes twice", abridge(key))
		}
		seen[key] = true
		here := &place{up: at, key: key}
		switch key {
		case "vocab":
			m.vocab = readVocabulary(r, here)
		case "merges":
			merges = readMerges(r, here)
		default:
			settings.keys = append(settings.keys, key)
			settings.items = append(settings.items, r.value(here))
		}
	})
	if v, ok := settings.get("type"); ok && v.str() != "BPE" {
		fail(v.at, "found %s; supported is BPE", v.describe())
	}
	for _, key := range []string{"vocab", "merges"} {
		if !seen[key] {
			fail(at, "%q is missing", key)
		}
	}
	if v, ok := settings.get("dropout"); ok && strings.Trim(v.want(number).text, "0.") != "" {
		fail(v.at, "found %s; dropout makes ids random and is not supported, only null or 0", v.text)
	}
	m.prefix, m.suffix = affix(settings, "continuing_subword_prefix"), affix(settings, "end_of_word_suffix")
	m.fuseUnknown = settings.flag("fuse_unk", false)
	m.byteFallback = settings.flag("byte_fallback", false)
	ignoreMerges := settings.flag("ignore_merges", false)
	unknown, hasUnknown := settings.get("unk_token")
	if hasUnknown {
		if m.unknown = m.vocab.id(unknown.str()); m.unknown < 0 {
			m.unknownAt = unknown.at
		}
	}
	settings.done()

	for b := range m.fallback {
		m.fallback[b] = -1
		if m.byteFallback {
			m.fallback[b] = m.vocab.id(fallbackToken(byte(b)))
		}
	}
	for c := range m.ascii {
		m.ascii[c] = m.vocab.id(string(rune(c)))
	}
	if ignoreMerges {
		m.whole = m.vocab.ids
	}
	warnings := m.setMerges(merges, &place{up: at, key: "merges"})
	return m, warnings
}

// fallbackToken returns the token that stands for a byte of a character that has none.
func fallbackToken(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

func affix(c *component, key string) string {
	const most = 64
	v, ok := c.get(key)
	if !ok {
		return ""
	}
	if len(v.str()) > most {
		fail(v.at, "found %d bytes, at most %d are supported", len(v.text), most)
	}
	return v.text
}

// readMerges reads the list of merges: pairs ["a", "b"], or the older form "a b".
func readMerges(r *reader, at *place) (merges [][2]string) {
	if r.peek() != '[' {
		fail(at, "found %s, expected an array", r.found())
	}
	form := r.peek()
	r.array(func(i int) {
		bad := func(format string, args ...any) { fail(&place{up: at, index: i}, format, args...) }
		if c := r.peek(); i == 0 && (c == '"' || c == '[') {
			form = c
		} else if c != form {
			bad("found %s, expected %q: all merges are of the form %s", r.found(), form,
				map[byte]string{'"': `"a b"`, '[': `["a", "b"]`}[form])
		}
		var pair [2]string
		if form == '"' {
			s := r.str()
			if strings.HasPrefix(s, "#version") {
				return
			}
			if strings.Count(s, " ") != 1 {
				bad("found %q, expected two tokens with one space between them", abridge(s))
			}
			pair[0], pair[1], _ = strings.Cut(s, " ")
		} else {
			n := 0
			r.array(func(j int) {
				if n++; n > 2 || r.peek() != '"' {
					bad("found %s as element %d, expected two strings", r.found(), j)
				}
				pair[j] = r.str()
			})
			if n != 2 {
				bad("found %d elements, expected two strings", n)
			}
		}
		merges = append(merges, pair)
	})
	return merges
}

// setMerges fills merges and pairs. When a pair comes twice the later one counts, as in the library.
func (m *bpe) setMerges(merges [][2]string, at *place) (warnings []string) {
	m.merges = newMergeTable(len(merges))
	pairs := newPairFilter(len(merges))
	// Initial symbols are characters. Where one may be unk_token or a byte token, the ends of a token's text do not
	// tell with which symbols it begins and ends.
	plain := m.prefix == "" && m.suffix == ""
	characters := map[string]int32{} // those of the vocabulary: small, and so much faster to look in
	for token, id := range m.vocab.ids {
		if len(firstCharacter(token)) == len(token) {
			characters[token] = id
		}
	}
	character := func(s string) int32 {
		if id, ok := characters[s]; ok {
			return id
		}
		return -1
	}
	for i, ids := range m.lookUp(merges) {
		pair, left, right, id := merges[i], ids[0], ids[1], ids[2]
		bad := func(format string, args ...any) { fail(&place{up: at, index: i}, format, args...) }
		switch {
		case left < 0:
			bad("the token %q is not in the vocabulary", abridge(pair[0]))
		case right < 0:
			bad("the token %q is not in the vocabulary", abridge(pair[1]))
		case len(pair[1]) < len(m.prefix):
			bad("the token %q is shorter than continuing_subword_prefix %q", pair[1], m.prefix)
		case id < 0:
			bad("the product %q is not in the vocabulary", abridge(pair[0]+pair[1][len(m.prefix):]))
		}
		if m.merges.put(left, right, merge{int32(i), id}) && len(warnings) == 0 {
			warnings = append(warnings, fmt.Sprintf("%s: the pair %q comes twice; the last one counts",
				&place{up: at, index: i}, pair))
		}
		if id == left || id == right {
			m.uneven = true
		}
		if left == m.unknown || right == m.unknown || m.isFallback(pair[0]) || m.isFallback(pair[1]) {
			plain = false
		}
		for _, a := range [2]int32{left, character(lastCharacter(pair[0]))} {
			for _, b := range [2]int32{right, character(firstCharacter(pair[1]))} {
				pairs.add(a, b)
			}
		}
	}
	if plain && !m.uneven {
		m.pairs = pairs
	}
	return warnings
}

// lookUp returns the ids of both parts and the product of each merge, or -1. With half a million merges this is most of
// what loading takes, so it is done in parallel.
func (m *bpe) lookUp(merges [][2]string) [][3]int32 {
	const chunk = 1 << 14
	out := make([][3]int32, len(merges))
	var wg fault.Group
	for from := 0; from < len(merges); from += chunk {
		wg.Go(func() {
			var product []byte
			for i := from; i < min(from+chunk, len(merges)); i++ {
				left, right := merges[i][0], merges[i][1]
				out[i] = [3]int32{m.vocab.id(left), m.vocab.id(right), -1}
				if len(right) < len(m.prefix) {
					continue
				}
				product = append(append(product[:0], left...), right[len(m.prefix):]...)
				if id, ok := m.vocab.ids[string(product)]; ok {
					out[i][2] = id
				}
			}
		})
	}
	wg.Wait()
	return out
}

func (m *bpe) isFallback(token string) bool {
	return m.byteFallback && len(token) == 6 && strings.HasPrefix(token, "<0x")
}

func firstCharacter(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

func lastCharacter(s string) string {
	_, n := utf8.DecodeLastRuneInString(s)
	return s[len(s)-n:]
}

// takeBytes makes the model take words as bytes that stand for their characters in the byte-level alphabet. It says
// false where a word must be seen whole.
func (m *bpe) takeBytes() bool {
	if m.prefix != "" || m.suffix != "" {
		return false
	}
	m.byteLevel = true
	for b := range m.bytes {
		m.bytes[b] = m.symbolsOf(byteString[b])
	}
	if m.whole != nil {
		m.whole = make(map[string]int32, len(m.vocab.ids))
		for token, id := range m.vocab.ids {
			if b, ok := appendFromByteLevel(nil, token); ok {
				m.whole[string(b)] = id
			}
		}
	}
	return true
}

// closed says whether every character that can come has symbols, so that unk_token is never needed; byteLevel: they
// are all of the byte-level alphabet.
func (m *bpe) closed(byteLevel bool) bool {
	alphabet, fallback := byteLevel && m.prefix == "" && m.suffix == "", true
	for b := range 256 {
		alphabet = alphabet && m.vocab.id(byteString[b]) >= 0
		fallback = fallback && m.fallback[b] >= 0
	}
	return alphabet || fallback
}

// symbolsOf returns what a character, with prefix and suffix where it has them, becomes.
func (m *bpe) symbolsOf(s string) symbols {
	if id, ok := m.vocab.ids[s]; ok {
		return symbols{ids: []int32{id}, known: true}
	}
	if m.byteFallback {
		ids := make([]int32, 0, len(s))
		for i := range len(s) {
			if id := m.fallback[s[i]]; id >= 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) == len(s) {
			return symbols{ids: ids}
		}
	}
	return symbols{unknown: m.unknown >= 0}
}
