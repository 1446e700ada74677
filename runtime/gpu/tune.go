package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/strided"
)

// tuned notes that the last step can be launched in any of these ways, with the same operands. The step has the
// first of them until the tuner, if there is one, has chosen: it runs them on random numbers from -1 to 1, so that an
// operand of indices says what they must be below.
func tuned[T interface{ Near(T) bool }](b *binder, tunings []T, launch func(T) (kernels.Launch, error)) {
	last := &b.plan.steps[len(b.plan.steps)-1]
	last.ways = func() tune.Ways {
		var w tune.Ways
		var fit []T
		for _, t := range tunings {
			if l, err := launch(t); err == nil {
				w.Launches, fit = append(w.Launches, l), append(fit, t)
			}
		}
		w.Near = func(i, j int) bool { return fit[i].Near(fit[j]) }
		return w
	}
	b.another(last)
}

const (
	// tuneRotate is the memory that the dispatches of a measurement read, in bytes: more than the caches of GPUs hold.
	tuneRotate = 256 << 20
	// tuneRuns bounds the dispatches of a measurement.
	tuneRuns = 256
	// tuneFill bounds the bytes of the arena that get random numbers, in blocks of so many.
	tuneFill, tuneBlock = 64 << 20, 1 << 20
)

// product is the steps of a plan that run one kernel at about one shape.
type product struct {
	key   string
	steps []*step
	bytes int // that they read
}

// choose gives the steps the kernel that was chosen for one of them.
func (t *product) choose(choice kernels.Launch) {
	fitted := map[[3]int]kernels.Launch{} // by the default's threadgroups
	for _, s := range t.steps {
		groups, params := s.launch.Groups, s.launch.Params
		l, ok := fitted[groups]
		if w := s.ways; !ok {
			if l = s.launch; l.Key() != choice.Key() {
				ways := w()
				if i, ok := ways.Find(choice); ok {
					l = ways.Launches[i]
				}
			}
			fitted[groups] = l
		}
		s.launch = l
		s.launch.Params = params
	}
}

// products groups the steps that can be tuned and are worth it.
func (p *plan) products(t *tune.Tuner) (out []*product) {
	at := map[string]*product{}
	for i := range p.steps {
		s := &p.steps[i]
		if s.ways == nil {
			continue
		}
		key := tune.Key(s.launch)
		if at[key] == nil {
			at[key] = &product{key: key}
			out = append(out, at[key])
		}
		at[key].steps = append(at[key].steps, s)
		at[key].bytes += s.bytes
	}
	return slices.DeleteFunc(out, func(q *product) bool { return !t.Worth(q.bytes) })
}

// tune gives the steps of a plan the launches that are fastest on this device, if there is a tuner. The plan has its
// memory, and what kernels read of the call, but is not recorded yet.
func (x *instance) tune(p *plan) {
	if x.exe.tuner == nil {
		return
	}
	products := p.products(x.exe.tuner)
	r := &rotation{instance: x, states: map[*slot]device.Binding{}}
	for _, t := range products {
		r.add(t.steps)
	}
	var open []*product
	var todo []tune.Product
	for _, t := range products {
		if _, known := x.exe.choices[t.key]; !known {
			open = append(open, t)
			todo = append(todo, tune.Product{Ways: t.steps[0].ways(), Bytes: t.bytes, Runs: func() [][]device.Argument { return r.runs(t) }})
		}
	}
	reserve := 0.0
	if slices.ContainsFunc(p.shapes, func(shape []int) bool { return strided.Elements(shape) > 1 }) {
		reserve = 0.5 // a prompt comes first, but time is spent in the plan for one token, which is next
	}
	for i, l := range x.exe.tuner.Choose(todo, reserve) {
		x.exe.choices[open[i].key] = l
	}
	r.close()
	for _, t := range products {
		if l := x.exe.choices[t.key]; !x.exe.known.refused[l.Key()] {
			t.choose(l)
		}
	}
	for i := range p.steps {
		p.steps[i].ways = nil // a plan is tuned once
	}
}

// sound reports whether a launch that is fast gives the right numbers. One that does not is passed over silently, as if it
// were slow.
func (x *executable) sound(l kernels.Launch) bool {
	if len(x.known.prover.Prove([]kernels.Launch{l}, x.kernel)) > 0 {
		x.known.refused[l.Key()] = true
	}
	return !x.known.refused[l.Key()]
}

// rotation gives measurements their buffers: those of the steps of a plan, and weights of others in the place of theirs
// where they have too few to be more than the caches hold.
type rotation struct {
	*instance
	weights []*slot
	at      int // in weights
	offset  int // in weights[at], in bytes

	filled bool                     // whether the arena has numbers
	states map[*slot]device.Binding // memory in the place of states, which stay as they are
	made   []device.Buffer
}

// add adds the weights of steps to those that rotate. They begin where their buffer does, and so are aligned.
func (r *rotation) add(steps []*step) {
	for _, s := range steps {
		for _, o := range s.operands {
			if rotates(o) && o.slot.offset == 0 && !slices.Contains(r.weights, o.slot) {
				r.weights = append(r.weights, o.slot)
			}
		}
	}
}

// rotates reports whether an operand is a weight, or a part of one, and not a few numbers that all runs may share.
func rotates(o operand) bool { return o.slot.fixed && !o.write && o.size >= 16<<10 }

// take gives the next memory of a size among the weights.
func (r *rotation) take(size int) (device.Binding, bool) {
	for range len(r.weights) + 1 {
		s := r.weights[r.at]
		if r.offset+size <= s.size {
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
	for at, size := 0, min(r.arena.size, tuneFill); at < size; at += tuneBlock {
		if err := r.arena.buffer.Write(at, block[:min(tuneBlock, size-at)]); err != nil {
			return err
		}
	}
	return nil
}

// runs are the buffers of the dispatches that measure a product; nil where there is no memory for them.
func (r *rotation) runs(t *product) [][]device.Argument {
	if r.fill() != nil {
		return nil
	}
	var steps []*step // those of the same size
	all := 0          // bytes of all their weights, of which a step may read a part: some of the experts
	seen := map[operand]bool{}
	for _, s := range t.steps {
		if s.launch.Groups != t.steps[0].launch.Groups {
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
	out := make([][]device.Argument, count)
	for i := range out {
		s := steps[i%len(steps)]
		bound := map[operand]device.Binding{}
		for _, o := range s.operands {
			b, ok := bound[o]
			if !ok {
				if b, ok = r.binding(o, i, i >= len(steps) && all < tuneRotate); !ok {
					return nil
				}
				bound[o] = b
			}
			out[i] = append(out[i], device.Argument{Binding: b})
		}
	}
	return out
}

// binding is the memory of an operand in run i; other says that a weight is to be one that the run before did not have.
func (r *rotation) binding(o operand, i int, other bool) (device.Binding, bool) {
	switch {
	case o.below > 0:
		content := make([]byte, o.size)
		for j := 0; 4*j < o.size; j++ {
			binary.LittleEndian.PutUint32(content[4*j:], uint32((i*o.size/4+j)%o.below))
		}
		return r.own(content)
	case o.write && o.slot.state:
		if _, ok := r.states[o.slot]; !ok {
			b, ok := r.own(make([]byte, o.slot.size))
			if !ok {
				return b, false
			}
			r.states[o.slot] = b
		}
		b := r.states[o.slot]
		b.Offset += o.at
		return b, true
	case other && rotates(o):
		if b, ok := r.take(o.size); ok {
			return b, true
		}
	}
	buffer, offset := r.locate(o.slot)
	return device.Binding{Buffer: buffer, Offset: offset + o.at}, true
}

// own is memory of its own.
func (r *rotation) own(content []byte) (device.Binding, bool) {
	m, err := r.exe.device.NewBuffer(max(len(content), alignment))
	if err != nil {
		return device.Binding{}, false
	}
	r.made = append(r.made, m)
	return device.Binding{Buffer: m}, m.Write(0, content) == nil
}

// close frees the memory that was made.
func (r *rotation) close() {
	_ = r.exe.device.Wait() // its error comes up again
	for _, m := range r.made {
		_ = m.Close()
	}
}
