package hub

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/outfile"
)

// drip gives so many bytes at a time, each after a pause.
type drip struct {
	left, size int
	pause      time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.pause)
	n := min(d.size, d.left, len(p))
	d.left -= n
	return n, nil
}

// A body of a byte a second is given up after a minute, one of a little more than the least rate is not.
func TestLeastRate(t *testing.T) {
	for _, test := range []struct {
		body drip
		want error
	}{
		{drip{1 << 20, 1, time.Second}, errSlow},
		{drip{1 << 20, leastBytes, 59 * time.Second}, nil},
		{drip{30, 1, time.Second}, nil}, // short, and over before a minute is
	} {
		synctest.Test(t, func(t *testing.T) {
			f, err := outfile.OpenAside(filepath.Join(t.TempDir(), "f"), 0o600)
			require.NoError(t, err)
			defer f.Close()
			p := &partial{remote: remote{size: 1 << 20}, out: f, progress: func(int64) {}}
			_, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			body := test.body
			require.Equal(t, test.want, p.copy(cancel, &body))
		})
	}
}

func TestRedact(t *testing.T) {
	first, err := http.NewRequest(http.MethodGet, "http://hub", nil)
	require.NoError(t, err)
	first.Header.Set("Authorization", "Bearer hf_secret")
	second := &http.Request{Header: http.Header{}, Response: &http.Response{Request: first}}
	for _, r := range []*http.Request{first, second} {
		answer := &http.Response{StatusCode: 401,
			Header: http.Header{"X-Error-Message": {"no rights: hf_secret, Bearer hf_secret"}}, Request: r}
		err := checkStatus("x", answer, 200)
		require.ErrorContains(t, err, "(no rights: [token], Bearer [token])")
		require.NotContains(t, err.Error(), "hf_secret")
	}
}

// Without a hash nothing is downloaded, unless that is asked for.
func TestUnverified(t *testing.T) {
	dir := t.TempDir()
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Request: r, ContentLength: 4, Header: http.Header{},
			Body: io.NopCloser(bytes.NewReader([]byte("text")))}, nil
	})
	f := remote{name: "config.json", hash: "abc", size: 4}
	for _, unverified := range []bool{false, true} {
		o := Options{Endpoint: "http://hub", Cache: dir, Transport: transport, Unverified: unverified}
		c, err := newClient(o)
		require.NoError(t, err)
		r := Repo{Name: "org/name"}
		to := newCache(o, r)
		require.NoError(t, os.MkdirAll(filepath.Join(to.root, "blobs"), 0o755))
		err = c.download(t.Context(), r, "main", f, to, func(int64) {})
		if unverified {
			require.NoError(t, err)
			require.FileExists(t, to.blob("abc"))
			continue
		}
		require.EqualError(t, err, `org/name/config.json: the hub names its content "abc", which is no SHA-256 or SHA-1, so that nothing tells whether it is whole and the right one; --unverified takes it as it comes`)
		require.NoFileExists(t, to.blob("abc"))
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
