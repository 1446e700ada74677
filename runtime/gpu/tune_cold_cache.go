package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

const (
	// tuneBytes is the number of bytes that the dispatches of one measurement read: more than the caches of GPUs hold.
	tuneBytes = 256 << 20
	// tuneRuns bounds the number of dispatches in one measurement.
	tuneRuns = 256
	// tuneFill bounds the bytes of the arena that are filled with random numbers. They are written in blocks of
	// tuneBlock bytes.
	tuneFill, tuneBlock = 64 << 20, 1 << 20
)

// coldCacheBenchmark makes measurements of a kernel in a chain of runs whose weights are not in the GPU's caches. Each
// run reads other weights: those of the steps that use the kernel and, where these fit into the caches, memory of other
// weights.
type coldCacheBenchmark struct {
	*instance
	weights []*slot
	at      int // in weights
	offset  int // the next free byte in weights[at]

	filled bool                        // whether the arena is filled with random numbers
	states map[stateKey]device.Binding // memory that is written instead of the real states
	made   []device.Buffer
}

// tuneState is a size in bytes. A measurement writes to other memory instead of a state, so that the state does not
// change. A state of up to this size gets such memory of its own. Larger states, of which a token uses a part, share it
// if they have the same size and are the same operand of a kernel. Otherwise all states would need memory twice.
const tuneState = 16 << 20

// stateKey identifies the memory that is written instead of a state: by the state, or, for shared memory, by its size
// and the number of the operand.
type stateKey struct {
	slot       *slot
	size, kind int
}

func newColdCacheBenchmark(x *instance) *coldCacheBenchmark {
	return &coldCacheBenchmark{instance: x, states: map[stateKey]device.Binding{}}
}

// add adds the weights of steps to those whose memory measurements may read. Only whole buffers are added, so that they
// are aligned.
func (r *coldCacheBenchmark) add(steps []*step) {
	for _, s := range steps {
		for _, o := range s.operands {
			if replaceable(o) && o.slot.Offset == 0 && !slices.Contains(r.weights, o.slot) {
				r.weights = append(r.weights, o.slot)
			}
		}
	}
}

// replaceable reports whether a measurement may read other memory in place of this operand. It may where the kernel
// only reads the operand, no kernel writes the operand's memory, and the operand has at least 16 KiB. All runs read the
// same memory for smaller operands.
func replaceable(o operand) bool { return o.slot.fixed && !o.write && o.size >= 16<<10 }

// take returns the next size bytes of memory among the weights.
func (r *coldCacheBenchmark) take(size int) (device.Binding, bool) {
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

// fill writes random numbers to the arena, which holds nothing between calls. With them a router chooses different
// experts in every layer, and no result is NaN.
func (r *coldCacheBenchmark) fill() error {
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

// runs returns the dispatches that measure a product: a chain of its own steps. It returns nil where the device has no
// memory for them.
func (r *coldCacheBenchmark) runs(t *product) []device.Dispatch {
	if r.fill() != nil {
		return nil
	}
	var steps []*step // the steps of the same size
	all := 0          // bytes of all their weights, of which a step may read only some, as with experts
	seen := map[operand]bool{}
	for _, s := range t.steps {
		if !t.of(s) {
			continue
		}
		steps = append(steps, s)
		for _, o := range s.operands {
			if replaceable(o) && !seen[o] {
				seen[o] = true
				all += o.size
			}
		}
	}
	count := min(max(2, tuneBytes/(t.bytes/len(t.steps)+1)), tuneRuns)
	if len(t.positions) > 0 {
		// An attention is measured once at each position. It reads no weights, and a call too finds its caches partly
		// in the GPU's caches.
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
				if b, err = r.binding(o, j, i, i >= len(steps) && all < tuneBytes); err != nil {
					return nil
				}
				bound[o] = b
			}
			out[i].Arguments = append(out[i].Arguments, device.Argument{Binding: b})
		}
	}
	return out
}

// binding returns the memory of operand number n in run i. With other a weight is replaced by memory that the run
// before did not read.
func (r *coldCacheBenchmark) binding(o operand, n, i int, other bool) (device.Binding, error) {
	switch {
	case o.synthetic != nil:
		return r.synthetic(o, i)
	case o.write && o.slot.state:
		return r.state(o, n)
	case other && replaceable(o):
		if b, ok := r.take(o.size); ok {
			return b, nil
		}
	}
	buffer, offset := r.locate(o.slot)
	return device.Binding{Buffer: buffer, Offset: offset + o.at}, nil
}

// synthetic returns new memory with the operand's content for run i.
func (r *coldCacheBenchmark) synthetic(o operand, i int) (device.Binding, error) {
	b, err := r.own(o.size)
	if err == nil {
		err = b.Buffer.Write(0, o.synthetic.content(i))
	}
	return b, err
}

// state returns the memory that is written instead of the state that operand number n writes. It is filled with zeros
// at first.
func (r *coldCacheBenchmark) state(o operand, n int) (device.Binding, error) {
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

// own returns a new buffer of size bytes, which close frees.
func (r *coldCacheBenchmark) own(size int) (device.Binding, error) {
	m, err := r.exe.device.NewBuffer(max(size, alignment))
	if err == nil {
		r.made = append(r.made, m)
	}
	return device.Binding{Buffer: m}, err
}

// close frees the memory of the measurements.
func (r *coldCacheBenchmark) close() {
	_ = r.exe.device.Wait() // the next call returns the same error
	for _, m := range r.made {
		_ = m.Close()
	}
}
