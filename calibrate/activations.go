package calibrate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes/quantize"
)

// activations holds the values that one segment of a module defines and later ones read, for all calls: from the
// segment that defines a value to the last that reads it. Floats are kept in float32, integers in their dtype. The
// values of onDisk lie in files, one for each value; the others lie in memory.
type activations struct {
	dir    string
	ledger *ledger
	onDisk map[*ir.Value]bool

	mu    sync.Mutex
	files map[*ir.Value]*valueFile
	count int // of files so far
}

// valueFile is the file of a value on disk. Each call appends its own.
type valueFile struct {
	*os.File
	size int64
}

// valuesPattern matches the files of values in the directory of a calibration.
const valuesPattern = "*.values"

// newActivations returns a store without values. It deletes the files that a killed run has left in dir.
func newActivations(dir string, l *ledger, onDisk map[*ir.Value]bool) (*activations, error) {
	s := &activations{dir: dir, ledger: l, onDisk: onDisk, files: map[*ir.Value]*valueFile{}}
	if dir == "" {
		return s, nil
	}
	left, err := filepath.Glob(filepath.Join(dir, valuesPattern))
	if err != nil {
		return nil, err
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// item is a value of one call. It never changes; several calls may share one.
type item struct {
	value  eval.Value // an int, or the dtype and shape of a tensor
	floats []float32  // in memory
	packed []byte     // integers in memory, in their dtype
	file   *valueFile // nil: in memory
	at     int64      // position in the file
	refs   int        // calls that share the item, guarded by activations.mu
}

// bytes returns the memory that the item takes.
func (x *item) bytes() int64 { return floatBytes(len(x.floats)) + int64(len(x.packed)) }

// length returns the number of elements of a tensor.
func (x *item) length() int {
	n := 1
	for _, d := range x.value.Tensor.Shape {
		n *= d
	}
	return n
}

// put stores a copy of the value that v has in a call.
func (s *activations) put(v *ir.Value, value eval.Value) (*item, error) {
	x := &item{value: value, refs: 1}
	t := value.Tensor
	if t == nil {
		return x, nil
	}
	x.value.Tensor = &eval.Tensor{DType: t.DType, Shape: slices.Clone(t.Shape)}
	switch {
	case s.onDisk[v]:
		return x, s.write(x, v, t)
	case t.F != nil:
		x.floats = slices.Clone(t.F)
	default:
		x.packed = t.Encode()
	}
	s.ledger.take(x.bytes())
	return x, nil
}

// diskBlock is the number of floats that are written to a file, or read from it, at a time.
const diskBlock = 1 << 16

// write puts the elements of t at the end of the file of v.
func (s *activations) write(x *item, v *ir.Value, t *eval.Tensor) error {
	size := int64(t.Len() * t.DType.Size())
	if t.F != nil {
		size = floatBytes(len(t.F))
	}
	if err := s.reserve(x, v, size); err != nil {
		return err
	}
	if t.F == nil {
		_, err := x.file.WriteAt(t.Encode(), x.at)
		return err
	}
	raw := make([]byte, 4*min(diskBlock, len(t.F)))
	s.ledger.take(int64(len(raw)))
	defer s.ledger.give(int64(len(raw)))
	at := x.at
	for part := range slices.Chunk(t.F, diskBlock) {
		p := raw[:4*len(part)]
		quantize.F32.Encode(p, part)
		if _, err := x.file.WriteAt(p, at); err != nil {
			return err
		}
		at += int64(len(p))
	}
	return nil
}

// reserve finds room for size bytes in the file of v, which it creates if there is none.
func (s *activations) reserve(x *item, v *ir.Value, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[v]
	if f == nil {
		file, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%d%s", s.count, valuesPattern[1:])))
		if err != nil {
			return err
		}
		f = &valueFile{File: file}
		s.count++
		s.files[v] = f
	}
	x.file, x.at = f, f.size
	f.size += size
	return nil
}

// get returns the value of an item, and the bytes of memory that were allocated for it.
func (s *activations) get(x *item) (eval.Value, int64, error) {
	t := x.value.Tensor
	switch {
	case t == nil:
		return x.value, 0, nil
	case x.floats != nil:
		return eval.Value{Tensor: eval.Floats(t.DType, t.Shape, x.floats)}, 0, nil
	case t.DType.IsFloat():
		v := make([]float32, x.length())
		err := s.read(x, v, 0)
		return eval.Value{Tensor: eval.Floats(t.DType, t.Shape, v)}, floatBytes(len(v)), err
	}
	packed := x.packed
	if x.file != nil {
		packed = make([]byte, x.length()*t.DType.Size())
		if _, err := x.file.ReadAt(packed, x.at); err != nil {
			return x.value, 0, fmt.Errorf("%s: %w", x.file.Name(), err)
		}
	}
	out, err := eval.Decode(t.DType, t.Shape, packed)
	return eval.Value{Tensor: out}, 8 * int64(x.length()), err
}

// read sets dst to elements of a tensor of floats, from number first on.
func (s *activations) read(x *item, dst []float32, first int) error {
	if x.file == nil {
		copy(dst, x.floats[first:])
		return nil
	}
	raw := make([]byte, 4*min(diskBlock, len(dst)))
	s.ledger.take(int64(len(raw)))
	defer s.ledger.give(int64(len(raw)))
	at := x.at + floatBytes(first)
	for part := range slices.Chunk(dst, diskBlock) {
		p := raw[:4*len(part)]
		if _, err := x.file.ReadAt(p, at); err != nil {
			return fmt.Errorf("%s: %w", x.file.Name(), err)
		}
		quantize.F32.Decode(part, p)
		at += int64(len(p))
	}
	return nil
}

// share counts one more call that has the item.
func (s *activations) share(x *item) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.refs++
	return x
}

// drop forgets an item of one call.
func (s *activations) drop(x *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.refs--; x.refs == 0 {
		s.ledger.give(x.bytes())
	}
}

// remove deletes the file of a value that no call has any more.
func (s *activations) remove(v *ir.Value) error {
	f := s.files[v]
	if f == nil {
		return nil
	}
	delete(s.files, v)
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// close deletes all files that are left.
func (s *activations) close() error {
	var errs []error
	for v := range s.files {
		errs = append(errs, s.remove(v))
	}
	return errors.Join(errs...)
}
