package hub

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// FuzzAnswers: whatever a hub answers, there is a snapshot or an error, and nothing is written beside the cache.
func FuzzAnswers(f *testing.F) {
	const commit = `"sha":"` + testCommit + `"`
	f.Add(`{`+commit+`,"siblings":[{"rfilename":"config.json"},{"rfilename":"model.safetensors"}]}`, "{}", `"abc"`, "5")
	f.Add(`{`+commit+`,"siblings":[{"rfilename":"../../x.json"},{"rfilename":"model.safetensors.index.json"}]}`,
		`{"weight_map":{"a":"../b.safetensors"}}`, "", "")
	f.Add(`{"sha":"../..","siblings":null}`, "", "", "-1")
	type answer struct{ listing, content, etag, size string }
	var now atomic.Pointer[answer]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := now.Load()
		if strings.HasPrefix(r.URL.Path, "/api/") {
			w.Write([]byte(a.listing)) //nolint:errcheck // the client may be gone
			return
		}
		for name, value := range map[string]string{"ETag": a.etag, "X-Linked-Etag": a.etag, "X-Linked-Size": a.size,
			"X-Repo-Commit": testCommit} {
			if value != "" && !strings.ContainsAny(value, "\r\n\x00") {
				w.Header().Set(name, value)
			}
		}
		w.Write([]byte(a.content)) //nolint:errcheck // as above
	}))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, listing, content, etag, size string) {
		now.Store(&answer{listing, content, etag, size})
		outside := t.TempDir()
		o := Options{Endpoint: server.URL, Cache: filepath.Join(outside, "a", "b", "cache"), Jobs: 1,
			Log: func(string, ...any) {},
			Wait: func(time.Duration) <-chan time.Time {
				c := make(chan time.Time, 1)
				c <- time.Time{}
				return c
			}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		dir, err := Fetch(ctx, Repo{"org/name", "main"}, o)
		if err == nil && !strings.HasPrefix(dir, o.Cache) {
			t.Fatalf("a snapshot at %s", dir)
		}
		//nolint:errcheck // the function gives none
		filepath.WalkDir(outside, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasPrefix(path, o.Cache+string(os.PathSeparator)) {
				t.Fatalf("%s is beside the cache", path)
			}
			return nil
		})
	})
}
