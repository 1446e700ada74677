package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Bounds of what a header may have. They are far above any model: the largest vocabularies make headers of
// some 20 MB.
const (
	maxHeaderBytes = 256 << 20
	maxNameBytes   = 1 << 10
	maxDims        = 4
	maxAlignment   = 1 << 20
)

// reader reads a header and keeps within its bounds. After an error every method gives zero values.
type reader struct {
	file  string
	in    *bufio.Reader
	at    int64 // offset of the next byte
	end   int64 // of the file, or what a header may have
	whole int64 // size of the file
	place string
	err   error
}

func newReader(file string, data io.ReaderAt, size int64) *reader {
	end := min(size, maxHeaderBytes)
	return &reader{file: file, in: bufio.NewReaderSize(io.NewSectionReader(data, 0, end), 1<<16), end: end, whole: size}
}

func (r *reader) fault(expected, found string, args ...any) {
	if r.err == nil {
		r.err = &FormatError{r.file, r.place, r.at, expected, fmt.Sprintf(found, args...)}
	}
}

// need reports whether count elements of size bytes can still follow; it notes an error if not.
func (r *reader) need(count uint64, size int64) bool {
	if r.err != nil {
		return false
	}
	if rest := r.end - r.at; rest < 0 || count > uint64(rest)/uint64(size) {
		if r.end < r.whole {
			r.fault(fmt.Sprintf("metadata of at most %d bytes", int64(maxHeaderBytes)),
				"%d elements of %d bytes and more", count, size)
		} else {
			r.fault(fmt.Sprintf("%d elements of %d bytes and more", count, size), "%d bytes up to the end of the file",
				r.end-r.at)
		}
		return false
	}
	return true
}

// bytes reads n bytes.
func (r *reader) bytes(n uint64) []byte {
	if !r.need(n, 1) {
		return nil
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r.in, p); err != nil {
		r.err = fmt.Errorf("%s: %s at byte %d: %w", r.file, r.place, r.at, err)
		return nil
	}
	r.at += int64(n)
	return p
}

// uint reads an unsigned integer of size bytes.
func (r *reader) uint(size int) uint64 {
	p := r.bytes(uint64(size))
	if p == nil {
		return 0
	}
	var wide [8]byte
	copy(wide[:], p)
	return binary.LittleEndian.Uint64(wide[:])
}

// text reads a string of at most limit bytes.
func (r *reader) text(limit uint64) string {
	n := r.uint(8)
	if r.err == nil && n > limit {
		r.fault(fmt.Sprintf("a string of at most %d bytes", limit), "%d", n)
	}
	return string(r.bytes(n))
}

// The types of metadata values (gguf.h, enum gguf_type).
const (
	valueUint8 = iota
	valueInt8
	valueUint16
	valueInt16
	valueUint32
	valueInt32
	valueFloat32
	valueBool
	valueString
	valueArray
	valueUint64
	valueInt64
	valueFloat64
)

var valueSizes = map[uint64]int64{valueUint8: 1, valueInt8: 1, valueUint16: 2, valueInt16: 2, valueUint32: 4,
	valueInt32: 4, valueFloat32: 4,
	valueBool: 1, valueString: 8, valueUint64: 8, valueInt64: 8, valueFloat64: 8}

// value reads a metadata value as int64, float64, bool, string or a slice of one of those.
func (r *reader) value() any {
	kind := r.uint(4)
	if kind != valueArray {
		return r.scalar(kind)
	}
	element, n := r.uint(4), r.uint(8)
	size, ok := valueSizes[element]
	if r.err == nil && !ok {
		r.fault("an array of numbers, bools or strings", "element type %d", element)
	}
	if r.err != nil || !r.need(n, size) {
		return nil
	}
	switch element {
	case valueString:
		return readArray[string](r, element, n)
	case valueBool:
		return readArray[bool](r, element, n)
	case valueFloat32, valueFloat64:
		return readArray[float64](r, element, n)
	}
	return readArray[int64](r, element, n)
}

func readArray[T any](r *reader, element, n uint64) []T {
	out := make([]T, 0, n)
	for range n {
		v, ok := r.scalar(element).(T)
		if !ok || r.err != nil {
			return nil
		}
		out = append(out, v)
	}
	return out
}

func (r *reader) scalar(kind uint64) any {
	switch kind {
	case valueUint8, valueUint16, valueUint32, valueUint64:
		v := r.uint(int(valueSizes[kind]))
		if v > math.MaxInt64 {
			r.fault("an integer below 2^63", "%d", v)
		}
		return int64(v)
	case valueInt8:
		return int64(int8(r.uint(1)))
	case valueInt16:
		return int64(int16(r.uint(2)))
	case valueInt32:
		return int64(int32(r.uint(4)))
	case valueInt64:
		return int64(r.uint(8))
	case valueFloat32:
		return float64(math.Float32frombits(uint32(r.uint(4))))
	case valueFloat64:
		return math.Float64frombits(r.uint(8))
	case valueBool:
		v := r.uint(1)
		if r.err == nil && v > 1 {
			r.fault("a bool, 0 or 1", "%d", v)
		}
		return v == 1
	case valueString:
		return r.text(maxHeaderBytes)
	}
	if r.err == nil {
		r.fault("a value type from 0 to 12", "%d", kind)
	}
	return nil
}

// header reads everything in front of the tensors' bytes into f.
func (r *reader) header(f *file) error {
	r.place = "the header"
	if magic := r.bytes(4); r.err == nil && string(magic) != "GGUF" {
		r.at = 0
		r.fault(`"GGUF" in the first four bytes`, "%q", magic)
	}
	switch version := r.uint(4); {
	case r.err != nil:
	case version == 1:
		r.fault("version 2 or 3", "version 1, which was in use for weeks of 2023; convert the model again")
	case version&0xffff == 0:
		r.fault("version 2 or 3 in little-endian order", "a big-endian file")
	case version != 2 && version != 3:
		r.fault("version 2 or 3", "%d", version)
	}
	tensors, pairs := r.uint(8), r.uint(8)
	if r.need(pairs, 13) {
		r.metadata(f, pairs)
	}
	r.place = "the list of tensors"
	if r.need(tensors, 24) {
		r.tensors(f, tensors)
	}
	if r.err != nil {
		return r.err
	}
	alignment := int64(32)
	if v, ok := f.metadata["general.alignment"]; ok {
		alignment, _ = v.(int64)
		if alignment <= 0 || alignment > maxAlignment || alignment&(alignment-1) != 0 {
			return &FormatError{r.file, "general.alignment", -1, "a power of two", fmt.Sprint(v)}
		}
	}
	return f.place((r.at+alignment-1)/alignment*alignment, alignment, r.whole)
}

func (r *reader) metadata(f *file, pairs uint64) {
	for range pairs {
		r.place = "the metadata"
		key := r.text(maxNameBytes)
		if r.place = "metadata " + key; r.err == nil && !utf8.ValidString(key) {
			r.fault("a key in UTF-8", "%q", key)
		}
		if _, twice := f.metadata[key]; twice && r.err == nil {
			r.fault("each key once", "it a second time")
		}
		value := r.value()
		if r.err != nil {
			return
		}
		f.metadata[key] = value
	}
}

func (r *reader) tensors(f *file, count uint64) {
	for i := range count {
		r.place = fmt.Sprintf("tensor number %d", i)
		t := &Tensor{Name: r.text(maxNameBytes), file: f}
		r.place = "tensor " + t.Name
		dims := r.uint(4)
		if r.err == nil && (dims < 1 || dims > maxDims) {
			r.fault("1 to 4 dims", "%d", dims)
		}
		if r.err == nil && (!utf8.ValidString(t.Name) || strings.ContainsRune(t.Name, 0)) {
			r.fault("a name in UTF-8", "%q", t.Name)
		}
		if r.err != nil {
			return
		}
		t.Shape = make([]int64, dims)
		for d := range dims {
			n := r.uint(8)
			if r.err == nil && (n < 1 || n > math.MaxInt64) {
				r.fault("dims from 1 on", "%d", n)
			}
			t.Shape[dims-1-d] = int64(n)
		}
		t.Type = Type(r.uint(4))
		t.offset = int64(r.uint(8))
		if r.err == nil {
			r.check(t)
		}
		if r.err != nil {
			return
		}
		if f.byName[t.Name] != nil {
			r.fault("each tensor once", "it a second time")
			return
		}
		f.tensors, f.byName[t.Name] = append(f.tensors, t), t
	}
}

// check computes the size of a tensor. Types that are not read have none, and are refused when they are used.
func (r *reader) check(t *Tensor) {
	elements, bytes := t.Type.Block()
	if elements == 0 {
		names := "F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K or MXFP4"
		r.fault("a tensor of type "+names, "%s; requantize the model to one of these", t.Type)
		return
	}
	if last := t.Shape[len(t.Shape)-1]; last%int64(elements) != 0 {
		r.fault(fmt.Sprintf("rows of whole %s blocks of %d elements", t.Type, elements), "rows of %d", last)
		return
	}
	n := int64(1)
	for _, d := range t.Shape {
		if n > math.MaxInt64/8/d {
			r.fault("a tensor of less than 2^60 elements", "the shape %v", t.Shape)
			return
		}
		n *= d
	}
	t.size = n / int64(elements) * int64(bytes)
}
