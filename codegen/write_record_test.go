package codegen_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
)

// TestFieldsOfTheRecord: each is computed once, beside the writing: with one worker, halfway through the
// fields half of the weights are written.
func TestFieldsOfTheRecord(t *testing.T) {
	var reads, made int
	var readsAt []int
	weights := data{"a", []int64{40 << 20}, func(p []byte, off int64) (int, error) {
		reads++
		return pattern(p, off)
	}}
	r := record("{?,?,?,?,?,?,?,?,?,?}")
	for i := range 10 {
		r.Fields = append(r.Fields, codegen.Field{Offset: 1 + 2*i, Size: 1, Work: 100,
			Make: func(context.Context) ([]byte, error) {
				made++
				readsAt = append(readsAt, reads)
				return fmt.Append(nil, i), nil
			}})
	}
	_, file := write(t, codegen.File{Module: module(t, weights), Jobs: 1, Record: r})
	require.True(t, bytes.HasSuffix(file, []byte("{0,1,2,3,4,5,6,7,8,9}")))
	require.Equal(t, 10, reads)
	require.Equal(t, 10, made)
	for i, n := range readsAt {
		require.InDelta(t, i, n, 1)
	}
}

// TestFieldErrors: a field that cannot be computed stops the export, and nothing is left of the file.
func TestFieldErrors(t *testing.T) {
	for _, jobs := range []int{1, 4} {
		dir := t.TempDir()
		r := record("?", codegen.Field{Size: 1, Work: 1,
			Make: func(context.Context) ([]byte, error) { return nil, errors.New("disk on fire") }})
		err := codegen.Write(t.Context(), filepath.Join(dir, "model.pte"),
			codegen.File{Module: module(t, data{"a", []int64{9 << 20}, pattern}), Jobs: jobs, Record: r})
		require.ErrorContains(t, err, "etc.build: disk on fire")
		requireOnly(t, dir)
	}
}
