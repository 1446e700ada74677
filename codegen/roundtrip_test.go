package codegen_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
)

// TestRoundTrip: the modules of testdata, which use what the wire can hold, come back from a file as they
// went in: control flow in control flow, integers as inputs, registers and results, state, derived constants,
// outputs that are inputs, constants, loads or twice the same, attributes of every kind, and operands that
// are absent, which the wire says by leaving them out (requirement D5), zeros of either sign, and several
// entries over shared weights, state and init.
func TestRoundTrip(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.ir")
	require.NoError(t, err)
	require.Len(t, paths, 7)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			m := parse(t, string(text))
			require.Equal(t, string(text), m.String(), "the canonical text")
			requireRoundTrip(t, codegen.File{Module: m,
				Extra: []codegen.NamedBytes{{Key: "metadata.config.json", Bytes: []byte("{}")}}})
		})
	}
}
