package passes

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes/quantize"
)

// parse reads a module and gives its constants bytes: those of "scalar.f32.2" hold 2, the others numbers
// that depend on their name and type alone.
func parse(t testing.TB, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse(text)
	require.NoError(t, err)
	for _, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		c.Data = ir.Bytes(c.Value.Type.DType, dims, randomTensor(c.Name, c.Value.Type.DType, ints(dims)).Encode())
	}
	return m
}

// randomTensor makes numbers that depend on the arguments alone: floats around 0, small counts.
func randomTensor(name string, d ir.DType, shape []int) *eval.Tensor {
	t, err := eval.NewTensor(d, shape...)
	if err != nil {
		panic(err)
	}
	h := fnv.New64()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	scalar, isScalar := scalarValue(name)
	for i := range t.F {
		if t.F[i] = float32(r.NormFloat64()); isScalar {
			t.F[i] = float32(scalar)
		}
	}
	for i := range t.I {
		if t.I[i] = r.Int64N(3); isScalar {
			t.I[i] = int64(scalar)
		}
		if d == ir.Bool {
			t.I[i] &= 1
		}
		if d == ir.U32 && strings.Contains(name, "packed") {
			t.I[i] = int64(r.Uint32())
		}
	}
	rounded, err := eval.Decode(d, shape, t.Encode())
	if err != nil {
		panic(err)
	}
	return rounded
}

// scalarValue reads the value in the name of a scalar constant, as decomposition names them.
func scalarValue(name string) (float64, bool) {
	rest, ok := strings.CutPrefix(name, "scalar.")
	_, number, found := strings.Cut(rest, ".")
	v, err := strconv.ParseFloat(number, 64)
	return v, ok && found && err == nil
}

func ints(dims []int64) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}

// inputsOf makes inputs of a module that depend on the names of its parameters and on salt; dynamic dims are
// length, or as close as their bounds allow.
func inputsOf(m *ir.Module, salt string, length int64) []eval.Value {
	var out []eval.Value
	for _, p := range m.Entry.Params {
		if p.Type.Kind == ir.IntKind {
			h := fnv.New32()
			h.Write([]byte(p.Param + salt))
			out = append(out, eval.Value{Int: int64(h.Sum32() % 3)})
			continue
		}
		var shape []int
		for _, d := range p.Type.Shape {
			n, ok := d.Const()
			if !ok {
				lo, hi := d.Bounds()
				n = min(max(length, lo), hi)
			}
			shape = append(shape, int(n))
		}
		out = append(out, eval.Value{Tensor: randomTensor(p.Param+salt, p.Type.DType, shape)})
	}
	return out
}

// evaluate runs a module on inputs a few times on one state and gives the outputs of all calls.
func evaluate(t testing.TB, m *ir.Module, p eval.Precision, length int64) []eval.Value {
	t.Helper()
	machine, err := eval.NewMachine(m, p, nil)
	require.NoError(t, err)
	var all []eval.Value
	for _, salt := range []string{"", " again", " and again"} {
		out, err := machine.Run(inputsOf(m, salt, length))
		require.NoError(t, err)
		all = append(all, out...)
	}
	for _, b := range m.Buffers {
		all = append(all, eval.Value{Tensor: machine.Buffer(b)})
	}
	return all
}

var precisions = map[string]eval.Precision{"fp32": eval.FP32, "mixed": eval.Mixed, "strict": eval.Strict}

// requireSameValues compares results bit for bit.
func requireSameValues(t testing.TB, want, got []eval.Value, context string) {
	t.Helper()
	require.Equal(t, len(want), len(got), context)
	for i := range want {
		if want[i].Tensor == nil {
			require.Equal(t, want[i].Int, got[i].Int, "%s: result %d", context, i)
			continue
		}
		require.Equal(t, want[i].Tensor.DType, got[i].Tensor.DType, "%s: result %d", context, i)
		require.Equal(t, want[i].Tensor.Shape, got[i].Tensor.Shape, "%s: result %d", context, i)
		require.Equal(t, want[i].Tensor.F, got[i].Tensor.F, "%s: result %d", context, i)
		require.Equal(t, want[i].Tensor.I, got[i].Tensor.I, "%s: result %d", context, i)
	}
}

// pass finds a pass of the table.
func pass(t testing.TB, name string) Pass {
	t.Helper()
	for _, p := range Table {
		if p.Name == name {
			return p
		}
	}
	require.Fail(t, "no pass has that name", name)
	return Pass{}
}

// apply runs one pass and the verifier.
func apply(t testing.TB, name string, m *ir.Module, o *Options) {
	t.Helper()
	require.NoError(t, pass(t, name).Run(m, o))
	require.NoError(t, ir.Verify(m))
}

// count counts the operations of a name, those in regions too.
func count(m *ir.Module, name string) int {
	n := 0
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == name {
			n++
		}
	})
	return n
}

func minMax(bits, group int) *quantize.Scheme {
	return &quantize.Scheme{Method: quantize.MinMax, Bits: bits, GroupSize: group}
}

// lower runs the passes from decompose on: nodes for all operations, forward's results as they are.
func lower(t testing.TB, m *ir.Module, o *Options) {
	t.Helper()
	for _, p := range Table[slices.Index(Names(), "decompose"):] {
		require.NoError(t, p.Run(m, o))
		require.NoError(t, ir.Verify(m))
	}
}
