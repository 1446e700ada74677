package gpu

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// TestWordsThatChange: what is in the buffer is what a call has, however little was written; after an error all is.
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
		before, first := written, w.sent[0] == nil
		fail = round == 30
		err := w.bring(0, write)
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

// TestSmallUniformsFirst: small uniforms lie before large ones, each in the words of its own, and what changes among
// them is one write.
func TestSmallUniformsFirst(t *testing.T) {
	t.Parallel()
	w := uniforms{}
	for _, size := range []int{8, 5000, 40, smallUniform, 3000, 4} {
		w.slots = append(w.slots, &slot{Slot: plan.Slot{Size: size}})
	}
	w.arrange()
	require.Equal(t, 3*alignment+smallUniform, w.few)
	for i, s := range w.slots {
		require.Equal(t, s.Size <= smallUniform, s.Offset < w.few, "uniform %d", i)
		require.Zero(t, s.Offset%alignment)
		require.LessOrEqual(t, s.Offset+s.Size, w.size)
		for _, o := range w.slots[:i] {
			require.True(t, o.Offset+o.Size <= s.Offset || s.Offset+s.Size <= o.Offset, "uniform %d", i)
		}
	}
	w.content = make([]byte, w.size)
	memory, writes := make([]byte, w.size), 0
	bring := func() {
		writes = 0
		require.NoError(t, w.bring(0, func(at int, p []byte) error { writes++; copy(memory[at:], p); return nil }))
		require.Equal(t, w.content, memory)
	}
	bring()
	for _, i := range []int{0, 2, 5} {
		w.content[w.slots[i].Offset]++
	}
	bring()
	require.Equal(t, 1, writes)
	w.content[w.slots[4].Offset+2999]++
	bring()
	require.Equal(t, 1, writes)
	bring()
	require.Zero(t, writes)
}
