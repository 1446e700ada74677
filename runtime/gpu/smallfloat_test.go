package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// smallFloats is a layer whose weights are all in modes of small floats.
const smallFloats = `module {
  symbol s0 [1, 64]
  constant @embed.packed : u32[48,16]
  constant @embed.scales : u8[48,2]
  constant @in.packed : u32[96,8]
  constant @in.scales : u8[96,2]
  constant @router : f32[4,64]
  constant @gate.packed : u32[4,32,8]
  constant @gate.scales : u8[4,32,2]
  constant @up.packed : u32[4,32,8]
  constant @up.scales : u8[4,32,2]
  constant @down.packed : u32[4,64,4]
  constant @down.scales : u8[4,64,1]
  constant @out.packed : u32[40,16]
  constant @out.scales : u8[40,2]
  constant @norm : f32[64]
  entry forward(%ids: i64[1,s0]) {
    %embed = quantized(packed=@embed.packed, scales=@embed.scales) {group_size=32, bits=8, mode=mxfp8} : quantized<mxfp8,8,32,bf16>[48,64]
    %in = quantized(packed=@in.packed, scales=@in.scales) {group_size=32, bits=4, mode=mxfp4, dtype=f32} : quantized<mxfp4,4,32,f32>[96,64]
    %gate = quantized(packed=@gate.packed, scales=@gate.scales) {group_size=32, bits=4, mode=mxfp4, dtype=f32} : quantized<mxfp4,4,32,f32>[4,32,64]
    %up = quantized(packed=@up.packed, scales=@up.scales) {group_size=32, bits=4, mode=mxfp4, dtype=f32} : quantized<mxfp4,4,32,f32>[4,32,64]
    %down = quantized(packed=@down.packed, scales=@down.scales) {group_size=32, bits=4, mode=mxfp4, dtype=f32} : quantized<mxfp4,4,32,f32>[4,64,32]
    %out = quantized(packed=@out.packed, scales=@out.scales) {group_size=32, bits=8, mode=mxfp8, dtype=f32} : quantized<mxfp8,8,32,f32>[40,64]
    %e = embedding(indices=%ids, weight=%embed) : bf16[1,s0,64]
    %x = astype(x=%e) {scalar_type=f32} : f32[1,s0,64]
    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,s0,64]
    %0 = linear(x=%n, weight=@router) : f32[1,s0,4]
    %t, %i = top_k(x=%0) {k=2} : f32[1,s0,2], u32[1,s0,2]
    %s = softmax(x=%t) {axis=-1} : f32[1,s0,2]
    %m = switch_mlp(x=%n, gate=%gate, up=%up, down=%down, indices=%i, scores=%s) : f32[1,s0,64]
    %a = add(a=%x, b=%m) : f32[1,s0,64]
    %q = linear(x=%a, weight=%in) : f32[1,s0,96]
    %b = slice(x=%q, axis=2, start=0, stop=64) : f32[1,s0,64]
    %y = linear(x=%b, weight=%out) : f32[1,s0,40]
    return %y: f32[1,s0,40]
  }
}
`

// TestSmallFloats: weights in mxfp4 and mxfp8 have kernels for all that is done with them, which give what the
// reference engine gives, for one vector and for many.
func TestSmallFloats(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the kernels have tests of their own")
	}
	t.Parallel()
	requireSmallFloats(t, smallFloats)
}

// TestNVFP4: the same with nvfp4 in place of mxfp4.
func TestNVFP4(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the kernels have tests of their own")
	}
	t.Parallel()
	requireSmallFloats(t, strings.NewReplacer("group_size=32, bits=4, mode=mxfp4", "group_size=16, bits=4, mode=nvfp4",
		"quantized<mxfp4,4,32,f32>", "quantized<nvfp4,4,16,f32>", "@in.scales : u8[96,2]", "@in.scales : u8[96,4]",
		"scales : u8[4,32,2]", "scales : u8[4,32,4]", "scales : u8[4,64,1]",
		"scales : u8[4,64,2]").Replace(smallFloats))
}

// requireSmallFloats runs a module like smallFloats, with made-up weights, on both engines.
func requireSmallFloats(t *testing.T, text string) {
	t.Helper()
	m, err := ir.Parse(text)
	require.NoError(t, err)
	nvfp4 := strings.Contains(text, "nvfp4")
	random := normals(5)
	random.fill(t, m, 0.3)
	for _, c := range m.Constants {
		name, part, _ := strings.Cut(c.Name, ".")
		if part == "" {
			continue
		}
		dims, _ := c.Value.Type.Static()
		bytes := make([]byte, ir.Elements(dims)*int64(c.Value.Type.DType.Size()))
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
			if part == "scales" { // weights of about 1/8
				bytes[i] = 122 + byte(random.IntN(3))
				if name == "embed" || name == "out" {
					bytes[i] = 114 + byte(random.IntN(3))
				} else if nvfp4 {
					bytes[i] = 24 + byte(random.IntN(16)) // e4m3: 1/16 to 1/4
				}
			}
		}
		c.Data = ir.Bytes(c.Value.Type.DType, dims, bytes)
	}
	o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1, Warn: func(text string) { t.Error(text) }}
	want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
	for _, tokens := range []int{1, 3, 20} {
		ids := make([]int64, tokens)
		for i := range ids {
			ids[i] = int64(random.IntN(48))
		}
		requireSameRun(t, want, got, eval.Value{Tensor: eval.Ints(ir.I64, []int{1, tokens}, ids)})
	}
}
