package ir

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse reads any text. What is accepted must verify, print, and read back as the same text.
func FuzzParse(f *testing.F) {
	f.Add(sharing)
	for _, text := range texts(f) {
		f.Add(text)
		for _, line := range strings.SplitAfter(text, "\n") { // short inputs mutate better
			if strings.Contains(line, "=") {
				f.Add("module {\nsymbol s0 [1, 9]\nsymbol s1 [-2147483648, 2147483647]\nconstant @c : f32[2,s0]\nbuffer @b : f32[2]\nentry f(%x: f32[2,s0], %n: int(s1)) {\n" + line + "return %x: f32[2,s0]\n}\n}")
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			require.Nil(t, m)
			return
		}
		require.NoError(t, Verify(m))
		printed := m.String()
		again, err := Parse(printed)
		require.NoError(t, err, printed)
		require.Equal(t, printed, again.String())
		m.Entry.Body.Walk(func(op *Op) { Describe(m, op) })
	})
}
