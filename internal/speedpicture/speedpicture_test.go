package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPictureIsOfTheTable: docs/speed.svg is what the table of BENCHMARKS.md says.
func TestPictureIsOfTheTable(t *testing.T) {
	root := filepath.Join("..", "..")
	path := filepath.Join(t.TempDir(), "speed.svg")
	require.NoError(t, run(filepath.Join(root, source), path))
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(root, output))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "go run ./internal/speedpicture draws it again")
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
