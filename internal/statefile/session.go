package statefile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
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

// WriteSession writes a conversation to a file.
func WriteSession(path string, of Owner, s *chat.Saved) error {
	entries, metadata, err := encodeSession(of, s)
	if err != nil {
		return err
	}
	return outfile.Write(path, sessionOptions(of),
		func(w io.Writer) error { return safetensors.Write(w, entries, metadata) })
}

// CheckSession refuses a name under which a session cannot be written, as that of a file of another kind.
func CheckSession(path string, of Owner) error { return outfile.Check(path, sessionOptions(of)) }

// sessionOptions returns the options for writing a session file.
func sessionOptions(of Owner) outfile.Options {
	return outfile.Options{Kind: outfile.Session, Inputs: []string{of.File}, Private: true}
}

// LockSession locks a session file against other processes until unlock is called: of two that continue one chat, each
// would lose the other's turns.
func LockSession(path string) (unlock func() error, err error) {
	if _, err := os.Stat(path); err == nil {
		if err := checkIsSession(path); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, err // to be told before the answer that it cannot be kept
	}
	unlock, err = outfile.Lock(path)
	if errors.Is(err, outfile.ErrLocked) {
		return nil, fmt.Errorf("%s: another etc run goes on with this chat; end it first, or go on with a copy "+
			"of the file", path)
	}
	return unlock, err
}

// encodeSession returns the tensors and the metadata of a session file.
func encodeSession(of Owner, saved *chat.Saved) ([]safetensors.Entry, map[string]string, error) {
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
	metadata := map[string]string{sessionMessages: string(messages), sessionProgram: of.Program,
		sessionPrecision: of.Precision}
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
		return kind.Invalidf("%s has no checksum, as older versions of etc wrote it, so that damage would "+
			"not show; begin another session", f.Path())
	}
	return kind.Invalidf("%s is damaged: its content has the checksum %.12s…, expected %.12s…; go on from "+
		"a copy, or begin another session", f.Path(), sum, meta[sessionChecksum])
}

func tokensEntry(name string, tokens []int) safetensors.Entry {
	ids := make([]int64, len(tokens))
	for i, v := range tokens {
		ids[i] = int64(v)
	}
	return tensorfile.Entry(name, eval.Value{Tensor: eval.Ints(ir.I64, []int{len(ids)}, ids)})
}

func stateEntry(prefix string, s engine.State) safetensors.Entry {
	t := s.Tensor
	if t.DType.IsFloat() {
		t = eval.Floats(ir.F32, t.Shape, t.F)
	}
	return tensorfile.Entry(prefix+s.Buffer, eval.Value{Tensor: t})
}

// sameElements compares the bits of two tensors of one type.
func sameElements(a, b *eval.Tensor) bool {
	return slices.Equal(a.I, b.I) && slices.EqualFunc(a.F, b.F,
		func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// checkIsSession refuses what is a file of another kind, by its first bytes.
func checkIsSession(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return kind.Invalidf("%s: expected a regular file with a session that etc run has kept, found none",
			path)
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
	return kind.Invalidf("%s: expected a session that etc run has kept, found %s; give another name "+
		"to begin one", path, found)
}

// ReadSession reads a conversation from a file, for a model of the program that it belongs to.
func ReadSession(path string, of Owner, m *session.Model) (*chat.Saved, error) {
	if err := checkIsSession(path); err != nil {
		return nil, err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	meta := f.Metadata()
	if meta[sessionProgram] != of.Program {
		return nil, kind.Invalidf("%s is no session of the program %s", path, of.File)
	}
	if p := meta[sessionPrecision]; p != of.Precision {
		return nil, kind.Usagef("%s holds the state of a run with Options.Precision %s, which cannot go on with "+
			"Options.Precision %s",
			path, p, of.Precision)
	}
	saved := &chat.Saved{}
	if err := json.Unmarshal([]byte(meta[sessionMessages]), &saved.Messages); err != nil {
		return nil, kind.Invalidf("%s: the messages in its metadata: %w", path, err)
	}
	if saved.State, err = readSnapshot(f, "", m.Buffers(), nil); err != nil {
		return nil, kind.Of(kind.ErrInvalid, err)
	}
	if _, ok := f.Tensor(sessionBase + sessionTokens); ok {
		if saved.Base, err = readSnapshot(f, sessionBase, m.Buffers(), saved.State.States); err != nil {
			return nil, kind.Of(kind.ErrInvalid, err)
		}
	}
	if err := m.CheckSnapshot(saved.State); err != nil {
		return nil, kind.Invalidf("%s: %w", path, err)
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
	ids, err := tensorfile.Read(f, name)
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
		d, known := tensorfile.DType(t.DType)
		if !known || d != stored || !slices.EqualFunc(t.Shape, dims,
			func(a int, b int64) bool { return int64(a) == b }) {
			return nil, fmt.Errorf("%s: tensor %q is %s%v, want %s%v: a state of another form "+
				"(Options.KVCache, Options.State) or program",
				f.Path(), name, t.DType, t.Shape, stored, dims)
		}
	}
	v, err := tensorfile.Read(f, name)
	if err != nil {
		return nil, err
	}
	v.DType = want.DType
	return v, nil
}
