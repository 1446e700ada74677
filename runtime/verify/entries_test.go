package verify_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
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
		Message: `buffer "ours" is one for the methods forward and draft; ExecuTorch's runtime gives each its own`}},
		findings)

	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(b, []byte("bing")))
	require.NoError(t, os.WriteFile(path, bytes.Replace(b, []byte("bing"), []byte("ring"), 1), 0o644))
	findings, err = verify.File(path)
	require.NoError(t, err)
	require.Len(t, findings, 1)
	require.Equal(t, verify.Warning, findings[0].Severity)
	require.Contains(t, findings[0].Message, "the methods forward, draft cannot run on one state")
	require.Contains(t, findings[0].Message,
		"methods forward and draft: buffer @ring has type f32[2] in one and f32[3] in the other")
}

// TestDraftFits: an assistant whose caches are not forward's, and a draft that cannot go on from its own hidden states.
func TestDraftFits(t *testing.T) {
	text := `module {
  buffer @keys : f32[1,1,4,2]
  entry forward(%x: f32[1,1,4,2]) {
    store @keys(x=%x)
    return %x: f32[1,1,4,2]
  }
  entry draft(%tokens: i64[1,1], %input_pos: i64[1], %hidden: f32[1,1,6], %keys: f32[1,1,4,2]) {
    %0 = reshape(x=%hidden, shape=[1, 6]) : f32[1,6]
    %1 = reshape(x=%hidden, shape=[1, 1, 6]) : f32[1,1,6]
    return %0: f32[1,6], %1: f32[1,1,6]
  }
}
`
	find := func(text string) []verify.Finding {
		m, err := ir.Parse(text)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "draft.pte")
		require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: m, Jobs: 1}))
		findings, err := verify.File(path)
		require.NoError(t, err)
		return findings
	}
	require.Empty(t, find(text))
	findings := find(strings.Replace(text, "%keys: f32[1,1,4,2])", "%values: f32[1,1,4,2])", 1))
	require.Len(t, findings, 1)
	require.Equal(t, "error: draft: method draft reads the cache values of type f32[1,1,4,2], and forward has no such buffer", findings[0].String())
	wide := strings.NewReplacer("shape=[1, 1, 6]) : f32[1,1,6]", "shape=[1, 2, 3]) : f32[1,2,3]", "%1: f32[1,1,6]",
		"%1: f32[1,2,3]").Replace(text)
	findings = find(wide)
	require.Len(t, findings, 1)
	require.Contains(t, findings[0].String(), "takes hidden states of 6 elements and gives some of 3")
}
