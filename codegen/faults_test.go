package codegen_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/outfile/outfiletest"
)

// TestFaults writes a program to a disk that fails in every way: the file that was there stays, nothing is left
// beside it, the error names it. With Resume what was written is kept, and the next export gives the same bytes.
func TestFaults(t *testing.T) {
	defer codegen.SetSizes(256, 1<<10)()
	file := manyTasks(t, func() {})
	whole := filepath.Join(t.TempDir(), "whole.pte")
	require.NoError(t, codegen.Write(t.Context(), whole, file))
	want, err := os.ReadFile(whole)
	require.NoError(t, err)
	for _, fault := range []string{"open:1:EIO", "allocate:1:ENOSPC", "write:1:ENOSPC", "write:7:EIO",
		"write:7:ENOSPC:short",
		"write:3:none:short", "sync:1:EIO", "sync:2:ENOSPC", "rename:1:EIO"} {
		for _, resume := range []bool{false, true} {
			t.Run(fault+map[bool]string{true: "/resume"}[resume], func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "model.pte")
				require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
				f, err := outfiletest.Parse(fault)
				require.NoError(t, err)
				restore := outfile.SetFileSystem(f)
				defer restore()
				again := file
				again.Resume = resume
				err = codegen.Write(t.Context(), path, again)
				restore()
				fails := f.Err
				if fails == nil {
					fails = io.ErrShortWrite
				}
				require.ErrorIs(t, err, fails)
				require.ErrorContains(t, err, path)
				old, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, "old", string(old))
				if !resume {
					requireOnly(t, dir, "model.pte")
				}
				require.NoError(t, codegen.Write(t.Context(), path, again))
				got, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, want, got)
				requireOnly(t, dir, "model.pte")
			})
		}
	}
}

// TestPlantedLeftovers has links and files of other names where an export keeps what it writes, with and without
// Resume: none is followed, none is overwritten.
func TestPlantedLeftovers(t *testing.T) {
	file := manyTasks(t, func() {})
	for _, suffix := range []string{".partial", ".partial.journal"} {
		for _, plant := range []struct {
			name string
			make func(victim, path string) error
		}{{"link", os.Symlink}, {"hard link", os.Link}} {
			for _, resume := range []bool{false, true} {
				t.Run(plant.name+suffix+map[bool]string{true: "/resume"}[resume], func(t *testing.T) {
					dir, other := t.TempDir(), t.TempDir()
					path, victim := filepath.Join(dir, "model.pte"), filepath.Join(other, "victim")
					require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o644))
					require.NoError(t, plant.make(victim, path+suffix))
					again := file
					again.Resume = resume
					err := codegen.Write(t.Context(), path, again)
					if refused := (*outfile.TargetError)(nil); !errors.As(err, &refused) {
						// The name of a journal may be given to a new file, if what lay there is untouched.
						require.NoError(t, err)
					}
					b, err := os.ReadFile(victim)
					require.NoError(t, err)
					require.Equal(t, "precious", string(b))
				})
			}
		}
	}
}
