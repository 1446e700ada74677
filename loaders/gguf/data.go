package gguf

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// data is a tensor's content computed from its blocks.
type data struct {
	tensor  *Tensor
	what    string // in the provenance
	dtype   ir.DType
	shape   []int64
	in, out int                     // bytes of a block, and of what is computed of it
	convert func(dst, block []byte) // nil for the bytes as they are
}

func (d data) DType() ir.DType { return d.dtype }
func (d data) Shape() []int64  { return d.shape }

func (d data) Provenance() string { return d.what + "(" + d.tensor.Provenance() + ")" }

// From returns the tensor as it is stored.
func (d data) From() []ir.Data { return []ir.Data{stored{d.tensor}} }

// stored is the tensor's bytes in its file.
type stored struct{ *Tensor }

func (s stored) DType() ir.DType { return ir.U8 }
func (s stored) Shape() []int64  { return []int64{s.size} }

// Provenance names the tensor's stored bytes, and not its file: where a model lies changes nothing.
func (t *Tensor) Provenance() string {
	return fmt.Sprintf("gguf(%s,%s%s)", t.Name, t.Type, strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ","))
}

// pieceBytes bounds the blocks that are converted at a time.
const pieceBytes = 256 << 10

func (d data) ReadAt(p []byte, off int64) (int, error) {
	size := ir.DataSize(d)
	if off < 0 {
		return 0, fmt.Errorf("tensor %s: read at negative offset %d", d.tensor.Name, off)
	}
	if off >= size {
		return 0, io.EOF
	}
	if d.convert == nil {
		return d.tensor.ReadAt(p, off)
	}
	var end error
	if int64(len(p)) > size-off {
		p, end = p[:size-off], io.EOF
	}
	in, out := int64(d.in), int64(d.out)
	piece := max(1, pieceBytes/max(in, out))
	var raw, converted []byte
	for n := 0; n < len(p); {
		first, skip := (off+int64(n))/out, (off+int64(n))%out
		count := min((skip+int64(len(p)-n)+out-1)/out, piece)
		raw, converted = slices.Grow(raw[:0], int(count*in))[:count*in],
			slices.Grow(converted[:0], int(count*out))[:count*out]
		if got, err := d.tensor.ReadAt(raw, first*in); got < len(raw) {
			return n, err
		}
		for i := range count {
			d.convert(converted[i*out:(i+1)*out], raw[i*in:(i+1)*in])
		}
		n += copy(p[n:], converted[skip:])
	}
	return len(p), end
}

// Floats returns the tensor's values: F32, F16 and BF16 as they are, blocks in float32 as ggml dequantizes them.
func (t *Tensor) Floats() ir.Data {
	elements, bytes := t.Type.Block()
	if elements == 1 {
		d := map[Type]ir.DType{F32: ir.F32, F16: ir.F16, BF16: ir.BF16}[t.Type]
		return data{t, "values", d, t.Shape, bytes, bytes, nil}
	}
	return data{t, "values", ir.F32, t.Shape, bytes, 4 * elements, decoders[t.Type]}
}

// Exact reports whether a form of MLX holds the tensor's values exactly.
func (t *Tensor) Exact() bool {
	_, ok := affines[t.Type]
	return (ok || t.Type == MXFP4) && len(t.Shape) >= 2
}

// Carried returns the same values as [Tensor.Floats] in groups of 32, in MLX's affine form with scales and biases in
// float32, or as mxfp4; only where [Tensor.Exact] holds.
func (t *Tensor) Carried() *builder.Quantized {
	if t.Type == MXFP4 {
		return t.carriedFloats()
	}
	a := affines[t.Type]
	_, bytes := t.Type.Block()
	last := len(t.Shape) - 1
	shape := func(columns int64) []int64 { return append(slices.Clone(t.Shape[:last]), columns) }
	params := func(what string, pick func(scale, bias float32) float32) ir.Data {
		return data{t, what, ir.F32, shape(t.Shape[last] / groupSize), bytes, 4 * a.groups, func(dst, block []byte) {
			for j := range a.groups {
				putFloat(dst, j, pick(a.params(block, j)))
			}
		}}
	}
	return &builder.Quantized{
		WeightForm: ir.WeightForm{Bits: a.bits, Group: groupSize},
		Packed: data{t, "packed", ir.U32, shape(t.Shape[last] * int64(a.bits) / 32), bytes,
			a.groups * groupSize * a.bits / 8, a.codes},
		Scales: params("scales", func(scale, _ float32) float32 { return scale }),
		Biases: params("biases", func(_, bias float32) float32 { return bias }),
	}
}

// carriedFloats returns codes and exponents of MXFP4 as the mode of MLX with that name has them.
func (t *Tensor) carriedFloats() *builder.Quantized {
	form := ir.WeightForm{Mode: ir.MXFP4, Bits: 4, Group: groupSize}
	_, bytes := t.Type.Block()
	last := len(t.Shape) - 1
	shape := func(columns int64) []int64 { return append(slices.Clone(t.Shape[:last]), columns) }
	return &builder.Quantized{
		WeightForm: form,
		Packed: data{t, "packed", ir.U32, shape(form.Words(t.Shape[last])), bytes, groupSize / 2,
			func(dst, block []byte) { weave(dst, block[1:17]) }},
		Scales: data{t, "scales", ir.U8, shape(t.Shape[last] / groupSize), bytes, 1,
			func(dst, block []byte) { dst[0] = block[0] }},
	}
}

// superblocks are the types whose groups cost more bits in MLX's form than in their own: 6 instead of 4.5.
var superblocks = []Type{Q4_K}

// Tensor makes a tensor for a model's builder, under the name that transformers gives it. Where a form of MLX holds it
// exactly it is carried, of superblocks only if they are asked for.
func (t *Tensor) Tensor(as string, carrySuperblocks bool) builder.Tensor {
	out := builder.Tensor{Name: t.Name, As: as, DType: t.Type.String(), Shape: t.Shape}
	if t.Exact() && (carrySuperblocks || !slices.Contains(superblocks, t.Type)) {
		out.Quantized = t.Carried()
	} else {
		out.Data = t.Floats()
	}
	return out
}
