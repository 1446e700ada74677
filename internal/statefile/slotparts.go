package statefile

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/batch"
)

// This file writes and reads the parts of slot files, several at a time: see slot.go.

// sumSize is the size of a checksum in bytes.
const sumSize = 8

// appendRest appends the checksum of what is no part: the checksums of the parts, the metadata and the tokens.
func appendRest(sums []byte, metadata map[string]string, tokens []byte) []byte {
	h := xxhash.New()
	h.Write(sums) //nolint:errcheck // a hash takes everything, here and below
	for _, key := range slotKeys {
		fmt.Fprintf(h, "%q %q\n", key, metadata[key])
	}
	h.Write(tokens) //nolint:errcheck
	return binary.LittleEndian.AppendUint64(slices.Clone(sums), h.Sum64())
}

// fileDType returns the dtype as which a slot file stores elements of d, without rounding: I64 where no dtype of a file
// is d itself.
func fileDType(d ir.DType) safetensors.DType {
	if x, ok := tensorfile.FileDType(d); ok {
		return x
	}
	return safetensors.I64
}

// slotWriter reads the parts of a state ahead of where they are written.
type slotWriter struct {
	ctx   context.Context
	saved *batch.Saved

	parts   []*readPart // that were begun; nil for others
	running sync.WaitGroup
}

// readPart is a part on its way to the file.
type readPart struct {
	done    chan struct{} // closed when the rest is there
	content []byte
	sum     uint64
	err     error
}

// write writes a part, and begins those after it. Parts are written by one goroutine, in any order.
func (w *slotWriter) write(out io.Writer, part int) error {
	for i := part; i < min(part+1+runtime.GOMAXPROCS(0), len(w.parts)); i++ {
		if w.parts[i] == nil {
			p := &readPart{done: make(chan struct{})}
			w.parts[i] = p
			w.running.Go(func() { defer close(p.done); p.read(w, i) })
		}
	}
	p := w.parts[part]
	<-p.done
	if p.err != nil {
		return p.err
	}
	_, err := out.Write(p.content)
	p.content = nil
	return err
}

// read reads a part and makes its checksum.
func (p *readPart) read(w *slotWriter, part int) {
	if p.content, p.err = w.saved.Read(w.ctx, part); p.err == nil {
		p.sum = xxhash.Sum64(p.content)
	}
}

// sums returns the checksums of all parts, which are written.
func (w *slotWriter) sums() []byte {
	var out []byte
	for _, p := range w.parts {
		out = binary.LittleEndian.AppendUint64(out, p.sum)
	}
	return out
}

// wait waits for the parts that were begun and are not needed any more.
func (w *slotWriter) wait() { w.running.Wait() }

// slotReader reads the parts of a file.
type slotReader struct {
	file  *safetensors.File
	parts []*safetensors.Tensor
	sums  []byte
	free  sync.Pool // of *[]byte: contents that nobody reads any more
}

// tokens reads the tokens and the checksums, and checks all that is no part.
func (r *slotReader) tokens(parts int) ([]int32, error) {
	for name, d := range map[string]safetensors.DType{slotSums: safetensors.U8, sessionTokens: safetensors.I64} {
		if t, ok := r.file.Tensor(name); !ok || t.DType != d || len(t.Shape) != 1 {
			return nil, fmt.Errorf("%s: it has no tensor %q of type %s", r.file.Path(), name, d)
		}
	}
	sums, _ := r.file.Tensor(slotSums)
	if sums.Size() != int64(parts+1)*sumSize {
		return nil, fmt.Errorf("%s: it has checksums of %d bytes, expected %d for %d parts", r.file.Path(), sums.Size(),
			(parts+1)*sumSize, parts)
	}
	found := make([]byte, sums.Size())
	if err := readAll(sums, found); err != nil {
		return nil, fmt.Errorf("%s: %w", r.file.Path(), err)
	}
	ids, err := tensorfile.Read(r.file, sessionTokens)
	if err != nil {
		return nil, err
	}
	r.sums = found[:parts*sumSize]
	if want := appendRest(r.sums, r.file.Metadata(), ids.Encode()); string(want) != string(found) {
		return nil, fmt.Errorf("%s is damaged: the checksum of its tokens and metadata is not theirs", r.file.Path())
	}
	out := make([]int32, len(ids.I))
	for i, id := range ids.I {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("%s: %d is no token id", r.file.Path(), id)
		}
		out[i] = int32(id)
	}
	return out, nil
}

// readAll reads all of a tensor.
func readAll(t *safetensors.Tensor, into []byte) error {
	if n, err := t.ReadAt(into, 0); n < len(into) {
		return fmt.Errorf("tensor %q: %d of %d bytes can be read: %w", t.Name, n, len(into), err)
	}
	return nil
}

// reuse takes the memory of a content.
func (r *slotReader) reuse(content []byte) { r.free.Put(&content) }

// memory returns so many bytes, with anything in them.
func (r *slotReader) memory(n int) []byte {
	if p, _ := r.free.Get().(*[]byte); p != nil && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]byte, n)
}

// part reads a part and holds it against its checksum.
func (r *slotReader) part(i int) ([]byte, error) {
	t := r.parts[i]
	content := r.memory(int(t.Size()))
	if err := readAll(t, content); err != nil {
		return nil, fmt.Errorf("%s: %w", r.file.Path(), err)
	}
	if found, want := xxhash.Sum64(content), binary.LittleEndian.Uint64(r.sums[i*sumSize:]); found != want {
		return nil, fmt.Errorf("%s is damaged: the checksum of tensor %q is %016x, "+
			"expected %016x", r.file.Path(), t.Name,
			found, want)
	}
	return content, nil
}
