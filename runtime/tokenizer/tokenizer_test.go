package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseErrors(t *testing.T) {
	const model = `"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}`
	with := func(section string) string { return `{` + section + `, ` + model + `}` }
	ofModel := func(body string) string { return `{"model": {` + body + `}}` }
	nested := strings.Repeat(`{"type": "Sequence", "normalizers": [`, 80) + strings.Repeat(`]}`, 80)
	for _, c := range []struct{ data, path, reason string }{
		// JSON.
		{``, "", "expected '{', found the end of the file"},
		{`[]`, "", "byte 0: expected '{', found '['"},
		{`{"model": {}`, "model", `"vocab" is missing`},
		{with(`"version": "1.0"`) + ` x`, "", "expected the end"},
		{with(`"a" "b"`), "", "expected ':'"},
		{with(`"normalizer": nul`), "", "expected a value"},
		{with(`"normalizer": 01`), "", "expected ',' or '}', found '1'"},
		{with(`"normalizer": 1.e5`), "", "expected a value"},
		{with(`"version": "\ud800"`), "", "half a surrogate pair"},
		{with(`"version": "\ud800\u0041"`), "", "half a surrogate pair"},
		{with(`"version": "\q"`), "", "an escape that JSON does not have"},
		{with("\"version\": \"a\nb\""), "", "control character 0x0a"},
		{with("\"version\": \"\xff\""), "", "not valid UTF-8"},
		{`{"version`, "", "a string that does not end"},
		{`{"version\`, "", "a string that does not end"},
		{with(`"normalizer": ` + nested), "", "nest deeper than"},
		{with(`"version": "1.0", "version": "1.0"`), "", `"version" comes twice`},
		{with(`"normalizer": {"type": "NFC", "type": "NFD"}`), "normalizer", `"type" comes twice`},
		// The file.
		{`{"version": "1.0"}`, "", `"model" is missing`},
		{with(`"version": "2.0"`), "version", `found "2.0"; supported is 1.0`},
		{with(`"version": 1`), "version", "found 1, expected a string"},
		{with(`"tokenizer_class": "X"`), "tokenizer_class", "this key is not known"},
		{with(`"truncation": 5`), "truncation", "expected an object"},
		{with(`"added_tokens": {}`), "added_tokens", "found an object, expected an array"},
		// The model.
		{`{"model": []}`, "model", "found '[', expected an object"},
		{ofModel(`"type": "Unigram", "vocab": {}, "merges": []`), "model.type", `found "Unigram"; supported is BPE`},
		{ofModel(`"type": "BPE", "vocab": [], "merges": []`), "model.vocab", "found '[', expected an object"},
		{ofModel(`"type": "BPE", "vocab": {"a": 0}`), "model", `"merges" is missing`},
		{ofModel(`"vocab": {"a": "0"}, "merges": []`), "model.vocab", `the id of token "a" begins with '"'`},
		{ofModel(`"vocab": {"a": 0.5}, "merges": []`), "model.vocab.a", "found 0.5, expected an integer"},
		{ofModel(`"vocab": {"a": -1}, "merges": []`), "model.vocab.a", "expected an integer from 0 to 2147483647"},
		{ofModel(`"vocab": {"a": 4294967296}, "merges": []`), "model.vocab.a", "expected an integer"},
		{ofModel(`"vocab": {"a": 2000000000}, "merges": []`), "model.vocab",
			"the largest id is 2000000000, found only 1 tokens"},
		{ofModel(`"vocab": {"a": 0, "a": 1}, "merges": []`), "model.vocab", `the token "a" comes twice`},
		{ofModel(`"vocab": {"b": 0, "a": 0}, "merges": []`), "model.vocab",
			`the tokens "a" and "b" have the same id 0`},
		{ofModel(`"vocab": {"a": 0}, "vocab": {"a": 0}, "merges": []`), "model", `"vocab" comes twice`},
		{ofModel(`"vocab": {"a": 0}, "merges": {}`), "model.merges", "expected an array"},
		{ofModel(`"vocab": {"a": 0}, "merges": [1]`), "model.merges[0]", "found '1'"},
		{ofModel(`"vocab": {"a": 0, "aa": 1}, "merges": [["a", "a"], "a a"]`), "model.merges[1]",
			"all merges are of the form"},
		{ofModel(`"vocab": {"a": 0}, "merges": [["a"]]`), "model.merges[0]", "found 1 elements"},
		{ofModel(`"vocab": {"a": 0}, "merges": [["a", "a", "a"]]`), "model.merges[0]", "expected two strings"},
		{ofModel(`"vocab": {"a": 0}, "merges": ["a  a"]`), "model.merges[0]", "with one space between them"},
		{ofModel(`"vocab": {"a": 0}, "merges": [["a", "b"]]`), "model.merges[0]", `"b" is not in the vocabulary`},
		{ofModel(`"vocab": {"a": 0}, "merges": [["a", "a"]]`), "model.merges[0]",
			`the product "aa" is not in the vocabulary`},
		{ofModel(`"vocab": {"a": 0}, "merges": [], "dropout": 0.1`), "model.dropout",
			"found 0.1; dropout makes ids random"},
		{ofModel(`"vocab": {"a": 0}, "merges": [], "unk_token": "<unk>"`), "model.unk_token", "not in model.vocab"},
		{ofModel(`"vocab": {"a": 0}, "merges": [], "fuse_unk": 1`), "model.fuse_unk", "found 1, expected a boolean"},
		{ofModel(`"vocab": {"a": 0}, "merges": [], "cache": 1`), "model.cache", "this key is not known"},
		{ofModel(`"vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "` + strings.Repeat("x", 65) + `"`),
			"model.end_of_word_suffix", "at most 64"},
		{ofModel(`"vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]], "continuing_subword_prefix": "##"`),
			"model.merges[0]", "shorter than continuing_subword_prefix"},
		// Added tokens.
		{with(`"added_tokens": [{"id": 3, "content": "x"}]`), "added_tokens[0]", `"single_word" is missing`},
		{with(`"added_tokens": [{"id": -3, "content": "x"}]`), "added_tokens[0].id", "expected an integer"},
		{with(`"added_tokens": [` + added("x", 3, `"normalized": false, "extra": 1`) + `]`), "added_tokens[0].extra",
			"this key is not known"},
		{`{"added_tokens": [` + added("x", 1, `"normalized": false`) + `], "model": {"vocab": {"a": 1}, "merges": []}}`,
			"added_tokens[0]", `gets the id 1, the number of tokens before it, but "a" has that id`},
		{with(`"normalizer": {"type": "Lowercase"}, "added_tokens": [` + added("X", 3, `"normalized": true`) + `, ` +
			added("x", 4, `"normalized": true`) + `]`), "added_tokens", `two tokens are "x" after normalization`},
		{with(`"normalizer": {"type": "Strip", "strip_left": true, "strip_right": true}, "added_tokens": [` + added(" ",
			3, `"normalized": true`) + `]`), "added_tokens", "normalizing leaves nothing"},
		// Components.
		{with(`"normalizer": "NFC"`), "normalizer", `found "NFC", expected an object`},
		{with(`"normalizer": {}`), "normalizer", `"type" is missing`},
		{with(`"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}`), "normalizer.type",
			`found "Precompiled"; supported are NFC`},
		{with(`"normalizer": {"type": "NFC", "form": 1}`), "normalizer.form", "supported are type"},
		{with(`"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "BertNormalizer"}]}`),
			"normalizer.normalizers[1].type", "BertNormalizer"},
		{with(`"normalizer": {"type": "Replace", "pattern": {"String": " "}}`), "normalizer", `"content" is missing`},
		{with(`"normalizer": {"type": "Replace", "pattern": {"String": "a", "Regex": "b"}, "content": ""}`),
			"normalizer.pattern", "either String or Regex"},
		{with(`"normalizer": {"type": "Replace", "pattern": {"Regex": "(?>a)"}, "content": ""}`),
			"normalizer.pattern.Regex", "byte 0: the group"},
		{with(`"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` + strings.Repeat("x",
			5000) + `"}`), "normalizer", "5000 times longer"},
		{with(`"normalizer": {"type": "Strip", "strip_left": true}`), "normalizer", `"strip_right" is missing`},
		{with(`"pre_tokenizer": {"type": "UnicodeScripts"}`), "pre_tokenizer.type", "UnicodeScripts"},
		{with(`"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "isolated", "invert": false}`), "pre_tokenizer.behavior", `found "isolated"; supported are Removed`},
		{with(`"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"}`),
			"pre_tokenizer", `"invert" is missing`},
		{with(`"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?<n>a)"}, "behavior": "Isolated", "invert": false}]}`), "pre_tokenizer.pretokenizers[0].pattern.Regex", "is not supported"},
		{with(`"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": 1, "trim_offsets": true}`),
			"pre_tokenizer.add_prefix_space", "expected a boolean"},
		{with(`"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "ab"}`), "pre_tokenizer.delimiter",
			"a string of one character"},
		{with(`"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}`),
			"pre_tokenizer.prepend_scheme", "supported are always, first, never"},
		{with(`"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "add_prefix_space": false}`),
			"pre_tokenizer.add_prefix_space", "contradicts"},
		{with(`"normalizer": {"type": "Strip", "strip_left": true, "strip_right": false}, "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}`), "pre_tokenizer", "prepend_scheme first is supported only"},
		{with(`"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]}`), "pre_tokenizer.pretokenizers[1]", "prepend_scheme first"},
		{with(`"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}], "pair": [], "special_tokens": {}}`), "post_processor.single[0].SpecialToken.id", `found "<s>", which is not in special_tokens`},
		{with(`"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}], "pair": [], "special_tokens": {}}`), "post_processor.single[0].Sequence", "has a text B"},
		{with(`"post_processor": {"type": "TemplateProcessing", "single": [{}], "pair": [], "special_tokens": {}}`),
			"post_processor.single[0]", "either SpecialToken or Sequence"},
		{with(`"post_processor": {"type": "TemplateProcessing", "single": [` + strings.Repeat(`{},`,
			64) + `{}], "pair": [], "special_tokens": {}}`), "post_processor.single", "found 65 pieces"},
		{with(`"post_processor": {"type": "BertProcessing", "cls": ["a"], "sep": ["b", 1]}`), "post_processor.cls",
			"expected a token and its id"},
		{with(`"post_processor": {"type": "Sequence", "processors": [{"type": "BertProcessing", "cls": ["a", 0], "sep": ["b", 1]}, {"type": "BertProcessing", "cls": ["a", 0], "sep": ["b", 1]}]}`), "post_processor.processors[1]", "two processors that add tokens"},
		{with(`"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}`),
			"decoder.type", `found "WordPiece"`},
		{with(`"decoder": {"type": "Strip", "content": "", "start": 1, "stop": 0}`),
			"decoder.content", "one character"},
		{with(`"decoder": {"type": "BPEDecoder", "suffix": ""}`), "decoder", "an empty suffix"},
		{with(`"decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "add_prefix_space": false}`), "decoder.add_prefix_space", "contradicts"},
		{with(`"decoder": {"type": "Sequence", "decoders": [` +
			strings.Repeat(`{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},`,
				20) + `{"type": "Fuse"}]}`), "decoder", "times longer"},
	} {
		_, err := Parse([]byte(c.data), "t.json")
		var e *Error
		require.ErrorAs(t, err, &e, "%s", c.data)
		require.Equal(t, c.path, e.Path, "%s: %v", c.data, err)
		require.Contains(t, e.Reason, c.reason, "%s", c.data)
		require.True(t, strings.HasPrefix(err.Error(), "t.json: "+c.path), err.Error())
	}
}

// added writes an added token as JSON; rest are members after the fixed ones.
func added(content string, id int, rest string) string {
	b, _ := json.Marshal(map[string]any{"id": id, "content": content, "single_word": false, "lstrip": false,
		"rstrip": false, "special": true})
	return strings.TrimSuffix(string(b), "}") + ", " + rest + "}"
}

func TestLoadErrors(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	file := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(file, []byte(`{}`), 0o600))
	_, err = Load(file)
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, file, e.File)
}

// What the library takes, though it is odd, is taken and told.
func TestWarnings(t *testing.T) {
	tok, err := Parse([]byte(`{
		"truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0}, "padding": null,
		"added_tokens": [`+added("<x>", 9, `"normalized": false`)+`, `+added("", 7, `"normalized": false`)+`, `+added("a", 5, `"normalized": false`)+`],
		"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"], ["a", "b"]]}}`), "t.json")
	require.NoError(t, err)
	require.Equal(t, []string{
		`model.merges[1]: the pair ["a" "b"] comes twice; the last one counts`,
		`truncation: is not applied; texts are encoded whole, and as they are`,
		`added_tokens[0]: the token "<x>" says that its id is 9; its id is 3, as the library gives it`,
		`added_tokens[1]: the token is empty and left out`,
		`added_tokens[2]: the token "a" says that its id is 5; its id is 0, as the library gives it`,
	}, tok.Warnings())
	require.Equal(t, []int{1, 3, 0, 1}, tok.Encode("b<x>ab", EncodeOptions{ParseSpecial: true}))
	require.Empty(t, load(t, "qwen").Warnings())
	require.Empty(t, load(t, "gemma").Warnings())
}

func TestVocabulary(t *testing.T) {
	for _, c := range []struct {
		name    string
		size    int
		token   string
		id      int
		special []int
	}{
		{"qwen", 765, "<|im_end|>", 762, []int{760, 761, 762}},
		{"qwen", 765, "</think>", 764, []int{760, 761, 762}},
		{"qwen", 765, "Ġt", 256, []int{760, 761, 762}},
		{"gemma", 960, "<bos>", 2, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		tok := load(t, c.name)
		require.Equal(t, c.size, tok.VocabSize())
		require.Equal(t, c.special, tok.SpecialIDs())
		id, ok := tok.TokenToID(c.token)
		require.True(t, ok)
		require.Equal(t, c.id, id)
		token, ok := tok.IDToToken(c.id)
		require.True(t, ok)
		require.Equal(t, c.token, token)
		_, ok = tok.TokenToID("no token")
		require.False(t, ok)
		for _, id := range []int{-1, c.size, 1 << 40} {
			_, ok = tok.IDToToken(id)
			require.False(t, ok)
		}
		require.Equal(t, "", tok.Decode([]int{-1, c.size, 1 << 40}, false), "ids that are no token are skipped")
	}
}

// Without ParseSpecial the names of special tokens are text: the ids are those of a tokenizer that has no such tokens.
// Added tokens that are not special stay tokens.
func TestParseSpecial(t *testing.T) {
	data, err := os.ReadFile("testdata/gemma-tokenizer.json")
	require.NoError(t, err)
	var sections map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &sections))
	sections["added_tokens"] = json.RawMessage("[]") // all are special, and in the vocabulary too
	bare := parseSections(t, sections)
	gemma := load(t, "gemma")
	differ := 0
	for _, c := range readRecording(t, "gemma").Encode {
		got := gemma.Encode(c.Text, EncodeOptions{})
		require.Equal(t, bare.Encode(c.Text, EncodeOptions{}), got, "%q", c.Text)
		require.Equal(t, append([]int{2}, got...), gemma.Encode(c.Text, EncodeOptions{AddSpecial: true}), "%q", c.Text)
		if len(got) != len(c.IDs) {
			differ++
		}
	}
	require.Positive(t, differ)

	qwen := load(t, "qwen")
	ids := qwen.Encode("<|im_end|><think>", EncodeOptions{})
	require.NotContains(t, ids, 762)
	require.Contains(t, ids, 763)
	require.Equal(t, "<|im_end|><think>", qwen.Decode(ids, true))
}

// Words of a megabyte in both layouts: neither merging nor anything else may be quadratic.
func TestLongWords(t *testing.T) {
	for _, name := range []string{"qwen", "gemma"} {
		tok := load(t, name)
		for part, size := range map[string]int{"a": 1 << 20, "Wednesday": 1 << 20, "▁": 1 << 18, "1": 1 << 18,
			"\u0301": 1 << 18, " ": 1 << 18} {
			text := strings.Repeat(part, size/len(part))
			ids := tok.Encode(text, EncodeOptions{})
			require.Equal(t, strings.ReplaceAll(text, "▁", map[string]string{"qwen": "▁", "gemma": " "}[name]),
				tok.Decode(ids, false))
		}
	}
}

// White space that tokens take in and that is tokens itself is not looked through again and again.
func TestLongWhiteSpace(t *testing.T) {
	for _, flags := range []string{`"lstrip": true, "rstrip": false`, `"lstrip": false, "rstrip": true`,
		`"lstrip": true, "rstrip": true`} {
		token := `{"id": 1, "content": "\n", "single_word": false, "normalized": false, "special": true, ` + flags + `}`
		tok, err := Parse([]byte(`{"added_tokens": [`+token+`], "model": {"vocab": {"a": 0}, "merges": []}}`), "t.json")
		require.NoError(t, err)
		ids := tok.Encode(strings.Repeat("\n", 1<<20), EncodeOptions{ParseSpecial: true})
		require.NotEmpty(t, ids)
	}
}

// The short and the long way of merging give the same ids.
func TestMergeShortIsMergeLong(t *testing.T) {
	for _, name := range layouts {
		tok := load(t, name)
		g := &merger{model: tok.model}
		for _, c := range readRecording(t, name).Encode {
			symbols := tok.model.splitCharacters(nil, strings.ReplaceAll(c.Text, " ", "▁"))
			if tok.model.byteLevel {
				symbols = tok.model.splitBytes(nil, c.Text)
			}
			if len(symbols) == 0 {
				continue
			}
			short := g.mergeShort(append([]int32(nil), symbols...))
			long := g.mergeLong(append([]int32(nil), symbols...))
			require.Equal(t, long, short, "%q", c.Text)
		}
	}
}

func TestConcurrentEncode(t *testing.T) {
	for _, name := range []string{"qwen", "gemma"} {
		tok := load(t, name)
		r := readRecording(t, name)
		var wg sync.WaitGroup
		wrong := make(chan string, 8)
		for range 8 {
			wg.Go(func() {
				for _, c := range r.Encode[:100] {
					ids := tok.Encode(c.Text, EncodeOptions{ParseSpecial: true, AddSpecial: true})
					if tok.Decode(ids, false) != *c.Decoded {
						wrong <- c.Text
						return
					}
				}
			})
		}
		wg.Wait()
		require.Empty(t, wrong)
	}
}

// A stream passes on what is certain at once, and holds back what is not.
func TestStream(t *testing.T) {
	qwen, gemma := load(t, "qwen"), load(t, "gemma")
	id := func(tok *Tokenizer, token string) int {
		id, ok := tok.TokenToID(token)
		require.True(t, ok, token)
		return id
	}
	for _, c := range []struct {
		tok    *Tokenizer
		tokens []string
		parts  []string // of each Push, and of Flush
	}{
		{qwen, []string{"h", "i", "<|im_end|>"}, []string{"h", "i", "", ""}},
		{qwen, []string{"ä", "½", "ł", "h"}, []string{"", "", "你", "h", ""}},
		{qwen, []string{"Ã", "©", "h"}, []string{"", "é", "h", ""}},
		{qwen, []string{"Ã", "h"}, []string{"", "\uFFFDh", ""}},
		{qwen, []string{"h", "Ã"}, []string{"h", "", "\uFFFD"}},
		{qwen, []string{"©", "©"}, []string{"\uFFFD", "\uFFFD", ""}},
		{gemma, []string{"▁", "<0xC3>", "<0xA9>", "a"}, []string{" ", "", "", "éa", ""}},
		{gemma, []string{"<0xC3>", "<0xA9>"}, []string{"", "", "é"}},
		{gemma, []string{"<0xC3>", "<0xA9>", "<0xC3>", "a"}, []string{"", "", "", "\uFFFD\uFFFD\uFFFDa", ""}},
		{gemma, []string{"<bos>", "a", "<turn|>"}, []string{"", "a", "", ""}},
	} {
		s := c.tok.NewStream(true)
		var parts []string
		for _, token := range c.tokens {
			parts = append(parts, s.Push(id(c.tok, token)))
		}
		require.Equal(t, c.parts, append(parts, s.Flush()), "%q", c.tokens)
	}
}
