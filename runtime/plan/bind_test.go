package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/strided"
)

// entry parses a module whose entry takes %x f32[s0,4,6] and an int that a call tells only when it runs.
func entry(t *testing.T, body string) *ir.Module {
	t.Helper()
	m, err := ir.Parse(`module {
  symbol s0 [0, 7]
  symbol p [-2147483648, 2147483647]
  buffer @b : f32[4,6]
  entry forward(%x: f32[s0,4,6], %n: int(p), %c: i64[3]) {
` + body + `  }
}
`)
	require.NoError(t, err)
	return m
}

// TestSizes: what the shapes of a call tell is known, and nothing else.
func TestSizes(t *testing.T) {
	m := entry(t, `    %0 = slice(x=%x, axis=0, start=%n, stop=9223372036854775807) : f32[max(0,s0-min(s0,max(0,wrap(p,s0)))),4,6]
    %1 = sym_size(a=%x) {dim=0} : int(s0)
    %2 = slice(x=%x, axis=1, start=0, stop=%1) : f32[s0,min(4,s0),6]
    return %0: f32[max(0,s0-min(s0,max(0,wrap(p,s0)))),4,6], %2: f32[s0,min(4,s0),6]
`)
	require.Equal(t, [][]int{{5, 4, 6}, nil, {3}}, Shapes(m, 5))
	s := SizesOf(m.Entry.Params, Shapes(m, 5))
	ops := m.Entry.Body.Ops
	_, ok := s.Dims(ops[0].Result().Type)
	require.False(t, ok)
	shape, ok := s.Dims(ops[2].Result().Type)
	require.True(t, ok)
	require.Equal(t, []int{5, 4, 6}, shape)
	for _, test := range []struct {
		op      *ir.Op
		operand string
		want    int
		ok      bool
	}{{ops[0], "start", 0, false}, {ops[0], "stop", 1<<31 - 1, true}, {ops[2], "stop", 5, true},
		{ops[2], "start", 0, true}} {
		got, ok := s.Integer(test.op, test.operand)
		require.Equal(t, test.ok, ok)
		if ok {
			require.Equal(t, test.want, got)
		}
	}
	for _, test := range []struct {
		shape []int64
		ok    bool
	}{{[]int64{1 << 20, 1 << 10}, true}, {[]int64{1 << 20, 1<<10 + 1}, false}, {[]int64{0, 1 << 31}, true},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1}, true}, {[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1}, false}} {
		_, ok := s.Dims(ir.StaticType(ir.F32, test.shape...))
		require.Equal(t, test.ok, ok, test.shape)
	}
}

// gather reads the elements of a view in row-major order.
func gather(memory []float32, v View) []float32 {
	if len(v.Shape) == 0 {
		return []float32{memory[v.Offset]}
	}
	out := []float32{}
	for i := range v.Shape[0] {
		out = append(out, gather(memory, View{v.Offset + i*v.Strides[0], v.Shape[1:], v.Strides[1:]})...)
	}
	return out
}

// TestViews: a view has the elements that the reference kernels give, whatever the operand is a view of itself.
func TestViews(t *testing.T) {
	m := entry(t, `    %0 = transpose(x=%x) {perm=[2, 0, -2]} : f32[6,s0,4]
    %1 = slice(x=%0, axis=-3, start=-5, stop=9223372036854775807) {step=2} : f32[3,s0,4]
    %2 = take(x=%1, index=-1) {axis=-1} : f32[3,s0]
    %3 = expand_dims(x=%2) {axis=1} : f32[3,1,s0]
    %4 = broadcast_to(x=%3, shape=[2, 3, 5, -1]) : f32[2,3,5,s0]
    %5 = slice(x=%4, axis=2, start=2, stop=2) : f32[2,3,0,s0]
    %6 = reshape(x=%x, shape=[-1, 2, 12]) : f32[s0,2,12]
    %7 = squeeze(x=%3) {dims=[1]} : f32[3,s0]
    %8 = id_copy(x=%7) : f32[3,s0]
    %9 = contiguous(x=%1) : f32[3,s0,4]
    %10 = astype(x=%9) {scalar_type=bf16} : bf16[3,s0,4]
    return %4: f32[2,3,5,s0], %5: f32[2,3,0,s0], %6: f32[s0,2,12], %8: f32[3,s0], %10: bf16[3,s0,4]
`)
	for n := range 4 {
		memory := make([]float32, n*4*6)
		for i := range memory {
			memory[i] = float32(i)
		}
		s := SizesOf(m.Entry.Params, Shapes(m, n))
		seen := map[*ir.Value]View{m.Entry.Params[0]: RowMajor([]int{n, 4, 6})}
		x, err := eval.NewMachine(m, eval.FP32, nil)
		require.NoError(t, err)
		compared := 0
		x.Trace = func(op *ir.Op, results []eval.Value) {
			require.True(t, op.Def.IsView())
			v, ok := ViewOf(op, s, seen[op.Input("x")])
			require.True(t, ok, op.Def.Name)
			require.Equal(t, results[0].Tensor.Shape, v.Shape, op.Def.Name)
			if len(memory) > 0 {
				require.Equal(t, results[0].Tensor.F, gather(memory, v), op.Def.Name)
			}
			seen[op.Result()] = v
			compared++
		}
		_, err = x.Run([]eval.Value{{Tensor: eval.Floats(ir.F32, []int{n, 4, 6}, memory)}, {},
			{Tensor: eval.Ints(ir.I64, []int{3}, make([]int64, 3))}})
		require.NoError(t, err)
		require.Equal(t, len(m.Entry.Body.Ops), compared)
	}
}

// TestNoViews: what depends on the run, goes backwards or cannot be strided is no view.
func TestNoViews(t *testing.T) {
	m := entry(t, `    %0 = slice(x=%x, axis=1, start=%n, stop=4) : f32[s0,4-min(4,max(0,wrap(p,4))),6]
    %1 = slice(x=%x, axis=1, start=3, stop=0) {step=-1} : f32[s0,3,6]
    %2 = take(x=%x, index=%n) {axis=1} : f32[s0,6]
    %3 = take(x=%x, index=%c) {axis=1} : f32[s0,3,6]
    %4 = transpose(x=%x) {perm=[0, 2, 1]} : f32[s0,6,4]
    %5 = silu(x=%x) : f32[s0,4,6]
    return %0: f32[s0,4-min(4,max(0,wrap(p,4))),6], %1: f32[s0,3,6], %2: f32[s0,6], %3: f32[s0,3,6], %4: f32[s0,6,4], %5: f32[s0,4,6]
`)
	s := SizesOf(m.Entry.Params, Shapes(m, 3))
	for i, op := range m.Entry.Body.Ops {
		_, ok := ViewOf(op, s, RowMajor([]int{3, 4, 6}))
		require.Equal(t, i == 4, ok, op.Def.Name)
	}
	reshape := entry(t, "    %0 = reshape(x=%x, shape=[-1, 24]) : f32[s0,24]\n    return %0: f32[s0,24]\n").Entry.Body.Ops[0]
	transposed := View{0, []int{3, 4, 6}, []int{24, 1, 4}}
	_, ok := ViewOf(reshape, Sizes{}, RowMajor([]int{3, 4, 6}))
	require.False(t, ok, "of an unknown size")
	_, symbol := reshape.Result().Type.Shape[0].Symbol()
	require.True(t, symbol)
	all := Sizes{}
	for _, d := range reshape.Result().Type.Shape {
		if v, ok := d.Symbol(); ok {
			all[v] = 3
		}
	}
	_, ok = ViewOf(reshape, all, transposed)
	require.False(t, ok, "of columns")
	_, ok = ViewOf(reshape, all, RowMajor([]int{3, 4, 6}))
	require.True(t, ok)
}

// TestHeldLoads: a load stands for the buffer's memory unless something uses it, or a view of it, after a write.
func TestHeldLoads(t *testing.T) {
	const load, write = "    %0 = load @b() : f32[4,6]\n    %1 = slice(x=%0, axis=0, start=1, stop=3) : f32[2,6]\n",
		"    store @b(x=%0)\n"
	for name, test := range map[string]struct {
		body string
		held bool
	}{
		"used before the write": {load +
			"    %2 = silu(x=%1) : f32[2,6]\n    store @b(x=%0)\n    return %2: f32[2,6]\n", true},
		"a view used after it": {load + write + "    %2 = silu(x=%1) : f32[2,6]\n    return %2: f32[2,6]\n", false},
		"a view given back":    {load + write + "    return %1: f32[2,6]\n", false},
		"given back, no write": {load + "    return %1: f32[2,6]\n", true},
		"written in an if": {load + `    %2 = silu(x=%1) : f32[2,6]
    %3 = if(cond=%n) : f32[2,6] {
      store @b(x=%0)
      yield %2
    } else {
      yield %2
    }
    return %3: f32[2,6]
`, false},
		"a result of an if": {load + `    %2 = if(cond=%n) : f32[2,6] {
      yield %1
    } else {
      yield %1
    }
    return %2: f32[2,6]
`, false},
	} {
		m := entry(t, test.body)
		require.Equal(t, map[*ir.Op]bool{m.Entry.Body.Ops[0]: test.held}, InPlaceLoads(m.Entry.Body), name)
	}
}

// TestPlace: slots that live at the same time do not overlap, lie at the alignment, and in an arena of the size that is
// told, which is no larger than all of them one after the other.
func TestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		const alignment = 16
		slots := make([]*Slot, r.IntN(40))
		sum := 0
		for i := range slots {
			first := r.IntN(20)
			slots[i] = &Slot{Size: r.IntN(100), First: first, Last: first + r.IntN(6)}
			sum += (slots[i].Size + alignment - 1) &^ (alignment - 1)
		}
		size := Place(slots, alignment)
		require.LessOrEqual(t, size, sum)
		for i, a := range slots {
			require.Zero(t, a.Offset%alignment)
			require.LessOrEqual(t, a.Offset+a.Size, size)
			for _, b := range slots[:i] {
				if a.First <= b.Last && b.First <= a.Last && a.Size > 0 && b.Size > 0 {
					require.True(t, a.Offset+a.Size <= b.Offset || b.Offset+b.Size <= a.Offset, "%v and %v", a, b)
				}
			}
		}
	})
	slots := []*Slot{{Size: 5, First: 2, Last: 3}, {Size: 20, First: 0, Last: 1}, {Size: 30, First: 0, Last: 2}}
	require.Equal(t, 52, Place(slots, 16))
	require.Equal(t, []*Slot{{5, 2, 3, 32}, {20, 0, 1, 32}, {30, 0, 2, 0}}, slots)
}

func TestRowMajor(t *testing.T) {
	require.Equal(t, View{0, []int{2, 3}, strided.RowMajor([]int{2, 3})}, RowMajor([]int{2, 3}))
}

// TestStored: a step is named after its buffer and its weights, in whichever form these are.
func TestStored(t *testing.T) {
	m, err := ir.Parse(`module {
  constant @w : f32[4,32]
  constant @q.packed : u32[4,4]
  constant @q.scales : f32[4,1]
  buffer @b : f32[1,4]
  entry forward(%x: f32[1,32]) {
    %0 = quantized(packed=@q.packed, scales=@q.scales) {group_size=32, bits=4} : quantized<4,32,f32>[4,32]
    %1 = linear(x=%x, weight=%0) : f32[1,4]
    store @b(x=%1)
    %2 = linear(x=%x, weight=@w) : f32[1,4]
    return %2: f32[1,4]
  }
}
`)
	require.NoError(t, err)
	var got [][]string
	for _, op := range m.Entry.Body.Ops {
		got = append(got, Stored(op))
	}
	require.Equal(t, [][]string{{"@q.packed", "@q.scales"}, {"@q.packed"}, {"@b"}, {"@w"}}, got)
}
