package regex

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func find(m *matcher) (out []string) {
	at, last := 0, -1
	for at <= len(m.text) {
		begin, end := m.find(at)
		if begin < 0 {
			break
		}
		if begin == end && end == last {
			at += width(m.text, at)
			continue
		}
		out = append(out, m.text[begin:end])
		at, last = end, end
	}
	return out
}

// matches.json holds what Oniguruma matches (record.mjs).
func TestMatches(t *testing.T) {
	var cases []struct {
		Pattern string
		Texts   []string
		Matches [][]string
	}
	file := "testdata/matches.json"
	if f := os.Getenv("ETC_MATCHES"); f != "" {
		file = f
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		re, err := Compile(c.Pattern)
		require.NoError(t, err)
		for i, text := range c.Texts {
			got := []string{}
			for begin, end := range re.All(text) {
				if begin < end {
					got = append(got, text[begin:end])
				}
			}
			require.Equal(t, c.Matches[i], got, "pattern %q, text %+q", c.Pattern, text)
		}
	}
}

func TestEmptyMatches(t *testing.T) {
	re, err := Compile("a*")
	require.NoError(t, err)
	var got [][2]int
	for begin, end := range re.All("éab") {
		got = append(got, [2]int{begin, end})
	}
	// Before é, the a, and the end; not between a and b, which is right after a match.
	require.Equal(t, [][2]int{{0, 0}, {2, 3}, {4, 4}}, got)
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct {
		pattern string
		offset  int
		reason  string
	}{
		{"(a", 0, "( without its )"},
		{"a)", 1, ") without its ("},
		{"[a", 0, "[ without its ]"},
		{"[]a]", 1, "empty class"},
		{"[b-a]", 1, "backward"},
		{"[a-\\d]", 1, "ends with a class"},
		{"[\\d-z]", 3, "a - after a class"},
		{"[a-c-e]", 4, "neither first nor last"},
		{"[a-[b]]", 3, "range without an end"},
		{"[[:alpha:]]", 1, "POSIX"},
		{"*a", 0, "nothing before it"},
		{"a**", 2, "repetition of a repetition"},
		{"a++", 2, "possessive"},
		{"a{2}+", 4, "repetition of a repetition"},
		{"a{2}?", 4, "after {n}"},
		{"a{", 1, "no interval"},
		{"a{,}", 1, "no interval"},
		{"a{x}", 1, "not an interval"},
		{"a{2,1}", 1, "empty or backward"},
		{"a{0}", 1, "empty or backward"},
		{"a{1001}", 1, "not an interval"},
		{"(?:a{1000}){1000}", 0, "too large"},
		{"(a*)*", 4, "can match nothing"},
		{"(?:a?){2}", 6, "can match nothing"},
		{"(?=a)*", 5, "matches no characters"},
		{"^*", 1, "matches no characters"},
		{"(?=a+)", 0, "unbounded width"},
		{"(?<=a|bc)", 0, "only of one width"},
		{"(?=" + strings.Repeat("(?:a|b)", 9) + ")", 0, "too large"},
		{"(?>a)", 0, "group \"(?>a\""},
		{"(?<name>a)", 0, "not supported"},
		{"a(?i)b", 1, "not supported"},
		{"(a)\\1", 3, "escape \\1"},
		{"\\G", 0, "escape \\G"},
		{"\\X", 0, "escape \\X"},
		{"a\\", 1, "at the end"},
		{"\\xff", 0, "at most 7F"},
		{"\\x{d800}", 0, "not a character code"},
		{"\\x{41", 0, "does not end"},
		{"\\u12", 0, "does not end"},
		{"\\pL", 0, "without {name}"},
		{"\\p{Greek}", 0, "property \"Greek\""},
		{"[\\b]", 1, "\\x08"},
		{"(?i:[ab])", 4, "class inside (?i:)"},
		{"(?i:é)", 4, "only ASCII"},
		{"(?i:press)", 8, "ligature"},
		{"\xff", 0, "UTF-8"},
		{strings.Repeat("(", 200), 100, "deeper"},
		{strings.Repeat("[", 200), 100, "deeper"},
	} {
		_, err := Compile(c.pattern)
		var syntax *SyntaxError
		require.ErrorAs(t, err, &syntax, "pattern %q", c.pattern)
		require.Contains(t, syntax.Reason, c.reason, "pattern %q", c.pattern)
		require.Equal(t, c.offset, syntax.Offset, "pattern %q", c.pattern)
		require.Contains(t, err.Error(), "byte ")
	}
}

// Patterns that take exponential or quadratic time without memory. The count of tries is bounded by what can be
// remembered: each branch at each offset fails once.
func TestNoBlowUp(t *testing.T) {
	for _, c := range []struct{ pattern, text string }{
		{"(?:a+)+b", strings.Repeat("a", 20000)},
		{"(?:a|aa)+c", strings.Repeat("a", 20000)},
		{"(?:a|a)+(?:a|a)+c|a", strings.Repeat("a", 20000)},
		{"a(?:.*z)?", strings.Repeat("a", 20000)},
		{"\\s*[\\r\\n]+|x", strings.Repeat(" ", 20000)},
		{"(?:\\w+\\s?)+!", strings.Repeat("word ", 4000)},
	} {
		re, err := Compile(c.pattern)
		require.NoError(t, err)
		n := 0
		for begin, end := range re.All(c.text) {
			require.Less(t, begin, end)
			n++
		}
		require.LessOrEqual(t, n, len(c.text))
	}
}

// With and without memory the matches are the same.
func FuzzMemory(f *testing.F) {
	for _, p := range []string{
		"(?:a+)+b", "(?:a|ab)(?:c|bcd)(?:d*)", "a(?:.*z)?", "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "(?:a|aa)+?b|a",
		"[a-z&&[^b]]+", "(?<=a)b|\\bc{1,3}",
	} {
		f.Add(p, "aabcbcd aaz\n\n  b ccc")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		re, err := Compile(pattern)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset > len(pattern) {
				t.Fatalf("pattern %q: %v", pattern, err)
			}
			return
		}
		text = strings.ToValidUTF8(text, "\uFFFD")
		if len(text) > 40 {
			return // without memory the time is not bounded
		}
		forgetful := &matcher{re: re, text: text, steps: -1 << 22}
		mindful := &matcher{re: re, text: text, steps: 1 << 62}
		want := find(forgetful)
		if forgetful.failed != nil {
			return
		}
		require.Equal(t, want, find(mindful), "pattern %q, text %q", pattern, text)
	})
}
