package gpu_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestPacked: on a device where four simdgroups multiply together, products of 17 rows and more take packed ones; those
// of fewer rows, and of small weights, take rows in the order of lanes. There are several products of the same
// rows, one with a residual, and a gated pair. The results are the reference engine's, up to the rounding of rows and
// weights to bf16.
func TestPacked(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(11)
	m := streamedModule(t, random, strings.NewReplacer("[1, 4]", "[1, 128]", "512", "1024").Replace(quantizedLayer),
		"q 80 256", "k 48 256", "gate 1024 256", "up 1024 256", "down 256 1024", "out 72 256")
	for rows, packed := range map[int]bool{2: false, 16: false, 20: true, 40: true, 100: true} {
		if testing.Short() && rows != 16 && rows != 20 {
			continue // the emulator compiles kernels for each number of rows
		}
		run := runPacked(t, m, emulator.Options{Cores: 1, Groups: true, Lanes: true, TransferMemory: 200 << 10})
		compiled := run(random.tensor(t, 1, rows, 32))
		require.Equal(t, packed, compiled["matmul_packed"] > 0, "%d rows: kernels %v", rows, compiled)
		require.Positive(t, compiled["matmul_direct"], "k is small: kernels %v", compiled)
	}
	run := runPacked(t, m, emulator.Options{Cores: 8, Groups: true, TransferMemory: 200 << 10})
	compiled := run(random.tensor(t, 1, 40, 32))
	require.Positive(t, compiled["matmul_packed"], "kernels: %v", compiled)
	require.Zero(t, compiled["matmul_direct"], "kernels: %v", compiled)
}

// TestExpertsInLanes: the experts of some tokens each take rows, and pass them on, in the order of lanes, and the
// shared expert is one of them; with other tiles it is not. A gated norm of heads before a product writes such rows.
func TestExpertsInLanes(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(12)
	text := strings.NewReplacer("[1, 4]", "[1, 128]", "512", "256", "128]", "256]").Replace(residentMixture)
	m := streamedModule(t, random, strings.ReplaceAll(text, "[1, 256]", "[1, 128]"), "gate 8,256 256", "up 8,256 256",
		"down 8,256 256", "gate1 256 256", "up1 256 256", "down1 256 256")
	run := runPacked(t, m, emulator.Options{Cores: 8, Lanes: true, TransferMemory: 200 << 10})
	compiled := run(random.tensor(t, 1, 40, 32))
	require.Equal(t, 2, compiled["experts_direct, shared"], "kernels: %v", compiled)
	require.Zero(t, compiled["matmul_direct"]+compiled["matmul_direct, lanes"], "kernels: %v", compiled)
	run = runPacked(t, m, emulator.Options{Cores: 8})
	compiled = run(random.tensor(t, 1, 40, 32))
	require.Equal(t, 2, compiled["experts_matmul"], "kernels: %v", compiled)
	m = streamedModule(t, random, gatedHeads, "out 1024 256")
	run = runPacked(t, m, emulator.Options{Cores: 1, Groups: true, Lanes: true, TransferMemory: 200 << 10})
	compiled = run(random.tensor(t, 1, 3, 32))
	require.Positive(t, compiled["norm, lanes"], "kernels: %v", compiled)
	compiled = run(random.tensor(t, 1, 30, 32))
	require.Positive(t, compiled["norm"], "packed rows are made by prepare; kernels: %v", compiled)
}

// TestSomeExperts: on a device with matrix units whose operands lanes make, tokens are sorted by expert from four on. If
// the experts have a width for which there are no tiles in the order of lanes, the weights of all their experts are
// read once from five tokens on. On a device without such matrix units neither is so for up to eight tokens.
func TestSomeExperts(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(15)
	module := func(inner string) *ir.Module {
		text := strings.NewReplacer("[1, 4]", "[1, 128]", "512", "256", "128]", inner+"]").Replace(residentMixture)
		text = strings.ReplaceAll(text, "[1, "+inner+"]", "[1, 128]")
		return streamedModule(t, random, text, "gate 8,"+inner+" 256", "up 8,"+inner+" 256", "down 8,256 "+inner,
			"gate1 "+inner+" 256", "up1 "+inner+" 256", "down1 256 "+inner)
	}
	sorted, once := module("256"), module("320")
	for _, c := range []struct {
		module *ir.Module
		rows   int
		kernel string
		short  bool // of the cases that -short runs
	}{
		{sorted, 2, "experts", false}, {sorted, 4, "experts_direct, shared", true}, {sorted, 8, "experts_direct, shared", false},
		{once, 4, "experts", false}, {once, 5, "experts_once", true}, {once, 8, "experts_once", false},
		{once, 12, "experts_sort", false},
	} {
		if testing.Short() && !c.short {
			continue
		}
		run := runPacked(t, c.module, emulator.Options{Cores: 8, Lanes: true, TransferMemory: 200 << 10})
		compiled := run(random.tensor(t, 1, c.rows, 32))
		require.Positive(t, compiled[c.kernel], "%d rows: kernels %v", c.rows, compiled)
		require.Equal(t, c.kernel == "experts_once", compiled["experts_once"] > 0, "%d rows: kernels %v", c.rows, compiled)
		require.Equal(t, strings.HasPrefix(c.kernel, "experts_direct") || c.kernel == "experts_sort",
			compiled["experts_sort"] > 0, "%d rows: kernels %v", c.rows, compiled)
	}
	for _, m := range []*ir.Module{sorted, once} {
		compiled := runPacked(t, m, emulator.Options{Cores: 8})(random.tensor(t, 1, 7, 32))
		require.Zero(t, compiled["experts_once"]+compiled["experts_sort"], "kernels: %v", compiled)
	}
}

// streamedRows is a product of a norm, and one with a residual.
const streamedRows = `module {
  symbol s0 [1, 32]
  constant @in : bf16[1024,32]
  constant @norm : f32[1024]
  CONSTANTS
  entry forward(%in: f32[1,s0,32]) {
    %x = linear(x=%in, weight=@in) : f32[1,s0,1024]
    WEIGHTS
    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,s0,1024]
    %a = linear(x=%n, weight=%wq) : f32[1,s0,512]
    %d = linear(x=%a, weight=%wdown) : f32[1,s0,1024]
    %y = add(a=%x, b=%d) : f32[1,s0,1024]
    return %y: f32[1,s0,1024]
  }
}
`

// TestStreamedRows: on a device with transfers, products of 2 to 8 rows stream their weights, those of more do not.
func TestStreamedRows(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(14)
	m := streamedModule(t, random, streamedRows, "q 512 1024", "down 1024 512")
	for rows, streams := range map[int]int{2: 2, 7: 2, 9: 0} {
		run := runPacked(t, m, emulator.Options{Cores: 8, Lanes: true, TransferLeast: 1, TransferMemory: 200 << 10})
		compiled := run(random.tensor(t, 1, rows, 32))
		require.Equal(t, streams, compiled["matmul_stream"]+compiled["matmul_stream, lanes"], "%d rows: kernels %v", rows,
			compiled)
	}
}

// inLanes names a text, and says where its kernel writes rows in the order of lanes, or packed, and where sorted experts
// have a shared one among them.
func inLanes(s device.Source) string {
	for _, eights := range []string{"4", "8", "16"} {
		if strings.Contains(s.Text, "#define NORM_EIGHTS "+eights+"\n") {
			return s.Name + ", packed"
		}
	}
	if s.Name == "experts_direct" && strings.Contains(s.Text, "#define EXPERTS_SHARED 1\n") {
		return s.Name + ", shared"
	}
	for _, define := range []string{"NORM_LANES", "MATMUL_LANES", "BLOCK_LANES"} {
		if strings.Contains(s.Text, "#define "+define+" 1\n") {
			return s.Name + ", lanes"
		}
	}
	return s.Name
}

// TestRowsInLanes: norms of sums and gated pairs of products write the rows of the products behind them in the order in
// which these read them, and as plain rows where these read them so. No kernel stands between the two.
func TestRowsInLanes(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(13)
	m := streamedModule(t, random, strings.NewReplacer("[1, 4]", "[1, 128]", "512", "4352", "REST", "", "RESULTS",
		"%z: f32[1,s0,72], %y: f32[1,s0,256]").Replace(sandwich), "square 256 256", "gate 4352 256", "up 4352 256",
		"down 256 4352", "out 72 256")
	for _, rows := range []int{2, 8, 12} {
		if testing.Short() && rows != 8 {
			continue
		}
		run := runPacked(t, m, emulator.Options{Cores: 8, Lanes: true, TransferMemory: 200 << 10})
		compiled := run(random.tensor(t, 1, rows, 32))
		require.Positive(t, compiled["norm, lanes"], "%d rows: kernels %v", rows, compiled)
		require.Positive(t, compiled["matmul_direct, lanes"], "%d rows: kernels %v", rows, compiled)
		require.Positive(t, compiled["matmul_direct"], "%d rows: kernels %v", rows, compiled)
	}
	run := runPacked(t, m, emulator.Options{})
	compiled := run(random.tensor(t, 1, 12, 32))
	require.Zero(t, compiled["norm, lanes"], "kernels %v", compiled)
}

// TestRowsPacked: norms of sums write the rows of packed products behind them as these read them, of the last tile too.
func TestRowsPacked(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(15)
	m := streamedModule(t, random, strings.NewReplacer("[1, 4]", "[1, 128]", "512", "1024", "REST", "", "RESULTS",
		"%z: f32[1,s0,72], %y: f32[1,s0,256]").Replace(sandwich), "square 256 256", "gate 1024 256", "up 1024 256",
		"down 256 1024", "out 72 256")
	for _, rows := range []int{20, 40, 100} {
		if testing.Short() && rows != 20 {
			continue
		}
		run := runPacked(t, m, emulator.Options{Cores: 1, Groups: true, Lanes: true, TransferMemory: 200 << 10})
		compiled := run(random.tensor(t, 1, rows, 32))
		require.Positive(t, compiled["norm, packed"], "%d rows: kernels %v", rows, compiled)
	}
}

// gatedHeads is the end of a delta layer: heads, normalized and times the activation of a gate, before a product.
const gatedHeads = `module {
  symbol s0 [1, 128]
  constant @in : bf16[256,32]
  constant @gate : bf16[256,32]
  constant @norm : f32[128]
  CONSTANTS
  entry forward(%in: f32[1,s0,32]) {
    %x = linear(x=%in, weight=@in) : f32[1,s0,256]
    %z = linear(x=%in, weight=@gate) : f32[1,s0,256]
    WEIGHTS
    %h = reshape(x=%x, shape=[1, -1, 2, 128]) : f32[1,s0,2,128]
    %g = reshape(x=%z, shape=[1, -1, 2, 128]) : f32[1,s0,2,128]
    %n = rms_norm(x=%h, weight=@norm) {eps=1e-06} : f32[1,s0,2,128]
    %m = glu(gate=%g, x=%n) {activation="silu"} : f32[1,s0,2,128]
    %r = reshape(x=%m, shape=[1, -1, 256]) : f32[1,s0,256]
    %y = linear(x=%r, weight=%wout) : f32[1,s0,1024]
    return %y: f32[1,s0,1024]
  }
}
`

// runPacked compiles a program for a device, whose kernels pass their self-tests. What it returns compares what the
// program gives in precision mixed with the reference engine, and says how often each text was compiled for that.
func runPacked(t *testing.T, m *ir.Module, o emulator.Options) func(in *eval.Tensor) (compiled map[string]int) {
	t.Helper()
	d := &faulty{fault: refuse(), compiled: map[string]int{}, changed: map[string]int{}, named: inLanes}
	e := gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
		Open: d.opener(func() (device.Device, error) { return emulator.Open(o) })}
	options := engine.Options{Precision: eval.Mixed, Threads: 1, Warn: func(text string) { t.Error(text) }}
	exact := options
	exact.Exact = true
	want, got := compile(t, reference.Engine{}, m, exact), compile(t, e, m, options)
	return func(in *eval.Tensor) map[string]int {
		clear(d.compiled)
		w, err := want.Run(t.Context(), []eval.Value{{Tensor: in}})
		require.NoError(t, err)
		g, err := got.Run(t.Context(), []eval.Value{{Tensor: in}})
		require.NoError(t, err)
		require.Len(t, g, len(w))
		for i := range w {
			requireClose(t, []*eval.Tensor{w[i].Tensor}, []*eval.Tensor{g[i].Tensor}, 2e-2)
		}
		return maps.Clone(d.compiled)
	}
}
