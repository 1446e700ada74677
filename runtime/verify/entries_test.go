package verify_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/verify"
)

// TestEntries: buffers that methods share are told, and methods that cannot share one.
func TestEntries(t *testing.T) {
	m, err := ir.Parse(`module {
  buffer @ours : f32[2]
  buffer @ring : f32[2]
  buffer @bing : f32[3]
  entry forward(%x: f32[2], %y: f32[2]) {
    store @ring(x=%x)
    store @ours(x=%y)
    return %x: f32[2]
  }
  entry draft(%x: f32[3], %y: f32[2]) {
    store @bing(x=%x)
    store @ours(x=%y)
    return %x: f32[3]
  }
}
`)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "two.pte")
	require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: m, Jobs: 1}))
	findings, err := verify.File(path)
	require.NoError(t, err)
	require.Equal(t, []verify.Finding{{Severity: verify.Note, Check: "entries",
		Message: `buffer "ours" is one for the methods forward and draft; ExecuTorch's runtime gives each its own`}}, findings)

	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(b, []byte("bing")))
	require.NoError(t, os.WriteFile(path, bytes.Replace(b, []byte("bing"), []byte("ring"), 1), 0o644))
	findings, err = verify.File(path)
	require.NoError(t, err)
	require.Len(t, findings, 1)
	require.Equal(t, verify.Warning, findings[0].Severity)
	require.Contains(t, findings[0].Message, "the methods forward, draft cannot run on one state")
	require.Contains(t, findings[0].Message, "methods forward and draft: buffer @ring has type f32[2] in one and f32[3] in the other")
}
