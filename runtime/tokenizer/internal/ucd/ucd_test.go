package ucd

import (
	"encoding/json"
	"os"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// forms.json holds what the library makes of texts of marks, jamo, composites and characters of newer editions of
// Unicode (record_forms.mjs).
func TestForms(t *testing.T) {
	var cases []struct{ Text, NFC, NFD, NFKC, NFKD, Lower string }
	file := "testdata/forms.json"
	if f := os.Getenv("ETC_FORMS"); f != "" {
		file = f
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		require.Equal(t, c.NFC, NFC.String(c.Text), "NFC of %+q", c.Text)
		require.Equal(t, c.NFD, NFD.String(c.Text), "NFD of %+q", c.Text)
		require.Equal(t, c.NFKC, NFKC.String(c.Text), "NFKC of %+q", c.Text)
		require.Equal(t, c.NFKD, NFKD.String(c.Text), "NFKD of %+q", c.Text)
		var lower []byte
		for _, r := range c.Text {
			lower = AppendLower(lower, r)
		}
		require.Equal(t, c.Lower, string(lower), "lower case of %+q", c.Text)
	}
}

// A normalized text is its own form, and canonical composition takes canonical decomposition back. This holds for
// every character in every edition of Unicode.
func TestFormsOfEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if 0xD800 <= r && r < 0xE000 {
			continue
		}
		s := string(r)
		for _, f := range []Form{NFC, NFD, NFKC, NFKD} {
			if n := f.String(s); f.String(n) != n {
				t.Fatalf("form %d of %U is %+q, whose form is %+q", f, r, n, f.String(n))
			}
		}
		if a, b := NFC.String(s), NFC.String(NFD.String(s)); a != b {
			t.Fatalf("NFC of %U is %+q, but of its NFD it is %+q", r, a, b)
		}
	}
}

// Characters that Go knows too are of the same major category here: an edition may move a mark from Mn to Mc
// (Unicode 16 did so with U+1171E), never a letter to the symbols.
func TestCategoriesAgreeWithGo(t *testing.T) {
	for _, name := range []string{"L", "M", "N", "P", "S", "Z"} {
		mask, ok := Category(name)
		require.True(t, ok, name)
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if unicode.Is(unicode.Categories[name], r) && Of(r)&mask == 0 {
				t.Fatalf("%U is %s in Go, and not here", r, name)
			}
		}
	}
	_, ok := Category("Xx")
	require.False(t, ok)
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		r          rune
		has, lacks Mask
	}{
		{'a', Ll | Word | RegexWord, Space | Numeric | Punctuation | Cn},
		{' ', Zs | Space, Word},
		{'\n', Cc | Space, Word},
		{0x0301, Mn | Word, L | N},
		{'$', Sc | Punctuation, P},            // ASCII punctuation is more than \p{P}
		{'²', No | Numeric | Word, RegexWord}, // Oniguruma's \w takes ² in, Rust's does not
		{0x200D, Cf | RegexWord, Word},        // zero width joiner: the other way round
		{0x1C89, Lu, Cn},                      // Unicode 16
		{0x11DE0, Cn | Numeric, N},            // Unicode 17
		{0xD800, Cn, Word},
		{-1, Cn, Word},
		{0x110000, Cn, Word},
	} {
		require.Equal(t, c.has, Of(c.r)&c.has, "%U", c.r)
		require.Zero(t, Of(c.r)&c.lacks, "%U", c.r)
	}
}

func TestScript(t *testing.T) {
	for name, r := range map[string]rune{"Han": '漢', "Hiragana": 'ひ', "Katakana": 'カ', "Hangul": '한'} {
		ranges, ok := Script(name)
		require.True(t, ok, name)
		in := false
		for _, x := range ranges {
			require.False(t, x.Lo <= 'a' && 'a' <= x.Hi, name)
			in = in || x.Lo <= r && r <= x.Hi
		}
		require.True(t, in, name)
	}
	_, ok := Script("Latin")
	require.False(t, ok)
}
