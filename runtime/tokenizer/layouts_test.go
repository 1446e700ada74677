package tokenizer

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A recording holds what the real library makes of texts and ids (testdata/record_layouts.mjs): the ids with and
// without those of the post-processor, and the text that the former are decoded to with and without special tokens.
type recording struct {
	Encode []struct {
		Text             string
		IDs, Special     []int   // Special: if it differs from IDs
		Decoded, Skipped *string // Decoded: if it differs from Text; Skipped: from Decoded
	}
	Decode []struct {
		IDs     []int
		Decoded string
		Skipped *string
	}
}

// readRecording reads a recording of testdata, or of the folder that ETC_RECORDINGS names: a larger one is a matter of
// one command, see testdata/record_layouts.mjs.
func readRecording(t testing.TB, name string) (r recording) {
	folder := os.Getenv("ETC_RECORDINGS")
	if folder == "" {
		folder = "testdata"
	}
	b, err := os.ReadFile(filepath.Join(folder, name+".json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	require.NotEmpty(t, r.Encode)
	require.NotEmpty(t, r.Decode)
	for i := range r.Encode {
		c := &r.Encode[i]
		if c.Special == nil {
			c.Special = c.IDs
		}
		c.Decoded = cmp.Or(c.Decoded, &c.Text)
		c.Skipped = cmp.Or(c.Skipped, c.Decoded)
	}
	for i := range r.Decode {
		c := &r.Decode[i]
		c.Skipped = cmp.Or(c.Skipped, &c.Decoded)
	}
	return r
}

func load(t testing.TB, name string) *Tokenizer {
	folder := os.Getenv("ETC_RECORDINGS")
	path := filepath.Join(folder, name+"-tokenizer.json")
	if _, err := os.Stat(path); folder == "" || err != nil {
		path = filepath.Join("testdata", name+"-tokenizer.json")
	}
	tok, err := Load(path)
	require.NoError(t, err)
	return tok
}

var layouts = func() []string {
	if names := os.Getenv("ETC_LAYOUTS"); names != "" {
		return strings.Split(names, ",")
	}
	return []string{"qwen", "gemma"}
}()

func TestLayouts(t *testing.T) {
	for _, name := range layouts {
		t.Run(name, func(t *testing.T) {
			tok := load(t, name)
			r := readRecording(t, name)
			for _, c := range r.Encode {
				require.Equal(t, c.IDs, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true}), "%+q", c.Text)
				require.Equal(t, c.Special, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true, AddSpecial: true}),
					"%+q", c.Text)
				require.Equal(t, *c.Decoded, tok.Decode(c.Special, false), "%+q", c.Text)
				require.Equal(t, *c.Skipped, tok.Decode(c.Special, true), "%+q", c.Text)
			}
			for _, c := range r.Decode {
				require.Equal(t, c.Decoded, tok.Decode(c.IDs, false), "%v", c.IDs)
				require.Equal(t, *c.Skipped, tok.Decode(c.IDs, true), "%v", c.IDs)
			}
		})
	}
}

// What a stream returns is always whole characters, and all of it is what Decode returns.
func TestStreamIsDecode(t *testing.T) {
	for _, name := range layouts {
		tok := load(t, name)
		r := readRecording(t, name)
		check := func(ids []int, want string, skipSpecial bool) {
			s := tok.NewStream(skipSpecial)
			var all strings.Builder
			for _, id := range ids {
				part := s.Push(id)
				require.True(t, utf8.ValidString(part), "%v", ids)
				all.WriteString(part)
			}
			all.WriteString(s.Flush())
			require.Equal(t, want, all.String(), "%v", ids)
		}
		for _, c := range r.Encode {
			check(c.Special, *c.Decoded, false)
			check(c.Special, *c.Skipped, true)
		}
		for _, c := range r.Decode {
			check(c.IDs, c.Decoded, false)
			check(c.IDs, *c.Skipped, true)
		}
	}
}
