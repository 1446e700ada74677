package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etc-ml/etc/internal/outfile"
)

// cache is the folder of one repository.
type cache struct {
	root  string // the folder
	locks string
}

func newCache(o Options, r Repo) cache {
	return cache{filepath.Join(o.Cache, r.folder()), filepath.Join(o.Cache, ".locks", r.folder())}
}

func (c cache) blob(hash string) string       { return filepath.Join(c.root, "blobs", hash) }
func (c cache) snapshot(commit string) string { return filepath.Join(c.root, "snapshots", commit) }
func (c cache) file(commit, name string) string {
	return filepath.Join(c.snapshot(commit), filepath.FromSlash(name))
}
func (c cache) has(commit, name string) bool { return exists(c.file(commit, name)) }

func exists(path string) bool {
	_, err := os.Stat(path) // through the link: of a blob that is gone there is nothing
	return err == nil
}

// commit returns the commit of a revision as the cache knows it.
func (c cache) commit(revision string) (string, bool) {
	if commit.MatchString(revision) {
		return revision, exists(c.snapshot(revision))
	}
	text, err := os.ReadFile(filepath.Join(c.root, "refs", filepath.FromSlash(revision)))
	id := strings.TrimSpace(string(text))
	return id, err == nil && commit.MatchString(id)
}

// setCommit notes the commit of a branch or tag.
func (c cache) setCommit(revision, id string) error {
	if commit.MatchString(revision) {
		return nil
	}
	path := filepath.Join(c.root, "refs", filepath.FromSlash(revision))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return outfile.Write(path, outfile.Options{Kind: outfile.Text},
		func(w io.Writer) error { _, err := io.WriteString(w, id); return err })
}

// link gives a blob its name in a snapshot: a relative link, or a copy where the system has no links. It is made
// under another name and renamed, so that the name always exists for other processes that use it.
func (c cache) link(commit, name, hash string) (err error) {
	path := c.file(commit, name)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(dir, c.blob(hash))
	if err != nil {
		return err
	}
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	aside, err := os.MkdirTemp(dir, ".link-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(aside)) }()
	made := filepath.Join(aside, filepath.Base(path))
	if os.Symlink(target, made) != nil && os.Link(c.blob(hash), made) != nil {
		if err := outfile.CopyFile(c.blob(hash), made); err != nil {
			return err
		}
	}
	return outfile.Rename(made, path)
}

// lock takes the lock of a blob and waits while another process has it. The function that it returns releases the lock.
func (c cache) lock(ctx context.Context, hash string, waiting func()) (func(), error) {
	if err := os.MkdirAll(c.locks, 0o777); err != nil {
		return nil, err
	}
	path := filepath.Join(c.locks, hash+".lock")
	f, err := outfile.OpenAside(path, 0o666)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		ok, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
		}
		if ok {
			return func() { f.Close() }, nil //nolint:errcheck // closing gives the lock back
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
