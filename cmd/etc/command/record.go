package command

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
	"github.com/etc-ml/etc/runtime/report"
)

// buildRecord says how a file was made: who made it, of what, by which rules.
type buildRecord struct {
	Tool         string         `json:"tool"`
	Architecture string         `json:"architecture"`
	Recipe       string         `json:"recipe"`
	Rules        []string       `json:"rules"` // the recipe's text, a line each
	Options      recordOptions  `json:"options"`
	Sources      []sourceRecord `json:"sources"`
	Draft        *draftRecord   `json:"draft,omitempty"`
	// Stored are the named data of the file, and the program ([codegen.StoredProgram]), each with the hash of its bytes.
	// Records of the first versions have none.
	Stored []sourceRecord `json:"stored,omitempty"`
	// Calibration is nil where no weight was chosen by a text.
	Calibration *calibrationRecord `json:"calibration,omitempty"`
}

type recordOptions struct {
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

// sourceRecord is a tensor of the checkpoint, or a piece of the file, and the SHA-256 of its bytes.
type sourceRecord struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// write prints the record for people: the hashes are in --json.
func (r *buildRecord) write(out io.Writer) error {
	if r == nil {
		return nil
	}
	o, sources, draft := r.Options, len(r.Sources), ""
	if r.Draft != nil {
		sources, draft = sources+len(r.Draft.Sources), ", draft "+r.Draft.Kind
	}
	_, err := fmt.Fprintf(out, "build      %s; %s%s; recipe %s, qlinear %s, qembedding %s, groups of %d, method %s; hashes of %d source tensors\n",
		r.Tool, r.Architecture, draft, r.Recipe, o.Linear, o.Embedding, o.GroupSize, o.Method, sources)
	if err == nil && r.Calibration != nil {
		err = r.Calibration.write(out)
	}
	return err
}

// figures are the quality card for a page, none where no text chose a weight.
func (r *buildRecord) figures() []report.Figure {
	if r == nil || r.Calibration == nil {
		return nil
	}
	return qualityFigures(r.Calibration.Quality, "what was held out of "+r.Calibration.Text)
}

// toolVersion is the version that files record.
const toolVersion = version.Tool

// newFile puts a module and what belongs to it in a file: tokenizer, template, configuration, record.
func newFile(c *loaders.Checkpoint, m *ir.Module, o *passes.Options, f exportFlags) (codegen.File, error) {
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
	record := buildRecord{Tool: toolVersion, Architecture: c.Architecture(), Recipe: o.Recipe.Name, Rules: o.Recipe.Lines(), Options: recordOptions{
		Backend: f.backend, Linear: f.linear, GroupSize: f.group, Embedding: f.embedding, EmbeddingGroupSize: f.embeddingGroup, Method: f.method,
		Sample: f.sample, Portable: f.portable, MaxSeqLen: constantOf(m, "get_max_seq_len"), MaxPrefillChunk: constantOf(m, "get_max_prefill_chunk")}}
	record.Calibration = f.calibration.record()
	if kind := c.Draft(); kind != "" {
		record.Draft = &draftRecord{Kind: kind}
	}
	for _, s := range c.Sources() {
		if s.Draft {
			record.Draft.Sources = append(record.Draft.Sources, unknownHash(s.Name))
		} else {
			record.Sources = append(record.Sources, unknownHash(s.Name))
		}
	}
	for _, key := range storedNames(file) {
		record.Stored = append(record.Stored, unknownHash(key))
	}
	// The hashes have a fixed size, so the record's is known before a weight is read.
	var err error
	file.Record, err = recordWithHashes(record, c.Sources())
	if err != nil {
		return file, err
	}
	if file.Identity, err = identityOf(record, c); err != nil {
		return file, err
	}
	for _, s := range c.Sources() {
		if path, offset, ok := s.Place(); ok {
			file.Inputs = append(file.Inputs, codegen.Input{Provenance: s.Provenance(), Path: path, Offset: offset, Size: s.Size})
		}
	}
	return file, nil
}

// storedNames are what a record has hashes of beside the sources.
func storedNames(f codegen.File) []string {
	return append(codegen.StoredKeys(f), codegen.StoredProgram)
}

// unknownHash is a record of a name whose hash is to be computed.
func unknownHash(name string) sourceRecord {
	return sourceRecord{name, hex.EncodeToString(make([]byte, sha256.Size))}
}

// recordWithHashes is the record of a file with the hashes of the sources and of what is stored as fields to be computed.
func recordWithHashes(record buildRecord, sources []loaders.Source) (*codegen.Record, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	places := hashPlaces(text)
	if len(places) != len(sources)+len(record.Stored) {
		return nil, fmt.Errorf("%s: places for %d hashes, want %d of tensors and %d of what is stored", keyBuild, len(places), len(sources), len(record.Stored))
	}
	r := &codegen.Record{Key: keyBuild, Bytes: text}
	for i, s := range sources {
		r.Fields = append(r.Fields, codegen.Field{Offset: places[i], Size: hex.EncodedLen(sha256.Size), Work: s.Size, Reads: s.Provenance(),
			Make: func(ctx context.Context) ([]byte, error) {
				hash, err := hashSource(ctx, s)
				return []byte(hash), err
			}})
	}
	r.Fields = append(r.Fields, storedFields(record, places)...)
	return r, nil
}

// hashPlaces are where the hashes of a record stand in its text, in their order: those of the sources, of a draft's
// sources, of what is stored.
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

// storedFields are the hashes of what is stored, the last of a record's.
func storedFields(record buildRecord, places []int) (fields []codegen.Field) {
	places = places[len(places)-len(record.Stored):]
	for i, s := range record.Stored {
		fields = append(fields, codegen.Field{Offset: places[i], Size: hex.EncodedLen(sha256.Size), Of: s.Name})
	}
	return fields
}

// recordOfText is the record of a program that is written from a text, with what another file stores: that file's, with
// hashes of what will be stored. It is nil for a record that is to stay as it is: one without such hashes, or one that
// this version would not have written.
func recordOfText(text []byte, f codegen.File) (*codegen.Record, error) {
	record, err := parseRecord(text)
	if err != nil || len(record.Stored) == 0 {
		return nil, nil // etc verify says what is wrong with it
	}
	if again, err := json.Marshal(record); err != nil || !bytes.Equal(again, text) {
		return nil, err
	}
	record.Stored = nil
	for _, key := range storedNames(f) {
		record.Stored = append(record.Stored, unknownHash(key))
	}
	if text, err = json.Marshal(record); err != nil {
		return nil, err
	}
	return &codegen.Record{Key: keyBuild, Bytes: text, Fields: storedFields(*record, hashPlaces(text))}, nil
}

// hashBuffer is how much of a source is read at a time.
const hashBuffer = 1 << 20

// hashSource computes the SHA-256 of a source tensor, in hexadecimal.
func hashSource(ctx context.Context, s loaders.Source) (string, error) {
	h := sha256.New()
	// Only Reader and Writer are shown to CopyBuffer, so that it uses the buffer.
	if n, err := io.CopyBuffer(h, struct{ io.Reader }{interruptible{ctx, s.Reader()}}, make([]byte, hashBuffer)); err != nil {
		return "", fmt.Errorf("tensor %s: %w", s.Name, err)
	} else if n != s.Size {
		return "", fmt.Errorf("tensor %s: read %d of %d bytes", s.Name, n, s.Size)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// interruptible is a reader that ends with its context.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
