package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/etc-ml/etc/internal/outfile"
)

// remote is a file of the hub.
type remote struct {
	name string // the path in the repository
	hash string // the hub's name for the content: its SHA-256, or git's SHA-1 of a blob
	size int64
}

var plainHash = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// describe asks the hub for the hash and the size of a file.
func (c *client) describe(ctx context.Context, r Repo, commit, name string) (remote, error) {
	f := remote{name: name}
	what := r.Name + "/" + name
	err := c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, idleTimeout)
		defer cancel()
		response, err := c.do(ctx, http.MethodHead, c.resolve(r, commit, name))
		if err != nil {
			return err
		}
		response.Body.Close() //nolint:errcheck // an answer without a body
		if err := checkStatus(what, response, 200, 301, 302, 303, 307, 308); err != nil {
			return err
		}
		etag, length := response.Header.Get("X-Linked-Etag"), response.Header.Get("X-Linked-Size")
		if etag == "" {
			etag = response.Header.Get("Etag")
		}
		if length == "" {
			length = response.Header.Get("Content-Length")
		}
		f.hash = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
		if !plainHash.MatchString(f.hash) {
			return permanentf("%s: expected the file's hash in X-Linked-Etag or ETag, found %q", what, etag)
		}
		if f.size, err = strconv.ParseInt(length, 10, 64); err != nil || f.size < 0 {
			return permanentf("%s: expected the file's size in X-Linked-Size or Content-Length, found %q", what, length)
		}
		return nil
	})
	return f, err
}

// hasher computes what the hub names a file by; nil where that is no hash that is known.
func (f remote) hasher() hash.Hash {
	switch len(f.hash) {
	case 2 * sha256.Size:
		return sha256.New()
	case 2 * sha1.Size:
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.size)
		return h
	}
	return nil
}

// download brings a file into the cache, under its hash. progress is called with numbers of new bytes, negative ones
// for bytes that were wrong.
func (c *client) download(ctx context.Context, r Repo, commit string, f remote, to cache, progress func(int64)) error {
	path := to.blob(f.hash)
	unlock, err := to.lock(ctx, f.hash, func() {
		c.options.logf("%s/%s: another process downloads it; waiting", r.Name,
			f.name)
	})
	if err != nil {
		return err
	}
	defer unlock()
	if info, err := os.Stat(path); err == nil && info.Size() == f.size {
		progress(f.size)
		return nil
	}
	if f.hasher() == nil && !c.options.Unverified {
		return fmt.Errorf("%s/%s: the hub names its content %q, which is no SHA-256 or SHA-1, so that nothing tells "+
			"whether it is whole and the right one; --unverified takes it as it comes", r.Name, f.name, f.hash)
	}
	p := &partial{client: c, repo: r, commit: commit, remote: f, path: path + ".incomplete", progress: progress}
	if err := p.fetch(ctx); err != nil {
		return fmt.Errorf("%s/%s: %w", r.Name, f.name, err)
	}
	return outfile.Rename(p.path, path)
}

// partial is a file on its way.
type partial struct {
	*client
	repo     Repo
	commit   string
	remote   remote
	path     string
	progress func(int64)

	out  outfile.File
	sum  hash.Hash
	have int64 // bytes in the file, hashed
}

// fetch continues the file until it is whole and its hash is right.
func (p *partial) fetch(ctx context.Context) error {
	out, err := outfile.OpenAside(p.path, 0o666)
	if err != nil {
		return err
	}
	p.out = out
	err = p.complete(ctx)
	return errors.Join(err, out.Close())
}

func (p *partial) complete(ctx context.Context) error {
	if err := p.resume(); err != nil {
		return err
	}
	attempts, wrong := 0, false
	for failures := 0; ; {
		before := p.have
		err := p.stream(ctx)
		if err == nil && p.have == p.remote.size {
			if p.right() {
				return p.out.Sync()
			}
			if !wrong { // what was kept from an earlier time may have been of another file
				wrong = true
				p.options.logf("%s/%s: the hash of what was received is wrong; downloading it again",
					p.repo.Name, p.remote.name)
				if err := p.restart(); err != nil {
					return err
				}
				continue
			}
			return errors.Join(fmt.Errorf("expected content with the hash %s, found another", p.remote.hash),
				p.restart())
		}
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if attempts++; p.have > before && !errors.Is(err, errSlow) {
			attempts = 1
		}
		if failures++; !retryable(err) || attempts >= maxAttempts || failures >= maxFailures {
			return fmt.Errorf("%w after %d of %d bytes, which are kept for the next time", err, p.have, p.remote.size)
		}
		if err := p.pause(ctx, attempts, err); err != nil {
			return err
		}
	}
}

// resume hashes the part of the file that was downloaded earlier.
func (p *partial) resume() error {
	p.sum = p.remote.hasher()
	info, err := p.out.Stat()
	if err != nil {
		return err
	}
	if info.Size() > p.remote.size {
		return p.restart()
	}
	if p.sum != nil {
		if _, err := io.Copy(p.sum, io.NewSectionReader(p.out, 0, info.Size())); err != nil {
			return err
		}
	}
	p.have = info.Size()
	p.progress(p.have)
	return nil
}

// restart begins from nothing.
func (p *partial) restart() error {
	p.progress(-p.have)
	p.have, p.sum = 0, p.remote.hasher()
	return p.out.Truncate(0)
}

func (p *partial) right() bool {
	return p.sum == nil || hex.EncodeToString(p.sum.Sum(nil)) == strings.ToLower(p.remote.hash)
}

// stream asks for the rest and writes what comes.
func (p *partial) stream(ctx context.Context) error {
	if p.have == p.remote.size {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var header []string
	if p.have > 0 {
		header = []string{"Range", fmt.Sprintf("bytes=%d-", p.have)}
	}
	response, err := p.do(ctx, http.MethodGet, p.client.resolve(p.repo, p.commit, p.remote.name), header...)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := checkStatus("the download", response, http.StatusOK, http.StatusPartialContent,
		http.StatusRequestedRangeNotSatisfiable); err != nil {
		return err
	}
	switch response.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(fmt.Errorf("expected bytes from %d on, found that the hub has none", p.have), p.restart())
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", p.have, p.remote.size-1, p.remote.size)
		if got := response.Header.Get("Content-Range"); got != want {
			return errors.Join(fmt.Errorf("expected the range %q, found %q", want, got), p.restart())
		}
	case http.StatusOK:
		if p.have > 0 { // the server knows no ranges
			if err := p.restart(); err != nil {
				return err
			}
		}
		if n := response.ContentLength; n >= 0 && n != p.remote.size {
			return fmt.Errorf("expected %d bytes, found an answer of %d", p.remote.size, n)
		}
	}
	if err = p.copy(cancel, response.Body); context.Cause(ctx) == errIdle {
		return errIdle
	}
	return err
}

// copy writes and hashes a body. One that stops is given up, one that has too much is an error.
func (p *partial) copy(cancel context.CancelCauseFunc, body io.Reader) error {
	watch := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
	defer watch.Stop()
	buffer := make([]byte, 256<<10)
	began, came := time.Now(), 0
	for {
		n, err := body.Read(buffer)
		watch.Reset(idleTimeout)
		if came += n; time.Since(began) >= idleTimeout {
			if came < leastBytes && err == nil {
				return errSlow
			}
			began, came = time.Now(), 0
		}
		if int64(n) > p.remote.size-p.have {
			return errors.Join(fmt.Errorf("expected %d bytes, found more", p.remote.size), p.restart())
		}
		if n > 0 {
			if k, err := p.out.WriteAt(buffer[:n], p.have); err != nil {
				return &permanentError{err}
			} else if k < n {
				return &permanentError{io.ErrShortWrite}
			}
			if p.sum != nil {
				p.sum.Write(buffer[:n])
			}
			p.have += int64(n)
			p.progress(int64(n))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// errSlow says that a download is so slow that it would take for ever. An attempt that ends with it counts as one that
// brought no byte.
var errSlow = fmt.Errorf("less than %d KiB in %s", leastBytes>>10, idleTimeout)

var errIdle = fmt.Errorf("no byte for %s", idleTimeout)
