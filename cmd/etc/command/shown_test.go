package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"plain ü 漢 😀\n\tline":     "plain ü 漢 😀\n\tline",
		"\x1b[2J":                 `\u001b[2J`,
		"a\rb\x07\x7f":            `a\u000db\u0007\u007f`,
		"\u009b31m":               `\u009b31m`,
		"\x9b31m":                 `\x9b31m`,
		"name\u202egnp.exe\u2069": `name\u202egnp.exe\u2069`,
		"�":                       "�",
	} {
		require.Equal(t, want, shown(text))
		for cut := range len(text) {
			var b strings.Builder
			w := &shownWriter{w: &b}
			for _, part := range []string{text[:cut], text[cut:]} {
				n, err := w.Write([]byte(part))
				require.NoError(t, err)
				require.Equal(t, len(part), n)
			}
			require.Equal(t, want, b.String(), "cut at %d", cut)
		}
	}
	// JSON stays the same value.
	const name = "\u009b\x7f\x1b\u202eü"
	var b strings.Builder
	require.NoError(t, writeJSON(&b, []string{name}))
	require.NotContains(t, b.String(), "\u009b")
	require.NotContains(t, b.String(), "\x7f")
	var got []string
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Equal(t, []string{name}, got)
}
