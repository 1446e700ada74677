package eval

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"quantized":        joinQuantized,
		"dequantize":       dequantize,
		"quantized_matmul": quantizedMatmul,
		"gather_qmm":       gatherQMM,
	})
}

// Quantized is the value of a group-quantized weight [..., N, K] in MLX's layout: in mode affine w = scale·code + bias.
type Quantized struct {
	// Packed holds the codes: u32 [..., N, K·Bits/32], a little-endian stream of Bits-bit numbers per row.
	Packed *Tensor
	// Scales and Biases are [..., N, K/Group]. Biases is nil for symmetric codes, whose bias is
	// −2^(Bits−1)·scale, and in other modes than affine.
	Scales, Biases *Tensor
	// DType is the dtype that the weight dequantizes to.
	DType ir.DType
	ir.WeightForm
}

// joinQuantized makes a quantized weight of its parts.
func joinQuantized(c *Call) ([]Value, error) {
	form, _ := ir.FormOf(c.Op)
	packed := c.Tensor("packed")
	packed = &Tensor{DType: packed.DType, Shape: packed.Shape, words: wordsOf(packed)}
	q := &Quantized{packed, c.Tensor("scales"), c.Tensor("biases"), c.Result(0).DType, form}
	if _, err := c.open(q); err != nil {
		return nil, err
	}
	return []Value{{Quantized: q}}, nil
}

// open checks the parts of q and makes its codes readable.
func (c *Call) open(q *Quantized) (*codes, error) {
	return c.openCodes(q.Packed, q.Scales, q.Biases, nil, q.WeightForm, q.Biases == nil)
}

// codes is a batch of matrices of packed codes [batch..., rows, inner] with their scales and biases as floats.
type codes struct {
	batch       []int
	rows, inner int
	bits, group int
	words       []uint32
	rowWords    int
	scales      []float32
	biases      []float32 // nil for block floating point
	levels      []float32 // the value of each code for block floating point, else nil
}

// openCodes checks the shapes and dtypes of a packed weight in one of MLX's quantization modes.
func (c *Call) openCodes(packed, scales, biases, global *Tensor, form ir.WeightForm, symmetric bool) (*codes, error) {
	if err := form.Check(); err != nil {
		return nil, err
	}
	bits, group := form.Bits, form.Group
	if packed.DType != ir.U32 {
		return nil, fmt.Errorf("packed codes are %s, want u32", packed.DType)
	}
	if len(packed.Shape) < 2 || len(scales.Shape) != len(packed.Shape) {
		return nil, fmt.Errorf("packed codes %v and scales %v: want as many dims, at least two",
			packed.Shape, scales.Shape)
	}
	q := &codes{bits: bits, group: group, words: wordsOf(packed)}
	q.batch, q.rows, q.rowWords = split2(packed.Shape)
	groups := scales.Shape[len(scales.Shape)-1]
	if !slices.Equal(packed.Shape[:len(packed.Shape)-1], scales.Shape[:len(scales.Shape)-1]) ||
		q.rowWords*32 != groups*group*bits {
		return nil, fmt.Errorf("packed codes %v and scales %v do not agree for %d bits in groups of %d", packed.Shape,
			scales.Shape, bits, group)
	}
	q.inner = groups * group
	if _, err := elements(append(slices.Clone(q.batch), q.rows, q.inner)); err != nil {
		return nil, err
	}
	if format := blockFormats[form.Mode]; format != nil {
		return q, format.open(c, q, form.Mode, scales, biases, global)
	}
	if global != nil {
		return nil, fmt.Errorf("a global scale is for mode nvfp4, not %s", form.Mode)
	}
	if !scales.DType.IsFloat() {
		return nil, fmt.Errorf("scales are %s, want a floating-point dtype", scales.DType)
	}
	q.scales = scales.F
	switch {
	case biases != nil:
		if !slices.Equal(biases.Shape, scales.Shape) {
			return nil, fmt.Errorf("biases %v, want the shape %v of the scales", biases.Shape, scales.Shape)
		}
		q.biases = c.as(biases, ir.Promote(scales.DType, biases.DType))
	case symmetric:
		half := float32(int(1) << (bits - 1))
		q.biases = make([]float32, len(q.scales))
		for i, s := range q.scales {
			q.biases[i] = -half * s // exact: a power of two
		}
	default:
		return nil, fmt.Errorf("biases are missing, mode affine needs them")
	}
	return q, nil
}

// unpack writes the codes of row r, counted through all matrices, to dst as floats.
func (q *codes) unpack(dst []float32, r int) {
	words := q.words[r*q.rowWords : (r+1)*q.rowWords]
	bits, mask := q.bits, uint64(1)<<q.bits-1
	var stream uint64
	have, next := 0, 0
	for i := range dst {
		if have < bits {
			stream |= uint64(words[next]) << have
			have, next = have+32, next+1
		}
		dst[i] = float32(stream & mask)
		stream >>= bits
		have -= bits
	}
}

// row writes the weights of row r, counted through all matrices, to dst, computed in float32.
func (q *codes) row(dst []float32, r int) {
	perRow := q.inner / q.group
	scales := q.scales[r*perRow : (r+1)*perRow]
	if q.levels != nil {
		q.unpack(dst, r)
		for g, scale := range scales {
			part := dst[g*q.group : (g+1)*q.group]
			for i, v := range part {
				part[i] = scale * q.levels[uint8(v)]
			}
		}
		return
	}
	biases := q.biases[r*perRow : (r+1)*perRow]
	if q.bits == 4 && q.group%8 == 0 {
		q.row4(dst, q.words[r*q.rowWords:(r+1)*q.rowWords], scales, biases)
		return
	}
	q.unpack(dst, r)
	for g, scale := range scales {
		part, bias := dst[g*q.group:(g+1)*q.group], biases[g]
		for i, v := range part {
			part[i] = float32(scale*v) + bias
		}
	}
}

// row4 is the case of four bits: it computes the 16 values of a group once.
func (q *codes) row4(dst []float32, words []uint32, scales, biases []float32) {
	var table [16]float32
	for g, scale := range scales {
		bias := biases[g]
		for code := range table {
			table[code] = float32(scale*float32(code)) + bias
		}
		for range q.group / 8 {
			w, out := words[0], (*[8]float32)(dst)
			out[0] = table[w&15]
			out[1] = table[w>>4&15]
			out[2] = table[w>>8&15]
			out[3] = table[w>>12&15]
			out[4] = table[w>>16&15]
			out[5] = table[w>>20&15]
			out[6] = table[w>>24&15]
			out[7] = table[w>>28]
			words, dst = words[1:], dst[8:]
		}
	}
}

// matrices reads the codes by rows (transpose: W is [N, K]) or by columns (W is [K, N]).
func (q *codes) matrices(transpose bool) *matrices {
	if transpose {
		return &matrices{q.batch, q.rows, q.inner, func(b, lo, hi int, buf []float32) []float32 {
			for n := lo; n < hi; n++ {
				q.row(buf[(n-lo)*q.inner:(n-lo+1)*q.inner], b*q.rows+n)
			}
			return buf[:(hi-lo)*q.inner]
		}, true}
	}
	return denseColumns(q.dense(), append(slices.Clone(q.batch), q.rows, q.inner))
}

// dense computes all weights in float32.
func (q *codes) dense() []float32 {
	rows := len(q.words) / max(q.rowWords, 1)
	out := make([]float32, rows*q.inner)
	parallel(rows, q.inner, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			q.row(out[r*q.inner:(r+1)*q.inner], r)
		}
	})
	return out
}

// rounded computes the rows numbered by list one after the other. Under Strict every step is rounded as
// MLX's dequantize does: first to the dtype of the scales, which it computes in, then to that of the result.
func (q *codes) rounded(c *Call, list []int, scales ir.DType) []float32 {
	out := make([]float32, len(list)*q.inner)
	exact := c.Precision != Strict || scales.Size() > 2
	parallel(len(list), q.inner, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst, r := out[i*q.inner:(i+1)*q.inner], list[i]
			if exact || q.levels != nil {
				q.row(dst, r)
				continue
			}
			q.unpack(dst, r)
			for k, v := range dst {
				g := r*(q.inner/q.group) + k/q.group
				dst[k] = round(scales, round(scales, q.scales[g]*v)+q.biases[g])
			}
		}
	})
	return out
}

// dequantize computes the weights of packed codes. Mode affine gives scale·code + bias.
func dequantize(c *Call) ([]Value, error) {
	form, _ := ir.FormOf(c.Op)
	scales := c.Tensor("scales")
	q, err := c.openCodes(c.Tensor("w"), scales, c.Tensor("biases"), c.Tensor("global_scale"), form, false)
	if err != nil {
		return nil, err
	}
	d := c.Result(0).DType
	if biases := c.Tensor("biases"); biases != nil {
		d = ir.Promote(scales.DType, biases.DType)
	}
	all := make([]int, len(q.words)/max(q.rowWords, 1))
	for i := range all {
		all[i] = i
	}
	return one(c.floatResult(0, append(slices.Clone(q.batch), q.rows, q.inner), q.rounded(c, all, d)))
}

// quantizedMatmul is x·Wᵀ (transpose) or x·W with quantized W, accumulated in float32.
func quantizedMatmul(c *Call) ([]Value, error) {
	attrs := ir.Attrs[ir.QuantizedMatmulAttrs](c.Op)
	form, _ := ir.FormOf(c.Op)
	q, err := c.openCodes(c.Tensor("w"), c.Tensor("scales"), c.Tensor("biases"), nil, form, false)
	if err != nil {
		return nil, err
	}
	x := c.Tensor("x")
	shape, out, err := c.multiplyRows(c.as(x, c.Result(0).DType), x.Shape, q.matrices(attrs.Transpose))
	if err != nil {
		return nil, err
	}
	return one(c.floatResult(0, shape, out))
}

// multiplyRows multiplies x [..., K] by the transposed matrices w: every vector by the only matrix, or,
// where w is a batch, matrices [..., M, K] by their partners with the batch dims broadcast.
func (c *Call) multiplyRows(x []float32, xShape []int, w *matrices) (shape []int, out []float32, err error) {
	if len(xShape) == 0 || xShape[len(xShape)-1] != w.inner {
		return nil, nil, fmt.Errorf("x has shape %v, its last dim must be %d", xShape, w.inner)
	}
	if n := len(xShape) - 1; len(w.batch) == 0 {
		shape = append(slices.Clone(xShape[:n]), w.rows)
		if out, err = room(shape); err != nil {
			return nil, nil, err
		}
		w.multiply(c.Done, []product{{0, x, out}})
		return shape, out, nil
	}
	if len(xShape) < 2 {
		return nil, nil, fmt.Errorf("x has shape %v, a batch %v of matrices needs at least two dims", xShape, w.batch)
	}
	xBatch, m, _ := split2(xShape)
	batch, err := broadcastShape(xBatch, w.batch)
	if err != nil {
		return nil, nil, fmt.Errorf("batch dims: %w", err)
	}
	shape = append(slices.Clone(batch), m, w.rows)
	if out, err = room(shape); err != nil {
		return nil, nil, err
	}
	if len(out) > 0 {
		w.multiply(c.Done, products(x, m, w, out, broadcastOffsets(batch, xBatch), broadcastOffsets(batch, w.batch)))
	}
	return shape, out, nil
}

// gatherQMM is gather_mm with quantized matrices on the right.
func gatherQMM(c *Call) ([]Value, error) {
	attrs := ir.Attrs[ir.GatherQmmAttrs](c.Op)
	form, _ := ir.FormOf(c.Op)
	q, err := c.openCodes(c.Tensor("w"), c.Tensor("scales"), c.Tensor("biases"), nil, form, false)
	if err != nil {
		return nil, err
	}
	x, w := c.Tensor("x"), q.matrices(attrs.Transpose)
	xs := c.as(x, c.Result(0).DType)
	var shape []int
	var out []float32
	switch {
	case !c.Has("lhs_indices") && !c.Has("rhs_indices"):
		shape, out, err = c.multiplyRows(xs, x.Shape, w)
	case len(x.Shape) < 2:
		err = fmt.Errorf("x has shape %v, want at least two dims", x.Shape)
	default:
		shape, out, err = c.gather(xs, x.Shape, w)
	}
	if err != nil {
		return nil, err
	}
	return one(c.floatResult(0, shape, out))
}
