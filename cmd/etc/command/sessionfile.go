package command

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// A session file is a safetensors file: the tokens, every buffer of the program, and as metadata the
// messages and the program that they belong to. Floats are stored as float32, which holds every
// precision exactly.
const (
	sessionTokens   = "tokens"
	sessionBuffer   = "buffer."
	sessionMessages = "etc.messages"
	sessionProgram  = "etc.program"
)

// programID tells programs apart: a hash of the names and sizes of all named data and of the build record.
func programID(p *program.Program) string {
	h := sha256.New()
	segments := p.File.Segments()
	for _, n := range p.File.NamedData() {
		fmt.Fprintf(h, "%q %d\n", n.Key, segments[n.Segment].Size)
	}
	record, _ := p.File.Lookup(keyBuild)
	h.Write(record)
	return hex.EncodeToString(h.Sum(nil))
}

func saveSession(path string, t *text, s *session.Session, c *chat.Conversation) error {
	snapshot, err := s.Snapshot()
	if err != nil {
		return err
	}
	messages, err := json.Marshal(c.Messages())
	if err != nil {
		return err
	}
	ids := make([]int64, len(snapshot.Tokens))
	for i, v := range snapshot.Tokens {
		ids[i] = int64(v)
	}
	entries := []safetensors.Entry{entryOf(sessionTokens, eval.Value{Tensor: eval.Ints(ir.I64, []int{len(ids)}, ids)})}
	for _, b := range snapshot.States {
		v := b.Tensor
		if v.DType.IsFloat() {
			v = eval.Floats(ir.F32, v.Shape, v.F)
		}
		entries = append(entries, entryOf(sessionBuffer+b.Buffer, eval.Value{Tensor: v}))
	}
	return safetensors.WriteFile(path, entries, map[string]string{sessionMessages: string(messages), sessionProgram: t.program})
}

func loadSession(path string, t *text, s *session.Session, c *chat.Conversation) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	meta := f.Metadata()
	if meta[sessionProgram] != t.program {
		return invalidError{fmt.Errorf("%s is a session of another program than %s", path, t.file)}
	}
	var messages []chat.Message
	if err := json.Unmarshal([]byte(meta[sessionMessages]), &messages); err != nil {
		return invalidError{fmt.Errorf("%s: the messages in its metadata: %w", path, err)}
	}
	current, err := s.Snapshot()
	if err != nil {
		return err
	}
	next := &session.Snapshot{}
	tokens, err := readTensor(f, sessionTokens)
	if err != nil {
		return invalidError{err}
	}
	for _, v := range tokens.I {
		next.Tokens = append(next.Tokens, int(v))
	}
	for _, b := range current.States {
		v, err := readTensor(f, sessionBuffer+b.Buffer)
		if err != nil {
			return invalidError{err}
		}
		if v.DType == ir.F32 && b.Tensor.DType.IsFloat() {
			v.DType = b.Tensor.DType
		}
		next.States = append(next.States, engine.State{Buffer: b.Buffer, Tensor: v})
	}
	if err := s.Restore(next); err != nil {
		return invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	c.SetMessages(messages)
	return nil
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
		return nil, fmt.Errorf("%s: tensor %q: %w", f.Path(), name, errors.Join(err))
	}
	v, err := eval.Decode(d, t.Shape, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", f.Path(), name, err)
	}
	return v, nil
}

// statsLine describes the speed of an answer.
func statsLine(prompt int, a session.Answer, seed int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "prompt %d tokens, %.1f tokens/s; answer %d tokens, %.1f tokens/s", prompt, perSecond(prompt, a.PrefillTime.Seconds()),
		len(a.Tokens), perSecond(a.Decoded, a.DecodeTime.Seconds()))
	if peak := peakMemory(); peak > 0 {
		fmt.Fprintf(&b, "; peak memory %d MiB", peak>>20)
	}
	fmt.Fprintf(&b, "; seed %d", seed)
	return b.String()
}
