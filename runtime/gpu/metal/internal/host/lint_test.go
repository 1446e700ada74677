//go:build linux && (amd64 || arm64)

package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/host"
)

// The host's own kernel, which is none of the engine's, passes clang's check of address spaces, too.
func TestLint(t *testing.T) {
	if !kerneltest.HasLint() {
		t.Skip("there is no clang")
	}
	require.NoError(t, kerneltest.Lint(host.WriteText))
}
