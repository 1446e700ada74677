package gpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// inBlocks is a program of the operations on blocks, for rows of up to three sequences: attention with a window, and
// rows of it that a call wants.
const inBlocks = `module {
  symbol r [1, 32]
  symbol w [1, 32]
  constant @weight : f32[32]
  constant @wq : f32[128,64]
  constant @wk : f32[64,64]
  constant @wv : f32[64,64]
  constant @wg : f32[128,64]
  buffer @k : f32[2,9,4,32]
  buffer @v : f32[2,9,4,32]
  entry forward(%x: f32[1,r,64], %at: i64[r], %of: i32[r], %blocks: i32[3,3], %wanted: i32[w]) {
    %qx = linear(x=%x, weight=@wq) : f32[1,r,128]
    %ky = linear(x=%x, weight=@wk) : f32[1,r,64]
    %vy = linear(x=%x, weight=@wv) : f32[1,r,64]
    %gate = linear(x=%x, weight=@wg) : f32[1,r,128]
    %q = reshape(x=%qx, shape=[1, -1, 4, 32]) : f32[1,r,4,32]
    %kx = reshape(x=%ky, shape=[1, -1, 2, 32]) : f32[1,r,2,32]
    %vx = reshape(x=%vy, shape=[1, -1, 2, 32]) : f32[1,r,2,32]
    %0 = rms_norm(x=%q, weight=@weight) {eps=1e-06} : f32[1,r,4,32]
    %1 = transpose(x=%0) {perm=[0, 2, 1, 3]} : f32[1,4,r,32]
    %2 = transpose(x=%kx) {perm=[0, 2, 1, 3]} : f32[1,2,r,32]
    %3 = transpose(x=%vx) {perm=[0, 2, 1, 3]} : f32[1,2,r,32]
    %4 = rope_rows(x=%1, positions=%at) {dims=16, base=10000.0} : f32[1,4,r,32]
    %5 = rope_rows(x=%2, positions=%at) {dims=16, base=10000.0} : f32[1,2,r,32]
    block_write @k(update=%5, positions=%at, sequences=%of, blocks=%blocks)
    block_write @v(update=%3, positions=%at, sequences=%of, blocks=%blocks)
    %6 = load @k() : f32[2,9,4,32]
    %7 = load @v() : f32[2,9,4,32]
    %8 = block_attention(q=%4, k=%6, v=%7, positions=%at, sequences=%of, blocks=%blocks) {scale=0.17, window=6} : f32[1,4,r,32]
    %9 = transpose(x=%8) {perm=[0, 2, 1, 3]} : f32[1,r,4,32]
    %10 = reshape(x=%9, shape=[1, -1, 128]) : f32[1,r,128]
    %11 = glu(gate=%gate, x=%10) {activation="sigmoid"} : f32[1,r,128]
    %12 = take(x=%4, index=%wanted) {axis=2} : f32[1,4,w,32]
    %13 = take(x=%2, index=%wanted) {axis=2} : f32[1,2,w,32]
    return %11: f32[1,r,128], %12: f32[1,4,w,32], %13: f32[1,2,w,32]
  }
}
`

// blockCall is a call of rows at positions of sequences.
type blockCall struct{ at, of, blocks, wanted []int64 }

// blockCalls go on from each other: prompts in parts, single tokens, rows of nobody, blocks in any order that wrap
// around.
var blockCalls = []blockCall{
	{[]int64{0, 1, 2, 3, 4, 0, 1, -1}, []int64{0, 0, 0, 0, 0, 2, 2, 0}, []int64{3, 8, -1, -1, -1, -1, 0, -1, -1},
		[]int64{4, 6}},
	{[]int64{5, 2, 0}, []int64{0, 2, 1}, []int64{3, 8, -1, 1, -1, -1, 0, -1, -1}, []int64{0, 1, 2}},
	{[]int64{6, 7, 8, 3}, []int64{0, 0, 0, 2}, []int64{3, 8, 5, 1, -1, -1, 0, -1, -1}, []int64{3}},
	{[]int64{9, 10, 11, 12, 13}, []int64{0, 0, 0, 0, 0}, []int64{7, 8, 5, 1, -1, -1, 0, -1, -1}, []int64{4}},
}

func (c blockCall) inputs(t *testing.T, random normal) []eval.Value {
	n := len(c.at)
	return []eval.Value{{Tensor: random.tensor(t, 1, n, 64)}, {Tensor: eval.Ints(ir.I64, []int{n}, c.at)},
		{Tensor: eval.Ints(ir.I32, []int{n}, c.of)}, {Tensor: eval.Ints(ir.I32, []int{3, 3}, c.blocks)},
		{Tensor: eval.Ints(ir.I32, []int{len(c.wanted)}, c.wanted)}}
}

func blocksModule(t *testing.T) (*ir.Module, normal) { return moduleOf(t, inBlocks) }

// moduleOf parses a program like inBlocks, and fills its constants.
func moduleOf(t *testing.T, text string) (*ir.Module, normal) {
	t.Helper()
	m, err := ir.Parse(text)
	require.NoError(t, err)
	random := normals(4)
	random.fill(t, m, 0.125)
	return m, random
}

// requireBlocks runs the calls on both instances and requires the same of them.
func requireBlocks(t *testing.T, want, got engine.Instance, random normal) {
	t.Helper()
	for _, c := range blockCalls {
		in := c.inputs(t, random)
		a, err := want.Run(t.Context(), in)
		require.NoError(t, err)
		b, err := got.Run(t.Context(), in)
		require.NoError(t, err)
		for i := range a {
			requireClose(t, []*eval.Tensor{a[i].Tensor}, []*eval.Tensor{b[i].Tensor}, 1e-5)
		}
	}
	before, err := want.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	after, err := got.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	for i := range before {
		requireClose(t, []*eval.Tensor{before[i].Tensor}, []*eval.Tensor{after[i].Tensor}, 1e-5)
	}
}

// TestBlocks: rows of many sequences give what the reference engine gives, with and without the kernel that rotates and
// writes at once; and what tables name that is not there is refused before anything runs.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for name, apart := range map[string][]string{"at once": nil, "apart": {"rope-write"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, random := blocksModule(t)
			o := engine.Options{Precision: eval.FP32, Threads: 1, Warn: func(text string) { t.Error(text) }}
			truth := compile(t, reference.Engine{}, m, o)
			o.DisablePasses = apart
			x := compile(t, onDevice(t), m, o)
			requireBlocks(t, truth, x, random)
			for want, c := range map[string]blockCall{
				"row 1 is of sequence 3, the table of blocks has 3": {[]int64{0, 1}, []int64{0, 3},
					blockCalls[0].blocks, []int64{0}},
				"row 0: position 8 of sequence 0 is in block -1 of 9": {[]int64{8, 1}, []int64{0, 2},
					blockCalls[0].blocks, []int64{0}},
				"row 1: position 4 of sequence 1 is in block 9 of 9": {[]int64{0, 4}, []int64{0, 1},
					[]int64{0, 1, 2, 3, 9, 4, 5, 6, 7}, []int64{0}},
				"row 1: position 1073741824, want less than 2^30": {[]int64{0, 1 << 30}, []int64{0, 1},
					blockCalls[0].blocks, []int64{0}},
				"row 0: position 0 of sequence 2 is in block 9 of 9": {[]int64{5}, []int64{2},
					[]int64{0, 1, 2, 3, 4, 5, 9, 7, 8}, []int64{0}},
				"row 0 is of sequence -1, the table of blocks has 3": {[]int64{0}, []int64{-1},
					blockCalls[0].blocks, []int64{0}},
				"row 1: position 3 of sequence 1 is in block 1000 of 9": {[]int64{3, 3}, []int64{0, 1},
					[]int64{0, 1, 2, 1000, 0, 0, 0, 0, 0}, []int64{0}},
				"row 2: position 4 of sequence 2 is in block -1 of 9": {[]int64{2, 3, 4}, []int64{2, 2, 2},
					blockCalls[0].blocks, []int64{0}},
			} {
				_, err := x.Run(t.Context(), c.inputs(t, random))
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestFewRowsInBlocks: rotation, writes and attention of a few rows are one kernel, which gives what the
// reference engine gives. It refuses rows of a sequence that do not follow each other.
func TestFewRowsInBlocks(t *testing.T) {
	t.Parallel()
	m, random := moduleOf(t, strings.NewReplacer(
		"return %11: f32[1,r,128], %12: f32[1,4,w,32], %13", "return %11: f32[1,r,128], %13",
		"    %12 = take(x=%4, index=%wanted) {axis=2} : f32[1,4,w,32]\n", "").Replace(inBlocks))
	o := engine.Options{Precision: eval.FP32, Threads: 1, Warn: func(text string) { t.Error(text) }}
	x := compile(t, onDevice(t), m, o)
	requireBlocks(t, compile(t, reference.Engine{}, m, o), x, random)
	for _, c := range []blockCall{{[]int64{2, 1, 3}, []int64{0, 2, 0}, blockCalls[0].blocks, []int64{0}},
		{[]int64{3, 2}, []int64{0, 0}, blockCalls[0].blocks, []int64{0}},
		{[]int64{1, 3}, []int64{0, 0}, blockCalls[0].blocks, []int64{0}},
		{[]int64{1, 0, 3}, []int64{0, 2, 0}, blockCalls[0].blocks, []int64{0}},
		{[]int64{1, -1, 3}, []int64{0, 0, 0}, blockCalls[0].blocks, []int64{0}}} {
		_, err := x.Run(t.Context(), c.inputs(t, random))
		require.ErrorContains(t, err, "of sequence 0, want rows of a sequence one after another")
	}
}

// TestBlocksBeforeProducts: rows of several sequences whose attention a product follows give what the reference engine
// gives. The only row of a call is rotated, written and attended to in one kernel, whether it is of a sequence or not.
// In precision mixed attention rounds several rows for the product, in the order of lanes where that reads them so.
func TestBlocksBeforeProducts(t *testing.T) {
	t.Parallel()
	emulated(t)
	text := strings.NewReplacer("  constant @wg", "  CONSTANTS\n  constant @wg", "    %12 = take",
		"    WEIGHTS\n    %14 = linear(x=%11, weight=%wo) : f32[1,r,64]\n    %12 = take",
		"x=%4, index=%wanted) {axis=2} : f32[1,4,w,32]", "x=%14, index=%wanted) {axis=1} : f32[1,w,64]",
		"return %11: f32[1,r,128], %12: f32[1,4,w,32]", "return %14: f32[1,r,64], %12: f32[1,w,64]").Replace(inBlocks)
	blocks := []int64{3, 8, -1, 1, -1, -1, 0, 2, -1}
	calls := []blockCall{
		{[]int64{0, 1, 2, 3, 4, 0, 1, 2, 3, -1, 0, 1}, []int64{0, 0, 0, 0, 0, 2, 2, 2, 2, 0, 1, 1}, blocks, []int64{4, 8}},
		{[]int64{5}, []int64{0}, blocks, []int64{0}}, {[]int64{4}, []int64{2}, blocks, []int64{0}},
		{[]int64{-1}, []int64{0}, blocks, []int64{0}}, {[]int64{6, 2}, []int64{0, 1}, blocks, []int64{1, 0}},
		{[]int64{5}, []int64{2}, blocks, []int64{0}},
	}
	for name, c := range map[string]struct {
		precision eval.Precision
		device    emulator.Options
		tolerance float64
		merge     string
	}{
		"exact": {eval.FP32, emulator.Options{}, 1e-5, "block_attention"},
		"rows":  {eval.Mixed, emulator.Options{}, 2e-2, "block_attention"},
		"lanes": {eval.Mixed, emulator.Options{Cores: 8, Lanes: true}, 2e-2, "block_attention, lanes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := normals(4)
			m := streamedModule(t, random, text, "o 64 128")
			o := engine.Options{Precision: c.precision, Threads: 1, Warn: func(text string) { t.Error(text) }}
			d := &faulty{fault: refuse(), compiled: map[string]int{}, changed: map[string]int{}, named: inLanes}
			x := compile(t, gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
				Open: d.opener(func() (device.Device, error) { return emulator.Open(c.device) })}, m, o)
			truth := compile(t, reference.Engine{}, m, o)
			clear(d.compiled)
			for _, call := range calls {
				in := call.inputs(t, random)
				want, err := truth.Run(t.Context(), in)
				require.NoError(t, err)
				got, err := x.Run(t.Context(), in)
				require.NoError(t, err)
				for j := range want {
					requireClose(t, []*eval.Tensor{want[j].Tensor}, []*eval.Tensor{got[j].Tensor}, c.tolerance)
				}
			}
			require.NotZero(t, d.compiled["attention_step"], "%v", d.compiled)
			require.NotZero(t, d.compiled[c.merge], "%v", d.compiled)
			_, err := x.Run(t.Context(), blockCall{[]int64{8}, []int64{0}, blocks, []int64{0}}.inputs(t, random))
			require.ErrorContains(t, err, "row 0: position 8 of sequence 0 is in block -1 of 9")
		})
	}
}

// TestBlocksByTiles: in precision mixed, rows that are many of one sequence go by tiles beside others that do not;
// where their kernel is wrong, nothing does.
func TestBlocksByTiles(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("[2,9,4,32]", "[2,24,4,32]", "f32[2,24", "bf16[2,24", "i32[3,3]",
		"i32[3,8]").Replace(inBlocks)
	text = strings.ReplaceAll(text, "f32[2,24", "bf16[2,24")
	for name, fault := range map[string]func(string, string) (string, error){
		"right": refuse(), "wrong": replace("attention_chunk", "1.0f / tile_row_sum(l[r])",
			"0.9f / tile_row_sum(l[r])"),
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "wrong" {
				t.Skip("-short: TestWrongSlotKernels has other kernels that are wrong")
			}
			t.Parallel()
			m, err := ir.Parse(text)
			require.NoError(t, err)
			random := normals(4)
			random.fill(t, m, 0.125)
			d := &faulty{fault: fault, compiled: map[string]int{}, changed: map[string]int{}}
			var warnings []string
			o := engine.Options{Precision: eval.Mixed, Threads: 1,
				Warn: func(text string) { warnings = append(warnings, text) }}
			x := compile(t, gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
				Open: d.opener(onDevice(t).(gpu.Engine).Open)}, m, o)
			truth := compile(t, reference.Engine{}, m, o)
			var at, of []int64
			for i := range 23 {
				at, of = append(at, int64(i%20)), append(of, int64(i/20))
			}
			blocks := []int64{20, 3, 4, 5, 9, 8, 7, 6, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
			calls := []blockCall{{at, of, blocks, []int64{19, 22}},
				{[]int64{20, 3, -1}, []int64{0, 1, 0}, blocks, []int64{0}}}
			for _, c := range calls {
				in := c.inputs(t, random)
				in[len(in)-2].Tensor.Shape = []int{3, 8}
				want, err := truth.Run(t.Context(), in)
				require.NoError(t, err)
				got, err := x.Run(t.Context(), in)
				require.NoError(t, err)
				requireClose(t, []*eval.Tensor{want[0].Tensor}, []*eval.Tensor{got[0].Tensor}, 3e-2)
			}
			require.NotZero(t, d.compiled["attention_chunk"], "%v", d.compiled)
			all := strings.Join(warnings, "\n")
			require.Equal(t, name == "wrong", strings.Contains(all, "attention_chunk/attention_chunk is off by "), all)
		})
	}
}

// TestUnits: parts of buffers are read as they are, and written exactly: of both dtypes, in any order, one after the
// other or not, and none where a number is negative.
func TestUnits(t *testing.T) {
	t.Parallel()
	text := strings.Replace(inBlocks, "@v : f32", "@v : bf16", 1)
	m, err := ir.Parse(strings.Replace(text, "%7 = load @v() : f32", "%7 = load @v() : bf16", 1))
	require.NoError(t, err)
	random := normals(6)
	random.fill(t, m, 1)
	x := compile(t, onDevice(t), m, engine.Options{Precision: eval.Mixed, Threads: 1})
	units, state := x.(engine.Units), x.(engine.Stateful)
	content := []engine.State{{Buffer: "k", Tensor: random.tensor(t, 2, 9, 4, 32)},
		{Buffer: "v", Tensor: random.tensor(t, 2, 9, 4, 32)}}
	for i, v := range content[1].Tensor.F {
		content[1].Tensor.F[i] = numeric.BF16ToF32(numeric.F32ToBF16(v))
	}
	content[1].Tensor.DType = ir.BF16
	require.NoError(t, state.Restore(content))
	const each = 4 * 32
	for i, b := range content {
		got, err := units.ReadUnits(b.Buffer, 1, []int32{5, 6, 7, 1})
		require.NoError(t, err)
		read, err := eval.Decode(b.Tensor.DType, []int{2, 4, 4, 32}, got)
		require.NoError(t, err)
		for h := range 2 {
			for j, id := range []int{5, 6, 7, 1} {
				require.Equal(t, b.Tensor.F[(9*h+id)*each:][:each], read.F[(4*h+j)*each:][:each])
			}
		}
		require.NoError(t, units.WriteUnits(b.Buffer, 1, []int32{0, -1, 3, 4}, got))
		for h := range 2 {
			for j, id := range map[int]int{0: 0, 2: 3, 3: 4} {
				copy(b.Tensor.F[(9*h+id)*each:][:each], read.F[(4*h+j)*each:][:each])
			}
		}
		after, err := state.Snapshot()
		require.NoError(t, err)
		require.Equal(t, b.Tensor.F, after[i].Tensor.F)
		_, err = units.ReadUnits(b.Buffer, 1, []int32{9})
		require.EqualError(t, err, fmt.Sprintf("unit 9 of buffer @%s, which has 9", b.Buffer))
		require.ErrorContains(t, units.WriteUnits(b.Buffer, 1, []int32{0}, got), "the content of buffer @")
	}
	enginetest.Units(t, onDevice(t))
	_, err = units.ReadUnits("none", 1, nil)
	require.EqualError(t, err, "the program has no buffer @none")
}

// TestWrongBlockKernels: what fails its self-test is not used.
func TestWrongBlockKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestBlocks has the kernels, and TestWrongSlotKernels others that are wrong")
	}
	t.Parallel()
	for want, fault := range map[string]func(string, string) (string, error){
		"block_attention/block_attention_merge is off by ": replace("block_attention", "position - ATT_WINDOW + 1",
			"position - ATT_WINDOW + 2"),
		"rope/rope_row_angles is off by ": replace("rope", "float(positions[t])",
			"float(positions[0] + t)"),
		"rope/rope is off by ": replace("rope", "position % ROPE_BLOCK_ROWS",
			"(position + 1) % ROPE_BLOCK_ROWS"),
		"blocks/block_write is off by ": func(file, text string) (string, error) {
			if file == "rope" && strings.Contains(text, "#define ROPE_BLOCK_ROWS 4\n") {
				return refuse("rope")(file, text)
			}
			return replace("blocks", "position % BLOCK_ROWS", "(position + 1) % BLOCK_ROWS")(file, text)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m, random := blocksModule(t)
			d := &faulty{fault: fault, compiled: map[string]int{}, changed: map[string]int{}}
			var warnings []string
			o := engine.Options{Precision: eval.FP32, Threads: 1,
				Warn: func(text string) { warnings = append(warnings, text) }}
			x := compile(t, gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
				Open: d.opener(onDevice(t).(gpu.Engine).Open)}, m, o)
			requireBlocks(t, compile(t, reference.Engine{}, m, o), x, random)
			require.NotEmpty(t, d.changed)
			require.Contains(t, strings.Join(warnings, "\n"), want)
		})
	}
}
