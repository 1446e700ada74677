package command

import (
	"io"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// widen copies a checkpoint of one bf16 file as one of float32: widen FROM TO.
func widen(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "widen FROM TO")
	from, to := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(to, 0o755))
	config, err := os.ReadFile(filepath.Join(from, huggingface.ConfigFile))
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(to, huggingface.ConfigFile), config, 0o644))
	f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	ts.Check(err)
	defer f.Close()
	var entries []safetensors.Entry
	for _, t := range f.Tensors() {
		b, err := io.ReadAll(t.Reader())
		ts.Check(err)
		wide := make([]byte, 2*len(b))
		for i := 0; i < len(b); i += 2 {
			wide[2*i+2], wide[2*i+3] = b[i], b[i+1]
		}
		entries = append(entries, safetensors.Entry{Name: t.Name, DType: "F32", Shape: t.Shape,
			Data: safetensors.Bytes(wide)})
	}
	ts.Check(safetensors.WriteFile(filepath.Join(to, "model.safetensors"), entries, nil))
}
