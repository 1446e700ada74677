package compare

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// quantized is a weight in MLX's form; biases is nil in modes other than affine.
type quantized struct {
	packed, scales, biases ir.Data

	cols, words, groups int64 // of a row
	form                ir.WeightForm
	levels              []float32 // the value of each code, in modes other than affine
}

// withoutBiases reports whether scales belong to a mode without biases.
func (q *quantized) withoutBiases(scales *ir.Constant) bool {
	return scales != nil && scales.Data.DType() == ir.U8
}

// open determines the form of a weight of this shape. Scales in u8 belong to the mode with these sizes of codes and
// groups.
func (q *quantized) open(name string, shape []int64) error {
	q.cols = shape[len(shape)-1]
	q.words = q.packed.Shape()[len(q.packed.Shape())-1]
	q.groups = q.scales.Shape()[len(q.scales.Shape())-1]
	rows := ir.Elements(shape) / max(q.cols, 1)
	if q.cols > 0 {
		q.form.Bits = int(32 * q.words / q.cols)
	}
	if q.form.Bits != 4 && q.form.Bits != 8 || q.groups == 0 || q.cols%q.groups != 0 ||
		ir.Elements(q.packed.Shape()) != rows*q.words ||
		ir.Elements(q.scales.Shape()) != rows*q.groups ||
		q.biases != nil && ir.Elements(q.biases.Shape()) != rows*q.groups || q.packed.DType() != ir.U32 {
		return fmt.Errorf("constant %s: packed codes %v and scales %v do not make a weight of shape %v", name,
			q.packed.Shape(), q.scales.Shape(), shape)
	}
	q.form.Group = int(q.cols / q.groups)
	if q.biases != nil {
		return nil
	}
	for _, q.form.Mode = range []ir.QuantMode{ir.MXFP4, ir.MXFP8, ir.NVFP4} {
		if q.form.Check() == nil {
			q.levels = make([]float32, 1<<q.form.Bits)
			for code := range q.levels {
				if q.levels[code] = numeric.E2M1ToF32(uint8(code)); q.form.Bits == 8 {
					q.levels[code] = numeric.E4M3ToF32(uint8(code))
				}
			}
			return nil
		}
	}
	return fmt.Errorf("constant %s: codes of %d bits in groups of %d with scales in u8, want those of mxfp4, "+
		"mxfp8 or nvfp4", name, q.form.Bits, q.form.Group)
}

// read computes n rows from a row on.
func (q *quantized) read(name string, row, n int64) ([]float32, error) {
	codes := make([]byte, 4*n*q.words)
	if got, err := q.packed.ReadAt(codes, 4*row*q.words); got < len(codes) {
		return nil, fmt.Errorf("constant %s%s: %w", name, packedSuffix, orEOF(err))
	}
	scales, err := q.readScales(row*q.groups, n*q.groups)
	if err != nil {
		return nil, fmt.Errorf("constant %s%s: %w", name, scalesSuffix, err)
	}
	var biases []float32
	if q.biases != nil {
		if biases, err = readFloats(q.biases, row*q.groups, n*q.groups); err != nil {
			return nil, fmt.Errorf("constant %s%s: %w", name, biasesSuffix, err)
		}
	}
	out := make([]float32, n*q.cols)
	bits := int64(q.form.Bits)
	perWord, mask, group := 32/bits, uint32(1)<<bits-1, int64(q.form.Group)
	for i := range out {
		r, c := int64(i)/q.cols, int64(i)%q.cols
		word := binary.LittleEndian.Uint32(codes[4*(r*q.words+c/perWord):])
		code := word >> (bits * (c % perWord)) & mask
		g := r*q.groups + c/group
		if q.levels != nil {
			out[i] = float32(scales[g] * q.levels[code])
			continue
		}
		out[i] = float32(scales[g]*float32(code)) + biases[g]
	}
	return out, nil
}

// readScales reads count scales from one on.
func (q *quantized) readScales(at, count int64) ([]float32, error) {
	if q.levels == nil {
		return readFloats(q.scales, at, count)
	}
	raw, out := make([]byte, count), make([]float32, count)
	if n, err := q.scales.ReadAt(raw, at); n < len(raw) {
		return nil, orEOF(err)
	}
	for i, s := range raw {
		if out[i] = numeric.E8M0ToF32(s); q.form.Mode == ir.NVFP4 {
			out[i] = numeric.E4M3ToF32(s)
		}
	}
	return out, nil
}

func compareQuantized(want *ir.Constant, q *quantized) (Weight, error) {
	shape := want.Data.Shape()
	if err := q.open(want.Name, shape); err != nil {
		return Weight{}, err
	}
	rows := ir.Elements(shape) / q.cols
	s := &sums{}
	step := max(1, blockElements/q.cols)
	for row := int64(0); row < rows; row += step {
		n := min(step, rows-row)
		a, err := readFloats(want.Data, row*q.cols, n*q.cols)
		if err != nil {
			return Weight{}, fmt.Errorf("constant %s of the checkpoint: %w", want.Name, err)
		}
		b, err := q.read(want.Name, row, n)
		if err != nil {
			return Weight{}, err
		}
		s.add(a, b)
	}
	w := s.weight(want.Name)
	w.Bits, w.Group = q.form.Bits, q.form.Group
	stored := ir.DataSize(q.packed) + ir.DataSize(q.scales)
	if q.biases != nil {
		stored += ir.DataSize(q.biases)
	} else {
		w.Mode = q.form.Mode.String()
	}
	w.BitsPerWeight = float64(8*stored) / float64(max(w.Elements, 1))
	return w, nil
}
