package loaders

import (
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Provenance returns the provenance of the data that modules read from the tensor ([ir.Data]).
func (s Source) Provenance() string {
	switch t := s.data.(type) {
	case *safetensors.Tensor:
		if d := tensorOf(t, s.prefix).Data; d != nil {
			return d.Provenance()
		}
	case *gguf.Tensor:
		return t.Provenance()
	}
	return ""
}

// Place returns the path of the file that holds the tensor's bytes, as they are, and where they begin; false where
// they are not those of a file.
func (s Source) Place() (path string, offset int64, ok bool) {
	switch t := s.data.(type) {
	case *safetensors.Tensor:
		return t.File().Path(), t.Offset(), true
	case *gguf.Tensor:
		return t.File(), t.Offset(), true
	}
	return "", 0, false
}
