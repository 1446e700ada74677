package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestSmallResults: results of a few bytes, which kernels may write to the host's memory, are right wherever they come
// from: of a reference kernel, two of one value, a part of another, one that other kernels read.
func TestSmallResults(t *testing.T) {
	for name, body := range map[string]string{
		"of a kernel": `%a = slice(x=%y, axis=1, start=0, stop=8) : f32[1,8]
    %b = sigmoid(x=%a) : f32[1,8]
    return %b: f32[1,8]`,
		"of a reduction": `%b = sum(x=%y) {axes=[1], keepdims=true} : f32[1,1]
    return %b: f32[1,1]`,
		"of a reference kernel": `%b = logsumexp(x=%y) {axes=[1], keepdims=true} : f32[1,1]
    return %b: f32[1,1]`,
		"two of one value, a part, and read": `%a = slice(x=%y, axis=1, start=0, stop=8) : f32[1,8]
    %b = sigmoid(x=%a) : f32[1,8]
    %c = slice(x=%b, axis=1, start=2, stop=5) : f32[1,3]
    %d = exp(x=%b) : f32[1,8]
    return %b: f32[1,8], %c: f32[1,3], %b: f32[1,8], %d: f32[1,8]`,
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ir.Parse(`module {
  constant @w : bf16[512,32]
  entry forward(%x: f32[1,32]) {
    %y = linear(x=%x, weight=@w) : f32[1,512]
    ` + body + `
  }
}
`)
			require.NoError(t, err)
			random := normals(4)
			random.fill(t, m, 1)
			o := engine.Options{Precision: eval.FP32, Exact: true, Threads: 1, Warn: func(string) {}}
			want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
			for range 2 {
				requireSameRun(t, want, got, eval.Value{Tensor: random.tensor(t, 1, 32)})
			}
		})
	}
}
