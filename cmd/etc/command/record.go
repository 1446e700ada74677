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
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
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

// sourceRecord is a tensor of the checkpoint and the SHA-256 of its bytes.
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

// toolVersion is the version that files record. It changes with what export writes, not with every build:
// the same input and flags give the same bytes whoever built the tool.
const toolVersion = "etc 0.1.0"

// newFile puts a module and what belongs to it in a file: tokenizer, template, configuration, record.
func newFile(c *loaders.Checkpoint, m *ir.Module, o *passes.Options, f exportFlags) (codegen.File, error) {
	file := codegen.File{Module: m}
	model := c.Model
	for _, x := range []codegen.NamedBytes{
		{Key: keyTokenizer, Bytes: model.Files.Tokenizer},
		{Key: keyTokenizerConfig, Bytes: model.Files.TokenizerConfig},
		{Key: keyChatTemplate, Bytes: []byte(model.ChatTemplate)},
		{Key: keyGenerationConfig, Bytes: model.Files.GenerationConfig},
		{Key: keyConfig, Bytes: model.Files.Config},
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
		unknown := sourceRecord{s.Name, hex.EncodeToString(make([]byte, sha256.Size))}
		if s.Draft {
			record.Draft.Sources = append(record.Draft.Sources, unknown)
		} else {
			record.Sources = append(record.Sources, unknown)
		}
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

// recordWithHashes is the record of a file with the hashes of the sources as fields to be computed.
func recordWithHashes(record buildRecord, sources []loaders.Source) (*codegen.Record, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	r := &codegen.Record{Key: keyBuild, Bytes: text}
	// No string of JSON holds a quotation mark as it is, so this finds the keys and nothing else.
	const key = `"sha256":"`
	at := 0
	for _, s := range sources {
		next := bytes.Index(text[at:], []byte(key))
		if next < 0 {
			return nil, fmt.Errorf("%s: no hash for tensor %s", keyBuild, s.Name)
		}
		at += next + len(key)
		r.Fields = append(r.Fields, codegen.Field{Offset: at, Size: hex.EncodedLen(sha256.Size), Work: s.Size, Reads: s.Provenance(),
			Make: func(ctx context.Context) ([]byte, error) {
				hash, err := hashSource(ctx, s)
				return []byte(hash), err
			}})
	}
	return r, nil
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
