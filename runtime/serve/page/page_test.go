package page

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask gives what the handler answers.
func ask(method, path string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	for file, kind := range map[string]string{"/": "text/html; charset=utf-8", "/ui/icon.svg": "image/svg+xml",
		"/ui/main.js": "text/javascript; charset=utf-8", "/ui/style.css": "text/css; charset=utf-8",
		"/ui/vendor/purify.LICENSE": "text/plain; charset=utf-8"} {
		w := ask("GET", file, nil)
		require.Equal(t, http.StatusOK, w.Code, file)
		require.Equal(t, kind, w.Header().Get("Content-Type"), file)
		require.NotEmpty(t, w.Body.String(), file)
		policy := w.Header().Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'", file)
		require.Contains(t, policy, "require-trusted-types-for 'script'", file)
		require.NotContains(t, policy, "unsafe", file)

		head := ask("HEAD", file, nil)
		require.Equal(t, http.StatusOK, head.Code)
		require.Empty(t, head.Body.String())
		same := ask("GET", file, http.Header{"If-None-Match": {w.Header().Get("ETag")}})
		require.Equal(t, http.StatusNotModified, same.Code)
		require.Empty(t, same.Body.String())
	}
	for _, file := range []string{"/ui/", "/ui/nothing.js", "/ui/../doc.go", "/ui/vendor", "/other"} {
		require.Equal(t, http.StatusNotFound, ask("GET", file, nil).Code, file)
	}
}

// What the policy forbids is not in the page: scripts, styles and listeners in line, addresses of other places.
func TestNothingInline(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+=|javascript:|(src|href)="(https?:)?//`)
	elsewhere := regexp.MustCompile(`https?://[^\s'"]+`)
	for name, a := range load() {
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		if path.Ext(name) == ".html" {
			require.Empty(t, forbidden.FindAllString(a.body, -1), name)
		}
		for _, address := range elsewhere.FindAllString(a.body, -1) {
			require.Equal(t, "http://www.w3.org/2000/svg", address, name)
		}
		require.NotContains(t, a.body, "innerHTML", name)
	}
}

// Every file that the page and its modules name is there.
func TestFilesAreThere(t *testing.T) {
	assets := load()
	named := regexp.MustCompile(`(?:src|href)="ui/([^"]+)"`)
	for _, m := range named.FindAllStringSubmatch(assets["index.html"].body, -1) {
		require.Contains(t, assets, m[1])
	}
	imports := regexp.MustCompile(`(?:from |import\()'\./([^']+)'`)
	for name, a := range assets {
		if path.Ext(name) == ".js" && !strings.HasPrefix(name, "vendor/") {
			for _, m := range imports.FindAllStringSubmatch(a.body, -1) {
				require.Contains(t, assets, path.Join(path.Dir(name), m[1]), name)
			}
		}
	}
}

// The libraries are what vendor.sh has checked.
func TestVendored(t *testing.T) {
	assets := load()
	listed := map[string]bool{"vendor/SHA256SUMS": true, "vendor/README.md": true}
	for in := bufio.NewScanner(strings.NewReader(assets["vendor/SHA256SUMS"].body)); in.Scan(); {
		sum, name, ok := strings.Cut(in.Text(), "  ")
		require.True(t, ok, in.Text())
		got := sha256.Sum256([]byte(assets["vendor/"+name].body))
		require.Equal(t, sum, hex.EncodeToString(got[:]), name)
		listed["vendor/"+name] = true
	}
	for name := range assets {
		require.True(t, !strings.HasPrefix(name, "vendor/") || listed[name], "%s is not in SHA256SUMS", name)
	}
}
