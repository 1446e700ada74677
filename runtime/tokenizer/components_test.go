package tokenizer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// parseSections makes a tokenizer of some sections of a tokenizer.json.
func parseSections(t testing.TB, sections map[string]json.RawMessage) *Tokenizer {
	if sections["model"] == nil {
		sections["model"] = json.RawMessage(`{"type": "BPE", "vocab": {"a": 0}, "merges": []}`)
	}
	b, err := json.Marshal(sections)
	require.NoError(t, err)
	tok, err := Parse(b, "tokenizer.json")
	require.NoError(t, err, "%s", b)
	return tok
}

// components.json holds what single components of the real library do (testdata/record_components.mjs).
func TestComponents(t *testing.T) {
	var r struct {
		Texts, Sentences []string
		Normalizers      []struct {
			JSON json.RawMessage
			Want []string
		}
		PreTokenizers []struct {
			JSON json.RawMessage
			Want [][]string
		}
		Decoders []struct {
			Sections map[string]json.RawMessage
			IDs      [][]int
			Want     [][2]string
		}
		Wholes []struct {
			Sections     map[string]json.RawMessage
			Size         int
			IDs, Special [][]int
			Names        []*string
			Decoded      [][2]string
		}
	}
	file := "testdata/components.json"
	if f := os.Getenv("ETC_COMPONENTS"); f != "" {
		file = f // a larger recording
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	require.NotEmpty(t, r.Normalizers)
	require.NotEmpty(t, r.PreTokenizers)
	require.NotEmpty(t, r.Decoders)
	require.NotEmpty(t, r.Wholes)

	for _, c := range r.Normalizers {
		tok := parseSections(t, map[string]json.RawMessage{"normalizer": c.JSON})
		for i, text := range r.Texts {
			require.Equal(t, c.Want[i], tok.normalize(text), "normalizer %s of %q", c.JSON, text)
		}
	}
	for _, c := range r.PreTokenizers {
		tok := parseSections(t, map[string]json.RawMessage{"pre_tokenizer": c.JSON})
		for i, text := range r.Texts {
			got := []string{}
			tok.preTokenizer.cut(text, true, func(s string) {
				if tok.preTokenizer.byteLevel {
					s = toByteLevel(s)
				}
				got = append(got, s)
			})
			require.Equal(t, c.Want[i], got, "pre-tokenizer %s of %q", c.JSON, text)
		}
	}
	for _, c := range r.Decoders {
		tok := parseSections(t, c.Sections)
		for i, ids := range c.IDs {
			require.Equal(t, c.Want[i], [2]string{tok.Decode(ids, false), tok.Decode(ids, true)}, "decoder %s of %v",
				c.Sections["decoder"], ids)
			s, all := tok.NewStream(false), ""
			for _, id := range ids {
				all += s.Push(id)
			}
			require.Equal(t, c.Want[i][0], all+s.Flush(), "decoder %s of %v", c.Sections["decoder"], ids)
		}
	}
	for _, c := range r.Wholes {
		tok := parseSections(t, c.Sections)
		require.Equal(t, c.Size, tok.VocabSize())
		for i, text := range r.Sentences {
			ids := tok.Encode(text, EncodeOptions{ParseSpecial: true})
			require.Equal(t, c.IDs[i], ids, "%s: %q", c.Sections, text)
			if j := i - (len(r.Sentences) - len(c.Decoded)); j >= 0 {
				require.Equal(t, c.Decoded[j], [2]string{tok.Decode(ids, false), tok.Decode(ids, true)},
					"%s: %v", c.Sections, ids)
			}
			if c.Special != nil {
				require.Equal(t, c.Special[i], tok.Encode(text, EncodeOptions{ParseSpecial: true, AddSpecial: true}),
					"%s: %q", c.Sections, text)
			}
		}
		for id, want := range c.Names {
			got, ok := tok.IDToToken(id)
			require.Equal(t, want != nil, ok, "%s: %d", c.Sections, id)
			if ok {
				require.Equal(t, *want, got, "%s: %d", c.Sections, id)
			}
		}
	}
}
