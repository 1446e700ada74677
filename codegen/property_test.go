package codegen_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/lift"
	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// generator makes random programs of control flow, registers and state over f32[3] values.
type generator struct {
	*rand.Rand
	module *ir.Module
	budget int // operations that are left
}

// scope is what a region can use.
type scope struct {
	b       *ir.Builder
	tensors []*ir.Value
	ints    []*ir.Value
	depth   int
}

func (s *scope) inner(b *ir.Builder) *scope {
	return &scope{b, slices.Clone(s.tensors), slices.Clone(s.ints), s.depth + 1}
}

// forget drops the loads of a buffer, which has been written; of all buffers for nil.
func (s *scope) forget(buffer *ir.Buffer) {
	s.tensors = slices.DeleteFunc(s.tensors, func(v *ir.Value) bool {
		return v.Def != nil && v.Def.Def.Name == "load" && (buffer == nil || v.Def.Buffer == buffer)
	})
}

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

func (g *generator) tensor(s *scope) *ir.Value { return pick(g, s.tensors) }

// intArg is a register or a small literal.
func (g *generator) intArg(s *scope) any {
	if len(s.ints) == 0 || g.IntN(4) == 0 {
		return g.IntN(3)
	}
	return pick(g, s.ints)
}

// operations appends some operations to a region.
func (g *generator) operations(s *scope) {
	for n := 1 + g.IntN(6); n > 0 && g.budget > 0; n-- {
		g.budget--
		switch k := g.IntN(13); {
		case k < 3:
			s.tensors = append(s.tensors, s.b.Value(pick(g, []string{"tanh", "sin", "id_copy"}), nil, g.tensor(s)))
		case k < 6:
			s.tensors = append(s.tensors, s.b.Value(pick(g, []string{"subtract", "multiply", "maximum"}), nil,
				g.tensor(s), g.tensor(s)))
		case k == 6:
			s.ints = append(s.ints, s.b.Value(pick(g, []string{"add_int", "subtract_int"}), nil,
				g.intArg(s), g.intArg(s)))
		case k == 7:
			s.tensors = append(s.tensors,
				s.b.Value("add", nil, g.tensor(s),
					s.b.Value("full", &ir.DTypeAttrs{ScalarType: ir.F32}, []int64{3}, float64(g.IntN(3)))))
			if len(s.ints) > 0 {
				s.tensors = append(s.tensors,
					s.b.Value("add", nil, g.tensor(s),
						s.b.Value("full", &ir.DTypeAttrs{ScalarType: ir.F32}, []int64{3}, pick(g, s.ints))))
			}
		case k == 8:
			s.tensors = append(s.tensors, s.b.Load(pick(g, g.module.Buffers)))
		case k == 9:
			buffer := pick(g, g.module.Buffers)
			if g.IntN(2) == 0 {
				s.b.BufferOp("store", buffer, nil, g.tensor(s))
			} else {
				part := s.b.Value("slice", nil, g.tensor(s), 0, 1, 3)
				s.b.BufferOp("buffer_slice_update", buffer, nil, part, 0, 0, 2)
			}
			s.forget(buffer)
		case k == 10 && s.depth < 4:
			g.branch(s)
		case k == 11 && s.depth < 4:
			g.scan(s)
		case k == 12:
			parts := s.b.Op("split", nil, g.tensor(s), []int64{1, 2}).Results
			s.tensors = append(s.tensors, s.b.Value("concatenate", nil, []*ir.Value{parts[1], parts[0]}))
		}
	}
}

// forgetWritten drops the loads of buffers that the last operation of s has written.
func (g *generator) forgetWritten(s *scope, op *ir.Op) {
	for _, r := range op.Regions {
		r.Walk(func(o *ir.Op) {
			if o.Def.Effect == ir.Writes {
				s.forget(o.Buffer)
			}
		})
	}
}

func (g *generator) branch(s *scope) {
	tensors, ints := g.IntN(3), g.IntN(2)
	arm := func(b *ir.Builder) (out []*ir.Value) {
		in := s.inner(b)
		g.operations(in)
		for range tensors {
			out = append(out, g.tensor(in))
		}
		for range ints {
			v, ok := g.intArg(in).(*ir.Value)
			if !ok {
				v = in.b.Value("add_int", nil, 1, 1)
			}
			out = append(out, v)
		}
		return out
	}
	results := s.b.If(g.intArg(s), arm, arm)
	g.forgetWritten(s, s.b.Region.Ops[len(s.b.Region.Ops)-1])
	s.tensors, s.ints = append(s.tensors, results[:tensors]...), append(s.ints, results[tensors:]...)
}

func (g *generator) scan(s *scope) {
	outputs := g.IntN(3)
	var originals, carry []*ir.Value
	for range 1 + g.IntN(2) {
		originals = append(originals, s.b.Value("stack", nil, []*ir.Value{g.tensor(s), g.tensor(s)}))
	}
	for range g.IntN(4) {
		carry = append(carry, g.tensor(s))
	}
	outs, last := s.b.Scan(0, originals, carry,
		func(b *ir.Builder, slices, carries []*ir.Value) (out, next []*ir.Value) {
			in := s.inner(b)
			in.forget(nil) // a step may write what it would read of a load outside
			in.tensors = append(append(in.tensors, slices...), carries...)
			g.operations(in)
			for range outputs {
				out = append(out, g.tensor(in))
			}
			for i := range carries {
				v := g.tensor(in)
				if g.IntN(3) == 0 { // carries change places
					v = carries[(i+1)%len(carries)]
				}
				next = append(next, v)
			}
			return out, next
		})
	g.forgetWritten(s, s.b.Region.Ops[len(s.b.Region.Ops)-1])
	for _, v := range outs {
		s.tensors = append(s.tensors, s.b.Value("sum", &ir.ReduceAttrs{Axes: []int{0}}, v))
	}
	s.tensors = append(s.tensors, last...)
}

// generate makes a program for a seed.
func generate(t testing.TB, seed uint64) *ir.Module {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	g := &generator{rand.New(rand.NewPCG(seed, 3)), m, 60}
	require.NoError(t, ir.Build(func() {
		f := m.Entry
		s := &scope{b: &ir.Builder{Module: m, Region: f.Body}}
		for i := range 2 {
			s.tensors = append(s.tensors, f.NewParam(fmt.Sprintf("x%d", i), ir.StaticType(ir.F32, 3)))
			m.NewBuffer(fmt.Sprintf("b%d", i), ir.StaticType(ir.F32, 3))
		}
		s.ints = append(s.ints, f.NewParam("n", ir.IntType(ir.Sym(&ir.Symbol{Lo: -1 << 31, Hi: 1<<31 - 1}))))
		s.tensors = append(s.tensors, m.NewConstant("c", ir.StaticType(ir.F32, 3), ir.Float32s([]int64{3}, 0.5, -1, 2)))
		for range 3 {
			g.operations(s)
		}
		for range 1 + g.IntN(4) {
			v := g.tensor(s)
			if len(s.ints) > 0 && g.IntN(4) == 0 {
				v = pick(g, s.ints)
			}
			f.Body.Results, f.Outputs = append(f.Body.Results, v), append(f.Outputs, v.Type)
		}
	}))
	require.NoError(t, ir.Verify(m), "%s", m)
	return m
}

// results runs a module a few times on one state.
func results(t testing.TB, m *ir.Module) (out []eval.Value) {
	t.Helper()
	x, err := eval.NewMachine(m, eval.FP32, nil)
	require.NoError(t, err)
	for n := range 4 {
		r, err := x.Run([]eval.Value{
			{Tensor: eval.Floats(ir.F32, []int{3}, []float32{1, float32(n), -2})},
			{Tensor: eval.Floats(ir.F32, []int{3}, []float32{0.25, -1, float32(n)})}, {Int: int64(n % 3)}})
		require.NoError(t, err)
		out = append(out, r...)
	}
	for _, b := range m.Buffers {
		out = append(out, eval.Value{Tensor: x.Buffer(b)})
	}
	return out
}

// lowering are the passes that a program of nodes still needs.
func lowering() (out []passes.Pass) {
	for _, p := range passes.Table {
		if p.Name == "cse" || p.Name == "dce" || p.Name == "legalize" {
			out = append(out, p)
		}
	}
	return out
}

// encodedAndLifted gives the module of the graph that a module is encoded as, in the bytes of the wire, but
// without a file, which takes its time.
func encodedAndLifted(t testing.TB, m *ir.Module) *ir.Module {
	t.Helper()
	g, err := codegen.Encode(m)
	require.NoError(t, err)
	wire, err := schema.Marshal(schema.MLXGraph(), g)
	require.NoError(t, err)
	method := lift.Method{Name: m.Entry.Name, Graph: mlxgraph.GetRootAsMLXGraph(wire, 0).UnPack(),
		InputCount: len(m.Entry.Params), Metadata: m.Metadata,
		Constant: func(name string) (ir.Data, error) {
			for _, c := range m.Constants {
				if c.Name == name {
					return c.Data, nil
				}
			}
			return nil, fmt.Errorf("no constant %s", name)
		}}
	for i := range m.Entry.Params {
		method.Inputs = append(method.Inputs, i)
	}
	for i, o := range m.Entry.Outputs {
		method.Outputs = append(method.Outputs, lift.Output{Result: i, DType: o.DType})
	}
	out, err := lift.Lift(method)
	require.NoError(t, err)
	return out
}

// TestRandomPrograms: what the last passes make of a random program is written, lifts to itself, and
// computes what the program computes.
func TestRandomPrograms(t *testing.T) {
	ifs, scans := 0, 0
	for seed := range uint64(250) {
		before := generate(t, seed)
		want := results(t, before)
		before.Entry.Body.Walk(func(op *ir.Op) {
			switch op.Def.Name {
			case "if":
				ifs++
			case "scan":
				scans++
			}
		})
		m := generate(t, seed)
		for _, p := range lowering() {
			if p.Name == "legalize" || seed%2 == 0 {
				require.NoError(t, p.Run(m, nil))
				require.NoError(t, ir.Verify(m), "seed %d, pass %s:\n%s", seed, p.Name, m)
			}
		}
		got := encodedAndLifted(t, m)
		if seed%2 == 0 {
			require.Equal(t, m.String(), got.String(), "seed %d", seed)
		} else { // without what nothing uses, which a graph does not tell
			require.Equal(t, got.String(), encodedAndLifted(t, got).String(), "seed %d", seed)
		}
		for i, v := range results(t, got) {
			if v.Tensor == nil {
				require.Equal(t, want[i].Int, v.Int, "seed %d, result %d", seed, i)
				continue
			}
			require.Equal(t, want[i].Tensor.Encode(), v.Tensor.Encode(), "seed %d, result %d", seed, i)
		}
	}
	require.Greater(t, ifs, 400)
	require.Greater(t, scans, 400)
}
