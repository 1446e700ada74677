package command

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

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
// exactly.
const (
	sessionTokens    = "tokens"
	sessionBuffer    = "buffer."
	sessionBase      = "base." // before the names of what is from before the last answer
	sessionMessages  = "etc.messages"
	sessionProgram   = "etc.program"
	sessionPrecision = "etc.precision"
)

// programID tells programs apart: a hash of the names, sizes and first bytes of all named data, and of the
// build record, which has the hashes of what the weights were made of.
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
	saved, err := c.Save()
	if err != nil {
		return err
	}
	messages, err := json.Marshal(saved.Messages)
	if err != nil {
		return err
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
	return safetensors.WriteFile(path, entries, map[string]string{sessionMessages: string(messages), sessionProgram: t.program(), sessionPrecision: t.precision})
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
	return slices.Equal(a.I, b.I) && slices.EqualFunc(a.F, b.F, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// loadSession goes on with the conversation of a file. After an error the one before goes on.
func loadSession(path string, t *text, m *session.Model, c *chat.Conversation) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	meta := f.Metadata()
	if meta[sessionProgram] != t.program() {
		return invalidError{fmt.Errorf("%s is no session of the program %s", path, t.file)}
	}
	if p := meta[sessionPrecision]; p != t.precision {
		return usagef("%s holds the state of a run with --precision %s, which cannot go on with --precision %s", path, p, t.precision)
	}
	saved := &chat.Saved{}
	if err := json.Unmarshal([]byte(meta[sessionMessages]), &saved.Messages); err != nil {
		return invalidError{fmt.Errorf("%s: the messages in its metadata: %w", path, err)}
	}
	if saved.State, err = readSnapshot(f, "", m.Buffers(), nil); err != nil {
		return invalidError{err}
	}
	if _, ok := f.Tensor(sessionBase + sessionTokens); ok {
		if saved.Base, err = readSnapshot(f, sessionBase, m.Buffers(), saved.State.States); err != nil {
			return invalidError{err}
		}
	}
	if err := c.Load(saved); err != nil {
		return invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	return nil
}

// readSnapshot reads the tokens and buffers of a prefix; buffers that are not there are those of otherwise.
func readSnapshot(f *safetensors.File, prefix string, buffers []*ir.Buffer, otherwise []engine.State) (*session.Snapshot, error) {
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
		if !known || d != stored || !slices.EqualFunc(t.Shape, dims, func(a int, b int64) bool { return int64(a) == b }) {
			return nil, fmt.Errorf("%s: tensor %q is %s%v, want %s%v", f.Path(), name, t.DType, t.Shape, stored, dims)
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
