package gguf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text has the text files of a checkpoint (tokenizer.json and others), made from a model's metadata; nil for those that
// it does not contain.
type Text struct {
	Tokenizer        []byte // tokenizer.json
	TokenizerConfig  []byte // tokenizer_config.json
	GenerationConfig []byte // generation_config.json
	ChatTemplate     []byte // chat_template.jinja
}

// The types of tokens (llama.h, enum llama_token_type).
const (
	tokenNormal = 1 + iota
	tokenUnknown
	tokenControl
	tokenUser
	tokenUnused
	tokenByte
)

// preTokenizers are the patterns by which words are cut, for values of tokenizer.ggml.pre with byte-level BPE
// (llama-vocab.cpp, as the tokenizer.json files of the models have them).
var preTokenizers = map[string]string{
	"qwen35": `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen2":  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

// object is a JSON object; encoding/json sorts its keys, so that equal metadata gives equal bytes.
type object = map[string]any

// Text makes a checkpoint's text files of the metadata tokenizer.* and general.sampling.*. Of tokenizers it knows
// byte-level BPE with the patterns of Qwen and Gemma 4's BPE; of another one the error says what it is, and the rest
// is there all the same.
func (m *Model) Text() (Text, error) {
	k := m.Keys()
	t := Text{ChatTemplate: nilIfEmpty(k.Text("tokenizer.chat_template"))}
	t.GenerationConfig = encode(k.generation())
	tokens, kinds, merges := k.Texts("tokenizer.ggml.tokens"),
		k.Ints("tokenizer.ggml.token_type", len(k.Texts("tokenizer.ggml.tokens"))), k.Texts("tokenizer.ggml.merges")
	t.TokenizerConfig = encode(k.special(tokens))
	if err := k.Err(); err != nil {
		return t, err
	}
	if tokens == nil {
		return t, nil
	}
	kind, pre := k.Text("tokenizer.ggml.model"), k.Text("tokenizer.ggml.pre")
	v, err := m.vocabulary(tokens, kinds, merges)
	if err != nil {
		return t, err
	}
	switch pattern := preTokenizers[pre]; {
	case kind == "gpt2" && pattern != "":
		t.Tokenizer = encode(v.byteLevel(pattern))
	case kind == "gemma4":
		t.Tokenizer = encode(v.gemma(k, tokens))
	default:
		err = &FormatError{m.path, "metadata tokenizer.ggml.pre", -1,
			fmt.Sprintf(`tokenizer "gpt2" with one of %s, or "gemma4"`,
				strings.Join(slices.Sorted(maps.Keys(preTokenizers)), ", ")), fmt.Sprintf("%q with %q", kind, pre)}
	}
	return t, err
}

func nilIfEmpty(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func encode(o object) []byte {
	if len(o) == 0 {
		return nil
	}
	p, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil // a number that is not finite, which Keys does not give
	}
	return append(p, '\n')
}

// vocabulary has what both kinds of tokenizers are made from.
type vocabulary struct {
	ids    map[string]int
	kinds  []int64
	tokens []string
	merges [][2]string
}

func (m *Model) vocabulary(tokens []string, kinds []int64, merges []string) (*vocabulary, error) {
	v := &vocabulary{ids: map[string]int{}, kinds: kinds, tokens: tokens}
	for i, token := range tokens {
		first, twice := v.ids[token]
		if twice || !utf8.ValidString(token) {
			expected, found := "tokens in UTF-8", fmt.Sprintf("%q as token %d", token, i)
			if twice {
				expected, found = "each token once", fmt.Sprintf("%q as tokens %d and %d", token, first, i)
			}
			return nil, &FormatError{m.path, "metadata tokenizer.ggml.tokens", -1, expected, found}
		}
		v.ids[token] = i
	}
	for i, merge := range merges {
		at := -1
		if len(merge) > 1 {
			at = 1 + strings.IndexByte(merge[1:], ' ')
		}
		if at < 1 {
			return nil, &FormatError{m.path, "metadata tokenizer.ggml.merges", -1,
				"two parts with a space between them", fmt.Sprintf("%q as merge %d", merge, i)}
		}
		v.merges = append(v.merges, [2]string{merge[:at], merge[at+1:]})
	}
	return v, nil
}

// kind returns the type of a token; all are normal where the file does not say.
func (v *vocabulary) kind(i int) int64 {
	if v.kinds == nil {
		return tokenNormal
	}
	return v.kinds[i]
}

// added lists the tokens that are found in a text before it is cut.
func (v *vocabulary) added() []object {
	list := []object{}
	for i, token := range v.tokens {
		if kind := v.kind(i); kind == tokenControl || kind == tokenUser || kind == tokenUnknown {
			list = append(list, object{"id": i, "content": token, "single_word": false, "lstrip": false,
				"rstrip": false, "normalized": false, "special": kind != tokenUser})
		}
	}
	return list
}

func (v *vocabulary) bpe(ids map[string]int, unknown any, gemma bool) object {
	merges := v.merges
	if merges == nil {
		merges = [][2]string{}
	}
	return object{"type": "BPE", "dropout": nil, "unk_token": unknown, "continuing_subword_prefix": nil,
		"end_of_word_suffix": nil,
		"fuse_unk":           gemma, "byte_fallback": gemma, "ignore_merges": false, "vocab": ids, "merges": merges}
}

// byteLevel returns the tokenizer of Qwen: bytes as characters, words cut by a pattern, added tokens beside the
// vocabulary.
func (v *vocabulary) byteLevel(pattern string) object {
	ids := map[string]int{}
	for i, token := range v.tokens {
		if v.kind(i) == tokenNormal || v.kind(i) == tokenByte {
			ids[token] = i
		}
	}
	bytes := func(prefix, trim, regex bool) object {
		return object{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}
	}
	return object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": v.added(),
		"normalizer": object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false},
			bytes(false, true, false)}},
		"post_processor": bytes(true, false, true), "decoder": bytes(true, true, true), "model": v.bpe(ids, nil, false)}
}

// gemma returns the tokenizer of Gemma 4: spaces as ▁, bytes as <0x0A> where there is no token, every token in the
// vocabulary, and the token that begins a text in front of it.
func (v *vocabulary) gemma(k *Keys, tokens []string) object {
	ids := map[string]int{}
	var unknown any
	for i, token := range v.tokens {
		ids[token] = i
		if v.kind(i) == tokenUnknown {
			unknown = token
		}
	}
	if id := k.IntOr("tokenizer.ggml.unknown_token_id", -1); id >= 0 && id < len(tokens) {
		unknown = tokens[id]
	}
	o := object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": v.added(),
		"normalizer": object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"},
		"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious",
			"invert": false},
		"post_processor": nil,
		"decoder": object{"type": "Sequence", "decoders": []object{
			{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "},
			{"type": "ByteFallback"}, {"type": "Fuse"}}},
		"model": v.bpe(ids, unknown, true)}
	id := k.IntOr("tokenizer.ggml.bos_token_id", -1)
	if id >= 0 && id < len(tokens) && (k.Bool("tokenizer.ggml.add_bos_token") ||
		!k.Has("tokenizer.ggml.add_bos_token")) {
		bos := func(segment int) object { return object{"SpecialToken": object{"id": tokens[id], "type_id": segment}} }
		text := func(name string, segment int) object {
			return object{"Sequence": object{"id": name, "type_id": segment}}
		}
		o["post_processor"] = object{"type": "TemplateProcessing", "single": []object{bos(0), text("A", 0)},
			"pair": []object{bos(0), text("A", 0), bos(1), text("B", 1)},
			"special_tokens": object{tokens[id]: object{"id": tokens[id], "ids": []int{id},
				"tokens": []string{tokens[id]}}}}
	}
	return o
}

// special makes tokenizer_config.json.
func (k *Keys) special(tokens []string) object {
	o := object{}
	for _, s := range []struct{ key, name string }{{"bos", "bos_token"}, {"eos", "eos_token"}, {"padding", "pad_token"},
		{"unknown", "unk_token"}} {
		if id := k.IntOr("tokenizer.ggml."+s.key+"_token_id", -1); id >= 0 && id < len(tokens) {
			o[s.name] = tokens[id]
		}
	}
	if k.Has("tokenizer.ggml.add_bos_token") {
		o["add_bos_token"] = k.Bool("tokenizer.ggml.add_bos_token")
	}
	if len(o) > 0 {
		o["tokenizer_class"] = "PreTrainedTokenizerFast"
	}
	return o
}

// generation makes generation_config.json: tokens that end an answer, and the sampling that the authors recommend.
func (k *Keys) generation() object {
	o := object{}
	var ends []int
	for _, name := range []string{"eos", "eot", "eom"} {
		if id := k.IntOr("tokenizer.ggml."+name+"_token_id", -1); id >= 0 && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	if ends != nil {
		o["eos_token_id"] = ends
	}
	for _, s := range []struct{ key, name string }{{"bos", "bos_token_id"}, {"padding", "pad_token_id"}} {
		if id := k.IntOr("tokenizer.ggml."+s.key+"_token_id", -1); id >= 0 {
			o[s.name] = id
		}
	}
	if k.Has("general.sampling.temp") {
		o["temperature"], o["do_sample"] = k.Float("general.sampling.temp"), true
	}
	if k.Has("general.sampling.top_k") {
		o["top_k"] = k.IntOr("general.sampling.top_k", 0)
	}
	if k.Has("general.sampling.top_p") {
		o["top_p"] = k.Float("general.sampling.top_p")
	}
	return o
}
