package guide_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/guide"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// qwen is the tokenizer of a small checkpoint, with tokens for calls of tools.
func qwen(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "checkpoints", "qwen35moe-chat", "tokenizer.json"))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(b, &file))
	for i, name := range []string{"<tool_call>", "</tool_call>"} {
		file["added_tokens"] = append(file["added_tokens"].([]any), map[string]any{"id": 765 + i, "content": name,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false})
	}
	b, err = json.Marshal(file)
	require.NoError(t, err)
	k, err := tokenizer.Parse(b, "test")
	require.NoError(t, err)
	return k
}

const stop = 762 // <|im_end|>

// allowed are the tokens of a mask.
func allowed(mask []uint64, size int) (out []int) {
	for i := range size {
		if mask[i/64]>>(i%64)&1 != 0 {
			out = append(out, i)
		}
	}
	return out
}

// TestRandomAnswers writes answers of tokens at random, as far as masks allow them, with thoughts and calls at random:
// the text after the thoughts has the form, and the body of every call that of the call, wherever answers end by
// themselves.
func TestRandomAnswers(t *testing.T) {
	k := qwen(t)
	f := format.Find(k, "hermes")
	m := guide.NewModel(k, f, []int{stop}, 0)
	text, err := m.Compile(constrain.Source{Kind: constrain.Regex, Text: "(yes|no), [0-9]{2}"})
	require.NoError(t, err)
	call, err := m.Compile(constrain.Source{Kind: constrain.JSONSchema,
		Text: `{"type": "object", "properties": {"name": {"const": "f"}}, "required": ["name"], "additionalProperties": false}`})
	require.NoError(t, err)
	for name, o := range map[string]guide.Options{
		"text":              {Text: text},
		"thoughts":          {Text: text, Parse: true, Thinks: true, Budget: 9},
		"open thoughts":     {Text: text, Parse: true, Prompt: []int{f.Open}, Budget: 4},
		"calls or text":     {Text: text, Parse: true, Calls: true, Thinks: true, Budget: 5},
		"a call must come":  {Call: call, Parse: true, Calls: true, Thinks: true, Budget: 5},
		"one call at most":  {Call: call, Parse: true, Calls: true, Once: true},
		"nothing is parsed": {Text: text, Prompt: []int{f.Open}, Thinks: true, Calls: true},
	} {
		t.Run(name, func(t *testing.T) {
			ended := 0
			for seed := range uint64(60) {
				random := rand.New(rand.NewPCG(seed, 1))
				g, err := m.New(o)
				require.NoError(t, err)
				ids, whole := write(t, g, random, k.VocabSize(), f)
				if !whole {
					continue
				}
				ended++
				require.NoError(t, right(k, f, o, ids), "seed %d: %q", seed, k.Decode(ids, false))
			}
			require.Greater(t, ended, 5)
		})
	}
}

// write draws an answer; whole reports whether it ended by itself.
func write(t *testing.T, g *guide.Guide, random *rand.Rand, size int, f *format.Format) (ids []int, whole bool) {
	mask := make([]uint64, g.MaskWords())
	for len(ids) < 80 {
		token := random.IntN(stop)
		if g.Mask(mask) {
			list := allowed(mask, size)
			require.NotEmpty(t, list, "behind %d tokens", len(ids))
			token = list[random.IntN(len(list))]
			// Thoughts, and a call without a form, take nearly every token: without help they never end.
			if end := []int{f.Close, f.End}[random.IntN(2)]; len(list) > size/2 && random.IntN(4) == 0 {
				token = end
			}
		}
		require.NoError(t, g.Accept(token), "token %d", token)
		if token == stop {
			return ids, true
		}
		ids = append(ids, token)
	}
	return ids, false
}

// right reports what is wrong with an answer that ended by itself.
func right(k *tokenizer.Tokenizer, f *format.Format, o guide.Options, ids []int) error {
	thinking := o.Parse && f.Inside(o.Prompt)
	var text []int
	calls := 0
	for i := 0; i < len(ids); i++ {
		switch id := ids[i]; {
		case thinking:
			thinking = id != f.Close
		case o.Parse && id == f.Open:
			thinking = true
		case o.Parse && id == f.Tool:
			n := slices.Index(ids[i:], f.End)
			if n < 0 {
				return fmt.Errorf("a call without an end")
			}
			var body struct{ Name string }
			if err := json.Unmarshal([]byte(k.Decode(ids[i+1:i+n], false)), &body); o.Call != nil &&
				(err != nil || body.Name != "f") {
				return fmt.Errorf("the call %q: %v", k.Decode(ids[i+1:i+n], false), err)
			}
			i, calls = i+n, calls+1
		default:
			text = append(text, id)
		}
	}
	rest := strings.TrimLeft(k.Decode(text, false), "\n")
	switch {
	case thinking:
		return fmt.Errorf("thoughts without an end")
	case o.Call != nil && (calls == 0 || o.Once && calls > 1 || strings.TrimSpace(rest) != ""):
		return fmt.Errorf("%d calls, and the text %q", calls, rest)
	case o.Call == nil && calls == 0 && (len(rest) < 6 || rest[:2] != "no" && rest[:3] != "yes"):
		return fmt.Errorf("the text %q", rest)
	}
	return nil
}

// TestNoVocabulary: a stop token that the vocabulary lacks is an error of every answer.
func TestNoVocabulary(t *testing.T) {
	k := qwen(t)
	m := guide.NewModel(k, format.Find(k, ""), []int{1 << 20}, 0)
	_, err := m.New(guide.Options{})
	require.ErrorContains(t, err, "stop token 1048576")
}
