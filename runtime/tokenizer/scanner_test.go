package tokenizer

import (
	"strings"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/regex"
	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// asGo says whether Go's tables, which regexp2 uses, know the characters of s as Oniguruma does.
func asGo(s string) bool {
	for _, r := range s {
		m := ucd.Of(r)
		if unicode.IsLetter(r) != (m&ucd.L != 0) || unicode.IsMark(r) != (m&ucd.M != 0) ||
			unicode.IsNumber(r) != (m&ucd.N != 0) || unicode.IsSpace(r) != (m&ucd.Space != 0) {
			return false
		}
	}
	return true
}

type scannerCase struct {
	pattern string
	rules   *scanner
	regex   *regex.Regex
	regexp2 *regexp2.Regexp
}

func scannerCases(t testing.TB) (cases []scannerCase) {
	for pattern, rules := range wordRules {
		re, err := regex.Compile(pattern)
		require.NoError(t, err)
		re2, err := regexp2.Compile(pattern, regexp2.Unicode)
		require.NoError(t, err)
		cases = append(cases, scannerCase{pattern, rules, re, re2})
	}
	return cases
}

func (c scannerCase) check(t *testing.T, s string) {
	var scanned, matched []string
	c.rules.cut(s, func(piece string) { scanned = append(scanned, piece) })
	for begin, end := range c.regex.All(s) {
		matched = append(matched, s[begin:end])
	}
	require.Equal(t, matched, scanned, "%s on %+q", c.pattern, s)
	require.Equal(t, s, strings.Join(scanned, ""), "a gap between matches")
	for begin, end := range c.rules.all(s) {
		require.Equal(t, scanned[0], s[begin:end])
		scanned = scanned[1:]
	}
	require.Empty(t, scanned)
	if !asGo(s) {
		return
	}
	var other []string
	m, err := c.regexp2.FindStringMatch(s)
	for ; m != nil; m, err = c.regexp2.FindNextMatch(m) {
		other = append(other, m.String())
	}
	require.NoError(t, err)
	require.Equal(t, matched, other, "%s on %+q: regexp2", c.pattern, s)
}

// A scanner finds what its regular expression finds, in this package's engine and in regexp2.
func TestScannersAreTheirExpressions(t *testing.T) {
	texts := []string{}
	for _, c := range readRecording(t, "qwen").Encode {
		texts = append(texts, c.Text)
	}
	for _, c := range scannerCases(t) {
		for _, s := range texts {
			c.check(t, s)
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, c := range readRecording(f, "qwen").Encode {
		f.Add(c.Text)
	}
	cases := scannerCases(f)
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range cases {
			c.check(t, validText(s))
		}
	})
}
