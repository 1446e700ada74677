//go:build unix

package outfile_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/outfile"
)

func TestCheckRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o644))
	require.NoError(t, os.Symlink("file", at("link")))
	require.NoError(t, os.Symlink("none", at("dangling")))
	require.NoError(t, os.Mkdir(at("dir"), 0o755))
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o644))
	for path, want := range map[string]string{
		at("link"):     "is a symbolic link to file",
		at("dangling"): "is a symbolic link to none",
		at("dir"):      "is a directory, expected the name of a file to write",
		at("fifo"):     "is a FIFO",
		"/dev/null":    "is a device",
	} {
		before, err := os.Lstat(path)
		require.NoError(t, err)
		o := outfile.Options{Kind: outfile.Text}
		for _, err := range []error{outfile.Check(path, o), put(path, "x", o)} {
			refused := (*outfile.TargetError)(nil)
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, path+": "+want)
		}
		after, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), path)
		require.Equal(t, before.Mode(), after.Mode())
	}
	b, err := os.ReadFile(at("file"))
	require.NoError(t, err)
	require.Equal(t, "text", string(b))
	require.ErrorIs(t, outfile.Check(at("absent/file"), outfile.Options{}), os.ErrNotExist)
	require.ErrorContains(t, outfile.Check(at("file/inner"), outfile.Options{}), "not a directory")
}

func TestOpenAside(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	f, err := outfile.OpenAside(at("new"), 0o600)
	require.NoError(t, err)
	_, err = f.Write([]byte("kept"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	f, err = outfile.OpenAside(at("new"), 0o600)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "kept", string(b))
	require.NoError(t, f.Close())

	require.NoError(t, os.WriteFile(at("victim"), []byte("precious"), 0o644))
	require.NoError(t, os.Symlink("victim", at("link")))
	require.NoError(t, os.Link(at("victim"), at("hard")))
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o644))
	for name, want := range map[string]string{
		"link": "is a symbolic link", "hard": "has 2 names (hard links)", "fifo": "is a FIFO",
	} {
		_, err := outfile.OpenAside(at(name), 0o600)
		require.ErrorContains(t, err, at(name)+": "+want)
	}
	if os.Geteuid() == 0 {
		require.NoError(t, os.WriteFile(at("theirs"), []byte("x"), 0o666))
		require.NoError(t, os.Chown(at("theirs"), 12345, 12345))
		_, err := outfile.OpenAside(at("theirs"), 0o600)
		require.ErrorContains(t, err, "belongs to the user with id 12345")
	}
	b, err = os.ReadFile(at("victim"))
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))
}

func TestStream(t *testing.T) {
	for _, name := range []string{"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"} {
		require.Equal(t, io.Writer(os.Stdout), outfile.Stream(name, os.Stdout, os.Stderr), name)
	}
	for _, name := range []string{"/dev/stderr", "/dev/fd/2"} {
		require.Equal(t, io.Writer(os.Stderr), outfile.Stream(name, os.Stdout, os.Stderr), name)
	}
	for _, name := range []string{"x", "./-", "/dev/null", "/dev/fd/x", "/dev/fd/0"} {
		require.Nil(t, outfile.Stream(name, os.Stdout, os.Stderr), name)
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	number, err := syscall.Dup(int(w.Fd())) // of its own, which the stream may close
	require.NoError(t, err)
	s := outfile.Stream(fmt.Sprintf("/dev/fd/%d", number), os.Stdout, os.Stderr)
	_, err = io.WriteString(s, "through")
	require.NoError(t, err)
	b := make([]byte, 7)
	_, err = io.ReadFull(r, b)
	require.NoError(t, err)
	require.Equal(t, "through", string(b))
	require.NoError(t, errors.Join(s.(*os.File).Close(), r.Close(), w.Close()))
}
