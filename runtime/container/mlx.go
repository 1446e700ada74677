package container

import (
	"fmt"
	"strconv"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

// MLXBackend is the id of the delegate that MLX reads.
const MLXBackend = "MLXBackend"

// Limits of ExecuTorch's MLX delegate.
const (
	mlxVersion     = 1
	maxSlots       = 1_000_000
	maxBufferBytes = 4 << 30
)

// MLX is the graph of an MLX delegate, bound to a call of it.
//
// Tensor slots are numbered constants first, then inputs, outputs, mutable buffers and temporaries, as many of
// each as Graph says. Every slot and register that the graph names exists, and every chain. Chains do not run
// themselves; unfolded they nest at most 256 deep and have at most a million instructions.
type MLX struct {
	Graph     *mlxgraph.MLXGraphT
	Constants []Constant // by Tid

	// Inputs has one index for each element of Graph.InputMap, in its order: that of the method's value that the
	// delegate is called with there. Outputs is the same for Graph.OutputMap.
	Inputs, Outputs []int
}

// Constant is a tensor whose bytes are in the file, row-major.
type Constant struct {
	Name       string // key of the named data
	ScalarType program.ScalarType
	Shape      []int
	Data       []byte // exactly the bytes that type and shape make, a view of the file
}

// MLX reads the graph of the delegate that a call of the method runs, and checks it against the file: all that
// can be checked without knowing what the nodes do.
func (f *File) MLX(m *Method, call int) (*MLX, error) {
	if call < 0 || call >= len(m.Calls) {
		return nil, fmt.Errorf("%s: method %q has %d delegate calls, there is no call %d", f.name,
			m.Name, len(m.Calls), call)
	}
	var out *MLX
	err := f.guard(func() (err error) {
		out, err = f.parseMLX(m, m.Calls[call])
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (f *File) parseMLX(m *Method, call DelegateCall) (*MLX, error) {
	d := m.Delegates[call.Delegate]
	if d.ID != MLXBackend {
		return nil, f.wrong(d.Offset, "method "+m.Name, "delegate of the backend %q, expected %q", d.ID, MLXBackend)
	}
	buf, err := schema.MLXGraphBytes(d.Payload)
	if err != nil {
		return nil, f.wrong(d.Offset, "header of the MLX payload", "%v", err)
	}
	c := &mlxCheck{file: f, base: d.Offset + schema.MLXHeaderSize}
	if err := schema.Verify(schema.MLXGraph(), buf, schema.MLXGraph().Identifier()); err != nil {
		return nil, f.unverified(err, c.base, "graph.")
	}
	c.root = mlxgraph.GetRootAsMLXGraph(buf, 0)
	c.graph = c.root.UnPack()
	for _, check := range []func() error{c.version, c.counts, c.tensorMeta, c.buffers, c.maps, c.namedSlots, c.chains} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	out := &MLX{Graph: c.graph}
	if out.Constants, err = c.constants(); err != nil {
		return nil, err
	}
	return out, c.bind(out, m, call)
}

// mlxCheck is the state of the checks of one graph.
type mlxCheck struct {
	file  *File
	base  int64 // of the graph in the file
	root  *mlxgraph.MLXGraph
	graph *mlxgraph.MLXGraphT

	tensors    uint32 // tensor slots
	permanent  uint32 // of these, those that are not temporaries and have metadata
	bufferFrom uint32 // first mutable buffer
}

func (c *mlxCheck) wrong(field, format string, args ...any) error {
	return c.file.wrong(c.base, "graph."+field, format, args...)
}

func (c *mlxCheck) version() error {
	v := c.graph.Version
	if v == "" {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return c.wrong("version", "%q, expected a number", v)
	}
	if n > mlxVersion {
		return c.wrong("version", "%d, this version reads up to %d: the file needs a newer program", n, mlxVersion)
	}
	return nil
}

// counts adds up the kinds of slots, which must have metadata unless they are temporaries.
func (c *mlxCheck) counts() error {
	g := c.graph
	buffers := uint64(g.NumConstantTensors) + uint64(g.NumInputTensors) + uint64(g.NumOutputTensors)
	permanent := buffers + uint64(g.NumMutableBufferTensors)
	tensors := permanent + uint64(g.NumTempTensors)
	if tensors > maxSlots || g.NumValues > maxSlots {
		return c.wrong("num_…", "%d tensors and %d registers, at most %d of each are possible",
			tensors, g.NumValues, maxSlots)
	}
	c.bufferFrom, c.permanent, c.tensors = uint32(buffers), uint32(permanent), uint32(tensors)
	if n := uint64(len(g.TensorMeta)); n < permanent || n > tensors {
		return c.wrong("tensor_meta", "%d entries for %d tensors that are not temporaries and %d that are", n,
			permanent, g.NumTempTensors)
	}
	return nil
}

// mlxType reports whether MLX has tensors of a type.
func mlxType(t program.ScalarType) bool {
	switch t {
	case program.ScalarTypeBYTE, program.ScalarTypeCHAR, program.ScalarTypeSHORT, program.ScalarTypeINT,
		program.ScalarTypeLONG,
		program.ScalarTypeHALF, program.ScalarTypeFLOAT, program.ScalarTypeBOOL, program.ScalarTypeBFLOAT16,
		program.ScalarTypeUINT32:
		return true
	}
	return false
}

func (c *mlxCheck) tensorMeta() error {
	for i, meta := range c.graph.TensorMeta {
		wrong := func(part, format string, args ...any) error {
			return c.wrong(fmt.Sprintf("tensor_meta[%d].%s", i, part), format, args...)
		}
		if t := program.ScalarType(meta.ScalarType); !mlxType(t) {
			return wrong("scalar_type", "%v, which MLX does not have", t)
		}
		if len(meta.Shape) > maxRank {
			return wrong("shape", "%d dimensions, at most %d are possible", len(meta.Shape), maxRank)
		}
		for j, d := range meta.Shape {
			switch {
			case d.Value < -1:
				return wrong(fmt.Sprintf("shape[%d]", j), "size %d", d.Value)
			case d.Value == -1 && (d.MinValue < 0 || d.MaxValue < -1 || d.MaxValue != -1 && d.MaxValue < d.MinValue):
				return wrong(fmt.Sprintf("shape[%d]", j), "a size from %d to %d", d.MinValue, d.MaxValue)
			}
		}
		if len(meta.DimOrder) > 0 && !isPermutation(meta.DimOrder, len(meta.Shape)) {
			return wrong("dim_order", "%d, expected a permutation of %d dimensions", meta.DimOrder, len(meta.Shape))
		}
	}
	return nil
}

// static returns the type and shape of a slot whose size must be known, and its bytes.
func (c *mlxCheck) static(tid uint32) (program.ScalarType, []int, int, error) {
	meta := c.graph.TensorMeta[tid]
	field := fmt.Sprintf("tensor_meta[%d].shape", tid)
	shape := make([]int, len(meta.Shape))
	for i, d := range meta.Shape {
		if d.Value < 0 {
			return 0, nil, 0, c.wrong(fmt.Sprintf("%s[%d]", field, i),
				"size is not fixed, as that of a constant or a mutable buffer must be")
		}
		shape[i] = int(d.Value)
	}
	t := program.ScalarType(meta.ScalarType)
	size, fits := byteSize(t, shape)
	if !fits {
		return 0, nil, 0, c.wrong(field, "%d elements do not fit any memory", shape)
	}
	return t, shape, size, nil
}

// buffers checks that the map of mutable buffers holds each of them once and that they can be made.
func (c *mlxCheck) buffers() error {
	seen := make([]bool, c.graph.NumMutableBufferTensors)
	for i, s := range c.graph.MutableBufferMap {
		field := fmt.Sprintf("mutable_buffer_map[%d]", i)
		if s.SlotType != mlxgraph.SlotTypeTensorSlot || s.Idx < c.bufferFrom || s.Idx >= c.permanent {
			return c.wrong(field, "%v %d, mutable buffers are the tensors from %d to before %d", s.SlotType, s.Idx,
				c.bufferFrom, c.permanent)
		}
		if seen[s.Idx-c.bufferFrom] {
			return c.wrong(field, "tensor %d is there twice", s.Idx)
		}
		seen[s.Idx-c.bufferFrom] = true
		_, shape, size, err := c.static(s.Idx)
		if err != nil {
			return err
		}
		if size == 0 || int64(size) > maxBufferBytes {
			return c.wrong(field, "tensor %d of shape %d has %d bytes, expected 1 to %d", s.Idx, shape,
				size, int64(maxBufferBytes))
		}
	}
	for i, mapped := range seen {
		if !mapped {
			return c.wrong("mutable_buffer_map", "mutable buffer %d is not in it", c.bufferFrom+uint32(i))
		}
	}
	return nil
}

// maps checks the slots of the call's arguments: tensors and Ints; inputs do not replace constants.
func (c *mlxCheck) maps() error {
	for _, m := range []struct {
		name  string
		slots []*mlxgraph.SlotVariantT
		from  uint32 // first tensor that may be there
	}{
		{"input_map", c.graph.InputMap, c.graph.NumConstantTensors},
		{"output_map", c.graph.OutputMap, 0},
	} {
		for i, s := range m.slots {
			field := fmt.Sprintf("%s[%d]", m.name, i)
			if err := c.slot(s, field); err != nil {
				return err
			}
			switch s.SlotType {
			case mlxgraph.SlotTypeTensorSlot:
				if s.Idx < m.from {
					return c.wrong(field, "tensor %d is a constant, which an input cannot replace", s.Idx)
				}
			case mlxgraph.SlotTypeIntValueSlot:
			default:
				return c.wrong(field, "%v, expected TensorSlot or IntValueSlot", s.SlotType)
			}
		}
	}
	return nil
}

// slot checks that a slot exists.
func (c *mlxCheck) slot(s *mlxgraph.SlotVariantT, field string) error {
	switch s.SlotType {
	case mlxgraph.SlotTypeTensorSlot:
		if s.Idx >= c.tensors {
			return c.wrong(field, "tensor %d, the graph has %d", s.Idx, c.tensors)
		}
	case mlxgraph.SlotTypeIntValueSlot, mlxgraph.SlotTypeFloatValueSlot, mlxgraph.SlotTypeBoolValueSlot:
		if s.Idx >= c.graph.NumValues {
			return c.wrong(field, "register %d, the graph has %d", s.Idx, c.graph.NumValues)
		}
	default:
		return c.wrong(field, "slot type %d is unknown", s.SlotType)
	}
	return nil
}

func (c *mlxCheck) namedSlots() error {
	for i, n := range c.graph.NamedSlots {
		if err := c.slot(n.Slot, fmt.Sprintf("named_slots[%d] %q", i, n.Name)); err != nil {
			return err
		}
	}
	return nil
}

// constants finds the bytes of every constant. Where a slot has several names the last one counts.
func (c *mlxCheck) constants() ([]Constant, error) {
	out := make([]Constant, c.graph.NumConstantTensors)
	named := make([]bool, len(out))
	for _, n := range c.graph.NamedSlots {
		if n.Slot.SlotType == mlxgraph.SlotTypeTensorSlot && n.Slot.Idx < c.graph.NumConstantTensors {
			out[n.Slot.Idx].Name, named[n.Slot.Idx] = n.Name, true
		}
	}
	for i := range out {
		k := &out[i]
		if !named[i] {
			return nil, c.wrong("named_slots", "constant %d has no name, and so no data", i)
		}
		var size int
		var err error
		if k.ScalarType, k.Shape, size, err = c.static(uint32(i)); err != nil {
			return nil, err
		}
		data, ok := c.file.Lookup(k.Name)
		if !ok {
			return nil, c.wrong("named_slots", "constant %d is %q, which is not in the program's named data", i, k.Name)
		}
		if len(data) != size {
			return nil, c.wrong("named_slots", "constant %d, %q, is %v%d and so %d bytes, its named data has %d",
				i, k.Name, k.ScalarType, k.Shape, size, len(data))
		}
		k.Data = data
	}
	return out, nil
}

// bind checks the arguments of the call against the maps.
func (c *mlxCheck) bind(out *MLX, m *Method, call DelegateCall) error {
	inputs, outputs := c.graph.InputMap, c.graph.OutputMap
	if len(call.Args) != len(inputs)+len(outputs) {
		return c.wrong("input_map", "%d inputs and %d outputs, method %q calls it with %d arguments", len(inputs),
			len(outputs), m.Name, len(call.Args))
	}
	out.Inputs, out.Outputs = call.Args[:len(inputs):len(inputs)], call.Args[len(inputs):]
	for i, s := range inputs {
		if err := c.argument(m.Values[out.Inputs[i]], s, fmt.Sprintf("input_map[%d]", i), m.Name,
			out.Inputs[i]); err != nil {
			return err
		}
		v := m.Values[out.Inputs[i]]
		if v.Kind != program.KernelTypesTensor || int64(s.Idx) >= int64(len(c.graph.TensorMeta)) {
			continue
		}
		if want := program.ScalarType(c.graph.TensorMeta[s.Idx].ScalarType); v.Tensor.ScalarType != want {
			return c.wrong(fmt.Sprintf("input_map[%d]", i), "tensor %d is of type %v, value %d of method %q of type %v",
				s.Idx, want, out.Inputs[i], m.Name, v.Tensor.ScalarType)
		}
	}
	for i, s := range outputs {
		if err := c.argument(m.Values[out.Outputs[i]], s, fmt.Sprintf("output_map[%d]", i), m.Name,
			out.Outputs[i]); err != nil {
			return err
		}
	}
	return nil
}

// argument checks that a value of the method suits a slot.
func (c *mlxCheck) argument(v Value, s *mlxgraph.SlotVariantT, field, method string, index int) error {
	want := program.KernelTypesTensor
	if s.SlotType == mlxgraph.SlotTypeIntValueSlot {
		want = program.KernelTypesInt
	}
	if v.Kind != want {
		return c.wrong(field, "%v, but value %d of method %q is %s", s.SlotType, index, method, describe(v))
	}
	if v.Kind != program.KernelTypesTensor {
		return nil
	}
	if !mlxType(v.Tensor.ScalarType) {
		return c.wrong(field, "value %d of method %q is %s, which MLX does not have", index, method, describe(v))
	}
	if !v.Tensor.Contiguous() {
		return c.wrong(field, "value %d of method %q has its dimensions in the order %d, expected row-major", index,
			method, v.Tensor.DimOrder)
	}
	return nil
}
