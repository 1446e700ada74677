package record

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/version"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
)

// Key is the key of the record in a file's named data.
const Key = "etc.build"

// Record says how a file was made: who made it, of what, by which rules.
type Record struct {
	Tool         string   `json:"tool"`
	Architecture string   `json:"architecture"`
	Recipe       string   `json:"recipe"`
	Rules        []string `json:"rules"` // the recipe's text, a line each
	Options      Options  `json:"options"`
	Sources      []Source `json:"sources"`
	Draft        *Draft   `json:"draft,omitempty"`
	// Stored are the named data of the file, and the program ([codegen.StoredProgram]), each with the hash of its
	// bytes. Records of the first versions have none.
	Stored []Source `json:"stored,omitempty"`
	// Calibration is nil where no weight was chosen by a text.
	Calibration *Calibration `json:"calibration,omitempty"`
}

// Options are the options for the weights and the graph, under the names of etc export's flags.
type Options struct {
	Backend            string `json:"backend"`
	Linear             string `json:"qlinear"`
	GroupSize          int    `json:"group_size"`
	Embedding          string `json:"qembedding"`
	EmbeddingGroupSize int    `json:"qembedding_group_size"` // 0: one group a row
	Method             string `json:"quant_method"`
	Sample             bool   `json:"sample"`
	Portable           bool   `json:"portable"`
	MaxSeqLen          int    `json:"max_seq_len"`
	MaxPrefillChunk    int    `json:"max_prefill_chunk"`
}

// Source is a tensor of the checkpoint, or a piece of the file, and the SHA-256 of its bytes.
type Source struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Write prints the record for people: the hashes are in --json.
func (r *Record) Write(out io.Writer) error {
	if r == nil {
		return nil
	}
	o, sources, draft := r.Options, len(r.Sources), ""
	if r.Draft != nil {
		sources, draft = sources+len(r.Draft.Sources), ", draft "+r.Draft.Kind
	}
	_, err := fmt.Fprintf(out, "build      %s; %s%s; recipe %s, qlinear %s, qembedding %s, groups of %d, method %s; "+
		"hashes of %d source tensors\n",
		r.Tool, r.Architecture, draft, r.Recipe, o.Linear, o.Embedding, o.GroupSize, o.Method, sources)
	if err == nil && r.Calibration != nil {
		err = r.Calibration.write(out)
	}
	return err
}

// NewFile makes a file of a module: with tokenizer, template, configuration and record. The record's context length
// and prefill chunk are the module's; calibration is nil if no text chose weights.
func NewFile(c *loaders.Checkpoint, m *ir.Module, o *passes.Options, options Options,
	calibration *Calibration) (codegen.File, error) {
	file := codegen.File{Module: m}
	model := c.Model
	for _, x := range []codegen.NamedBytes{
		{Key: prompt.KeyTokenizer, Bytes: model.Files.Tokenizer},
		{Key: prompt.KeyTokenizerConfig, Bytes: model.Files.TokenizerConfig},
		{Key: prompt.KeyChatTemplate, Bytes: []byte(model.ChatTemplate)},
		{Key: prompt.KeyGenerationConfig, Bytes: model.Files.GenerationConfig},
		{Key: prompt.KeyConfig, Bytes: model.Files.Config},
	} {
		if len(x.Bytes) > 0 {
			file.Extra = append(file.Extra, x)
		}
	}
	options.MaxSeqLen, options.MaxPrefillChunk = constant(m, "get_max_seq_len"), constant(m, "get_max_prefill_chunk")
	record := Record{Tool: version.Tool, Architecture: c.Architecture(), Recipe: o.Recipe.Name, Rules: o.Recipe.Lines(),
		Options: options, Calibration: calibration}
	if kind := c.Draft(); kind != "" {
		record.Draft = &Draft{Kind: kind}
	}
	for _, s := range c.Sources() {
		if s.Draft {
			record.Draft.Sources = append(record.Draft.Sources, unknownHash(s.Name))
		} else {
			record.Sources = append(record.Sources, unknownHash(s.Name))
		}
	}
	for _, key := range StoredNames(file) {
		record.Stored = append(record.Stored, unknownHash(key))
	}
	// The hashes have a fixed size, so the record's is known before a weight is read.
	var err error
	file.Record, err = recordWithHashes(record, c.Sources())
	if err != nil {
		return file, err
	}
	if file.Identity, err = Identity(record, c); err != nil {
		return file, err
	}
	for _, s := range c.Sources() {
		if path, offset, ok := s.Place(); ok {
			file.Inputs = append(file.Inputs,
				codegen.Input{Provenance: s.Provenance(), Path: path, Offset: offset, Size: s.Size})
		}
	}
	return file, nil
}

// StoredNames returns the names of the stored data whose hashes a record has, besides the hashes of the sources.
func StoredNames(f codegen.File) []string {
	return append(codegen.StoredKeys(f), codegen.StoredProgram)
}

// unknownHash returns the entry of a name whose hash will be computed later.
func unknownHash(name string) Source {
	return Source{name, hex.EncodeToString(make([]byte, sha256.Size))}
}

// recordWithHashes returns the record of a file. The hashes of the sources and of what the file stores are fields
// that are computed while the file is written.
func recordWithHashes(record Record, sources []loaders.Source) (*codegen.Record, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	places := hashPlaces(text)
	if len(places) != len(sources)+len(record.Stored) {
		return nil, fmt.Errorf("%s: places for %d hashes, want %d of tensors and %d of what is stored", Key,
			len(places), len(sources), len(record.Stored))
	}
	r := &codegen.Record{Key: Key, Bytes: text}
	for i, s := range sources {
		r.Fields = append(r.Fields, codegen.Field{Offset: places[i], Size: hex.EncodedLen(sha256.Size),
			Work: s.Size, Reads: s.Provenance(),
			Make: func(ctx context.Context) ([]byte, error) {
				hash, err := HashSource(ctx, s)
				return []byte(hash), err
			}})
	}
	r.Fields = append(r.Fields, storedFields(record, places)...)
	return r, nil
}

// hashPlaces returns the positions of the hashes in the text of a record, in order: those of the sources, of a
// draft's sources, of stored data.
func hashPlaces(text []byte) (places []int) {
	// No string of JSON holds a quotation mark as it is, so this finds the keys and nothing else.
	const key = `"sha256":"`
	for at := 0; ; {
		n := bytes.Index(text[at:], []byte(key))
		if n < 0 {
			return places
		}
		at += n + len(key)
		places = append(places, at)
	}
}

// storedFields returns the fields of the hashes of stored data, which are a record's last.
func storedFields(record Record, places []int) (fields []codegen.Field) {
	places = places[len(places)-len(record.Stored):]
	for i, s := range record.Stored {
		fields = append(fields, codegen.Field{Offset: places[i], Size: hex.EncodedLen(sha256.Size), Of: s.Name})
	}
	return fields
}

// OfText returns the record of a program that is written from an IR text with the weights of another file: that
// file's record, with new hashes of what is stored. It returns nil if the record is to stay unchanged: one without
// such hashes, or one that this version would not have written.
func OfText(text []byte, f codegen.File) (*codegen.Record, error) {
	record, err := Parse(text)
	if err != nil || len(record.Stored) == 0 {
		return nil, nil // etc verify reports what is wrong with it
	}
	if again, err := json.Marshal(record); err != nil || !bytes.Equal(again, text) {
		return nil, err
	}
	record.Stored = nil
	for _, key := range StoredNames(f) {
		record.Stored = append(record.Stored, unknownHash(key))
	}
	if text, err = json.Marshal(record); err != nil {
		return nil, err
	}
	return &codegen.Record{Key: Key, Bytes: text, Fields: storedFields(*record, hashPlaces(text))}, nil
}

// HashBuffer is the number of bytes of a source that are read at a time.
const HashBuffer = 1 << 20

// HashSource computes the SHA-256 of a source tensor, in hexadecimal.
func HashSource(ctx context.Context, s loaders.Source) (string, error) {
	h := sha256.New()
	// Only Reader and Writer are shown to CopyBuffer, so that it uses the buffer.
	if n, err := io.CopyBuffer(h, struct{ io.Reader }{Interruptible{ctx, s.Reader()}},
		make([]byte, HashBuffer)); err != nil {
		return "", fmt.Errorf("tensor %s: %w", s.Name, err)
	} else if n != s.Size {
		return "", fmt.Errorf("tensor %s: read %d of %d bytes", s.Name, n, s.Size)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Interruptible is a reader that stops when its context ends.
type Interruptible struct {
	Context context.Context
	Reader  io.Reader
}

// Read reads, or returns the error of the context.
func (i Interruptible) Read(p []byte) (int, error) {
	if err := i.Context.Err(); err != nil {
		return 0, err
	}
	return i.Reader.Read(p)
}

// constant returns the integer that a constant method gives, or 0 if there is no such method.
func constant(m *ir.Module, name string) int {
	for _, x := range m.Metadata {
		if x.Name == name && len(x.Values) == 1 {
			v, _ := x.Values[0].(int64)
			return int(v)
		}
	}
	return 0
}
