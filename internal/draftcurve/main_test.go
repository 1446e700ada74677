package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/bench"
)

// TestDraw: the picture is XML with a line for each number of drafts up to 3, and the marks.
func TestDraw(t *testing.T) {
	data := map[string]any{"rows": []bench.DraftRow{
		{Drafts: 1, Ratio: 1.25, Curve: []bench.DraftSpeed{{Acceptance: 0, Gain: 0.8}, {Acceptance: 1, Gain: 1.6}}},
		{Drafts: 7, Ratio: 2, Curve: []bench.DraftSpeed{{Acceptance: 0, Gain: 0.5}}}}}
	in, err := json.Marshal(data)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, draw(strings.NewReader(string(in)), &out))
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 1, strings.Count(out.String(), `class="curve`))
	require.Contains(t, out.String(), `d="M56.0 258.7L700.0 173.3"`)
	require.Contains(t, out.String(), "K = 1: a round takes 1.25 of a token's time")
	for _, mark := range []string{"code 0.91", "facts 0.61", "prose 0.49"} {
		require.Contains(t, out.String(), mark)
	}
	require.Equal(t, 3.0, axis(data["rows"].([]bench.DraftRow)))
	require.Equal(t, 3.5, axis([]bench.DraftRow{{Drafts: 3, Curve: []bench.DraftSpeed{{Gain: 3.34}}},
		{Drafts: 4, Curve: []bench.DraftSpeed{{Gain: 5}}}}), "no line for 4")
	require.ErrorContains(t, draw(strings.NewReader("x"), &out), "etc bench --speculate --json")
}
