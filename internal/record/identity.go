package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/version"
	"github.com/etc-ml/etc/loaders"
)

// Sizes of the two parts of a source file that its identity is a hash of: the beginning, which holds the header of a
// safetensors or GGUF file, and the end.
const (
	identifyingHead = 4 << 20
	identifyingTail = 64 << 10
)

// Identity lists everything that a program depends on: the record's version and options, and the files of the
// weights.
func Identity(record Record, c *loaders.Checkpoint) ([]codegen.Property, error) {
	out := []codegen.Property{{Name: "tool version", Value: record.Tool}, {Name: "recipe", Value: record.Recipe}}
	text, err := json.Marshal(record.Options)
	if err != nil {
		return nil, err
	}
	var options map[string]any
	if err := json.Unmarshal(text, &options); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		out = append(out, codegen.Property{Name: name, Value: fmt.Sprint(options[name])})
	}
	if record.Draft != nil {
		out = append(out, codegen.Property{Name: "draft", Value: record.Draft.Kind})
	}
	seen := map[string]bool{}
	for _, s := range c.Sources() {
		path, _, ok := s.Place()
		if !ok || seen[path] {
			continue
		}
		seen[path] = true
		properties, err := IdentityOfFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, properties...)
	}
	return out, nil
}

// IdentityOfText lists everything that the program of an IR text depends on, apart from the text.
func IdentityOfText(weights string) ([]codegen.Property, error) {
	source, err := IdentityOfFile(weights)
	return append([]codegen.Property{{Name: "tool version", Value: version.Tool}}, source...), err
}

// IdentityOfFile lists properties that tell a file from others, without reading all of it.
func IdentityOfFile(path string) ([]codegen.Property, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, at := range []struct{ offset, size int64 }{{0, identifyingHead},
		{max(0, info.Size()-identifyingTail), identifyingTail}} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at.offset, at.size)); err != nil {
			return nil, err
		}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	return []codegen.Property{
		{Name: "source " + name, Value: fmt.Sprintf("of %s, hash of head and tail %s", humanize.Comma(info.Size()),
			hex.EncodeToString(h.Sum(nil)))},
		{Name: "place of source " + name, Value: absolute, Local: true},
		{Name: "time of source " + name, Value: info.ModTime().UTC().Format(time.RFC3339Nano), Local: true},
	}, nil
}
