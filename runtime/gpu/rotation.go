package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

const (
	// tuneRotate is the memory that the dispatches of a measurement read, in bytes: more than the caches of GPUs hold.
	tuneRotate = 256 << 20
	// tuneRuns bounds the dispatches of a measurement.
	tuneRuns = 256
	// tuneFill bounds the bytes of the arena that get random numbers, in blocks of so many.
	tuneFill, tuneBlock = 64 << 20, 1 << 20
)

// rotation gives measurements memory: random numbers in the arena, and memory in the place of states.
type rotation struct {
	*instance
	filled bool                        // whether the arena has numbers
	states map[stateKey]device.Binding // memory in the place of states, which stay as they are
	made   []device.Buffer
}

// tuneState is the size in bytes up to which every state has memory of its own in its place. Larger ones, of which a token
// uses a part, share it, lest all states be there twice.
const tuneState = 16 << 20

// stateKey tells the memory in the place of states: by the state, or by its size and the number of the operand that it is.
type stateKey struct {
	slot       *slot
	size, kind int
}

func newRotation(x *instance) *rotation {
	return &rotation{instance: x, states: map[stateKey]device.Binding{}}
}

// fill gives the arena, which holds nothing between calls, random numbers: so that a router chooses other experts in
// every layer, and nothing is NaN.
func (r *rotation) fill() error {
	if r.filled {
		return nil
	}
	r.filled = true
	random := rand.New(rand.NewPCG(1, 2))
	block := make([]byte, 0, tuneBlock)
	for len(block) < tuneBlock {
		block = binary.LittleEndian.AppendUint32(block, math.Float32bits(2*random.Float32()-1))
	}
	for at, size := 0, min(r.arena.Size, tuneFill); at < size; at += tuneBlock {
		if err := r.arena.buffer.Write(at, block[:min(tuneBlock, size-at)]); err != nil {
			return err
		}
	}
	return nil
}

// example is memory with the content of an operand's example in run i.
func (r *rotation) example(o operand, i int) (device.Binding, error) {
	b, err := r.own(o.size)
	if err == nil {
		err = b.Buffer.Write(0, o.example.content(i))
	}
	return b, err
}

// state is memory in the place of a state that operand number n writes. It holds zeros at first.
func (r *rotation) state(o operand, n int) (device.Binding, error) {
	key := stateKey{slot: o.slot}
	if o.slot.Size > tuneState {
		key = stateKey{nil, o.slot.Size, n}
	}
	b, ok := r.states[key]
	if !ok {
		var err error
		if b, err = r.own(o.slot.Size); err != nil {
			return b, err
		}
		r.states[key] = b
	}
	b.Offset += o.at
	return b, nil
}

// own is memory of its own.
func (r *rotation) own(size int) (device.Binding, error) {
	m, err := r.exe.device.NewBuffer(max(size, alignment))
	if err == nil {
		r.made = append(r.made, m)
	}
	return device.Binding{Buffer: m}, err
}

// close frees the memory that was made.
func (r *rotation) close() {
	_ = r.exe.device.Wait() // its error comes up again
	for _, m := range r.made {
		_ = m.Close()
	}
}
