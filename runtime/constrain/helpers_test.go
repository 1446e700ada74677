package constrain

import (
	"errors"

	"github.com/stretchr/testify/require"
)

// accepts reports whether a grammar takes a text as a whole.
func accepts(g *Grammar, text string) bool {
	m := newMachine(g.program)
	s := m.start
	for i := range len(text) {
		s = m.step(s, text[i])
	}
	return s.ends
}

// compile compiles a source that has to be right.
func compile(t require.TestingT, kind Kind, text string) *Grammar {
	g, err := Compile(Source{kind, text})
	require.NoError(t, err, text)
	return g
}

// byteVocab has a token for each byte, the given ones, and a stop token after.
func byteVocab(t require.TestingT, more ...string) (v *Vocab, stop int) {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, s := range more {
		tokens = append(tokens, []byte(s))
	}
	tokens = append(tokens, nil)
	v, err := NewVocab(tokens, []int{len(tokens) - 1})
	require.NoError(t, err)
	return v, len(tokens) - 1
}

// fails compiles a source that has to be wrong and gives its error.
func fails(t require.TestingT, kind Kind, text string) *Error {
	_, err := Compile(Source{kind, text})
	require.Error(t, err, text)
	var e *Error
	require.True(t, errors.As(err, &e), "%T", err)
	return e
}

// jsonTokens are tokens as vocabularies have them, for masks that have to split them.
var jsonTokens = []string{
	`{"`, `":`, `": `, `":"`, `", "`, `","`, `"}`, `"]`, `}}`, `]}`, `},`, `],`, `[]`, `{}`, `[[`, `[{`,
	`"a`, `"b"`, `: `, `, `,
	"\n  ", "\n", "  ", "true", "false", "null", "tr", "ue", "00", "12", "-1", "1.5", "e5", `\"`,
	`\u`, `\ud8`, "ab", "abc",
	"é", "日本", "日", "😀", "é\"", "ab\":", `a"`, `bc",`, `x": "`, "0}", "1]", "1,", `1,"`, "\"}\n",
	"}]", "\t", " \"", ` {"`,
}
