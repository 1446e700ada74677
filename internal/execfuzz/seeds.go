package execfuzz

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

//go:embed testdata/nodes.tar.gz
var nodes []byte

// Nodes returns programs of one node or a few, as ExecuTorch's exporter writes them; see testdata/README.md.
func Nodes() ([]Seed, error) { return unpack(nodes) }

//go:embed testdata/found.tar.gz
var found []byte

// Found returns mutants that have shown a fault, which is mended; testdata/README.md tells which.
func Found() ([]Seed, error) { return unpack(found) }

func unpack(archive []byte) ([]Seed, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	var out []Seed
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		out = append(out, Seed{h.Name, b})
	}
}
