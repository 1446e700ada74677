package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var files embed.FS

// policy is the page's Content-Security-Policy.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types dompurify"

// Prefix is where the files of the page are, the page itself being at /.
const Prefix = "/ui/"

// asset is a file of the page.
type asset struct {
	body string
	kind string // Content-Type
	tag  string // ETag
}

// Handler answers GET and HEAD of / and of the files under [Prefix].
func Handler() http.Handler {
	assets := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, under := strings.CutPrefix(r.URL.Path, Prefix)
		if !under && r.URL.Path == "/" {
			name = "index.html"
		}
		a, ok := assets[name]
		if !ok {
			http.Error(w, "the page has no file "+r.URL.Path, http.StatusNotFound)
			return
		}
		a.serve(w, r)
	})
}

// load reads the files.
func load() map[string]asset {
	assets := map[string]asset{}
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		assets[strings.TrimPrefix(name, "static/")] = asset{body: string(b), kind: kindOf(name),
			tag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // they are in the program
	}
	return assets
}

// kindOf returns the Content-Type of a file. Those of the page are here, because the machine's own table may say
// otherwise.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "text/plain; charset=utf-8"
}

// serve answers with the file, or with status 304 if the ETag shows that the browser has it.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	// asked for again each time: the next version of etc may be behind the same address
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	h.Set("Content-Type", a.kind)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(a.body))
}
