package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/loaders"
)

// interruptibleExport makes an export one that Ctrl-C ends, and what ends processes in containers too, and that
// goes on where --resume asks for it.
func interruptibleExport(cmd *cobra.Command, f exportFlags, file *codegen.File) (context.Context, context.CancelFunc) {
	file.Resume = f.resume
	file.Log = func(message string) { logf(cmd.ErrOrStderr(), "etc: %s", message) }
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
	return beforeWriting(ctx, file), stop
}

// beforeWriting is called before a program is written. Tests set it.
var beforeWriting = func(ctx context.Context, _ *codegen.File) context.Context { return ctx }

// exportError gives an error of writing its kind: an export that is not the one to go on with is wrong usage.
func exportError(err error) error {
	if changed := (*codegen.ChangedError)(nil); errors.As(err, &changed) {
		return usageError{err}
	}
	return err
}

// Parts of a source file that identify it: the header of a safetensors or GGUF file, and the last bytes.
const (
	identifyingHead = 4 << 20
	identifyingTail = 64 << 10
)

// identityOf is what a program follows from: the record's version and options, and the files of the weights.
func identityOf(record buildRecord, c *loaders.Checkpoint) ([]codegen.Property, error) {
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
		properties, err := identityOfFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, properties...)
	}
	return out, nil
}

// identityOfText is what the program of a text follows from beside it.
func identityOfText(weights string) ([]codegen.Property, error) {
	source, err := identityOfFile(weights)
	return append([]codegen.Property{{Name: "tool version", Value: toolVersion}}, source...), err
}

// identityOfFile tells a file from others without reading all of it.
func identityOfFile(path string) ([]codegen.Property, error) {
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
	for _, at := range []struct{ offset, size int64 }{{0, identifyingHead}, {max(0, info.Size()-identifyingTail), identifyingTail}} {
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
		{Name: "source " + name, Value: fmt.Sprintf("of %s, hash of head and tail %s", humanize.Comma(info.Size()), hex.EncodeToString(h.Sum(nil)))},
		{Name: "place of source " + name, Value: absolute, Local: true},
		{Name: "time of source " + name, Value: info.ModTime().UTC().Format(time.RFC3339Nano), Local: true},
	}, nil
}
