package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDistributedMakefile runs the Makefile of docs/distributed.md: four parts and the link of them, three at a time,
// give the file of one export.
func TestDistributedMakefile(t *testing.T) {
	maker, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "distributed.md"))
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```make\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, block, "docs/distributed.md has no Makefile")
	etc, err := exec.LookPath("etc") // the test binary, as the scripts have it
	require.NoError(t, err)
	checkpoint, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "checkpoints", "gemma4-chat"))
	require.NoError(t, err)
	dir := t.TempDir()
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), block[1], 0o644))
	run(maker, "-j", "3", "PARTS=4", "ETC="+etc, "CHECKPOINT="+checkpoint, "FLAGS=--qlinear 4w --max-seq-len 128 -j 1")
	run(etc, "export", checkpoint, "--qlinear", "4w", "--max-seq-len", "128", "-o", "whole.pte")
	want, err := os.ReadFile(filepath.Join(dir, "whole.pte"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "model.pte"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
