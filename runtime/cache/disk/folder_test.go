package disk_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/outfile/outfiletest"
	"github.com/etc-ml/etc/runtime/cache/disk"
)

func open(t *testing.T, dir string, o disk.Options) *disk.Folder {
	t.Helper()
	f, err := disk.Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// content returns 92 bytes, which are 100 in a file.
func content(name string) []byte { return bytes.Repeat([]byte(name), 92)[:92] }

// requireHas requires that exactly these names of a to g are there, with their contents.
func requireHas(t *testing.T, f *disk.Folder, names string) {
	t.Helper()
	for _, name := range strings.Split("abcdefg", "") {
		require.Equal(t, strings.Contains(names, name), f.Has(name), name)
	}
	require.Equal(t, int64(100*len(names)), f.Bytes())
}

func requireGet(t *testing.T, f *disk.Folder, name string) {
	t.Helper()
	got, err := f.Get(name)
	require.NoError(t, err)
	require.Equal(t, content(name), got)
}

// files returns the names of the files that are not hidden.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range all {
		if !strings.HasPrefix(f.Name(), ".") {
			names = append(names, f.Name())
		}
	}
	return names
}

// TestFolder: contents come back, before and after they are written, and in another process.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	f := open(t, dir, disk.Options{Limit: 1000})
	requireHas(t, f, "")
	for _, name := range []string{"a", "b"} {
		f.Put(name, content(name))
		requireGet(t, f, name)
	}
	got, err := f.Get("a")
	require.NoError(t, err)
	got[0]++
	requireGet(t, f, "a")
	f.Put("a", []byte("a name keeps its content"))
	requireHas(t, f, "ab")
	_, err = f.Get("c")
	require.ErrorContains(t, err, "c.prefix: there is no such file")
	_, err = disk.Open(dir, disk.Options{Limit: 1000})
	require.ErrorIs(t, err, outfile.ErrLocked)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	f.Put("c", content("c"))
	requireHas(t, f, "ab")
	requireGet(t, f, "b")
	require.Equal(t, []string{"a.prefix", "b.prefix"}, files(t, dir))
	info, err := os.Stat(filepath.Join(dir, "a.prefix"))
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077)

	left := filepath.Join(dir, ".x.prefix.abc.part")
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	f = open(t, dir, disk.Options{Limit: 1000})
	requireHas(t, f, "ab")
	requireGet(t, f, "a")
	require.NoFileExists(t, left)
}

// TestFolderLimit: the longest unused goes first, in this process and after a restart.
func TestFolderLimit(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, disk.Options{Limit: 350})
	for _, name := range []string{"a", "b", "c"} {
		f.Put(name, content(name))
	}
	requireGet(t, f, "a")
	f.Put("d", content("d"))
	requireHas(t, f, "acd")
	f.Put("c", content("c"))
	f.Put("e", content("e"))
	requireHas(t, f, "cde")
	f.Put("f", make([]byte, 343))
	requireHas(t, f, "cde")
	require.NoError(t, f.Close())
	require.Equal(t, []string{"c.prefix", "d.prefix", "e.prefix"}, files(t, dir))

	for i, name := range []string{"d", "e", "c"} { // the order of use, as the clock of a slow file system has it
		at := time.Unix(int64(1_700_000_000+i), 0)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name+".prefix"), at, at))
	}
	f = open(t, dir, disk.Options{Limit: 250})
	requireHas(t, f, "ec")
	require.Equal(t, []string{"c.prefix", "e.prefix"}, files(t, dir))
}

// TestFolderDamage: a damaged file, or one under another name, is told and goes.
func TestFolderDamage(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, file string){
		"changed": func(t *testing.T, file string) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			b[50] ^= 1
			require.NoError(t, os.WriteFile(file, b, 0o600))
		},
		"cut":  func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 60)) },
		"tiny": func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 3)) },
		"of another name": func(t *testing.T, file string) {
			require.NoError(t, os.Rename(filepath.Join(filepath.Dir(file), "b.prefix"), file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := open(t, dir, disk.Options{Limit: 1000})
			f.Put("a", content("a"))
			f.Put("b", content("b"))
			require.NoError(t, f.Close())
			damage(t, filepath.Join(dir, "a.prefix"))
			_, err := f.Get("a")
			require.ErrorContains(t, err, "a.prefix is damaged")
			require.False(t, f.Has("a"))
			require.NotContains(t, files(t, dir), "a.prefix")
		})
	}
}

// TestFolderFull: what cannot be written is forgotten; the first error of a row is told.
func TestFolderFull(t *testing.T) {
	var told []string
	dir := t.TempDir()
	f := open(t, dir, disk.Options{Limit: 1000, Failed: func(err error) { told = append(told, err.Error()) }})
	restore := outfile.SetFileSystem(&outfiletest.Faults{Operation: "write", Nth: 2, Err: syscall.ENOSPC})
	for _, name := range []string{"a", "b", "c"} {
		f.Put(name, content(name))
	}
	require.NoError(t, f.Close())
	restore()
	require.Len(t, told, 1)
	require.Contains(t, told[0], "no space left")
	requireHas(t, f, "")
	require.Empty(t, files(t, dir))
}
