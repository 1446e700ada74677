package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPictureIsOfTheTable: docs/speed.svg and docs/streams.svg are what the table of BENCHMARKS.md says.
func TestPictureIsOfTheTable(t *testing.T) {
	root := filepath.Join("..", "..")
	dir := t.TempDir()
	drawn := map[string]string{output: filepath.Join(dir, "speed.svg"), many: filepath.Join(dir, "streams.svg")}
	require.NoError(t, run(filepath.Join(root, source), drawn[output], drawn[many]))
	for kept, path := range drawn {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(root, kept))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: go run ./internal/speedpicture draws it again", kept)
	}
}

// TestPanels: rows of streams become points in the order of their number; prompts and servers do not.
func TestPanels(t *testing.T) {
	got, err := panels([]row{{"m", "a", "32 streams", "2,000", "500.5", 4}, {"m", "a", "tg128", "100", "50", 2},
		{"m", "a", "pp512", "1", "1", 1}, {"m", "a", "server, 8 streams", "1", "1", 1}, {"m", "b", "tg64", "1", "1", 1},
		{"n", "a", "8 streams", "3", "4", 1}})
	require.NoError(t, err)
	require.Equal(t, []panel{{"m", "a", []point{{1, 100, 50}, {32, 2000, 500.5}}}}, got)
	_, err = panels([]row{{"m", "a", "8 streams", "x", "1", 1}})
	require.ErrorContains(t, err, "m, a, 8 streams")
}

func TestReadTable(t *testing.T) {
	rows, err := readTable("x\n" + head +
		"\n| --- | --- | --- | --: | --: | --: |\n| a | b | c | 20 | 10 | 2.0 |\n| a | b | d | 5 | 10 | 0.5 |\n\n| no |\n")
	require.NoError(t, err)
	require.Equal(t, []row{{"a", "b", "c", "20", "10", 2}, {"a", "b", "d", "5", "10", 0.5}}, rows)
	for text, want := range map[string]string{
		"":                        "expected the table",
		head + "\n|\n| a | b |\n": "expected 6 cells, found 2",
		head + "\n|\n|a|\n| a | b | c | 1 | 1 | x |\n": "expected 6 cells",
		head + "\n|\n| a | b | c | 1 | 1 | x |\n":      "ratio of",
	} {
		_, err := readTable(text)
		require.ErrorContains(t, err, want)
	}
}
