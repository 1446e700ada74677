package codegen_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
)

func TestRootHash(t *testing.T) {
	for _, size := range []int{0, 1, 4<<20 - 1, 4 << 20, 4<<20 + 1, 13 << 20} {
		p := make([]byte, size)
		pattern(p, 3) //nolint:errcheck // has no error
		var list strings.Builder
		for rest := p; len(rest) > 0; {
			n := min(len(rest), codegen.RootPiece)
			fmt.Fprintf(&list, "%x\n", sha256.Sum256(rest[:n]))
			rest = rest[n:]
		}
		want := sha256.Sum256([]byte(list.String()))
		for _, jobs := range []int{0, 1, 3} {
			got, err := codegen.RootHash(t.Context(), bytes.NewReader(p), int64(size), jobs)
			require.NoError(t, err)
			require.Equal(t, hex.EncodeToString(want[:]), got)
		}
	}
	_, err := codegen.RootHash(t.Context(), bytes.NewReader(make([]byte, 5<<20)), 6<<20, 2)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "byte 5242880")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = codegen.RootHash(ctx, bytes.NewReader(make([]byte, 5<<20)), 5<<20, 2)
	require.ErrorIs(t, err, context.Canceled)
}
