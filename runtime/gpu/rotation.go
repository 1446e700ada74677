package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

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

// rotation gives measurements their buffers: those of the steps of a plan, and weights of others in the place of theirs
// where they have too few to be more than the caches hold.
type rotation struct {
	*instance
	weights []*slot
	at      int // in weights
	offset  int // in weights[at], in bytes

	filled bool                        // whether the arena has numbers
	states map[stateKey]device.Binding // memory in the place of states, which stay as they are
	made   []device.Buffer
}

// tuneState is a size in bytes. A measurement writes to other memory in the place of a state, so that the state stays
// as it is. A state of up to this size gets memory of its own for that. Larger states, of which a token uses a part,
// share it where they have the same size and are the same operand of a kernel. Otherwise all states would need memory
// twice.
const tuneState = 16 << 20

// stateKey tells the memory in the place of states: by the state, or by its size and the number of the operand that it
// is.
type stateKey struct {
	slot       *slot
	size, kind int
}

func newRotation(x *instance) *rotation {
	return &rotation{instance: x, states: map[stateKey]device.Binding{}}
}

// add adds the weights of steps to those that rotate. They begin where their buffer does, and so are aligned.
func (r *rotation) add(steps []*step) {
	for _, s := range steps {
		for _, o := range s.operands {
			if rotates(o) && o.slot.Offset == 0 && !slices.Contains(r.weights, o.slot) {
				r.weights = append(r.weights, o.slot)
			}
		}
	}
}

// rotates reports whether a measurement may bind memory of another weight in the place of an operand. It may where the
// kernel only reads the operand, no kernel writes the operand's memory, and the operand has at least 16 KiB. Smaller
// operands are the same memory in all runs.
func rotates(o operand) bool { return o.slot.fixed && !o.write && o.size >= 16<<10 }

// take gives the next memory of a size among the weights.
func (r *rotation) take(size int) (device.Binding, bool) {
	for range len(r.weights) + 1 {
		s := r.weights[r.at]
		if r.offset+size <= s.Size {
			b := device.Binding{Buffer: s.buffer, Offset: r.offset}
			r.offset += (size + alignment - 1) &^ (alignment - 1)
			return b, true
		}
		r.at, r.offset = (r.at+1)%len(r.weights), 0
	}
	return device.Binding{}, false
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

// runs are the dispatches that measure a product in a chain of itself; nil where there is no memory for them.
func (r *rotation) runs(t *product) []device.Dispatch {
	if r.fill() != nil {
		return nil
	}
	var steps []*step // those of the same size
	all := 0          // bytes of all their weights, of which a step may read a part: some of the experts
	seen := map[operand]bool{}
	for _, s := range t.steps {
		if !t.of(s) {
			continue
		}
		steps = append(steps, s)
		for _, o := range s.operands {
			if rotates(o) && !seen[o] {
				seen[o] = true
				all += o.size
			}
		}
	}
	count := min(max(2, tuneRotate/(t.bytes/len(t.steps)+1)), tuneRuns)
	if len(t.positions) > 0 {
		// no weights: of keys and values the last ones were just written in a call, and the others are read by all
		count = len(t.positions)
	}
	out := make([]device.Dispatch, count)
	for i := range out {
		out[i].Barrier = true
		s := steps[i%len(steps)]
		bound := map[operand]device.Binding{}
		for j, o := range s.operands {
			b, ok := bound[o]
			if !ok {
				var err error
				if b, err = r.binding(o, j, i, i >= len(steps) && all < tuneRotate); err != nil {
					return nil
				}
				bound[o] = b
			}
			out[i].Arguments = append(out[i].Arguments, device.Argument{Binding: b})
		}
	}
	return out
}

// binding is the memory of operand number n in run i; other says that a weight is to be one that the run before did not
// have.
func (r *rotation) binding(o operand, n, i int, other bool) (device.Binding, error) {
	switch {
	case o.example != nil:
		return r.example(o, i)
	case o.write && o.slot.state:
		return r.state(o, n)
	case other && rotates(o):
		if b, ok := r.take(o.size); ok {
			return b, nil
		}
	}
	buffer, offset := r.locate(o.slot)
	return device.Binding{Buffer: buffer, Offset: offset + o.at}, nil
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
