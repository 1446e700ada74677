package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc"
)

const root = "../.."

// TestMainStreams runs the program of README.md.
func TestMainStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.pte")
	checkpoint := filepath.Join(t.TempDir(), "greedy")
	require.NoError(t, os.CopyFS(checkpoint, os.DirFS(filepath.Join(root, "testdata", "checkpoints", "qwen35moe-chat"))))
	defaults := filepath.Join(checkpoint, "generation_config.json")
	require.NoError(t, os.WriteFile(defaults, []byte(`{"do_sample": false}`), 0o644))
	require.NoError(t, etc.Export(t.Context(), checkpoint, path, etc.ExportOptions{MaxSeqLen: 256}))

	args, stdout := os.Args, os.Stdout
	defer func() { os.Args, os.Stdout = args, stdout }()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	os.Args, os.Stdout = []string{"chat", path, "What is the capital of France?"}, write
	main()
	require.NoError(t, write.Close())
	text, err := io.ReadAll(read)
	require.NoError(t, err)
	require.Equal(t, "The capital of France is Paris.", string(text))
}

// TestReadme: README.md shows this very program.
func TestReadme(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(program)+"```\n")
	body := string(program)[strings.Index(string(program), "func main"):]
	require.LessOrEqual(t, strings.Count(body, "\n"), 15, "it is a program of 15 lines")
}
