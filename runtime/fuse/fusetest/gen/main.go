package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/program"
)

// small is the largest number of elements of a constant whose values are written. Of larger ones, the weights, the
// test data has type and name only.
const small = 64

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE.pte DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(path, dir string) error {
	p, err := program.Open(path)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Module("forward")
	if err != nil {
		return err
	}
	m.Entry.Body.Walk(func(op *ir.Op) {
		if a, ok := op.Attrs.(*ir.MetalKernelAttrs); ok {
			a.Source = ""
		}
	})
	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	if err := ir.Print(z, m); err != nil {
		return err
	}
	fmt.Fprintln(z, "---")
	for _, c := range m.Constants {
		if ir.Elements(c.Data.Shape()) > small {
			continue
		}
		b, err := ir.ReadData(c.Data)
		if err != nil {
			return err
		}
		fmt.Fprintf(z, "%q %x\n", c.Name, b)
	}
	if err := z.Close(); err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(path), ".pte") + ".ir.gz"
	return os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o666)
}
