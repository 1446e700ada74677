package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
)

// Types of tensors and of metadata in a GGUF file (github.com/ggml-org/ggml, docs/gguf.md).
const (
	typeF32  = 0
	typeQ4_0 = 2 // 32 elements: a float16 scale and 16 bytes of codes
	typeQ8_0 = 8 // 32 elements: a float16 scale and 32 bytes of codes
)

// tensor is a tensor of a GGUF file. Dims are in its order, the contiguous one first.
type tensor struct {
	name string
	kind uint32
	dims []uint64
	// fill is the value of every element of an F32 tensor; NaN stands for random ones around 0.
	fill float32
	// active is the share of its bytes that one token reads, as a fraction 1/active; 0 for none.
	active int
}

func (t tensor) elements() uint64 {
	n := uint64(1)
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// bytes returns the size of the data.
func (t tensor) bytes() uint64 {
	switch t.kind {
	case typeQ4_0:
		return t.elements() / 32 * 18
	case typeQ8_0:
		return t.elements() / 32 * 34
	}
	return t.elements() * 4
}

// entry is a metadata value: uint32, float32, bool, string, []string, []int32 or []bool.
type entry struct {
	key   string
	value any
}

// gguf is a model without a vocabulary.
type gguf struct {
	entries []entry
	tensors []tensor
}

// tokenBytes returns the number of bytes of weights that one token reads.
func (g *gguf) tokenBytes() (n float64) {
	for _, t := range g.tensors {
		if t.active > 0 {
			n += float64(t.bytes()) / float64(t.active)
		}
	}
	return n
}

func (g *gguf) set(key string, value any) { g.entries = append(g.entries, entry{key, value}) }

func (g *gguf) quantized(name string, dims ...uint64) {
	g.tensors = append(g.tensors, tensor{name, typeQ4_0, dims, 0, 1})
}

// expert adds weights of experts; a token uses used of them. The last of the dims is the number of experts.
func (g *gguf) expert(name string, used uint64, dims ...uint64) {
	g.tensors = append(g.tensors, tensor{name, typeQ4_0, dims, 0, int(dims[len(dims)-1] / used)})
}

func (g *gguf) constant(name string, value float32, dims ...uint64) {
	g.tensors = append(g.tensors, tensor{name, typeF32, dims, value, 1})
}

const alignment = 32

func pad(n uint64) uint64 { return (n + alignment - 1) / alignment * alignment }

// write writes the model as a GGUF file. The file has another name until it is whole, and is then renamed to path.
func (g *gguf) write(path string) error {
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer os.Remove(path + ".part")
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	head := g.header()
	w.Write(head)
	w.Write(make([]byte, pad(uint64(len(head)))-uint64(len(head))))
	r := rand.New(rand.NewPCG(1, 2))
	for _, t := range g.tensors {
		if err := t.writeData(w, r); err != nil {
			return err
		}
		w.Write(make([]byte, pad(t.bytes())-t.bytes()))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

func (g *gguf) header() []byte {
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	text := func(s string) { put(uint64(len(s))); b.WriteString(s) }
	b.WriteString("GGUF")
	put(uint32(3))
	put(uint64(len(g.tensors)))
	put(uint64(len(g.entries)))
	const u32, i32, f32, boolean, str, array = uint32(4), uint32(5), uint32(6), uint32(7), uint32(8), uint32(9)
	for _, e := range g.entries {
		text(e.key)
		switch v := e.value.(type) {
		case uint32:
			put(u32)
			put(v)
		case float32:
			put(f32)
			put(v)
		case string:
			put(str)
			text(v)
		case bool:
			put(boolean)
			put(v)
		case []string:
			put(array)
			put(str)
			put(uint64(len(v)))
			for _, x := range v {
				text(x)
			}
		case []int32:
			put(array)
			put(i32)
			put(uint64(len(v)))
			put(v)
		case []bool:
			put(array)
			put(boolean)
			put(uint64(len(v)))
			put(v)
		default:
			panic(fmt.Sprintf("benchpeers: %s is a %T", e.key, v))
		}
	}
	offset := uint64(0)
	for _, t := range g.tensors {
		text(t.name)
		put(uint32(len(t.dims)))
		put(t.dims)
		put(t.kind)
		put(offset)
		offset += pad(t.bytes())
	}
	return b.Bytes()
}

// writeData writes random codes with scales that keep activations near their size, a megabyte of them again
// and again, or the floats.
func (t tensor) writeData(w io.Writer, r *rand.Rand) error {
	size := map[uint32]int{typeQ4_0: 18, typeQ8_0: 34, typeF32: 4}[t.kind]
	const items = 1 << 16
	block := make([]byte, items*size)
	for i := range items {
		item := block[i*size : (i+1)*size]
		if t.kind == typeF32 {
			v := t.fill
			if v != v {
				v = float32(r.Float64()-0.5) / 10
			}
			binary.LittleEndian.PutUint32(item, math.Float32bits(v))
			continue
		}
		for j := 2; j < size; j++ {
			item[j] = byte(r.Uint32())
		}
		deviation := map[uint32]float64{typeQ4_0: 4.6, typeQ8_0: 74}[t.kind] // of the codes
		binary.LittleEndian.PutUint16(item, float16((0.75+0.5*r.Float64())/deviation/math.Sqrt(float64(t.dims[0]))))
	}
	for left := int64(t.bytes()); left > 0; left -= int64(len(block)) {
		if _, err := w.Write(block[:min(left, int64(len(block)))]); err != nil {
			return err
		}
	}
	return nil
}

// float16 returns the bits of v as an IEEE 754 binary16 number, rounded down. v is positive and in the range of normal
// binary16 numbers.
func float16(v float64) uint16 {
	fraction, exponent := math.Frexp(v)
	return uint16(exponent+14)<<10 | uint16(fraction*2048)&1023
}
