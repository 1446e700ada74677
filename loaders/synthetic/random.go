package synthetic

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"sync"

	"github.com/etc-ml/etc/loaders/safetensors"
)

// distribution is the mean and the standard deviation of a tensor's elements.
type distribution struct{ mean, deviation float64 }

// A sample is the sum of four random bytes: 0 to 1020 around 510, nearly normal (Irwin-Hall distribution), with
// tails that end at 3.45 standard deviations.
const (
	samples    = 4*255 + 1
	tableSize  = 1 << 10 // samples, up to a power of two, so that an index needs no check
	sampleMean = 4 * 255 / 2.0
)

// sampleDeviation is √(4·(256²−1)/12); a square root is exact to the last bit on every machine.
var sampleDeviation = math.Sqrt(4 * (256*256 - 1) / 12.0)

// tables keeps the table of each distribution.
var tables sync.Map // distribution → *table

// table has the bfloat16 bits of each sample.
type table [tableSize]uint16

func (d distribution) table() *table {
	if t, ok := tables.Load(d); ok {
		return t.(*table)
	}
	var t table
	for i := range samples {
		z := (float64(i) - sampleMean) / sampleDeviation
		bits := math.Float32bits(float32(d.mean + float64(z*d.deviation)))
		t[i] = uint16((bits + 0x7fff + bits>>16&1) >> 16) // to nearest, ties to even
	}
	stored, _ := tables.LoadOrStore(d, &t)
	return stored.(*table)
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// 2014), which makes a counter random.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// increment is the counter's step in SplitMix64, 2⁶⁴ divided by the golden ratio.
const increment = 0x9e3779b97f4a7c15

// stream returns the sequence of random numbers of one tensor.
func stream(seed uint64, name string) uint64 {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, name) // a hash has no write error
	return mix(mix(seed+increment) ^ hash.Sum64())
}

// chunkElements is how many elements are made at a time.
const chunkElements = 1 << 19

// write writes n elements of the distribution d, as BF16 or as F32.
func write(w io.Writer, d distribution, state uint64, n int64, dtype safetensors.DType) error {
	t := d.table()
	size := dtype.Bits() / 8
	chunk := make([]byte, min(n, chunkElements)*int64(size))
	for n > 0 {
		count := min(n, chunkElements)
		part := chunk[:count*int64(size)]
		if dtype == safetensors.BF16 {
			state = fillBF16(part, t, state)
		} else {
			state = fillF32(part, t, state)
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
		n -= count
	}
	return nil
}

// pair makes two samples of one random number.
func pair(x uint64) (a, b uint64) {
	const even = 0x00ff00ff00ff00ff
	sums := x&even + x>>8&even // of two bytes, in each 16 bits
	sums += sums >> 16         // of four bytes, in the lower half of each 32 bits
	return sums % tableSize, sums >> 32 % tableSize
}

func fillBF16(p []byte, t *table, state uint64) uint64 {
	for ; len(p) >= 8; p = p[8:] {
		state += increment
		a, b := pair(mix(state))
		state += increment
		c, d := pair(mix(state))
		binary.LittleEndian.PutUint64(p, uint64(t[a])|uint64(t[b])<<16|uint64(t[c])<<32|uint64(t[d])<<48)
	}
	for ; len(p) >= 4; p = p[4:] {
		state += increment
		a, b := pair(mix(state))
		binary.LittleEndian.PutUint32(p, uint32(t[a])|uint32(t[b])<<16)
	}
	if len(p) > 0 {
		state += increment
		a, _ := pair(mix(state))
		binary.LittleEndian.PutUint16(p, t[a])
	}
	return state
}

func fillF32(p []byte, t *table, state uint64) uint64 {
	for ; len(p) > 0; p = p[4:] {
		state += increment
		a, _ := pair(mix(state))
		binary.LittleEndian.PutUint32(p, uint32(t[a])<<16)
	}
	return state
}
