package verify_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/verify"
)

// Whatever a file holds, the answer is a list of findings, the same every time.
func FuzzProgram(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.pte"))
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(modelBytes(f, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := container.OpenBytes("fuzz.pte", b)
		if err != nil {
			return
		}
		p, err := program.New(file)
		if err != nil {
			return
		}
		first := verify.Program(p)
		again := verify.Program(p)
		if len(first) != len(again) {
			t.Fatalf("%d findings, then %d", len(first), len(again))
		}
		for i := range first {
			if first[i] != again[i] {
				t.Fatalf("finding %d: %v, then %v", i, first[i], again[i])
			}
		}
	})
}
