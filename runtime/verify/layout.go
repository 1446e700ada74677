package verify

import (
	"cmp"
	"slices"
	"strings"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/schema/program"
)

const (
	// pageSize is Apple's: a weight that begins on a page can be given to a GPU without a copy.
	pageSize = 16 << 10
	// largeWeight is from where a copy is worth a note.
	largeWeight = 64 << 10
)

// metadataPrefix begins the keys of named data that is no weight.
const metadataPrefix = "metadata."

// segments checks that no two segments share bytes: names of equal bytes share a segment instead.
func (c *checker) segments() {
	order := make([]int, 0, len(c.file.Segments()))
	for i, s := range c.file.Segments() {
		if s.Size > 0 {
			order = append(order, i)
		}
	}
	at := func(i int) container.Segment { return c.file.Segments()[i] }
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(at(a).Offset, at(b).Offset), cmp.Compare(a, b))
	})
	for k := 1; k < len(order); k++ {
		a, b := order[k-1], order[k]
		if end := at(a).Offset + at(a).Size; end > at(b).Offset {
			c.find(Warning, "segments", "segment %d at offset %d begins before segment %d ends at %d: writing one "+
				"changes the other",
				b, at(b).Offset, a, end)
		}
	}
}

// namedData checks the names of segments: each stands once, and something uses it.
func (c *checker) namedData(weights map[string]bool) {
	seen := map[string]bool{}
	var unused []string
	for _, n := range c.file.NamedData() {
		if seen[n.Key] {
			c.find(Warning, "named-data", "key %q stands more than once; the first counts", n.Key)
			continue
		}
		seen[n.Key] = true
		if !weights[n.Key] && !strings.HasPrefix(n.Key, metadataPrefix) && n.Key != "etc.build" {
			unused = append(unused, n.Key)
		}
	}
	if len(unused) > 0 {
		c.find(Note, "named-data", "%d of %d pieces of named data are used by no method, the first is %q",
			len(unused), len(seen), unused[0])
	}
}

// alignment notes large weights that a runtime must copy to give them to a GPU.
func (c *checker) alignment(m *container.Method, constants []container.Constant) {
	offsets := map[string]int64{}
	for _, n := range c.file.NamedData() {
		if _, twice := offsets[n.Key]; !twice {
			offsets[n.Key] = c.file.Segments()[n.Segment].Offset
		}
	}
	large, off, first := 0, 0, ""
	for _, k := range constants {
		if len(k.Data) < largeWeight {
			continue
		}
		large++
		if offsets[k.Name]%pageSize != 0 {
			if off++; first == "" {
				first = k.Name
			}
		}
	}
	if off > 0 {
		c.find(Note, "alignment", "method %s: %d of %d weights of %d bytes and more do not begin on a multiple of "+
			"%d, the first is %q at offset %d: a GPU runtime has to copy them",
			m.Name, off, large, largeWeight, pageSize, first, offsets[first])
	}
}

// memoryPlan checks that planned tensors lie within the memory that the method asks for, and that every
// output has some.
func (c *checker) memoryPlan(index int, m *container.Method) {
	var plan program.ExecutionPlan
	c.file.Program().ExecutionPlan(&plan, index)
	var v program.EValue
	for i, value := range m.Values {
		if value.Kind != program.KernelTypesTensor || !value.Tensor.Planned {
			continue
		}
		plan.Values(&v, i)
		var table flatbuffers.Table
		if !v.Val(&table) {
			continue
		}
		var t program.Tensor
		t.Init(table.Bytes, table.Pos)
		a := t.AllocationInfo(nil)
		if a == nil {
			continue
		}
		arena := int64(a.MemoryId())
		if arena < 1 || arena >= int64(len(m.Arenas)) {
			c.find(Error, "memory-plan", "method %s: value %d lies in memory %d, the method plans memories 1 to %d",
				m.Name, i, arena, len(m.Arenas)-1)
			continue
		}
		offset := uint64(a.MemoryOffsetHigh())<<32 | uint64(a.MemoryOffsetLow())
		size, ok := tensorSize(value.Tensor)
		if room := uint64(max(m.Arenas[arena], 0)); !ok || offset > room || size > room-offset {
			c.find(Error, "memory-plan",
				"method %s: value %d, %d bytes at %d, does not lie within memory %d of %d bytes", m.Name, i,
				size, offset, arena, room)
		}
	}
	for i, o := range m.Outputs {
		v := m.Values[o]
		if v.Kind == program.KernelTypesTensor && !v.Tensor.Planned && v.Tensor.Data == nil &&
			!slices.Contains(m.Inputs, o) {
			c.find(Warning, "memory-plan",
				"method %s: output %d has no planned memory: an ExecuTorch caller must provide some", m.Name, i)
		}
	}
}

// tensorSize returns the bytes of a tensor at its largest; false where they fit no memory.
func tensorSize(t *container.Tensor) (uint64, bool) {
	const most = 1 << 62
	element, _ := container.ScalarSize(t.ScalarType)
	n := uint64(element)
	for _, d := range t.Sizes {
		if d == 0 {
			return 0, true
		}
		if n > most/uint64(d) {
			return n, false
		}
		n *= uint64(d)
	}
	return n, true
}
