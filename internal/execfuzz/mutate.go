package execfuzz

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/etc-ml/etc/runtime/container/containertest"
	"github.com/etc-ml/etc/schema/mlxgraph"
	wire "github.com/etc-ml/etc/schema/program"
)

// Corpus is a set of seeds. A mutant of one may take parts from the others.
type Corpus struct {
	seeds []Seed
	nodes []*mlxgraph.OpNodeT
	// alike has, for each kind of node, the kinds that can replace it: those with the same fields.
	alike map[string][]*mlxgraph.OpNodeT
}

// NewCorpus reads the graphs of the seeds.
func NewCorpus(seeds []Seed) (*Corpus, error) {
	c := &Corpus{alike: map[string][]*mlxgraph.OpNodeT{}}
	known := map[mlxgraph.OpNode]bool{}
	for _, s := range seeds {
		p, err := containertest.TakeApart(s.Name, s.Bytes)
		if err != nil {
			return nil, err
		}
		c.seeds = append(c.seeds, s)
		for _, chain := range p.Graph.InstructionChains {
			for _, in := range chain.Instructions {
				c.nodes = append(c.nodes, in.Op)
				if !known[in.Op.Type] {
					known[in.Op.Type] = true
					key := fields(in.Op)
					c.alike[key] = append(c.alike[key], in.Op)
				}
			}
		}
	}
	return c, nil
}

// Len returns the number of seeds.
func (c *Corpus) Len() int { return len(c.seeds) }

// Seed returns seed number i.
func (c *Corpus) Seed(i int) Seed { return c.seeds[i] }

// Mutant returns a mutated copy of seed number i. It returns an error if the result cannot be encoded.
func (c *Corpus) Mutant(i int, r *rand.Rand) ([]byte, error) {
	p, err := containertest.TakeApart(c.seeds[i].Name, c.seeds[i].Bytes)
	if err != nil {
		return nil, err
	}
	m := &mutation{Rand: r, corpus: c, graph: p.Graph, program: p.Program}
	for range []int{1, 1, 2, 2, 3, 4, 8}[r.IntN(7)] {
		m.change()
	}
	return p.Bytes(128)
}

// mutation changes one graph.
type mutation struct {
	*rand.Rand
	corpus  *Corpus
	graph   *mlxgraph.MLXGraphT
	program *wire.ProgramT
}

func (m *mutation) change() {
	switch m.IntN(20) {
	case 0, 1:
		m.dim()
	case 2:
		m.dtype()
	case 3, 4:
		m.replaceNode()
	case 5:
		m.copyNode()
	case 6:
		m.insertNode()
	case 7:
		m.moveNode()
	case 8, 9:
		m.makeIf()
	case 10:
		m.output()
	case 11:
		m.anything()
	default:
		m.field()
	}
}

// knob is a field of a node that can be set, and its meaning.
type knob struct {
	reflect.Value
	kind knobKind
}

type knobKind int

const (
	number knobKind = iota
	slot
	register
	scalarType
	chain
	optional
	list
)

// knobs collects the fields of a node that can be set.
func knobs(v reflect.Value, name string, out *[]knob) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.Kind() == reflect.Pointer && v.CanSet() && v.Type().Elem().Kind() == reflect.Struct {
			*out = append(*out, knob{v, optional})
		}
		if !v.IsNil() {
			knobs(v.Elem(), name, out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			switch {
			case v.Type() == reflect.TypeFor[mlxgraph.OpNodeT]() && field == "Type":
			case v.Type() == reflect.TypeFor[mlxgraph.TidT]():
				*out = append(*out, knob{v.Field(i), slot})
			case v.Type() == reflect.TypeFor[mlxgraph.VidT]():
				*out = append(*out, knob{v.Field(i), register})
			default:
				knobs(v.Field(i), field, out)
			}
		}
	case reflect.Slice:
		if v.CanSet() {
			*out = append(*out, knob{v, list})
		}
		for i := range v.Len() {
			knobs(v.Index(i), name, out)
		}
	case reflect.String:
	default:
		kind := number
		switch name {
		case "ScalarType":
			kind = scalarType
		case "ThenChainIdx", "ElseChainIdx", "BodyChainIdx":
			kind = chain
		}
		if v.CanSet() {
			*out = append(*out, knob{v, kind})
		}
	}
}

// field changes a field of a node to another plausible value.
func (m *mutation) field() {
	in := m.instruction()
	if in == nil {
		return
	}
	var all []knob
	knobs(reflect.ValueOf(in.Op), "", &all)
	if len(all) > 0 {
		m.turn(all[m.IntN(len(all))])
	}
}

// scalarTypes are ExecuTorch's numbers of the dtypes that MLX has.
var scalarTypes = []int64{0, 1, 2, 3, 4, 5, 6, 11, 15, 28}

func (m *mutation) turn(k knob) {
	set := func(n int64) {
		if k.CanInt() {
			k.SetInt(n)
		} else if k.CanUint() {
			k.SetUint(uint64(n))
		}
	}
	switch k.kind {
	case slot:
		set(int64(m.IntN(max(m.slots(), 1))))
	case register:
		set(int64(m.IntN(int(m.graph.NumValues) + 1)))
	case scalarType:
		set(scalarTypes[m.IntN(len(scalarTypes))])
	case chain:
		set(int64(m.IntN(max(len(m.graph.InstructionChains), 1))))
	case optional:
		if k.IsNil() && k.Type() == reflect.TypeFor[*mlxgraph.TidT]() {
			k.Set(reflect.ValueOf(&mlxgraph.TidT{Idx: uint32(m.IntN(max(m.slots(), 1)))}))
		} else {
			k.SetZero()
		}
	case list:
		m.changeList(k.Value)
	default:
		m.changeNumber(k.Value, set)
	}
}

func (m *mutation) slots() int {
	g := m.graph
	return int(g.NumConstantTensors + g.NumInputTensors + g.NumOutputTensors + g.NumMutableBufferTensors +
		g.NumTempTensors)
}

func (m *mutation) changeNumber(v reflect.Value, set func(int64)) {
	n := []int64{
		0, 1, -1, 2, 3, 4, -2, int64(m.IntN(40)), math.MaxInt32, math.MinInt32, math.MaxInt64, int64(m.Uint64()),
	}[m.IntN(12)]
	near := m.IntN(2) == 0
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanFloat():
		v.SetFloat([]float64{0, 1, -1, 0.5, 2, 1e-6, math.Inf(1), math.NaN(), -1e30}[m.IntN(9)])
	case v.CanInt():
		if near {
			n = v.Int() + int64(m.IntN(5)) - 2
		}
		set(n)
	case v.CanUint():
		if near {
			n = int64(v.Uint()) + int64(m.IntN(5)) - 2
		}
		set(n)
	}
}

func (m *mutation) changeList(v reflect.Value) {
	if v.Len() == 0 {
		return
	}
	i, j := m.IntN(v.Len()), m.IntN(v.Len())
	switch m.IntN(4) {
	case 0:
		v.Set(reflect.AppendSlice(v.Slice3(0, i, i), v.Slice(i+1, v.Len())))
	case 1:
		v.Set(reflect.Append(v, deepCopy(v.Index(i))))
	case 2:
		a, b := v.Index(i).Interface(), v.Index(j).Interface()
		v.Index(i).Set(reflect.ValueOf(b))
		v.Index(j).Set(reflect.ValueOf(a))
	default:
		v.SetLen(i)
	}
}

// dim changes a dim everywhere in the graph and in the program, or in one place only.
func (m *mutation) dim() {
	var dims []*mlxgraph.ShapeDimT
	for _, t := range m.graph.TensorMeta {
		if t != nil {
			dims = append(dims, t.Shape...)
		}
	}
	if len(dims) == 0 {
		return
	}
	from := *dims[m.IntN(len(dims))]
	to := []int32{0, 1, 2, 3, from.Value + 1, from.Value - 1, from.Value * 2, from.Value / 2,
		int32(m.IntN(20))}[m.IntN(9)]
	everywhere := m.IntN(4) > 0
	for _, d := range dims {
		if *d == from && (everywhere || m.IntN(3) == 0) {
			d.Value = to
		}
	}
	if !everywhere {
		return
	}
	for _, plan := range m.program.ExecutionPlan {
		for _, v := range plan.Values {
			if t, ok := v.Val.Value.(*wire.TensorT); ok {
				for i, n := range t.Sizes {
					if n == from.Value || from.Value < 0 && n == from.MaxValue {
						t.Sizes[i] = to
					}
				}
			}
		}
	}
}

// dtype changes a dtype everywhere.
func (m *mutation) dtype() {
	if len(m.graph.TensorMeta) == 0 {
		return
	}
	at := m.graph.TensorMeta[m.IntN(len(m.graph.TensorMeta))]
	if at == nil {
		return
	}
	from, to := at.ScalarType, int8(scalarTypes[m.IntN(len(scalarTypes))])
	for _, t := range m.graph.TensorMeta {
		if t != nil && t.ScalarType == from {
			t.ScalarType = to
		}
	}
	for _, plan := range m.program.ExecutionPlan {
		for _, v := range plan.Values {
			if t, ok := v.Val.Value.(*wire.TensorT); ok && int8(t.ScalarType) == from {
				t.ScalarType = wire.ScalarType(to)
			}
		}
	}
}

// chainOf returns a chain that is not empty, or nil if there is none.
func (m *mutation) chainOf() *mlxgraph.InstructionChainT {
	var some []*mlxgraph.InstructionChainT
	for _, c := range m.graph.InstructionChains {
		if len(c.Instructions) > 0 {
			some = append(some, c)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[m.IntN(len(some))]
}

func (m *mutation) instruction() *mlxgraph.InstructionT {
	c := m.chainOf()
	if c == nil {
		return nil
	}
	return c.Instructions[m.IntN(len(c.Instructions))]
}

// fields returns the names and types of a node's fields as text. Two nodes with equal texts can replace each other.
func fields(n *mlxgraph.OpNodeT) string {
	t, out := reflect.TypeOf(n.Value).Elem(), ""
	for i := range t.NumField() {
		out += t.Field(i).Name + " " + t.Field(i).Type.String() + ";"
	}
	return out
}

// replaceNode changes the kind of a node and leaves its operands.
func (m *mutation) replaceNode() {
	in := m.instruction()
	if in == nil {
		return
	}
	others := m.corpus.alike[fields(in.Op)]
	if len(others) == 0 {
		return
	}
	other := others[m.IntN(len(others))]
	value := reflect.New(reflect.TypeOf(other.Value).Elem())
	value.Elem().Set(reflect.ValueOf(in.Op.Value).Elem().Convert(value.Elem().Type()))
	in.Op = &mlxgraph.OpNodeT{Type: other.Type, Value: value.Interface()}
}

// copyNode repeats a node. The copy writes to the same slot, or to one of its own.
func (m *mutation) copyNode() {
	c := m.chainOf()
	if c == nil {
		return
	}
	in := deepCopy(reflect.ValueOf(c.Instructions[m.IntN(len(c.Instructions))])).Interface().(*mlxgraph.InstructionT)
	c.Instructions = slices.Insert(c.Instructions, m.IntN(len(c.Instructions)+1), in)
	m.retarget(in)
}

// retarget sometimes makes a node write to a new slot.
func (m *mutation) retarget(in *mlxgraph.InstructionT) {
	if m.IntN(2) == 0 {
		return
	}
	if out := reflect.ValueOf(in.Op.Value).Elem().FieldByName("Out"); out.IsValid() {
		if t, ok := out.Interface().(*mlxgraph.TidT); ok && t != nil {
			t.Idx = uint32(m.slots())
			m.graph.NumTempTensors++
		}
	}
}

// insertNode inserts a node of another file. It reads and writes slots of this one.
func (m *mutation) insertNode() {
	c := m.chainOf()
	if c == nil {
		return
	}
	op := m.corpus.nodes[m.IntN(len(m.corpus.nodes))]
	in := &mlxgraph.InstructionT{Op: deepCopy(reflect.ValueOf(op)).Interface().(*mlxgraph.OpNodeT)}
	var all []knob
	knobs(reflect.ValueOf(in.Op), "", &all)
	for _, k := range all {
		if k.kind == slot || k.kind == register || k.kind == chain {
			m.turn(k)
		}
	}
	m.retarget(in)
	c.Instructions = slices.Insert(c.Instructions, m.IntN(len(c.Instructions)+1), in)
}

// moveNode moves a node to another place, or drops it.
func (m *mutation) moveNode() {
	c := m.chainOf()
	if c == nil {
		return
	}
	i := m.IntN(len(c.Instructions))
	in := c.Instructions[i]
	c.Instructions = slices.Delete(slices.Clone(c.Instructions), i, i+1)
	if m.IntN(3) > 0 {
		to := m.graph.InstructionChains[m.IntN(len(m.graph.InstructionChains))]
		to.Instructions = slices.Insert(to.Instructions, m.IntN(len(to.Instructions)+1), in)
	}
}

// makeIf moves some nodes into an arm of a new If. The other arm is empty, or has some of them too.
func (m *mutation) makeIf() {
	c := m.chainOf()
	if c == nil || len(m.graph.InstructionChains) > 8 {
		return
	}
	i := m.IntN(len(c.Instructions))
	n := 1 + m.IntN(min(4, len(c.Instructions)-i))
	taken := slices.Clone(c.Instructions[i : i+n])
	other := &mlxgraph.InstructionChainT{}
	if m.IntN(2) == 0 {
		for _, in := range taken[:m.IntN(n+1)] {
			other.Instructions = append(other.Instructions,
				deepCopy(reflect.ValueOf(in)).Interface().(*mlxgraph.InstructionT))
		}
	}
	cond := &mlxgraph.IntOrVidT{Literal: int64(m.IntN(2))}
	if m.graph.NumValues > 0 && m.IntN(2) == 0 {
		cond = &mlxgraph.IntOrVidT{IsVid: true, Vid: &mlxgraph.VidT{Idx: uint32(m.IntN(int(m.graph.NumValues)))}}
	}
	first := uint32(len(m.graph.InstructionChains))
	arms := []*mlxgraph.InstructionChainT{{Instructions: taken}, other}
	m.graph.InstructionChains = append(m.graph.InstructionChains, arms...)
	node := &mlxgraph.IfNodeT{Cond: cond, ThenChainIdx: first, ElseChainIdx: first + 1}
	if m.IntN(2) == 0 {
		node.ThenChainIdx, node.ElseChainIdx = node.ElseChainIdx, node.ThenChainIdx
	}
	in := &mlxgraph.InstructionT{Op: &mlxgraph.OpNodeT{Type: mlxgraph.OpNodeIfNode, Value: node}}
	c.Instructions = append(append(slices.Clone(c.Instructions[:i]), in), c.Instructions[i+n:]...)
}

// output takes an output from another slot.
func (m *mutation) output() {
	if len(m.graph.OutputMap) == 0 {
		return
	}
	m.graph.OutputMap[m.IntN(len(m.graph.OutputMap))].Idx = uint32(m.IntN(max(m.slots(), 1)))
}

// anything changes a random number in the graph's tables.
func (m *mutation) anything() {
	var all []knob
	knobs(reflect.ValueOf(m.graph), "", &all)
	for range 8 {
		if k := all[m.IntN(len(all))]; k.kind != optional || k.Type() == reflect.TypeFor[*mlxgraph.TidT]() {
			m.turn(k)
			return
		}
	}
}

// deepCopy copies a value and everything that its pointers refer to.
func deepCopy(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(deepCopy(v.Elem()))
		return out
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return deepCopy(v.Elem())
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		for i := range v.NumField() {
			out.Field(i).Set(deepCopy(v.Field(i)))
		}
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(deepCopy(v.Index(i)))
		}
		return out
	}
	return v
}
