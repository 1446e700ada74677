package diff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// longest is the length of a longest common subsequence, by definition.
func longest(a, b []string) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	if a[0] == b[0] {
		return 1 + longest(a[1:], b[1:])
	}
	return max(longest(a[1:], b), longest(a, b[1:]))
}

// trim drops what a and b begin and end with in common, which is paired before anchors are looked for.
func trim(a, b []string) ([]string, []string) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// Pairs are equal and increase in both texts; where there are no anchors their number is the largest possible.
func TestAlign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 0, 9)
		a, b := lines.Draw(t, "a"), lines.Draw(t, "b")
		pairs := align(a, b)
		for i, p := range pairs {
			require.Equal(t, a[p.a], b[p.b])
			if i > 0 {
				require.Greater(t, p.a, pairs[i-1].a)
				require.Greater(t, p.b, pairs[i-1].b)
			}
		}
		require.LessOrEqual(t, len(pairs), longest(a, b))
		if len(uniqueInBoth(trim(a, b))) == 0 {
			require.Len(t, pairs, longest(a, b))
		}
		if slices.Equal(a, b) {
			require.Len(t, pairs, len(a))
		}
	})
}

// Anchors are found among lines that occur once; they are the longest run in both orders.
func TestAnchors(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want []pair
	}{
		{"x a x b x", "x x a b", []pair{{1, 2}, {3, 3}}},
		{"a b c d", "d a b c", []pair{{0, 1}, {1, 2}, {2, 3}}},
		{"a a", "a a", nil},
		{"a b", "c d", nil},
		{"e a b c d", "a c b d e", []pair{{1, 0}, {3, 1}, {4, 3}}},
	} {
		require.Equal(t, test.want, uniqueInBoth(strings.Fields(test.a), strings.Fields(test.b)),
			"%s | %s", test.a, test.b)
	}
}

// Stretches without anchors that are too large for a table are replaced as a whole, not compared for ever.
func TestAlignLarge(t *testing.T) {
	a, b := make([]string, 3000), make([]string, 3000)
	for i := range a {
		a[i], b[i] = fmt.Sprint(i%7), fmt.Sprint(i%5+1)
	}
	require.Empty(t, align(append([]string{"8"}, a...), append([]string{"9"}, append(b, "9")...)))
	same := append([]string{"first"}, a...)
	require.Len(t, align(append(slices.Clone(same), "end"), append(slices.Clone(same), "end")), 3002)
}

func TestTakeNames(t *testing.T) {
	for _, test := range []struct {
		text, key string
		names     []string
	}{
		{"%12 = add(a=%3, b=@w.1.s2) : f32[1,s0,4*s10+1]", "% = add(a=%, b=@w.1.s2) : f32[1,s,4*s+1]",
			[]string{"%12", "%3", "s0", "s10"}},
		{`%0 = take(x=@"s1 %2 \" s3", index=%tokens) {mode="s4"}`,
			`% = take(x=@"s1 %2 \" s3", index=%tokens) {mode="s4"}`, []string{"%0"}},
		{"symbol s0 [1, 8]", "symbol s [1, 8]", []string{"s0"}},
		{"%1, %2 = split(x=%seed, s=^s1) {axis=-1}", "%, % = split(x=%seed, s=^s1) {axis=-1}", []string{"%1", "%2"}},
		{"s s1x a1 1s0 sin(x=%s0)", "s s1x a1 1s0 sin(x=%s0)", nil},
		{`unended "%1`, `unended "%1`, nil},
		{`ends in \"\`, `ends in \"\`, nil},
	} {
		key, names := takeNames(test.text)
		require.Equal(t, test.key, key)
		require.Empty(t, cmp.Diff(test.names, names))
	}
}

// Values correspond within the init chain and within the entry function, not across.
func TestEntryBeginsAnew(t *testing.T) {
	split := func(text string) (out []line) {
		for i, s := range strings.Split(text, "\n") {
			l := line{number: i + 1, text: s}
			l.key, l.names = takeNames(s)
			out = append(out, l)
		}
		return out
	}
	const entry = "  entry f(%t: f32[s0]) {\n%0 = tanh(x=%t)\n%1 = add(a=%0, b=%0)"
	edits := compareLines(split("symbol s0\n%0 = exp(x=@c)\n"+entry),
		split("symbol s0\n%0 = neg(x=@d)\n%1 = exp(x=@c)\n"+entry))
	var changed []string
	for _, e := range edits {
		if e.kind != ' ' {
			changed = append(changed, string(e.kind)+e.text)
		}
	}
	require.Equal(t, []string{"+%0 = neg(x=@d)"}, changed)
}

// The lines of a diff are those of both texts, each once and in order, and its counts are right.
func TestCompareLines(t *testing.T) {
	texts := rapid.SliceOfN(rapid.SampledFrom([]string{"%1 = exp(x=%0)", "%2 = exp(x=%1)", "%2 = exp(x=%0)",
		"%3 = add(a=%1, b=%2)", "%3 = add(a=%2, b=%1)", "  entry f() {", "}"}), 0, 8)
	number := func(texts []string) []line {
		out := make([]line, len(texts))
		for i, s := range texts {
			out[i] = line{number: i + 1, text: s}
			out[i].key, out[i].names = takeNames(s)
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		edits := compareLines(number(a), number(b))
		i, j := 0, 0
		for _, e := range edits {
			if e.kind != '+' {
				require.Equal(t, i+1, e.a)
				i++
				if e.kind == '-' {
					require.Equal(t, a[i-1], e.text)
				}
			}
			if e.kind != '-' {
				require.Equal(t, j+1, e.b)
				require.Equal(t, b[j], e.text)
				j++
			}
		}
		require.Equal(t, []int{len(a), len(b)}, []int{i, j})
		if slices.Equal(a, b) {
			require.Empty(t, unified(edits))
		}
	})
}

// Hunks: three lines around each difference, one hunk where these meet.
func TestUnified(t *testing.T) {
	var edits []edit
	n := 0
	add := func(kinds string) {
		for _, k := range kinds {
			n++
			edits = append(edits, edit{byte(k), n, n, fmt.Sprint(n)})
		}
	}
	add("    -+      +       -   ")
	require.Empty(t, cmp.Diff([]string{
		"@@ -2,13 +2,14 @@", " 2", " 3", " 4", "-5", "+6", " 7", " 8", " 9", " 10", " 11", " 12",
		"+13", " 14", " 15", " 16",
		"@@ -18,7 +18,6 @@", " 18", " 19", " 20", "-21", " 22", " 23", " 24"}, unified(edits)))
}
