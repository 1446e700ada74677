package fuse_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// lengthened is a program that has been made to take calls of up to rows rows, with as much state as they need.
func lengthened(t *testing.T, m *ir.Module, rows int) *ir.Module {
	t.Helper()
	longer, taken, err := fuse.Lengthened(m, fuse.LongCalls{Rows: rows, Room: math.MaxInt64, Precision: eval.FP32},
		passes.Control{Verify: true})
	require.NoError(t, err)
	if taken == 0 {
		require.Equal(t, fuse.CallRows(m), fuse.CallRows(longer))
	} else {
		require.Equal(t, taken, fuse.CallRows(longer))
	}
	return longer
}

// TestLongCalls: a program that takes longer calls than it declares gives what the program gives for the same tokens in
// calls that it declares, also in single tokens after them, when its rings have wrapped around.
func TestLongCalls(t *testing.T) {
	for _, name := range append(fusetest.Names(), fusetest.Neighbours()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			declared := fuse.CallRows(m)
			longer := lengthened(t, m, 1<<20)
			rows := fuse.CallRows(longer)
			require.Greater(t, rows, declared)
			if testing.Short() && declared > 64 {
				t.Skip("-short: long prompts on the reference engine")
			}
			plain, err := fuse.Fuse(m)
			require.NoError(t, err)
			require.Equal(t, fusedOps(plain), fusedOps(longer))
			want, got := instanceOf(t, plain), instanceOf(t, longer)
			n := min(rows-1, 3*declared, 400) / 2
			run := func(i engine.Instance, position, n int) eval.Value {
				in := fusetest.Inputs(m, position, n)
				copy(in[2:], fusetest.Inputs(m, 0, 1)[2:]) // all draw alike
				out, err := i.Run(t.Context(), in)
				require.NoError(t, err)
				return out[0]
			}
			for _, start := range []int{0, n} { // one call of the one, short calls of the other
				var last eval.Value
				for at := start; at < start+n; at += 16 {
					last = run(want, at, min(16, start+n-at))
				}
				near(t, last, run(got, start, n))
			}
			near(t, run(want, 2*n, 1), run(got, 2*n, 1))
		})
	}
}

// instanceOf compiles a program for the reference engine in fp32, where results do not follow from how tokens are cut.
func instanceOf(t *testing.T, m *ir.Module) engine.Instance {
	t.Helper()
	x, err := reference.Engine{}.Compile(m, engine.Options{Precision: eval.FP32})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	return i
}

// near compares logits, whose sums over a longer ring have other roundings, or a token.
func near(t *testing.T, want, got eval.Value) {
	t.Helper()
	require.Equal(t, want.Tensor.Shape, got.Tensor.Shape)
	require.Equal(t, want.Tensor.I, got.Tensor.I)
	for i, v := range want.Tensor.F {
		require.InDelta(t, v, got.Tensor.F[i], 1e-4)
	}
}

// TestLongCallsNeedRoom: rings grow no further than there is room for, and programs without rings need none.
func TestLongCallsNeedRoom(t *testing.T) {
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	declared := fuse.CallRows(m)
	bytes := func(m *ir.Module) (n int64) {
		for _, b := range m.Buffers {
			dims, _ := b.Type.Static()
			n += ir.Elements(dims) * 4
		}
		return n
	}
	all := lengthened(t, m, 1<<20)
	most := bytes(all) - bytes(m)
	require.Positive(t, most)
	before := fuse.CallRows(all) + 1
	for _, room := range []int64{most, most - 1, most / 4, 0} {
		longer, taken, err := fuse.Lengthened(m, fuse.LongCalls{Rows: 1 << 20, Room: room, Precision: eval.FP32},
			passes.Control{})
		require.NoError(t, err)
		rows := fuse.CallRows(longer)
		require.Equal(t, rows > declared, taken > 0)
		require.LessOrEqual(t, bytes(longer)-bytes(m), room)
		require.Less(t, rows, before)
		before = rows
	}
	require.Equal(t, declared, before)
}

// ringProgram is a fused program whose attention has a window of 8 in a ring of 23 rows, for calls of 16 rows.
func ringProgram() string {
	attend := "    %7 = cached_attention(q=%4, k=%5, v=%6, position=%1) {scale=1.0, window=8} : f32[1,1,s0,8]\n"
	return strings.NewReplacer(
		"buffer_slice_update @k(update=%4, axis=2, start=%1, stop=%3)",
		"%12 = mod_int(a=%1, b=23) : int(mod(s2,23))\n    buffer_ring_update @k(update=%4, start=%12) {axis=2}",
		"[1,1,32,8]", "[1,1,23,8]").Replace(smallProgram(attend))
}

// TestLongCallsOfShortRings: a file may declare more rows than its rings have room for, as ExecuTorch's exporter does.
// The
// rings get that room, for fewer rows than it declares, too.
func TestLongCallsOfShortRings(t *testing.T) {
	m := fusetest.Load(t, "gemma4-chat-bf16-ropefix")
	require.Equal(t, 256, fuse.CallRows(m))
	require.Equal(t, "bf16[1,2,127,32]", m.Buffers[0].Type.String())
	for rows, want := range map[int]string{96: "bf16[1,2,192,32]", 64: "bf16[1,2,127,32]"} {
		longer, taken, err := fuse.Lengthened(m, fuse.LongCalls{Rows: rows, Room: math.MaxInt64}, passes.Control{})
		require.NoError(t, err)
		require.Equal(t, want, longer.Buffers[0].Type.String())
		require.Equal(t, rows == 96, taken == 96)
	}
}

// TestNoLongCalls: a program keeps its bound where a longer call may compute something else.
func TestNoLongCalls(t *testing.T) {
	for name, c := range map[string]struct{ old, by string }{
		"as it is": {"%8", "%8"},
		"the last 16 rows": {"%9 = softmax(x=%8)",
			"%13 = slice(x=%8, axis=1, start=-16, stop=2147483647) {step=1} : f32[1,s0,8]\n    %9 = softmax(x=%13)"},
		"rows beside others": {"%9 = softmax(x=%8)",
			"%13 = concatenate(tensors=[%8, %8]) {axis=1} : f32[1,2*s0,8]\n" +
				"    %14 = slice(x=%13, axis=1, start=%2, stop=32) {step=1} : f32[1,s0,8]\n    %9 = softmax(x=%14)"},
		"no window":                   {", window=8", ""},
		"a remainder by another size": {"mod_int(a=%1, b=23) : int(mod(s2,23))", "mod_int(a=%1, b=7) : int(mod(s2,7))"},
		"another use of the remainder": {"%9 = softmax(x=%8)",
			"%13 = full(shape=[8], v=%12) {scalar_type=f32} : f32[8]\n" +
				"    %14 = add(a=%8, b=%13) : f32[1,s0,8]\n    %9 = softmax(x=%14)"},
		"the ring is read as a whole": {"return %9: f32[1,s0,8]",
			"%13 = neg(x=%5) : f32[1,1,23,8]\n    store @other(x=%13)\n    return %9: f32[1,s0,8]"},
		"the ring is an output": {"return %9: f32[1,s0,8]", "return %5: f32[1,1,23,8]"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(ringProgram(), c.old, c.by, 1)
			text = strings.Replace(text, "  entry", "  buffer @other : f32[1,1,23,8]\n  entry", 1)
			m, err := ir.Parse(text)
			require.NoError(t, err)
			longer := lengthened(t, m, 48)
			if name != "as it is" {
				require.Equal(t, 16, fuse.CallRows(longer))
				return
			}
			require.Equal(t, 48, fuse.CallRows(longer))
			require.Equal(t, "f32[1,1,64,8]", longer.Buffers[0].Type.String())
		})
	}
}
