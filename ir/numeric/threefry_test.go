package numeric

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThreefryKnownAnswers uses the three vectors that Random123 publishes for
// threefry2x32 with 20 rounds (its kat_vectors file).
func TestThreefryKnownAnswers(t *testing.T) {
	cases := []struct{ key, counter, want [2]uint32 }{
		{[2]uint32{0, 0}, [2]uint32{0, 0}, [2]uint32{0x6b200159, 0x99ba4efe}},
		{[2]uint32{0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff}, [2]uint32{0x1cb996fc, 0xbb002be7}},
		{[2]uint32{0x13198a2e, 0x03707344}, [2]uint32{0x243f6a88, 0x85a308d3}, [2]uint32{0xc4923a9c, 0x483df7a0}},
	}
	for _, c := range cases {
		require.Equal(t, c.want, Threefry2x32(c.key, c.counter), "key %08x counter %08x", c.key, c.counter)
	}
}

// randomBitsGoldens are draws of MLX 0.32.0 on a CPU: small ones in full, large
// ones as the SHA-256 of their little-endian bytes.
type randomBitsGoldens struct {
	Split42    []string // the two keys of split(key(42))
	Sequence42 []string // two unkeyed draws of 8 words after seed(42)
	Draws      []struct {
		Seed            string // decimal; negative ones are sign-extended to 64 bits
		Elements, Width int
		Hex, SHA256     string
	}
}

func loadRandomBitsGoldens(t *testing.T) randomBitsGoldens {
	t.Helper()
	raw, err := os.ReadFile("testdata/random_bits.json")
	require.NoError(t, err)
	var g randomBitsGoldens
	require.NoError(t, json.Unmarshal(raw, &g))
	require.NotEmpty(t, g.Draws)
	return g
}

func TestBitsAgreeWithMLX(t *testing.T) {
	for _, d := range loadRandomBitsGoldens(t).Draws {
		t.Run(fmt.Sprintf("seed%s/n%d/width%d", d.Seed, d.Elements, d.Width), func(t *testing.T) {
			seed, err := strconv.ParseInt(d.Seed, 10, 64)
			require.NoError(t, err)
			key := Key(uint64(seed))
			got, err := Bits(key, d.Elements, d.Width)
			require.NoError(t, err)
			require.Len(t, got, d.Elements*d.Width)
			if d.Hex != "" {
				require.Equal(t, d.Hex, hex.EncodeToString(got))
			} else {
				sum := sha256.Sum256(got)
				require.Equal(t, d.SHA256, hex.EncodeToString(sum[:]))
			}
			if d.Width != 4 {
				return
			}
			words := make([]uint32, d.Elements)
			FillWords(words, key)
			for i, w := range words {
				if want := binary.LittleEndian.Uint32(got[4*i:]); w != want || Word(key, d.Elements, i) != want {
					t.Fatalf("element %d: bytes %08x, FillWords %08x, Word %08x", i, want, w, Word(key, d.Elements, i))
				}
			}
		})
	}
}

func TestKeyIsUpperWordFirst(t *testing.T) {
	require.Equal(t, [2]uint32{0x01234567, 0x89abcdef}, Key(0x0123456789abcdef))
	minusOne := int32(-1)
	require.Equal(t, [2]uint32{0xffffffff, 0xffffffff}, Key(uint64(int64(minusOne))))
}

func keyHex(key [2]uint32) string {
	b := binary.LittleEndian.AppendUint32(nil, key[0])
	return hex.EncodeToString(binary.LittleEndian.AppendUint32(b, key[1]))
}

func TestSplitAndSequenceAgreeWithMLX(t *testing.T) {
	g := loadRandomBitsGoldens(t)
	first, second := Split(Key(42))
	require.Equal(t, g.Split42, []string{keyHex(first), keyHex(second)})

	sequence := NewKeySequence(42)
	for _, want := range g.Sequence42 {
		got, err := Bits(sequence.Next(), 8, 4)
		require.NoError(t, err)
		require.Equal(t, want, hex.EncodeToString(got))
	}
}

func TestUnseededSequencesDiffer(t *testing.T) {
	a, b := NewUnseededKeySequence(), NewUnseededKeySequence()
	seen := map[[2]uint32]bool{}
	for range 8 {
		seen[a.Next()] = true
		seen[b.Next()] = true
	}
	require.Len(t, seen, 16)
}

func TestBitsErrors(t *testing.T) {
	_, err := Bits(Key(0), 4, 8)
	require.EqualError(t, err, "random bits: width is 8 bytes, expected 1, 2 or 4")
	_, err = Bits(Key(0), -1, 4)
	require.ErrorContains(t, err, "random bits: -1 elements of 4 bytes")
	_, err = Bits(Key(0), int(^uint(0)>>1), 4)
	require.ErrorContains(t, err, "elements of 4 bytes, expected 0 to")
	empty, err := Bits(Key(0), 0, 2)
	require.NoError(t, err)
	require.Empty(t, empty)
}

func BenchmarkFillWords(b *testing.B) {
	words := make([]uint32, 248320)
	b.SetBytes(int64(4 * len(words)))
	for b.Loop() {
		FillWords(words, Key(42))
	}
}
