package outfile_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/outfile/outfiletest"
)

// put writes a text by [outfile.Write].
func put(path, text string, o outfile.Options) error {
	return outfile.Write(path, o, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
}

// requireFiles checks which files a folder holds, and what.
func requireFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		got[e.Name()] = string(b)
	}
	require.Equal(t, want, got)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	var told []string
	o := outfile.Options{Kind: outfile.Text, Log: func(m string) { told = append(told, m) }}
	require.NoError(t, put(path, "one", o))
	require.Empty(t, told)
	require.NoError(t, put(path, "two", o))
	require.Equal(t, []string{path + ": replaced the file of 3 B that was there"}, told)
	requireFiles(t, dir, map[string]string{"a.txt": "two"})
}

func TestWriteGivesPrivateFilesToTheirOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are not those of Unix")
	}
	path := filepath.Join(t.TempDir(), "chat")
	require.NoError(t, os.WriteFile(path, []byte("hi"), 0o644))
	require.NoError(t, put(path, "secret", outfile.Options{Kind: outfile.Text, Private: true}))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestWriteOfAnErrorLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	require.NoError(t, put(path, "one", outfile.Options{Kind: outfile.Text}))
	mine := errors.New("mine")
	require.Equal(t, mine, outfile.Write(path, outfile.Options{Kind: outfile.Text}, func(w io.Writer) error {
		_, err := io.WriteString(w, "tw")
		require.NoError(t, err)
		return mine
	}))
	requireFiles(t, dir, map[string]string{"a.txt": "one"})
}

func TestFaultsLoseNothing(t *testing.T) {
	for _, fault := range []string{
		"open:1:EIO", "write:1:ENOSPC", "write:2:EIO", "write:2:ENOSPC:short", "write:1:none:short", "sync:1:EIO",
		"close:1:EIO", "rename:1:EIO", "rename:1:ENOSPC",
	} {
		t.Run(fault, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.txt")
			require.NoError(t, put(path, "before", outfile.Options{Kind: outfile.Text}))
			f, err := outfiletest.Parse(fault)
			require.NoError(t, err)
			defer outfile.SetFileSystem(f)()
			err = outfile.Write(path, outfile.Options{Kind: outfile.Text}, func(w io.Writer) error {
				for range 3 {
					if _, err := io.WriteString(w, "some bytes"); err != nil {
						return err
					}
				}
				return nil
			})
			want := f.Err
			if want == nil {
				want = io.ErrShortWrite
			}
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, path+": ")
			require.NotContains(t, err.Error(), ".part")
			requireFiles(t, dir, map[string]string{"a.txt": "before"})
		})
	}
}

func TestCheckRefusesInputs(t *testing.T) {
	dir := t.TempDir()
	checkpoint := filepath.Join(dir, "checkpoint")
	require.NoError(t, os.Mkdir(checkpoint, 0o755))
	for _, name := range []string{"config.json", "model.safetensors", "notes.json", "model.json"} {
		require.NoError(t, os.WriteFile(filepath.Join(checkpoint, name), []byte("{}"), 0o644))
	}
	same := filepath.Join(dir, "other")
	require.NoError(t, os.Link(filepath.Join(checkpoint, "model.safetensors"), same))
	inputs := []string{checkpoint, filepath.Join(dir, "absent"), filepath.Join(checkpoint, "notes.json")}
	o := outfile.Options{Kind: outfile.JSON, Inputs: inputs}
	for name, input := range map[string]string{
		filepath.Join(checkpoint, "config.json"):               "config.json",
		filepath.Join(checkpoint, "..", "checkpoint", "x", ""): "",
		filepath.Join(checkpoint, "notes.json"):                "notes.json",
		same:                                                   "model.safetensors",
	} {
		err := outfile.Check(name, o)
		if input == "" {
			require.NoError(t, err)
			continue
		}
		want := name + ": this command reads " + filepath.Join(checkpoint, input) + ", which is the same file"
		require.ErrorContains(t, err, want)
	}
	// A file of the checkpoint's folder that is none of the checkpoint's may be written again.
	require.NoError(t, outfile.Check(filepath.Join(checkpoint, "model.json"), o))
}

// head is the beginning of a safetensors file.
func head(header string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header
}

var kinds = map[outfile.Kind]string{
	outfile.Program: "\x10\x00\x00\x00ET12rest",
	outfile.Part:    "etcpart1....",
	outfile.Tensors: head(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`) + "1234",
	outfile.Session: head(`{"__metadata__":{"etc.messages":"[]"}}`),
	outfile.JSON:    " \n{\"a\":1}",
	outfile.Page:    "<!DOCTYPE html>\n<html>",
	outfile.Text:    "module {\n ü",
	outfile.GGUF:    "GGUF\x03\x00\x00\x00",
	outfile.Other:   "\x00\x01\x02",
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "chat")
	unlock, err := outfile.Lock(path)
	require.NoError(t, err)
	_, err = outfile.Lock(path)
	require.ErrorIs(t, err, outfile.ErrLocked)
	_, err = outfile.Lock(path + "2")
	require.NoError(t, err)
	require.NoError(t, unlock())
	unlock, err = outfile.Lock(path)
	require.NoError(t, err)
	require.NoError(t, unlock())
	// What a killed process leaves locks nothing.
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".chat.lock"), nil, 0o600))
	unlock, err = outfile.Lock(path)
	require.NoError(t, err)
	require.NoError(t, unlock())
	require.NoFileExists(t, filepath.Join(dir, ".chat.lock"))
}

// At most one of many has a lock at any time.
func TestLockOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat")
	var holders, got atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				unlock, err := outfile.Lock(path)
				if err != nil {
					continue
				}
				assert.Equal(t, int64(1), holders.Add(1))
				got.Add(1)
				holders.Add(-1)
				assert.NoError(t, unlock())
			}
		})
	}
	wait.Wait()
	require.Positive(t, got.Load())
}

func TestKinds(t *testing.T) {
	dir := t.TempDir()
	for found, text := range kinds {
		require.Equal(t, found, outfile.KindOf([]byte(text)))
		path := filepath.Join(dir, "file")
		for wanted := range kinds {
			if wanted == outfile.Other {
				continue
			}
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			err := outfile.Check(path, outfile.Options{Kind: wanted})
			if wanted == found {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, fmt.Sprintf("the file is %s, and %s would take its place", found, wanted))
			}
			require.NoError(t, os.Truncate(path, 0))
			require.NoError(t, outfile.Check(path, outfile.Options{Kind: wanted}))
		}
	}
	// A character that the end of the head cuts is no sign of another form.
	require.Equal(t, outfile.Text, outfile.KindOf([]byte(strings.Repeat("x", 4095)+"üü")))
	require.Equal(t, outfile.Other, outfile.KindOf([]byte("\xff\xfe text that is not UTF-8")))
}
