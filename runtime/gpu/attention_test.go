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

// attend is attention of one token, and MORE.
const attend = `module {
  symbol p [-2147483648, 2147483647]
  constant @qkv : bf16[512,32]
  buffer @k : bf16[1,2,32,64]
  buffer @v : bf16[1,2,32,64]
  entry forward(%x: f32[1,1,32], %at: i64[1]) {
    %0 = item_int(x=%at) : int(p)
    %1 = add_int(a=%0, b=1) : int(1+p)
    %qkv = linear(x=%x, weight=@qkv) : f32[1,1,512]
    %heads = reshape(x=%qkv, shape=[1, 1, 8, 64]) : f32[1,1,8,64]
    %all = transpose(x=%heads) {perm=[0, 2, 1, 3]} : f32[1,8,1,64]
    %q = slice(x=%all, axis=1, start=0, stop=4) : f32[1,4,1,64]
    %k = slice(x=%all, axis=1, start=4, stop=6) : f32[1,2,1,64]
    %v = slice(x=%all, axis=1, start=6, stop=8) : f32[1,2,1,64]
    %2 = rope(x=%q, offset=%0) {dims=64, base=10000.0} : f32[1,4,1,64]
    %3 = rope(x=%k, offset=%0) {dims=64, base=10000.0} : f32[1,2,1,64]
    buffer_slice_update @k(update=%3, axis=2, start=%0, stop=%1)
    buffer_slice_update @v(update=%v, axis=2, start=%0, stop=%1)
    %4 = load @k() : bf16[1,2,32,64]
    %5 = load @v() : bf16[1,2,32,64]
    %6 = cached_attention(q=%2, k=%4, v=%5, position=%0) {scale=0.125} : f32[1,4,1,64]
MORE
  }
}
`

// secondToken is a second token after the first, of which the result of the first is no part.
const secondToken = `
    %7 = add_int(a=%1, b=1) : int(2+p)
    %8 = multiply(a=%q, b=%q) : f32[1,4,1,64]
    %9 = multiply(a=%k, b=%k) : f32[1,2,1,64]
    %10 = rope(x=%8, offset=%1) {dims=64, base=10000.0} : f32[1,4,1,64]
    %11 = rope(x=%9, offset=%1) {dims=64, base=10000.0} : f32[1,2,1,64]
    %12 = multiply(a=%v, b=%v) : f32[1,2,1,64]
    buffer_slice_update @k(update=%11, axis=2, start=%1, stop=%7)
    buffer_slice_update @v(update=%12, axis=2, start=%1, stop=%7)
    %13 = load @k() : bf16[1,2,32,64]
    %14 = load @v() : bf16[1,2,32,64]
    %15 = cached_attention(q=%10, k=%13, v=%14, position=%1) {scale=0.125} : f32[1,4,1,64]
    return %15: f32[1,4,1,64], %6: f32[1,4,1,64]`

// TestAttentionOfOneToken: what one kernel does gives what the reference engine gives, whoever reads the caches and
// whether or not anything reads the result.
func TestAttentionOfOneToken(t *testing.T) {
	for _, c := range []struct {
		name, more string
		cuda       []string // kinds of kernels
		metal      []string
	}{
		{"alone", "    return %6: f32[1,4,1,64]", []string{"linear", "angles", "attention"},
			[]string{"linear", "angles", "attention", "attention merge"}},
		{"with a cache", "    return %6: f32[1,4,1,64], %5: bf16[1,2,32,64]", []string{"linear", "angles", "attention"},
			[]string{"linear", "angles", "attention", "attention merge"}},
		{"that nothing reads", "    return %qkv: f32[1,1,512]", nil, nil},
		{"of rotated queries that are a result", "    return %6: f32[1,4,1,64], %2: f32[1,4,1,64]",
			[]string{"linear", "angles", "rope", "attention", "attention merge"}, nil},
		{"twice", secondToken, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ir.Parse(strings.Replace(attend, "MORE", c.more, 1))
			require.NoError(t, err)
			random := normals(4)
			m.Constants[0].Data = ir.Bytes(ir.BF16, []int64{512, 32},
				eval.Floats(ir.BF16, []int{512, 32}, random.tensor(t, 512, 32).F).Encode())
			for device, want := range map[string][]string{"cuda": c.cuda, "metal": c.metal} {
				kinds := kindsOf(t, m, device)
				if want != nil {
					require.Equal(t, want, kinds)
				}
				require.NotContains(t, kinds, "reference")
			}
			o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1}
			want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
			for position := range 6 {
				at, err := eval.NewTensor(ir.I64, 1)
				require.NoError(t, err)
				at.I[0] = int64(position)
				requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, 1, 32)}, eval.Value{Tensor: at})
			}
			w, err := want.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			g, err := got.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			for i := range w {
				requireClose(t, []*eval.Tensor{w[i].Tensor}, []*eval.Tensor{g[i].Tensor}, 1e-5)
			}
		})
	}
}
