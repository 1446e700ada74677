package statefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/batch"
)

// A slot file is a safetensors file with the state after a prefix of tokens: the tokens, a tensor for each part of the
// state, exactly as the server holds it, and as metadata the program, the precision and the form of the state. Its last
// tensor has a checksum of 8 bytes for each part, so that parts can be written and read beside each other, and one of
// all the rest. Checksums are of xxHash's 64 bits: they are for damage, and what they cover is not secret from who can
// write the file. Only its owner can read the file.
const (
	slotForm  = "etc.slot.form"  // batch.Saved.Form
	slotParts = "etc.slot.parts" // JSON: the buffers of the parts, their dtypes and shapes, in order
	slotPart  = "part."          // before the number of a part
	slotSums  = "sums"           // the checksums; it sorts after all others, so that it is written last
)

// slotKeys are the metadata that the checksum covers.
var slotKeys = []string{slotForm, slotParts, sessionProgram, sessionPrecision}

// slotBuffer says what a part is of, as the metadata has it.
type slotBuffer struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	// Shape is the part's, as its tensor has it. The checksum covers it here: [] and [1] have the same bytes.
	Shape []int `json:"shape"`
}

// partName returns the name of the tensor of a part.
func partName(i int) string { return fmt.Sprintf("%s%06d", slotPart, i) }

// Slots keeps the states of a program in files of a folder, each under a name; it is a serve.Slots.
type Slots struct {
	// Dir is the folder. Its files begin with Model, the name of the model.
	Dir, Model string
	// Of is what the states belong to.
	Of Owner
}

// path returns the file of a name.
func (s *Slots) path(name string) string { return filepath.Join(s.Dir, s.Model+"."+name+".slot") }

// Save implements serve.Slots.
func (s *Slots) Save(ctx context.Context, name string, saved *batch.Saved) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &slotWriter{ctx: ctx, saved: saved, parts: make([]*readPart, len(saved.Parts))}
	defer w.wait()
	defer cancel()
	ids := make([]int64, len(saved.Tokens))
	for i, t := range saved.Tokens {
		ids[i] = int64(t)
	}
	tokens := eval.Ints(ir.I64, []int{len(ids)}, ids)
	entries := []safetensors.Entry{tensorfile.Entry(sessionTokens, eval.Value{Tensor: tokens})}
	var buffers []slotBuffer
	for i, p := range saved.Parts {
		buffers = append(buffers, slotBuffer{p.Buffer, p.DType.String(), p.Shape})
		entries = append(entries, safetensors.Entry{Name: partName(i), DType: fileDType(p.Stored), Shape: p.Shape,
			Data: func(out io.Writer) error { return w.write(out, i) }})
	}
	list, err := json.Marshal(buffers)
	if err != nil {
		return 0, err
	}
	metadata := map[string]string{slotForm: saved.Form, slotParts: string(list), sessionProgram: s.Of.Program,
		sessionPrecision: s.Of.Precision}
	n := (len(saved.Parts) + 1) * sumSize
	entries = append(entries, safetensors.Entry{Name: slotSums, DType: safetensors.U8, Shape: []int{n},
		Data: func(out io.Writer) error {
			_, err := out.Write(appendRest(w.sums(), metadata, tokens.Encode()))
			return err
		}})
	counted := &counter{}
	err = outfile.Write(s.path(name), outfile.Options{Kind: outfile.Session, Inputs: []string{s.Of.File}, Private: true},
		func(w io.Writer) error { return safetensors.Write(io.MultiWriter(w, counted), entries, metadata) })
	return counted.n, err
}

// counter counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// regular returns the size of a file in bytes, and refuses a name that is no regular file.
func (s *Slots) regular(name string) (int64, error) {
	info, err := os.Lstat(s.path(name))
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s: expected a regular file with a state, found none", s.path(name))
	}
	return info.Size(), nil
}

// Erase implements serve.Slots.
func (s *Slots) Erase(name string) error {
	if _, err := s.regular(name); err != nil {
		return err
	}
	return outfile.Remove(s.path(name))
}

// Load implements serve.Slots.
func (s *Slots) Load(name string) (*batch.Saved, int64, error) {
	path := s.path(name)
	size, err := s.regular(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, 0, err
	}
	saved, err := s.open(f)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return saved, size, nil
}

// open returns the state of a file, whose parts are checked when they are read.
func (s *Slots) open(f *safetensors.File) (*batch.Saved, error) {
	meta := f.Metadata()
	var buffers []slotBuffer
	if err := json.Unmarshal([]byte(meta[slotParts]), &buffers); err != nil {
		return nil, fmt.Errorf("%s: it is no state that etc serve has saved", f.Path())
	}
	if meta[sessionProgram] != s.Of.Program {
		return nil, fmt.Errorf("%s: it is the state of another program than %s", f.Path(), s.Of.File)
	}
	if p := meta[sessionPrecision]; p != s.Of.Precision {
		return nil, fmt.Errorf("%s: it is the state of a server with --precision %s, which cannot go on with %s",
			f.Path(), p, s.Of.Precision)
	}
	precision, err := eval.ParsePrecision(s.Of.Precision)
	if err != nil {
		return nil, err
	}
	r := &slotReader{file: f}
	tokens, err := r.tokens(len(buffers))
	if err != nil {
		return nil, err
	}
	saved := &batch.Saved{Tokens: tokens, Form: meta[slotForm], Reuse: r.reuse, Release: f.Close}
	for i, b := range buffers {
		t, ok := f.Tensor(partName(i))
		d, known := tensorfile.DTypeNamed(b.DType)
		stored := eval.StateDType(d, precision)
		if !ok || !known || t.DType != fileDType(stored) {
			return nil, fmt.Errorf("%s: the tensor %q of buffer %q is missing or no %s in %s", f.Path(),
				partName(i), b.Name, b.DType, fileDType(stored))
		}
		if !slices.Equal(t.Shape, b.Shape) {
			return nil, fmt.Errorf("%s is damaged: the tensor %q has the shape %v, expected %v", f.Path(), partName(i),
				t.Shape, b.Shape)
		}
		saved.Parts = append(saved.Parts, batch.Part{Buffer: b.Name, DType: d, Stored: stored, Shape: t.Shape})
		r.parts = append(r.parts, t)
	}
	saved.Read = func(_ context.Context, i int) ([]byte, error) { return r.part(i) }
	return saved, nil
}
