package gpu

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// TestWordsThatChange: what is in the buffer is what a call has, however little was written; behind an error all is.
func TestWordsThatChange(t *testing.T) {
	const size = 5*device.MaxPlaced + 40
	w, r := uniforms{size: size, content: make([]byte, size+7)}, rand.New(rand.NewPCG(1, 2))
	memory, written, fail := make([]byte, size), 0, false
	write := func(at int, p []byte) error {
		if fail {
			return errors.New("no")
		}
		require.LessOrEqual(t, at+len(p), size)
		written += copy(memory[at:], p)
		return nil
	}
	for round := range 60 {
		switch round % 4 {
		case 1:
			w.content[r.IntN(size)]++
		case 2:
			for i := range r.IntN(size) {
				w.content[i]++
			}
		case 3:
			w.content[size-1]++
			w.content[0]++
		}
		before, first := written, w.sent == nil
		fail = round == 30
		err := w.bring(write)
		if fail {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, w.content[:size], memory, "round %d", round)
		if round%4 == 0 && !first {
			require.Equal(t, before, written, "nothing has changed")
		}
		if round%4 == 3 && !first {
			require.LessOrEqual(t, written-before, 2*alignment)
		}
	}
}

// TestEncodeChanged: the bytes are those of the last numbers, whatever part of them has changed.
func TestEncodeChanged(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{1, 255, 256, 1000} {
		numbers, got := make([]int64, size), make([]byte, 4*size)
		var last []int64
		for round := range 20 {
			for range round % 3 {
				numbers[r.IntN(size)] = int64(int32(r.Uint32()))
			}
			last = encodeChanged(got, numbers, last)
			for i, n := range numbers {
				require.Equal(t, uint32(n), binary.LittleEndian.Uint32(got[4*i:]), "number %d of %d", i, size)
			}
		}
	}
}
