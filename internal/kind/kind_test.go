package kind_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/kind"
)

func TestOf(t *testing.T) {
	require.NoError(t, kind.Of(kind.Usage, nil))
	err := fmt.Errorf("open: %w", kind.Usagef("x: %w", fs.ErrNotExist))
	require.EqualError(t, err, "open: x: file does not exist")
	require.ErrorIs(t, err, kind.Usage)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, kind.Invalid)
	require.ErrorIs(t, errors.Join(err, kind.Invalidf("y")), kind.Invalid)
	var path *fs.PathError
	require.ErrorAs(t, kind.Of(kind.Memory, &fs.PathError{Op: "read"}), &path)
}
