package codegen_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
)

// TestWorkBeforeTheRecord: it is done once, all of it before the record is made, and beside the writing: with
// one worker, halfway through the work half of the weights are written.
func TestWorkBeforeTheRecord(t *testing.T) {
	var reads, done int
	var readsAt []int
	weights := data{"a", []int64{40 << 20}, func(p []byte, off int64) (int, error) {
		reads++
		return pattern(p, off)
	}}
	r := &codegen.Record{Key: "etc.build", Size: 3, Make: func() ([]byte, error) {
		require.Equal(t, 10, done)
		return []byte("abc"), nil
	}}
	for range 10 {
		r.Before = append(r.Before, codegen.Work{Size: 100, Do: func() error {
			done++
			readsAt = append(readsAt, reads)
			return nil
		}})
	}
	_, file := write(t, codegen.File{Module: module(t, weights), Jobs: 1, Record: r})
	require.True(t, bytes.HasSuffix(file, []byte("abc")))
	require.Equal(t, 10, reads)
	for i, n := range readsAt {
		require.InDelta(t, i, n, 1)
	}
}

// TestWorkErrors: failing work stops the export, and nothing is left of the file.
func TestWorkErrors(t *testing.T) {
	for _, jobs := range []int{1, 4} {
		dir := t.TempDir()
		var made atomic.Bool
		err := codegen.Write(filepath.Join(dir, "model.pte"), codegen.File{Module: module(t, data{"a", []int64{9 << 20}, pattern}), Jobs: jobs,
			Record: &codegen.Record{Key: "etc.build", Size: 3, Before: []codegen.Work{{Size: 1, Do: func() error { return errors.New("disk on fire") }}},
				Make: func() ([]byte, error) { made.Store(true); return []byte("abc"), nil }}})
		require.ErrorContains(t, err, "etc.build: disk on fire")
		require.False(t, made.Load())
		requireOnly(t, dir)
	}
}
