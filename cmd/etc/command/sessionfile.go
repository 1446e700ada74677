package command

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// A session file is a safetensors file: the tokens, every buffer of the program, both also from before the
// last answer (of the buffers those that differ), and as metadata the messages, the program that they belong
// to and the precision that computed the state. Floats are stored as float32, which holds every precision
// exactly. A checksum in the metadata covers all of it. Only its owner can read the file.
const (
	sessionTokens    = "tokens"
	sessionBuffer    = "buffer."
	sessionBase      = "base." // before the names of what is from before the last answer
	sessionMessages  = "etc.messages"
	sessionProgram   = "etc.program"
	sessionPrecision = "etc.precision"
	sessionChecksum  = "etc.checksum" // SHA-256 of the rest, in hexadecimal
)

// programID identifies a program: a hash of the names, sizes and first bytes of all named data, and of the build
// record, which has the hashes of the weights' sources.
func programID(p *program.Program) string {
	h := sha256.New()
	for _, n := range p.File.NamedData() {
		b, _ := p.File.Lookup(n.Key)
		fmt.Fprintf(h, "%q %d\n", n.Key, len(b))
		h.Write(b[:min(len(b), 1024)])
	}
	record, _ := p.File.Lookup(keyBuild)
	h.Write(record)
	return hex.EncodeToString(h.Sum(nil))
}

// saveSession writes a conversation to a file.
func saveSession(path string, t *text, c *chat.Conversation) error {
	_, err := keepSession(path, t, c)
	return err
}

// sessionOptions returns the options for writing a session file.
func sessionOptions(t *text) outfile.Options {
	return outfile.Options{Kind: outfile.Session, Inputs: []string{t.File}, Private: true}
}

// keepSession writes a conversation to a file and returns the saved state.
func keepSession(path string, t *text, c *chat.Conversation) (*chat.Saved, error) {
	saved, err := c.Save()
	if err != nil {
		return nil, err
	}
	entries, metadata, err := encodeSession(t, saved)
	if err != nil {
		return nil, err
	}
	return saved, outfile.Write(path, sessionOptions(t),
		func(w io.Writer) error { return safetensors.Write(w, entries, metadata) })
}

// encodeSession returns the tensors and the metadata of a session file.
func encodeSession(t *text, saved *chat.Saved) ([]safetensors.Entry, map[string]string, error) {
	messages, err := json.Marshal(saved.Messages)
	if err != nil {
		return nil, nil, err
	}
	entries := []safetensors.Entry{tokensEntry(sessionTokens, saved.State.Tokens)}
	for _, s := range saved.State.States {
		entries = append(entries, stateEntry(sessionBuffer, s))
	}
	if saved.Base != nil {
		entries = append(entries, tokensEntry(sessionBase+sessionTokens, saved.Base.Tokens))
		for i, s := range saved.Base.States {
			if !sameElements(s.Tensor, saved.State.States[i].Tensor) {
				entries = append(entries, stateEntry(sessionBase+sessionBuffer, s))
			}
		}
	}
	metadata := map[string]string{sessionMessages: string(messages), sessionProgram: t.program(),
		sessionPrecision: t.precision}
	metadata[sessionChecksum], err = checksum(entries, metadata)
	return entries, metadata, err
}

// checksum returns the SHA-256 of the tensors of a session, in the order of their names, and of its metadata.
func checksum(entries []safetensors.Entry, metadata map[string]string) (string, error) {
	h := sha256.New()
	for _, key := range []string{sessionMessages, sessionProgram, sessionPrecision} {
		fmt.Fprintf(h, "%q %q\n", key, metadata[key])
	}
	sorted := slices.SortedFunc(slices.Values(entries),
		func(a, b safetensors.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range sorted {
		fmt.Fprintf(h, "%q %s %v\n", e.Name, e.DType, e.Shape)
		if err := e.Data(h); err != nil {
			return "", fmt.Errorf("tensor %q: %w", e.Name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkSum holds the content of a session file against its checksum.
func checkSum(f *safetensors.File) error {
	meta := f.Metadata()
	var entries []safetensors.Entry
	for _, t := range f.Tensors() {
		entries = append(entries, safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape,
			Data: safetensors.From(io.NewSectionReader(t, 0, t.Size()))})
	}
	sum, err := checksum(entries, meta)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path(), err)
	}
	switch meta[sessionChecksum] {
	case sum:
		return nil
	case "":
		return invalidError{fmt.Errorf("%s has no checksum, as older versions of etc wrote it, so that damage would "+
			"not show; begin another session", f.Path())}
	}
	return invalidError{fmt.Errorf("%s is damaged: its content has the checksum %.12s…, expected %.12s…; go on from "+
		"a copy, or begin another session", f.Path(), sum, meta[sessionChecksum])}
}

func tokensEntry(name string, tokens []int) safetensors.Entry {
	ids := make([]int64, len(tokens))
	for i, v := range tokens {
		ids[i] = int64(v)
	}
	return entryOf(name, eval.Value{Tensor: eval.Ints(ir.I64, []int{len(ids)}, ids)})
}

func stateEntry(prefix string, s engine.State) safetensors.Entry {
	t := s.Tensor
	if t.DType.IsFloat() {
		t = eval.Floats(ir.F32, t.Shape, t.F)
	}
	return entryOf(prefix+s.Buffer, eval.Value{Tensor: t})
}

// sameElements compares the bits of two tensors of one type.
func sameElements(a, b *eval.Tensor) bool {
	return slices.Equal(a.I, b.I) && slices.EqualFunc(a.F, b.F,
		func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// loadSession replaces the conversation c by the one of a session file. After an error c is as it was.
func loadSession(path string, t *text, m *session.Model, c *chat.Conversation) error {
	_, err := readSession(path, t, m, c)
	return err
}

// readSession is loadSession that also returns what it has read.
func readSession(path string, t *text, m *session.Model, c *chat.Conversation) (*chat.Saved, error) {
	saved, err := decodeSession(path, t, m)
	if err != nil {
		return nil, err
	}
	if err := c.Load(saved); err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	return saved, nil
}

// checkIsSession refuses what is a file of another kind, by its first bytes.
func checkIsSession(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return invalidError{fmt.Errorf("%s: expected a regular file with a session that etc run has kept, found none",
			path)}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return err
	}
	found := string(outfile.KindOf(head))
	switch {
	case len(head) == 0:
		found = "an empty file"
	case found == string(outfile.Session):
		return nil
	case found == string(outfile.Other):
		found = "a file " + found
	}
	return invalidError{fmt.Errorf("%s: expected a session that etc run has kept, found %s; give another name "+
		"to begin one", path, found)}
}

// decodeSession reads a session file for a model of a program.
func decodeSession(path string, t *text, m *session.Model) (*chat.Saved, error) {
	if err := checkIsSession(path); err != nil {
		return nil, err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	meta := f.Metadata()
	if meta[sessionProgram] != t.program() {
		return nil, invalidError{fmt.Errorf("%s is no session of the program %s", path, t.File)}
	}
	if p := meta[sessionPrecision]; p != t.precision {
		return nil, usagef("%s holds the state of a run with --precision %s, which cannot go on with --precision %s",
			path, p, t.precision)
	}
	saved := &chat.Saved{}
	if err := json.Unmarshal([]byte(meta[sessionMessages]), &saved.Messages); err != nil {
		return nil, invalidError{fmt.Errorf("%s: the messages in its metadata: %w", path, err)}
	}
	if saved.State, err = readSnapshot(f, "", m.Buffers(), nil); err != nil {
		return nil, invalidError{err}
	}
	if _, ok := f.Tensor(sessionBase + sessionTokens); ok {
		if saved.Base, err = readSnapshot(f, sessionBase, m.Buffers(), saved.State.States); err != nil {
			return nil, invalidError{err}
		}
	}
	if err := m.CheckSnapshot(saved.State); err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	return saved, checkSum(f)
}

// readSnapshot reads the tokens and buffers whose names start with prefix. Buffers that are missing are taken from
// otherwise.
func readSnapshot(f *safetensors.File, prefix string, buffers []*ir.Buffer,
	otherwise []engine.State) (*session.Snapshot, error) {
	out := &session.Snapshot{}
	name := prefix + sessionTokens
	if t, ok := f.Tensor(name); ok && (t.DType != safetensors.I64 || len(t.Shape) != 1) {
		return nil, fmt.Errorf("%s: tensor %q is %s%v, want I64 of one dim", f.Path(), name, t.DType, t.Shape)
	}
	ids, err := readTensor(f, name)
	if err != nil {
		return nil, err
	}
	for i, id := range ids.I {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("%s: tensor %q: element %d is %d, which is no token id", f.Path(), name, i, id)
		}
		out.Tokens = append(out.Tokens, int(id))
	}
	for i, b := range buffers {
		state := engine.State{Buffer: b.Name}
		if _, ok := f.Tensor(prefix + sessionBuffer + b.Name); !ok && otherwise != nil {
			state = otherwise[i]
		} else if state.Tensor, err = readBuffer(f, prefix+sessionBuffer+b.Name, b.Type); err != nil {
			return nil, err
		}
		out.States = append(out.States, state)
	}
	return out, nil
}

// readBuffer reads the content of a buffer, which must have the buffer's type.
func readBuffer(f *safetensors.File, name string, want ir.Type) (*eval.Tensor, error) {
	dims, _ := want.Static()
	stored := want.DType
	if stored.IsFloat() {
		stored = ir.F32
	}
	if t, ok := f.Tensor(name); ok {
		d, known := dtypeOf(t.DType)
		if !known || d != stored || !slices.EqualFunc(t.Shape, dims,
			func(a int, b int64) bool { return int64(a) == b }) {
			return nil, fmt.Errorf("%s: tensor %q is %s%v, want %s%v: a state of another form (--kv-cache, "+
				"--state) or program",
				f.Path(), name, t.DType, t.Shape, stored, dims)
		}
	}
	v, err := readTensor(f, name)
	if err != nil {
		return nil, err
	}
	v.DType = want.DType
	return v, nil
}

// readTensor reads a whole tensor of a safetensors file.
func readTensor(f *safetensors.File, name string) (*eval.Tensor, error) {
	t, ok := f.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("%s: no tensor %q", f.Path(), name)
	}
	d, ok := dtypeOf(t.DType)
	if !ok {
		return nil, fmt.Errorf("%s: tensor %q is %s", f.Path(), name, t.DType)
	}
	raw := make([]byte, t.Size())
	if n, err := t.ReadAt(raw, 0); n < len(raw) {
		return nil, fmt.Errorf("%s: tensor %q: %d of %d bytes can be read: %w", f.Path(), name, n, len(raw), err)
	}
	v, err := eval.Decode(d, t.Shape, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", f.Path(), name, err)
	}
	return v, nil
}
