package constrain

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRegexAgainstTheLibrary(t *testing.T) {
	texts := []string{
		"", "a", "b", "ab", "aab", "abab", "c", "é", "日本", "😀", "\n", "a\nb", "A", "aB", "K", "\u212a", "0",
		"12", "2024-01-31", "x_y",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", strings.Repeat("ab", 30), strings.Repeat("a", 100),
		strings.Repeat("a", 101), "\u00ff", "\u07ff\u0800", "\uffff\U00010000",
	}
	for _, pattern := range []string{
		"", "a", "a*", "a+b", "(ab)*", "(?:a|b)*", "[a-c]", "[^a]", ".", ".*", "(?s).*", "(?i)ab", "(?i)k", `\d+`,
		`\w+`, `[\p{L}]+`, `\pN`,
		"a{3,}", "a{30,100}", "(ab){2,30}", "(a|ab)(b|)", `^a$`, `^(?:a|b+)$`, `^a|b$`, `\Aab\z`, "[é-😀]*", "a??b*?",
		`\d{4}-\d{2}-\d{2}`, "(a*)*", "(a{0,50}){3,20}", "(|a)+",
	} {
		g := compile(t, Regex, pattern)
		re := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		for _, text := range texts {
			require.Equal(t, re.MatchString(text), accepts(g, text), "%s of %q", pattern, text)
		}
	}
}

func TestRegexRefusals(t *testing.T) {
	for pattern, reason := range map[string]string{
		"(":                     "missing closing )",
		`\bx`:                   `\b is not supported`,
		"a^b":                   "only supported at the ends",
		"(?m)^a$":               "anchors of lines",
		`(?=a)`:                 "invalid or unsupported Perl syntax",
		"(a)\\1":                "invalid escape sequence",
		"[^\\x{0}-\\x{10FFFF}]": "nothing satisfies it",
	} {
		require.Contains(t, fails(t, Regex, pattern).Error(), reason)
	}
}

func TestGBNF(t *testing.T) {
	for _, test := range []struct {
		grammar string
		yes, no []string
	}{
		{`root ::= "yes" | "no" # an answer`, []string{"yes", "no"}, []string{"", "y", "yesno"}},
		{"root ::= item+\nitem ::= \"- \" [^\\n]+ \"\\n\"\n", []string{"- a\n", "- é x\n- b\n"},
			[]string{"", "- \n", "- a"}},
		{"root ::= \"(\" root? \")\" | [0-9]{2,3}", []string{"12", "()", "((123))"}, []string{"1", "(()", "1234"}},
		{"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+\n",
			[]string{"1", "1+2", "(1+(2))+3"}, []string{"+", "1+", "(1"}},
		{"root ::= (\n  \"a\" # first\n  | \"b\"\n)* |\n  \"c\"", []string{"", "ab", "c"}, []string{"ac"}},
		{`root ::= "\x41\u00e9\U0001F600\"\\" [\]\-a-c] .`, []string{"Aé😀\"\\]x", "Aé😀\"\\-日"}, []string{"Aé😀\"\\dx"}},
		{"root ::= a a?\na ::= \"\" | \"x\"", []string{"", "x", "xx"}, []string{"xxx"}},
		{`root ::= "a"{3} "b"{2,} ("cd"){0,40}`, []string{"aaabb", "aaabbbcdcd"}, []string{"aabb", "aaab", "aaabbc"}},
		{"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", []string{"", "abcb"[0:2], "aabc", "aaabcb"},
			[]string{"a", "aab"}},
		{"root ::= s\ns ::= \"a\" s \"a\" | \"a\"", []string{"a", "aaa", "aaaaa"}, []string{"aa", "aaaa"}},
		{"root ::= list{2,40}\nlist ::= \"[\" list* \"]\"", []string{"[][]", "[[][]][]"}, []string{"[]", "[][", ""}},
		{"root ::= [^\\x00-\\x1f\\x7F]{1,3}", []string{"a", "日本語"}, []string{"", "\n", "abcd"}},
	} {
		g := compile(t, GBNF, test.grammar)
		for _, text := range test.yes {
			require.True(t, accepts(g, text), "%s of %q", test.grammar, text)
		}
		for _, text := range test.no {
			require.False(t, accepts(g, text), "%s of %q", test.grammar, text)
		}
	}
}

func TestGBNFRefusals(t *testing.T) {
	for grammar, reason := range map[string]string{
		"":                                      "there is no rule root",
		`root ::= x`:                            `line 1, column 10: there is no rule "x"`,
		"root ::= \"a\"\nroot ::= \"b\"":        `line 2, column 1: rule "root" is defined twice`,
		"root ::= root \"a\" | \"b\"":           "a rule begins with itself (root → root)",
		"root ::= o root | \"x\"\no ::= \"a\"?": "a rule begins with itself",
		"root ::= a\na ::= b\nb ::= a | \"\"":   "a rule begins with itself (a → b → a)",
		`root ::= "a`:                           "a literal or a class has no end",
		`root ::= [a`:                           "a literal or a class has no end",
		`root ::= [z-a]`:                        "has no character",
		`root ::= ("a"`:                         "expected ), found the end",
		`root ::= "a")`:                         "expected the end of the line, found ')'",
		`root ::= "a"{2,1}`:                     "a count from 2 to 1",
		`root ::= "\q"`:                         `the escape \q is not supported`,
		`root ::= <think>`:                      "tokens (<...>) are not supported",
		`root = "a"`:                            "expected ::=",
		"root ::= \"a\" root":                   "nothing satisfies it",
		"root ::= \"\xff\"":                     "it is not UTF-8",
		`root ::= ` + strings.Repeat(`[a-z]{24} `, 50000): "too large",
	} {
		require.Contains(t, fails(t, GBNF, grammar).Error(), reason)
	}
}

func TestUTF8Ranges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Rune().Draw(t, "lo")
		hi := rapid.Rune().Draw(t, "hi")
		if lo > hi {
			lo, hi = hi, lo
		}
		d, ok := determinize(runes([]rune{lo, hi}))
		require.True(t, ok)
		for _, r := range []rune{lo - 1, lo, lo + 1, (lo + hi) / 2, hi - 1, hi, hi + 1, rapid.Rune().Draw(t, "r")} {
			if r >= 0 && r <= 0x10FFFF && (r < 0xD800 || r > 0xDFFF) {
				require.Equal(t, lo <= r && r <= hi, d.matches(string(r)), "%x in %x-%x", r, lo, hi)
			}
		}
	})
}

// randomGrammar draws a grammar of a few rules; each call stands after a byte, so none begins with itself.
func randomGrammar(t *rapid.T) string {
	names := []string{"root", "a", "b"}
	var part func(depth int) string
	part = func(depth int) string {
		kinds := 3
		if depth > 2 {
			kinds = 1
		}
		p := ""
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			p = rapid.SampledFrom([]string{`"x"`, `"yz"`, `[x-z]`, `"é"`, `[^x]`}).Draw(t, "literal")
		case 1:
			p = `"` + rapid.SampledFrom([]string{"x", "y", "{"}).Draw(t,
				"byte") + `" ` + rapid.SampledFrom(names).Draw(t, "rule")
		case 2:
			p = "(" + part(depth+1) + " | " + part(depth+1) + ")"
		case 3:
			p = "(" + part(depth+1) + " " + part(depth+1) + ")"
		}
		return "(" + p + ")" + rapid.SampledFrom([]string{"", "", "?", "*", "{2}", "{1,30}", "{0,3}"}).Draw(t, "times")
	}
	var out strings.Builder
	for _, name := range names {
		out.WriteString(name + " ::= " + part(0) + ` | "w"` + "\n")
	}
	return out.String()
}

// TestMaskIsWhatStepsAllow holds masks, which are put together of frames, against trying each token.
func TestMaskIsWhatStepsAllow(t *testing.T) {
	v, stop := byteVocab(t, "xy", "yz", "xyz", "zz", "xx", "yx", "{x", "{{", "ww", "xw", "wx", "é", "éx", "xé", "zyzy",
		"xxxxxxxx", "w{", "yzyzyzyz", "xx")
	rapid.Check(t, func(t *rapid.T) {
		g := compile(t, GBNF, randomGrammar(t))
		m := NewMatcher(g, v)
		checkWalk(t, m, stop, 30)
	})
}

// checkWalk follows a text at random and compares each mask with Accept.
func checkWalk(t *rapid.T, m *Matcher, stop, steps int) {
	mask := make([]uint64, m.k.v.MaskWords())
	for range steps {
		m.Mask(mask)
		var allowed []int
		for id := range m.k.v.Size() {
			err := m.Accept(id)
			if errors.Is(err, ErrTooComplex) {
				return // a mask, which is made frame by frame, need not notice
			}
			ok := err == nil
			if ok {
				allowed = append(allowed, id)
				require.NoError(t, m.Rollback(1))
			}
			require.Equal(t, ok, mask[id>>6]>>(id&63)&1 == 1, "token %d %q", id, m.k.v.tokens[id])
		}
		require.Equal(t, m.CanEnd() && !m.Stopped(), mask[stop>>6]>>(stop&63)&1 == 1)
		if len(allowed) == 0 {
			require.True(t, m.Stopped(), "nothing is allowed")
			return
		}
		require.NoError(t, m.Accept(rapid.SampledFrom(allowed).Draw(t, "token")))
	}
}
