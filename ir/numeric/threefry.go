package numeric

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// threefryParity is the constant that the third word of the extended key is
// made with (SKEIN_KS_PARITY32 in the Threefry paper).
const threefryParity = 0x1bd1_1bda

// Threefry2x32 is the 20-round Threefry-2x32 block function: it returns the two
// random words that belong to counter under key.
//
// Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011, section 4.2 and the rotation constants of its Random123
// library.
func Threefry2x32(key, counter [2]uint32) [2]uint32 {
	k0, k1 := key[0], key[1]
	k2 := k0 ^ k1 ^ threefryParity
	x, y := counter[0]+k0, counter[1]+k1

	x, y = fourRounds(x, y, 13, 15, 26, 6)
	x, y = x+k1, y+k2+1
	x, y = fourRounds(x, y, 17, 29, 16, 24)
	x, y = x+k2, y+k0+2
	x, y = fourRounds(x, y, 13, 15, 26, 6)
	x, y = x+k0, y+k1+3
	x, y = fourRounds(x, y, 17, 29, 16, 24)
	x, y = x+k1, y+k2+4
	x, y = fourRounds(x, y, 13, 15, 26, 6)
	x, y = x+k2, y+k0+5
	return [2]uint32{x, y}
}

func fourRounds(x, y uint32, r0, r1, r2, r3 int) (uint32, uint32) {
	x += y
	y = bits.RotateLeft32(y, r0) ^ x
	x += y
	y = bits.RotateLeft32(y, r1) ^ x
	x += y
	y = bits.RotateLeft32(y, r2) ^ x
	x += y
	y = bits.RotateLeft32(y, r3) ^ x
	return x, y
}

// Key makes the random key of seed, upper word first, as MLX's random::key
// does. MLX takes a signed 32-bit seed sign-extended: Key(uint64(int64(seed))).
func Key(seed uint64) [2]uint32 {
	return [2]uint32{uint32(seed >> 32), uint32(seed)}
}

// Split derives two keys from key as MLX's random::split does: they are the
// rows of a 2 x 2 draw of 32-bit words.
func Split(key [2]uint32) (first, second [2]uint32) {
	var words [4]uint32
	FillWords(words[:], key)
	return [2]uint32{words[0], words[1]}, [2]uint32{words[2], words[3]}
}

// FillWords fills dst with the uint32 draw of len(dst) elements that MLX's
// random::bits makes from key.
//
// With h = len(dst)/2, rounded up, block i of the generator has counter
// (i, h+i) and its words go to dst[i] and dst[h+i]; for an odd length the last
// block has counter (h-1, 0) and only its first word is used. Because h takes
// part, a shorter draw is not a prefix of a longer one.
func FillWords(dst []uint32, key [2]uint32) {
	upper := (len(dst) + 1) / 2
	pairs := len(dst) / 2
	for i := range pairs {
		block := Threefry2x32(key, [2]uint32{uint32(i), uint32(upper + i)})
		dst[i], dst[upper+i] = block[0], block[1]
	}
	if pairs < upper {
		dst[pairs] = Threefry2x32(key, [2]uint32{uint32(pairs), 0})[0]
	}
}

// Word returns element i of the draw that [FillWords] makes for n elements,
// without the others. It needs 0 <= i < n.
func Word(key [2]uint32, n, i int) uint32 {
	upper := (n + 1) / 2
	switch {
	case i >= upper:
		return Threefry2x32(key, [2]uint32{uint32(i - upper), uint32(i)})[1]
	case i < n/2:
		return Threefry2x32(key, [2]uint32{uint32(i), uint32(upper + i)})[0]
	default:
		return Threefry2x32(key, [2]uint32{uint32(i), 0})[0]
	}
}

// FillBytes fills dst with the bytes of the draw that MLX's random::bits makes
// from key for elements of any width: the little-endian words of a draw of
// ceil(len(dst)/4) words, the last one cut.
func FillBytes(dst []byte, key [2]uint32) {
	words := (len(dst) + 3) / 4
	upper := (words + 1) / 2
	pairs := words / 2
	for i := range pairs {
		block := Threefry2x32(key, [2]uint32{uint32(i), uint32(upper + i)})
		binary.LittleEndian.PutUint32(dst[4*i:], block[0])
		putWord(dst[4*(upper+i):], block[1])
	}
	if pairs < upper {
		putWord(dst[4*pairs:], Threefry2x32(key, [2]uint32{uint32(pairs), 0})[0])
	}
}

// putWord stores as many of word's low bytes as dst has room for, up to four.
func putWord(dst []byte, word uint32) {
	if len(dst) >= 4 {
		binary.LittleEndian.PutUint32(dst, word)
		return
	}
	for i := range dst {
		dst[i] = byte(word >> (8 * i))
	}
}

// Bits returns the draw of MLX's random::bits for elements unsigned integers of
// width bytes each, little-endian: width 1, 2 and 4 stand for uint8, uint16 and
// uint32. The shape of the result does not matter, only its number of elements.
// Any other width, or a negative number of elements, is an error.
func Bits(key [2]uint32, elements, width int) ([]byte, error) {
	if width != 1 && width != 2 && width != 4 {
		return nil, fmt.Errorf("random bits: width is %d bytes, expected 1, 2 or 4", width)
	}
	const maxInt = int(^uint(0) >> 1)
	if elements < 0 || elements > maxInt/width {
		return nil, fmt.Errorf("random bits: %d elements of %d bytes, expected 0 to %d", elements, width, maxInt/width)
	}
	dst := make([]byte, elements*width)
	FillBytes(dst, key)
	return dst, nil
}
