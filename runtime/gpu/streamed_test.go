package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/prove"
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

// TestStreamed: on a device with transfers, products of one vector stream their weights; they pass their known answers, and the
// results are the reference engine's, for several vectors too.
func TestStreamed(t *testing.T) {
	t.Parallel()
	emulated(t)
	var constants, weights []string
	for _, w := range []struct{ name, rows, columns, words, groups string }{
		{"q", "80", "256", "32", "4"}, {"k", "48", "256", "32", "4"}, {"gate", "512", "256", "32", "4"}, {"up", "512", "256", "32", "4"},
		{"down", "256", "512", "64", "8"}, {"out", "72", "256", "32", "4"},
	} {
		named := strings.NewReplacer("NAME", w.name, "ROWS", w.rows, "COLUMNS", w.columns, "WORDS", w.words, "GROUPS", w.groups)
		constants = append(constants, named.Replace("constant @NAME.packed : u32[ROWS,WORDS]\n  constant @NAME.scales : bf16[ROWS,GROUPS]\n  constant @NAME.biases : bf16[ROWS,GROUPS]"))
		weights = append(weights, named.Replace("%wNAME = quantized(packed=@NAME.packed, scales=@NAME.scales, biases=@NAME.biases) {group_size=64, bits=4} : quantized<4,64,bf16>[ROWS,COLUMNS]"))
	}
	m, err := ir.Parse(strings.NewReplacer("CONSTANTS", strings.Join(constants, "\n  "), "WEIGHTS", strings.Join(weights, "\n    ")).Replace(quantizedLayer))
	require.NoError(t, err)
	random := normals(6)
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

	d := &faulty{fault: refuse(), compiled: map[string]int{}, changed: map[string]int{}}
	var warnings []string
	e := gpu.Engine{Device: "emulator", Prove: &prove.Options{Dir: t.TempDir()}, Open: func() (device.Device, error) {
		var err error
		d.Device, err = emulator.Open(emulator.Options{TransferMemory: 200 << 10, TransferLeast: 1})
		return d, err
	}}
	o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1, Warn: func(text string) { warnings = append(warnings, text) }}
	want, got := compile(t, reference.Engine{}, m, o), compile(t, e, m, o)
	requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, 1, 32)})
	require.Equal(t, 4, d.compiled["stream"], "kernels: %v", d.compiled)
	require.Equal(t, 1, d.compiled["matvec"], "the product with bf16; kernels: %v", d.compiled)
	for _, n := range []int{3, 1} {
		requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, n, 32)})
	}
	require.Empty(t, warnings)
}
