package calibrate

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes/quantize"
)

// store is the directory of quantized weights. A file holds the codes, scales and biases of one weight, and the sums
// of squares that its relative error is computed from.
type store struct {
	dir, identity string
	mu            sync.Mutex
	open          map[string]*stored
}

const (
	identityFile = "identity"
	partial      = ".partial"
)

// openStore opens or creates the directory. It deletes files of another identity.
func openStore(dir, identity string) (*store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, identityFile)
	if before, err := os.ReadFile(name); err == nil && string(before) != identity {
		files, err := filepath.Glob(filepath.Join(dir, "*.weight*"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				return nil, err
			}
		}
	}
	return &store{dir: dir, identity: identity, open: map[string]*stored{}}, os.WriteFile(name, []byte(identity), 0o644)
}

// close closes the files.
func (s *store) close() error {
	var errs []error
	for _, w := range s.open {
		errs = append(errs, w.file.Close())
	}
	return errors.Join(errs...)
}

// stored is a quantized weight in a file.
type stored struct {
	*weight
	identity string
	file     *os.File
	mu       sync.Mutex
	noise    float64 // squares of the errors
	signal   float64 // squares of the checkpoint's values
}

// The parts of a quantized weight, in their order in the file.
const (
	packedOutput = iota
	scalesOutput
	biasesOutput
	outputs
)

// footer is the size in bytes of noise and signal, which end the file.
const footer = 16

// rowBytes returns the size of a row of an output.
func (w *weight) rowBytes(output int) int64 {
	if output == packedOutput {
		return int64(4 * w.scheme.PackedCols(w.cols))
	}
	return int64(2 * w.scheme.ParamCols(w.cols))
}

// offset returns the position of an output in the file.
func (w *weight) offset(output int) int64 {
	at := int64(0)
	for i := range output {
		at += w.rowBytes(i) * int64(w.stack*w.rows)
	}
	return at
}

func (s *store) path(name string) string {
	h := sha256.Sum256([]byte(name))
	return filepath.Join(s.dir, hex.EncodeToString(h[:12])+".weight")
}

// find opens the file of a weight. It returns nil if there is no whole one.
func (s *store) find(w *weight) (*stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.open[w.constant.Name]; x != nil {
		return x, nil
	}
	f, err := os.Open(s.path(w.constant.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	x := &stored{weight: w, identity: s.identity, file: f}
	var sums [footer]byte
	if _, err := f.ReadAt(sums[:], w.offset(outputs)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: expected the quantized weight %s of %d bytes: %w; remove the directory",
			f.Name(), w.constant.Name, w.offset(outputs)+footer, err), f.Close())
	}
	x.noise = math.Float64frombits(binary.LittleEndian.Uint64(sums[:]))
	x.signal = math.Float64frombits(binary.LittleEndian.Uint64(sums[8:]))
	s.open[w.constant.Name] = x
	return x, nil
}

// create creates the file of a weight, under a temporary name.
func (s *store) create(w *weight) (*stored, error) {
	f, err := os.Create(s.path(w.constant.Name) + partial)
	return &stored{weight: w, identity: s.identity, file: f}, err
}

// finish gives the file of a whole weight its name.
func (s *store) finish(x *stored) error {
	var sums [footer]byte
	binary.LittleEndian.PutUint64(sums[:], math.Float64bits(x.noise))
	binary.LittleEndian.PutUint64(sums[8:], math.Float64bits(x.signal))
	if _, err := x.file.WriteAt(sums[:], x.offset(outputs)); err != nil {
		return err
	}
	if err := x.file.Close(); err != nil {
		return err
	}
	return os.Rename(s.path(x.constant.Name)+partial, s.path(x.constant.Name))
}

// write stores rows from first on. The sums of squares are over blocks of rows in any order; people alone read them,
// rounded.
func (x *stored) write(r *quantize.Result, first int, given dot.Matrix) error {
	words := make([]byte, 4*len(r.Packed))
	for i, word := range r.Packed {
		binary.LittleEndian.PutUint32(words[4*i:], word)
	}
	params := func(v []float32) []byte {
		p := make([]byte, 2*len(v))
		quantize.BF16.Encode(p, v)
		return p
	}
	for i, p := range [outputs][]byte{words, params(r.Scales), params(r.Biases)} {
		if _, err := x.file.WriteAt(p, x.offset(i)+int64(first)*x.rowBytes(i)); err != nil {
			return err
		}
	}
	values := make([]float32, len(given.Values))
	if err := r.Dequantize(values); err != nil {
		return err
	}
	var noise, signal float64
	for i, v := range given.Values {
		d := float64(values[i] - v)
		noise += float64(d * d)
		signal += float64(float64(v) * float64(v))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.noise, x.signal = x.noise+noise, x.signal+signal
	return nil
}

// quantizedRows reads rows and dequantizes them.
func (x *stored) quantizedRows(first, n int) (dot.Matrix, error) {
	var raw [outputs][]byte
	for i := range raw {
		raw[i] = make([]byte, int64(n)*x.rowBytes(i))
		if _, err := x.file.ReadAt(raw[i], x.offset(i)+int64(first)*x.rowBytes(i)); err != nil {
			return dot.Matrix{}, fmt.Errorf("%s: %w", x.file.Name(), err)
		}
	}
	// Solvers make affine codes with scales in bf16.
	r := quantize.Result{Rows: n, Cols: x.cols, Bits: x.scheme.Bits, GroupSize: x.scheme.StoredGroupSize(x.cols)}
	r.Packed = make([]uint32, len(raw[packedOutput])/4)
	for i := range r.Packed {
		r.Packed[i] = binary.LittleEndian.Uint32(raw[packedOutput][4*i:])
	}
	params := func(p []byte) []float32 {
		v := make([]float32, len(p)/2)
		quantize.BF16.Decode(v, p)
		return v
	}
	r.Scales, r.Biases = params(raw[scalesOutput]), params(raw[biasesOutput])
	values := make([]float32, n*x.cols)
	return dot.Dense(values, n, x.cols), r.Dequantize(values)
}

// part is the data of a constant that lie in a file of the store: the codes, scales or biases of a weight.
type part struct {
	*stored
	output int
	shape  []int64
	dtype  ir.DType
}

func (x *stored) part(output int) ir.Data {
	p := part{x, output, append([]int64{}, x.constant.Data.Shape()...), ir.BF16}
	p.shape[len(p.shape)-1] = int64(x.scheme.ParamCols(x.cols))
	if output == packedOutput {
		p.shape[len(p.shape)-1], p.dtype = int64(x.scheme.PackedCols(x.cols)), ir.U32
	}
	return p
}

func (p part) DType() ir.DType { return p.dtype }
func (p part) Shape() []int64  { return p.shape }

// Provenance names the source and the calibration. The calibration's identity stands for the text, the method and the
// other weights.
func (p part) Provenance() string {
	return fmt.Sprintf("calibrated(%s,%s,%d,%d,%s).%d", p.constant.Data.Provenance(), p.scheme.Method, p.scheme.Bits,
		p.scheme.GroupSize, p.identity, p.output)
}

func (p part) ReadAt(dst []byte, off int64) (int, error) {
	size := p.rowBytes(p.output) * int64(p.stack*p.rows)
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	n, err := p.file.ReadAt(dst[:min(int64(len(dst)), size-off)], p.offset(p.output)+off)
	if err == nil && n < len(dst) {
		err = io.EOF
	}
	return n, err
}
