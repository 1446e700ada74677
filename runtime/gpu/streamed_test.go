package gpu_test

import (
	"strconv"
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

// quantizedLayer is products of quantized weights as a layer has them: several of one vector, one with a residual, a
// gated pair. W(name) stands for a weight.
const quantizedLayer = `module {
  symbol s0 [1, 4]
  constant @in : bf16[256,32]
  constant @norm : f32[256]
  CONSTANTS
  entry forward(%in: f32[1,s0,32]) {
    %x = linear(x=%in, weight=@in) : f32[1,s0,256]
    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,s0,256]
    WEIGHTS
    %q, %k = linears(x=%n, weights=[%wq, %wk]) : f32[1,s0,80], f32[1,s0,48]
    %gate, %up = linears(x=%n, weights=[%wgate, %wup]) : f32[1,s0,512], f32[1,s0,512]
    %h = glu(gate=%gate, x=%up) {activation="gelu_tanh"} : f32[1,s0,512]
    %d = linear(x=%h, weight=%wdown) : f32[1,s0,256]
    %y = add(a=%x, b=%d) : f32[1,s0,256]
    %z = linear(x=%y, weight=%wout) : f32[1,s0,72]
    return %y: f32[1,s0,256], %q: f32[1,s0,80], %k: f32[1,s0,48], %z: f32[1,s0,72]
  }
}
`

// sandwich is a layer whose parts are normalized before and behind, with a scale at its end, and the product behind
// that.
const sandwich = `module {
  symbol s0 [1, 4]
  constant @in : bf16[256,32]
  constant @norm1 : f32[256]
  constant @norm2 : f32[256]
  constant @norm3 : f32[256]
  constant @norm4 : f32[256]
  constant @scale : f32[1]
  constant @back : bf16[256,72]
  CONSTANTS
  entry forward(%in: f32[1,s0,32]) {
    %x = linear(x=%in, weight=@in) : f32[1,s0,256]
    WEIGHTS
    %a = linear(x=%x, weight=%wsquare) : f32[1,s0,256]
    %an = rms_norm(x=%a, weight=@norm1) {eps=1e-06} : f32[1,s0,256]
    %b = add(a=%an, b=%x) : f32[1,s0,256]
    %bn = rms_norm(x=%b, weight=@norm2) {eps=1e-06} : f32[1,s0,256]
    %gate, %up = linears(x=%bn, weights=[%wgate, %wup]) : f32[1,s0,512], f32[1,s0,512]
    %h = glu(gate=%gate, x=%up) {activation="gelu_tanh"} : f32[1,s0,512]
    %d = linear(x=%h, weight=%wdown) : f32[1,s0,256]
    %dn = rms_norm(x=%d, weight=@norm3) {eps=1e-06} : f32[1,s0,256]
    %c = add(a=%dn, b=%b) : f32[1,s0,256]
    %y = multiply(a=%c, b=@scale) : f32[1,s0,256]
    %yn = rms_norm(x=%y, weight=@norm4) {eps=1e-06} : f32[1,s0,256]
    %z = linear(x=%yn, weight=%wout) : f32[1,s0,72]
    REST
    return RESULTS
  }
}
`

// streamedModule is a program with weights of 4 bits, NAME ROWS COLUMNS, and random constants.
func streamedModule(t *testing.T, random normal, text string, weights ...string) *ir.Module {
	t.Helper()
	var constants, values []string
	for _, w := range weights {
		f := strings.Fields(w)
		columns, err := strconv.Atoi(f[2])
		require.NoError(t, err)
		named := strings.NewReplacer("NAME", f[0], "ROWS", f[1], "COLUMNS", f[2], "WORDS", strconv.Itoa(columns/8),
			"GROUPS", strconv.Itoa(columns/64))
		constants = append(constants, named.Replace(
			"constant @NAME.packed : u32[ROWS,WORDS]\n  constant @NAME.scales : bf16[ROWS,GROUPS]\n  constant @NAME.biases : bf16[ROWS,GROUPS]"))
		values = append(values, named.Replace(
			"%wNAME = quantized(packed=@NAME.packed, scales=@NAME.scales, biases=@NAME.biases) {group_size=64, bits=4} : quantized<4,64,bf16>[ROWS,COLUMNS]"))
	}
	m, err := ir.Parse(strings.NewReplacer("CONSTANTS", strings.Join(constants, "\n  "), "WEIGHTS",
		strings.Join(values, "\n    ")).Replace(text))
	require.NoError(t, err)
	random.fill(t, m, 1.0/64)
	for _, c := range m.Constants {
		if strings.HasSuffix(c.Name, ".packed") {
			dims, _ := c.Value.Type.Static()
			codes := make([]byte, 4*ir.Elements(dims))
			for i := range codes {
				codes[i] = byte(random.Uint32())
			}
			c.Data = ir.Bytes(c.Value.Type.DType, dims, codes)
		}
	}
	return m
}

// runStreamed compiles a program for a device with transfers, whose kernels pass their self-tests, and compares what it
// gives for one vector with the reference engine. It returns how often each text was compiled so far, those that hold
// weights being named so, and what runs it for more vectors.
func runStreamed(t *testing.T, random normal, m *ir.Module, o emulator.Options) (compiled map[string]int,
	run func(vectors int)) {
	t.Helper()
	d := &faulty{fault: refuse(), compiled: map[string]int{}, changed: map[string]int{}}
	d.named = func(s device.Source) string {
		if strings.Contains(s.Text, "#define STREAM_RESIDENT 1\n") {
			return s.Name + ", held"
		}
		return s.Name
	}
	o.TransferMemory = 200 << 10
	e := gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
		Open: d.opener(func() (device.Device, error) { return emulator.Open(o) })}
	options := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1, Warn: func(text string) { t.Error(text) }}
	want, got := compile(t, reference.Engine{}, m, options), compile(t, e, m, options)
	run = func(vectors int) { requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, vectors, 32)}) }
	run(1)
	return d.compiled, run
}

// TestStreamed: on a device with transfers, products of one vector stream their weights; the results are the reference
// engine's, for several vectors too.
func TestStreamed(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(6)
	compiled, run := runStreamed(t, random, streamedModule(t, random, quantizedLayer, "q 80 256", "k 48 256",
		"gate 512 256", "up 512 256", "down 256 512", "out 72 256"), emulator.Options{TransferLeast: 1})
	require.Equal(t, 4, compiled["stream"], "kernels: %v", compiled)
	require.Equal(t, 1, compiled["matvec"], "the product with bf16; kernels: %v", compiled)
	run(3)
	run(1)
}

// TestHeld: those that are too small for a ring are held, and the smallest are neither.
func TestHeld(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(8)
	text := strings.ReplaceAll(quantizedLayer, "256", "512")
	compiled, run := runStreamed(t, random, streamedModule(t, random, text, "q 80 512", "k 48 512", "gate 512 512",
		"up 512 512", "down 512 512", "out 72 512"),
		emulator.Options{TransferLeast: 400 << 10, Cores: 8})
	require.Equal(t, 3, compiled["stream, held"], "kernels: %v", compiled)
	require.Equal(t, 2, compiled["matvec"], "the product with bf16, and the smallest; kernels: %v", compiled)
	run(3)
	run(1)
}

// heldMixture is a mixture of experts with a shared one.
const residentMixture = `module {
  symbol s0 [1, 4]
  constant @in : bf16[512,32]
  constant @norm : f32[512]
  constant @router : bf16[8,512]
  constant @score : bf16[1,512]
  CONSTANTS
  entry forward(%in: f32[1,s0,32]) {
    %x = linear(x=%in, weight=@in) : f32[1,s0,512]
    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,s0,512]
    WEIGHTS
    %0, %1 = linears(x=%n, weights=[@router, @score]) : f32[1,s0,8], f32[1,s0,1]
    %t, %i = top_k(x=%0) {k=3} : f32[1,s0,3], u32[1,s0,3]
    %s = softmax(x=%t) {axis=-1} : f32[1,s0,3]
    %m = switch_mlp(x=%n, gate=%wgate, up=%wup, down=%wdown, indices=%i, scores=%s) : f32[1,s0,512]
    %2, %3 = linears(x=%n, weights=[%wgate1, %wup1]) : f32[1,s0,128], f32[1,s0,128]
    %h = glu(gate=%2, x=%3) {activation="silu"} : f32[1,s0,128]
    %d = linear(x=%h, weight=%wdown1) : f32[1,s0,512]
    %g = glu(gate=%1, x=%d) {activation="sigmoid"} : f32[1,s0,512]
    %a = add(a=%m, b=%g) : f32[1,s0,512]
    %y = add(a=%x, b=%a) : f32[1,s0,512]
    return %y: f32[1,s0,512]
  }
}
`

// TestHeldExperts: the experts of one token are held, and so are those of each of several. The number of
// multiprocessors divides no number of rows.
func TestHeldExperts(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(9)
	compiled, run := runStreamed(t, random, streamedModule(t, random, residentMixture, "gate 8,128 512", "up 8,128 512",
		"down 8,512 128", "gate1 128 512", "up1 128 512", "down1 512 128"),
		emulator.Options{TransferLeast: 4 << 20, Cores: 33})
	require.Equal(t, 2, compiled["stream_experts, held"], "kernels: %v", compiled)
	require.Zero(t, compiled["experts"])
	run(3)
	run(1)
	run(2)
	require.Zero(t, compiled["experts"], "kernels: %v", compiled)
}

// TestStreamedSums: streamed products add and normalize what they are of, unless something else reads the normalized
// sum.
func TestStreamedSums(t *testing.T) {
	t.Parallel()
	emulated(t)
	for name, c := range map[string]struct {
		rest, results string
		norms         int // kernels that normalize
		streams       int
	}{
		"all":                      {"", "%z: f32[1,s0,72]", 0, 4},
		"and sums are results":     {"", "%z: f32[1,s0,72], %b: f32[1,s0,256], %y: f32[1,s0,256]", 0, 4},
		"a normalized one is, too": {"", "%z: f32[1,s0,72], %bn: f32[1,s0,256]", 1, 4},
		"a half of a pair is, too": {"", "%z: f32[1,s0,72], %gate: f32[1,s0,512]", 1, 5},
		"and the sum is added": {`%m = linear(x=%z, weight=@back) : f32[1,s0,256]
    %mn = rms_norm(x=%m, weight=@norm1) {eps=1e-06} : f32[1,s0,256]
    %e = add(a=%mn, b=%y) : f32[1,s0,256]
    %en = rms_norm(x=%e, weight=@norm2) {eps=1e-06} : f32[1,s0,256]
    %l = linear(x=%en, weight=%wsquare) : f32[1,s0,256]
    %r = add(a=%l, b=%e) : f32[1,s0,256]`, "%r: f32[1,s0,256]", 1, 5},
		"and a bias is added": {`%m = linear(x=%z, weight=@back) : f32[1,s0,256]
    %mn = rms_norm(x=%m, weight=@norm1) {eps=1e-06} : f32[1,s0,256]
    %e = add(a=%mn, b=%y) : f32[1,s0,256]
    %en = rms_norm(x=%e, weight=@norm2) {eps=1e-06} : f32[1,s0,256]
    %l = linear(x=%en, weight=%wsquare, bias=@norm3) : f32[1,s0,256]`, "%l: f32[1,s0,256]", 1, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := normals(7)
			compiled, run := runStreamed(t, random,
				streamedModule(t, random, strings.NewReplacer("RESULTS", c.results, "REST", c.rest).Replace(sandwich),
					"square 256 256", "gate 512 256", "up 512 256", "down 256 512", "out 72 256"),
				emulator.Options{TransferLeast: 1})
			require.Equal(t, c.norms, compiled["norm"], "kernels: %v", compiled)
			require.Equal(t, c.streams, compiled["stream"], "kernels: %v", compiled)
			run(3)
			run(1)
		})
	}
}
