package command

import (
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/etc-ml/etc/loaders/inputtest"
	"github.com/etc-ml/etc/passes/quantize"
)

// writeInput writes a checkpoint in the form of another program: input CHECKPOINT mlx|mlx5|bundle|GGUFTYPE OUT.
func writeInput(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "input CHECKPOINT mlx|mlx5|bundle|GGUFTYPE OUT")
	s, err := inputtest.Read(ts.MkAbs(args[0]))
	ts.Check(err)
	out := ts.MkAbs(args[2])
	switch args[1] {
	case "mlx":
		ts.Check(s.WriteMLX(out, 4, minMax))
	case "mlx5":
		ts.Check(s.WriteMLX(out, 5, minMax))
	case "bundle":
		_, err := s.WritePrequantized(out)
		ts.Check(err)
	default:
		ts.Check(s.WriteGGUF(out, func(string) string { return args[1] }))
	}
}

// minMax is the quantizer of mlx-lm. Its weights of 5 bits have the codes of those of 4.
func minMax(values []float32, rows, cols, bits, group int) ([]uint32, []float32, []float32, error) {
	var r quantize.Result
	err := quantize.Quantize(&r, values, rows, cols,
		quantize.Scheme{Method: quantize.MinMax, Bits: bits &^ 1, GroupSize: group, Params: quantize.BF16})
	if bits == 5 {
		packed := make([]uint32, rows*cols*bits/32)
		for i := range rows * cols {
			code := uint64(r.Packed[i/8]>>(4*(i%8))&15) << (i * bits % 32)
			packed[i*bits/32] |= uint32(code)
			if code>>32 != 0 {
				packed[i*bits/32+1] |= uint32(code >> 32)
			}
		}
		r.Packed = packed
	}
	return r.Packed, r.Scales, r.Biases, err
}

// hubCommit is the only commit of a script's hub.
const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// serveHub serves a checkpoint as org/name for the rest of a script and sets HF_ENDPOINT, HF_HOME and HF_TOKEN: hub
// CHECKPOINT [busy]. It sends those who want the weights to a second host, which must not see the token. That gives a
// byte too many, then ends an answer in the middle, then asks to come later, and then gives the range that is asked
// for; with busy it asks to come tomorrow.
func serveHub(ts *testscript.TestScript, neg bool, args []string) {
	busy := len(args) == 2 && args[1] == "busy"
	usage(ts, neg, len(args) == 1 || busy, "hub CHECKPOINT [busy]")
	const weights = "model.safetensors"
	var listing strings.Builder
	files := map[string]string{}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		p, err := os.ReadFile(filepath.Join(ts.MkAbs(args[0]), e.Name()))
		ts.Check(err)
		files[e.Name()] = string(p)
		fmt.Fprintf(&listing, `,{"rfilename": %q}`, e.Name())
	}
	var answers atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content := files[weights]
		switch n := answers.Add(1); {
		case r.Header.Get("Authorization") != "":
			http.Error(w, "the token is for another host", http.StatusBadRequest)
		case busy:
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
		case n == 1:
			w.(http.Flusher).Flush()       // without a length
			io.WriteString(w, content+"x") //nolint:errcheck
		case n == 2:
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			io.WriteString(w, content[:len(content)/2]) //nolint:errcheck
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case n == 3:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Header.Get("Range") != fmt.Sprintf("bytes=%d-", len(content)/2):
			http.Error(w, "expected the second half to be asked for", http.StatusBadRequest)
		default:
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", len(content)/2, len(content)-1, len(content)))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, content[len(content)/2:]) //nolint:errcheck
		}
	}))
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isFile := strings.CutPrefix(r.URL.Path, "/org/name/resolve/"+hubCommit+"/")
		content, known := files[name]
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/models/org/name/revision/main":
			fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, hubCommit, listing.String()[1:])
		case !isFile || !known:
			http.NotFound(w, r)
		case name == weights:
			w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(content))))
			w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
			http.Redirect(w, r, far.URL+"/?signature=x", http.StatusFound)
		default:
			w.Header().Set("Etag", fmt.Sprintf(`"%x"`,
				sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content)))))
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			io.WriteString(w, content) //nolint:errcheck
		}
	}))
	ts.Defer(near.Close)
	ts.Defer(far.Close)
	ts.Setenv("HF_ENDPOINT", near.URL)
	ts.Setenv("HF_TOKEN", "secret")
	ts.Setenv("HF_HOME", ts.MkAbs("hf"))
}
