package command

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
)

// A slot file is a safetensors file with the state behind a prefix of tokens: the tokens, a tensor for each buffer of the
// program, exactly as the server holds it, and as metadata the program, the precision and the form of the state. A checksum
// in the metadata covers all of it. Only its owner can read the file.
const (
	slotForm    = "etc.slot.form"    // batch.Kept.Form
	slotBuffers = "etc.slot.buffers" // JSON: the names of the buffers and their dtypes, in order
)

// slotKeys are the metadata that the checksum covers.
var slotKeys = []string{slotForm, slotBuffers, sessionProgram, sessionPrecision}

// slotBuffer is a buffer of a state as the metadata has it.
type slotBuffer struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
}

// slotFolder keeps the states of a program in a folder; it is a serve.Slots.
type slotFolder struct {
	dir, model, program, precision string
	file                           string // of the program
}

// checkSlotDir refuses a folder that is none.
func checkSlotDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("--slot-dir: %w", err)
	case !info.IsDir():
		return usagef("--slot-dir %s: it is a file, want a folder", dir)
	}
	return nil
}

func (s *slotFolder) path(name string) string { return filepath.Join(s.dir, s.model+"."+name+".slot") }

// Save implements serve.Slots.
func (s *slotFolder) Save(name string, kept *batch.Kept) (int64, error) {
	ids := make([]int64, len(kept.Tokens))
	for i, t := range kept.Tokens {
		ids[i] = int64(t)
	}
	entries := []safetensors.Entry{entryOf(sessionTokens, eval.Value{Tensor: eval.Ints(ir.I64, []int{len(ids)}, ids)})}
	var buffers []slotBuffer
	for _, state := range kept.States {
		buffers = append(buffers, slotBuffer{state.Buffer, state.Tensor.DType.String()})
		entries = append(entries, s.entry(state))
	}
	list, err := json.Marshal(buffers)
	if err != nil {
		return 0, err
	}
	metadata := map[string]string{slotForm: kept.Form, slotBuffers: string(list), sessionProgram: s.program,
		sessionPrecision: s.precision}
	sum := slotSum(metadata)
	slices.SortFunc(entries, func(a, b safetensors.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		sumHead(sum, e.Name, e.DType, e.Shape)
		if err := e.Data(sum); err != nil {
			return 0, err
		}
	}
	metadata[sessionChecksum] = hex.EncodeToString(sum.Sum(nil))
	counted := &counter{}
	err = outfile.Write(s.path(name), outfile.Options{Kind: outfile.Session, Inputs: []string{s.file}, Private: true},
		func(w io.Writer) error { return safetensors.Write(io.MultiWriter(w, counted), entries, metadata) })
	return counted.n, err
}

// entry is the tensor of a buffer: of the precision that keeps float32 in every buffer as float32, else in the buffer's own
// dtype, which holds it exactly.
func (s *slotFolder) entry(state engine.State) safetensors.Entry {
	t := state.Tensor
	if s.precision == "fp32" && t.DType.IsFloat() {
		t = eval.Floats(ir.F32, t.Shape, t.F)
	}
	i := slices.IndexFunc(dtypes, func(x struct {
		ir   ir.DType
		file safetensors.DType
	}) bool {
		return x.ir == t.DType
	})
	return safetensors.Entry{Name: sessionBuffer + state.Buffer, DType: dtypes[i].file, Shape: t.Shape,
		Data: func(w io.Writer) error { _, err := w.Write(t.Encode()); return err }}
}

// counter counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// slotSum begins a checksum with the metadata.
func slotSum(metadata map[string]string) hash.Hash {
	h := sha256.New()
	for _, key := range slotKeys {
		fmt.Fprintf(h, "%q %q\n", key, metadata[key])
	}
	return h
}

// sumHead adds what stands in front of the bytes of a tensor.
func sumHead(h hash.Hash, name string, d safetensors.DType, shape []int) {
	fmt.Fprintf(h, "%q %s %v\n", name, d, shape)
}

// regular gives the size of a file in bytes, and refuses a name that is no regular file.
func (s *slotFolder) regular(name string) (int64, error) {
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
func (s *slotFolder) Erase(name string) error {
	if _, err := s.regular(name); err != nil {
		return err
	}
	return outfile.Remove(s.path(name))
}

// Load implements serve.Slots. Every byte is read once: while the checksum is taken, tensors that were read are decoded.
func (s *slotFolder) Load(name string) (*batch.Kept, int64, error) {
	path := s.path(name)
	size, err := s.regular(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	meta := f.Metadata()
	var buffers []slotBuffer
	if err := json.Unmarshal([]byte(meta[slotBuffers]), &buffers); err != nil {
		return nil, 0, fmt.Errorf("%s: it is no state that etc serve has saved", path)
	}
	if meta[sessionProgram] != s.program {
		return nil, 0, fmt.Errorf("%s: it is the state of another program than %s", path, s.file)
	}
	if p := meta[sessionPrecision]; p != s.precision {
		return nil, 0, fmt.Errorf("%s: it is the state of a server with --precision %s, which cannot go on with %s", path, p, s.precision)
	}
	tensors, err := readSummed(f)
	if err != nil {
		return nil, 0, err
	}
	kept := &batch.Kept{Form: meta[slotForm]}
	for _, b := range buffers {
		t := tensors[sessionBuffer+b.Name]
		d, ok := dtypeNamed(b.DType)
		if t == nil || !ok || t.DType != d && (t.DType != ir.F32 || !d.IsFloat()) {
			return nil, 0, fmt.Errorf("%s: the tensor of buffer %q is missing or no %s", path, b.Name, b.DType)
		}
		t.DType = d
		kept.States = append(kept.States, engine.State{Buffer: b.Name, Tensor: t})
	}
	ids := tensors[sessionTokens]
	if ids == nil || ids.DType != ir.I64 {
		return nil, 0, fmt.Errorf("%s: it has no tokens", path)
	}
	for _, id := range ids.I {
		if id < 0 || id > math.MaxInt32 {
			return nil, 0, fmt.Errorf("%s: %d is no token id", path, id)
		}
		kept.Tokens = append(kept.Tokens, int32(id))
	}
	return kept, size, nil
}

// readSummed reads all tensors of a file and holds its content against the checksum.
func readSummed(f *safetensors.File) (map[string]*eval.Tensor, error) {
	list := slices.SortedFunc(slices.Values(f.Tensors()), func(a, b *safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	out := make([]*eval.Tensor, len(list))
	meta := f.Metadata()
	sum := slotSum(meta)
	var decode errgroup.Group
	for i, t := range list {
		d, ok := dtypeOf(t.DType)
		if !ok {
			return nil, fmt.Errorf("%s: tensor %q is %s", f.Path(), t.Name, t.DType)
		}
		raw := make([]byte, t.Size())
		if n, err := t.ReadAt(raw, 0); n < len(raw) {
			return nil, fmt.Errorf("%s: tensor %q: %d of %d bytes can be read: %w", f.Path(), t.Name, n, len(raw), err)
		}
		decode.Go(func() (err error) { out[i], err = eval.Decode(d, t.Shape, raw); return err })
		sumHead(sum, t.Name, t.DType, t.Shape)
		sum.Write(raw) //nolint:errcheck // a hash takes everything
	}
	err := decode.Wait()
	if found := hex.EncodeToString(sum.Sum(nil)); err == nil && found != meta[sessionChecksum] {
		err = fmt.Errorf("%s is damaged: its content has the checksum %.12s…, expected %.12s…", f.Path(), found, meta[sessionChecksum])
	}
	if err != nil {
		return nil, err
	}
	tensors := map[string]*eval.Tensor{}
	for i, t := range list {
		tensors[t.Name] = out[i]
	}
	return tensors, nil
}

// dtypeNamed is the dtype of a name.
func dtypeNamed(name string) (ir.DType, bool) {
	for _, x := range dtypes {
		if x.ir.String() == name {
			return x.ir, true
		}
	}
	return 0, false
}

// slots gives the folder of states of a file.
func (s *servedFile) slots(program string) *slotFolder {
	return &slotFolder{dir: s.flags.slotDir, model: strings.TrimSuffix(filepath.Base(s.path), ".pte"), program: program,
		precision: s.flags.model.precision, file: s.path}
}
