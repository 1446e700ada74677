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
	require.NoError(t, kind.Of(kind.ErrUsage, nil))
	err := fmt.Errorf("open: %w", kind.Usagef("x: %w", fs.ErrNotExist))
	require.EqualError(t, err, "open: x: file does not exist")
	require.ErrorIs(t, err, kind.ErrUsage)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, kind.ErrInvalid)
	require.ErrorIs(t, errors.Join(err, kind.Invalidf("y")), kind.ErrInvalid)
	var path *fs.PathError
	require.ErrorAs(t, kind.Of(kind.ErrMemory, &fs.PathError{Op: "read"}), &path)
}
