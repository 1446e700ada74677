package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExportCalibrateKilled kills an export in the middle of its calibration, as soon as one weight is quantized: the
// export that resumes it takes that weight, and gives the bytes of one that was never killed.
func TestExportCalibrateKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: calibrates twice; package calibrate has a test that is canceled and resumed")
	}
	dir := t.TempDir()
	text := filepath.Join(dir, "text.txt")
	require.NoError(t, os.WriteFile(text,
		[]byte("The quick brown fox jumps over the lazy dog. What is the capital of Italy?"), 0o600))
	export := func(name string, more ...string) *exec.Cmd {
		return exec.Command("etc", append([]string{"export", "../../../testdata/checkpoints/gemma4-chat", "--qlinear",
			"4w", "--quant-method", "auto",
			"--calibrate", text, "-o", filepath.Join(dir, name)}, more...)...)
	}
	out, err := export("whole.pte").CombinedOutput()
	require.NoError(t, err, "%s", out)

	killed := export("cut.pte", "--resume", "-j", "1")
	require.NoError(t, killed.Start())
	ended := make(chan error, 1)
	go func() { ended <- killed.Wait() }()
	weights := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "cut.pte.calibration", "*.weight"))
		require.NoError(t, err)
		return found
	}
	for len(weights()) == 0 {
		select {
		case err := <-ended: // a process that is not looked at for so long is done, and there is nothing to resume
			ended <- err
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	killed.Process.Kill() //nolint:errcheck // it may have ended
	<-ended

	left := len(weights())
	out, err = export("cut.pte", "--resume").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "wrote")
	t.Logf("%d weights were quantized when it was killed", left)
	want, err := os.ReadFile(filepath.Join(dir, "whole.pte"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "cut.pte"))
	require.NoError(t, err)
	require.True(t, string(want) == string(got), "the bytes of a resumed export differ")
	require.NoDirExists(t, filepath.Join(dir, "cut.pte.calibration"))
}
