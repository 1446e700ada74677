package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// Whatever the bytes, Parse returns a tokenizer that works or an *Error.
func FuzzParse(f *testing.F) {
	var r struct {
		Wholes, Decoders []struct{ Sections map[string]json.RawMessage }
	}
	b, err := os.ReadFile("testdata/components.json")
	require.NoError(f, err)
	require.NoError(f, json.Unmarshal(b, &r))
	for _, c := range append(r.Wholes, r.Decoders...) {
		b, err := json.Marshal(c.Sections)
		require.NoError(f, err)
		f.Add(b)
	}
	for _, s := range []string{
		`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"},{"type":"Strip","strip_left":true,"strip_right":false}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s)|\\p{L}+|[^\\s\\d]"},"behavior":"Contiguous","invert":true},{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":true}]},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`,
		`{"model":{"merges":[["a","b"]],"vocab":{"\u0061":0,"b":1,"ab":2}}}`, `{`, `[]`, `null`, `"\ud800"`, "\xff", ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data, "fuzz.json")
		if err != nil {
			var e *Error
			require.True(t, errors.As(err, &e), "%v", err)
			require.Equal(t, "fuzz.json", e.File)
			require.NotEmpty(t, e.Reason)
			return
		}
		for _, text := range []string{"", "a b ab", " The  1st\n<s>é'S 你😀\xff", strings.Repeat("ab a", 50)} {
			ids := tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
			s, all := tok.NewStream(false), ""
			for _, id := range ids {
				part := s.Push(id)
				require.True(t, utf8.ValidString(part))
				all += part
			}
			require.Equal(t, tok.Decode(ids, false), all+s.Flush())
		}
	})
}

// Where the layouts lose nothing but what their normalizers change, decoding takes encoding back.
func FuzzRoundTrip(f *testing.F) {
	for _, c := range readRecording(f, "gemma").Encode {
		f.Add(c.Text)
	}
	qwen, gemma := load(f, "qwen"), load(f, "gemma")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "<") {
			return // may be a token, which is not normalized
		}
		check := func(tok *Tokenizer, want string) {
			ids := tok.Encode(text, EncodeOptions{ParseSpecial: true})
			require.Equal(t, want, tok.Decode(ids, false), "%+q", text)
			for _, id := range ids {
				require.True(t, 0 <= id && id < tok.VocabSize())
			}
			require.Equal(t, ids, tok.Encode(text, EncodeOptions{}),
				"without special tokens in it, a text has the same ids")
		}
		check(qwen, ucd.NFC.String(validText(text)))
		check(gemma, strings.ReplaceAll(validText(text), "▁", " "))
	})
}
