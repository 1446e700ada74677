package loaders

import (
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Provenance is that of the data of modules that read the tensor ([ir.Data]).
func (s Source) Provenance() string {
	if t, ok := s.data.(*safetensors.Tensor); ok {
		if d := tensorOf(t).Data; d != nil {
			return d.Provenance()
		}
	}
	return ""
}

// Place is the path of the file that holds the tensor's bytes, as they are, and where they begin; false where they are
// not those of a file.
func (s Source) Place() (path string, offset int64, ok bool) {
	if t, ok := s.data.(*safetensors.Tensor); ok {
		return t.File().Path(), t.Offset(), true
	}
	return "", 0, false
}
