package container

import (
	"fmt"
	"math"
	"math/bits"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/etc-ml/etc/schema/program"
)

// Value is one value of a method. Kind says which of the other fields is in use.
type Value struct {
	Kind    program.KernelTypes // KernelTypesNull for None and for a value without a type
	Tensor  *Tensor
	Int     int64
	Bool    bool
	Double  float64
	String  string
	Items   []int // IntList, TensorList, OptionalTensorList: indices of values, -1 for None
	Bools   []bool
	Doubles []float64
}

// Tensor describes a tensor value.
type Tensor struct {
	ScalarType program.ScalarType
	Sizes      []int  // upper bounds where Dynamic
	DimOrder   []byte // dimensions from the outermost in memory to the innermost, a permutation
	Dynamic    bool   // shape_dynamism is DYNAMIC_BOUND
	Planned    bool   // the method has memory for it
	Data       []byte // what it holds from the start, a view of the file; nil: nothing

	// External is the name of the data that the tensor holds from the start, where it is not in this file.
	External string
}

// Contiguous reports whether the elements are in row-major order.
func (t *Tensor) Contiguous() bool {
	for i, d := range t.DimOrder {
		if int(d) != i {
			return false
		}
	}
	return true
}

// ScalarSize returns the bytes of an element of a type. The second result is false for a number that is no
// type. The quantized types are those of ExecuTorch, which gives even 2-bit and 4-bit ones a byte.
func ScalarSize(t program.ScalarType) (int, bool) {
	switch t {
	case program.ScalarTypeBYTE, program.ScalarTypeCHAR, program.ScalarTypeBOOL, program.ScalarTypeQINT8,
		program.ScalarTypeQUINT8,
		program.ScalarTypeQUINT4X2, program.ScalarTypeQUINT2X4, program.ScalarTypeFLOAT8E5M2,
		program.ScalarTypeFLOAT8E4M3FN,
		program.ScalarTypeFLOAT8E5M2FNUZ, program.ScalarTypeFLOAT8E4M3FNUZ:
		return 1, true
	case program.ScalarTypeSHORT, program.ScalarTypeHALF, program.ScalarTypeBFLOAT16, program.ScalarTypeBITS16,
		program.ScalarTypeUINT16:
		return 2, true
	case program.ScalarTypeINT, program.ScalarTypeFLOAT, program.ScalarTypeQINT32, program.ScalarTypeUINT32:
		return 4, true
	case program.ScalarTypeLONG, program.ScalarTypeDOUBLE, program.ScalarTypeUINT64:
		return 8, true
	}
	return 0, false
}

// byteSize returns the bytes of a tensor of a known type; false where they do not fit an int.
func byteSize(t program.ScalarType, sizes []int) (int, bool) {
	element, _ := ScalarSize(t)
	n, fits := uint64(element), true
	for _, size := range sizes {
		if size == 0 {
			return 0, true
		}
		high, low := bits.Mul64(n, uint64(size))
		n, fits = low, fits && high == 0 && low <= math.MaxInt
	}
	return int(n), fits
}

// maxRank is ExecuTorch's limit of dimensions.
const maxRank = 16

// parseValue decodes one value of a plan with n values.
func (f *File) parseValue(v *program.EValue, field string, n int) (Value, error) {
	out := Value{Kind: v.ValType()}
	var t flatbuffers.Table
	if !v.Val(&t) {
		return Value{Kind: program.KernelTypesNull}, nil
	}
	switch out.Kind {
	case program.KernelTypesInt:
		var x program.Int
		x.Init(t.Bytes, t.Pos)
		out.Int = x.IntVal()
	case program.KernelTypesBool:
		var x program.Bool
		x.Init(t.Bytes, t.Pos)
		out.Bool = x.BoolVal()
	case program.KernelTypesDouble:
		var x program.Double
		x.Init(t.Bytes, t.Pos)
		out.Double = x.DoubleVal()
	case program.KernelTypesString:
		var x program.String
		x.Init(t.Bytes, t.Pos)
		out.String = string(x.StringVal())
	case program.KernelTypesTensor:
		var x program.Tensor
		x.Init(t.Bytes, t.Pos)
		tensor, err := f.parseTensor(&x, field)
		out.Tensor = tensor
		return out, err
	case program.KernelTypesIntList:
		var x program.IntList
		x.Init(t.Bytes, t.Pos)
		return f.withItems(out, field, int64(t.Pos), n, 0, x.ItemsLength(), x.Items)
	case program.KernelTypesTensorList:
		var x program.TensorList
		x.Init(t.Bytes, t.Pos)
		return f.withItems(out, field, int64(t.Pos), n, 0, x.ItemsLength(), widen(x.Items))
	case program.KernelTypesOptionalTensorList:
		var x program.OptionalTensorList
		x.Init(t.Bytes, t.Pos)
		return f.withItems(out, field, int64(t.Pos), n, -1, x.ItemsLength(), widen(x.Items))
	case program.KernelTypesDoubleList:
		var x program.DoubleList
		x.Init(t.Bytes, t.Pos)
		out.Doubles = collect(x.ItemsLength(), x.Items)
	case program.KernelTypesBoolList:
		var x program.BoolList
		x.Init(t.Bytes, t.Pos)
		out.Bools = collect(x.ItemsLength(), x.Items)
	}
	return out, nil
}

// withItems adds the items of a list to a value; each must be the index of a value, or at least low.
func (f *File) withItems(v Value, field string, offset int64, n int, low int64, length int,
	item func(int) int64) (Value, error) {
	v.Items = make([]int, length)
	for i := range v.Items {
		index := item(i)
		if index < low || index >= int64(n) {
			return v, f.wrong(offset, fmt.Sprintf("%s.items[%d]", field, i), "value %d, the method has %d values",
				index, n)
		}
		v.Items[i] = int(index)
	}
	return v, nil
}

func widen(item func(int) int32) func(int) int64 {
	return func(i int) int64 { return int64(item(i)) }
}

// collect calls item for every index below n.
func collect[T any](n int, item func(int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = item(i)
	}
	return out
}

// parseTensor decodes and checks a tensor, as ExecuTorch's tensor parser does.
func (f *File) parseTensor(x *program.Tensor, field string) (*Tensor, error) {
	wrong := func(part, format string, args ...any) (*Tensor, error) {
		return nil, f.wrong(int64(x.Table().Pos), field+"."+part, format, args...)
	}
	t := &Tensor{ScalarType: x.ScalarType(), Planned: x.AllocationInfo(nil) != nil}
	if _, ok := ScalarSize(t.ScalarType); !ok {
		return wrong("scalar_type", "%v is no scalar type", t.ScalarType)
	}
	if x.StorageOffset() != 0 {
		return wrong("storage_offset", "%d, only 0 is in use", x.StorageOffset())
	}
	switch x.ShapeDynamism() {
	case program.TensorShapeDynamismSTATIC:
	case program.TensorShapeDynamismDYNAMIC_BOUND:
		t.Dynamic = true
	default:
		return wrong("shape_dynamism", "%v, expected STATIC or DYNAMIC_BOUND", x.ShapeDynamism())
	}
	if x.SizesLength() > maxRank {
		return wrong("sizes", "%d dimensions, at most %d are possible", x.SizesLength(), maxRank)
	}
	t.Sizes = collect(x.SizesLength(), func(i int) int { return int(x.Sizes(i)) })
	for i, size := range t.Sizes {
		if size < 0 {
			return wrong(fmt.Sprintf("sizes[%d]", i), "size %d", size)
		}
	}
	t.DimOrder = collect(x.DimOrderLength(), x.DimOrder)
	if !isPermutation(t.DimOrder, len(t.Sizes)) {
		return wrong("dim_order", "%d, expected a permutation of %d dimensions", t.DimOrder, len(t.Sizes))
	}
	if _, fits := byteSize(t.ScalarType, t.Sizes); !fits && !t.Dynamic {
		return wrong("sizes", "%d elements do not fit any memory", t.Sizes)
	}
	if x.DataBufferIdx() > 0 || externalData(x) {
		return t, f.parseTensorData(x, t, field)
	}
	return t, nil
}

func externalData(x *program.Tensor) bool {
	extra := x.ExtraTensorInfo(nil)
	return extra != nil && extra.Location() == program.TensorDataLocationEXTERNAL
}

// isPermutation reports whether order holds each of 0 … n-1 once.
func isPermutation(order []byte, n int) bool {
	var seen [maxRank]bool
	for _, d := range order {
		if int(d) >= n || seen[d] {
			return false
		}
		seen[d] = true
	}
	return len(order) == n
}

// parseTensorData finds the initial contents of a tensor. They may lie in another file. Those of a constant lie in the
// segment of constants, or in the program itself in old files. Those of planned memory lie in the segments of mutable
// data.
func (f *File) parseTensorData(x *program.Tensor, t *Tensor, field string) error {
	offset, index := int64(x.Table().Pos), uint64(x.DataBufferIdx())
	wrong := func(format string, args ...any) error {
		return f.wrong(offset, field+".data_buffer_idx", format, args...)
	}
	extra := x.ExtraTensorInfo(nil)
	if externalData(x) {
		if t.External = string(extra.FullyQualifiedName()); t.External == "" {
			return f.wrong(offset, field+".extra_tensor_info", "data in another file, but no name of it")
		}
		return nil
	}
	size, fits := byteSize(t.ScalarType, t.Sizes)
	if !fits {
		return wrong("%d elements do not fit any memory", t.Sizes)
	}

	var place program.SubsegmentOffsets
	switch {
	case t.Planned:
		var which uint64
		if extra != nil {
			which = extra.MutableDataSegmentsIdx()
		}
		if which >= uint64(f.program.MutableDataSegmentsLength()) {
			return wrong("entry %d of mutable_data_segments, the program has %d", which,
				f.program.MutableDataSegmentsLength())
		}
		f.program.MutableDataSegments(&place, int(which))
	case f.program.ConstantBufferLength() > 0:
		if index >= uint64(f.program.ConstantBufferLength()) {
			return wrong("entry %d of constant_buffer, the program has %d", index, f.program.ConstantBufferLength())
		}
		var b program.Buffer
		f.program.ConstantBuffer(&b, int(index))
		if b.StorageLength() < size {
			return wrong("constant_buffer[%d] has %d bytes, the tensor needs %d", index, b.StorageLength(), size)
		}
		t.Data = b.StorageBytes()[:size:size]
		return nil
	case f.program.ConstantSegment(&place) == nil:
		return wrong("entry %d of the constants, the program has none", index)
	}
	if index >= uint64(place.OffsetsLength()) || int64(place.SegmentIndex()) >= int64(len(f.segments)) {
		return wrong("entry %d of the %d constants in segment %d of %d", index, place.OffsetsLength(),
			place.SegmentIndex(), len(f.segments))
	}
	segment, start := f.SegmentBytes(int(place.SegmentIndex())), place.Offsets(int(index))
	if start > uint64(len(segment)) || uint64(size) > uint64(len(segment))-start {
		return wrong("%d bytes at %d of segment %d, which has %d", size, start, place.SegmentIndex(), len(segment))
	}
	t.Data = segment[start : start+uint64(size) : start+uint64(size)]
	return nil
}
