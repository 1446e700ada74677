package session_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/runtime/session"
)

func TestTextStop(t *testing.T) {
	for _, c := range []struct {
		stops   []string
		pieces  []string
		want    string
		stopped bool
	}{
		{nil, []string{"a", "b"}, "ab", false},
		{[]string{""}, []string{"a", "b"}, "ab", false},
		{[]string{"xyz"}, []string{"axy", "zb"}, "a", true},
		{[]string{"xyz"}, []string{"axy", "b"}, "axyb", false},
		{[]string{"xyz"}, []string{"axy"}, "axy", false},
		{[]string{"aab"}, []string{"a", "a", "a", "b", "c"}, "a", true},
		{[]string{"\n\n", "END"}, []string{"one\n", "two E", "ND\n\n"}, "one\ntwo ", true},
		{[]string{"late", "a"}, []string{"xlatea"}, "xl", true}, // what is complete first
		{[]string{"é"}, []string{"caf", "é!"}, "caf", true},
		{[]string{"abc"}, []string{"abc"}, "", true},
	} {
		s := session.NewTextStop(c.stops)
		var got strings.Builder
		for _, p := range c.pieces {
			before, stopped := s.Push(p)
			got.WriteString(before)
			if stopped {
				break
			}
		}
		got.WriteString(s.Flush())
		require.Equal(t, c.want, got.String(), "%q %q", c.stops, c.pieces)
		require.Equal(t, c.stopped, s.Stopped())
	}
}

// TestTextStopWhereverTokensEnd: the answer does not depend on how the text comes in pieces, and nothing that was given
// has to be taken back.
func TestTextStopWhereverTokensEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab]{0,24}`).Draw(t, "text")
		stops := rapid.SliceOfN(rapid.StringMatching(`[ab]{1,4}`), 0, 3).Draw(t, "stops")
		want, found := text, false
		for end := range len(text) + 1 { // the shortest beginning of the text that ends in one of them
			for _, stop := range stops {
				if head, ok := strings.CutSuffix(text[:end], stop); ok && (!found || len(head) < len(want)) {
					want, found = head, true
				}
			}
			if found {
				break
			}
		}
		s := session.NewTextStop(stops)
		var got strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			before, stopped := s.Push(rest[:n])
			got.WriteString(before)
			if rest = rest[n:]; stopped {
				break
			}
		}
		got.WriteString(s.Flush())
		require.Equal(t, want, got.String(), "%q %q", text, stops)
		require.Equal(t, found, s.Stopped())
	})
}
