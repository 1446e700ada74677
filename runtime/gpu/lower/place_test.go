package lower_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// TestPlaceAtReaders: what only computes stands before its first reader, but not behind a write of the buffer that it reads.
func TestPlaceAtReaders(t *testing.T) {
	const head = "module {\n  symbol T [1, 99]\n  buffer @b : f32[4,64]\n  entry forward(%x: f32[T,64], %p: f32[4,64]) {\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a result that is read late": {`    %0 = silu(x=%x) : f32[T,64]
    %1 = sigmoid(x=%x) : f32[T,64]
    %2 = cos(x=%1) : f32[T,64]
    %3 = multiply(a=%2, b=%0) : f32[T,64]
    return %3: f32[T,64]
`, []string{"sigmoid", "cos", "silu", "multiply"}},
		"a result that is not read inside": {`    %0 = silu(x=%x) : f32[T,64]
    %1 = sigmoid(x=%x) : f32[T,64]
    return %1: f32[T,64], %0: f32[T,64]
`, []string{"sigmoid", "silu"}},
		"of what is written later": {`    %0 = load @b() : f32[4,64]
    %1 = slice(x=%0, axis=0, start=1, stop=3) : f32[2,64]
    %2 = silu(x=%1) : f32[2,64]
    %3 = sigmoid(x=%x) : f32[T,64]
    store @b(x=%p)
    return %3: f32[T,64], %2: f32[2,64]
`, []string{"load", "silu", "store", "sigmoid"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ir.Parse(head + c.text + "  }\n}\n")
			require.NoError(t, err)
			m, err = lower.Run(m, bind.Shapes(m, 3), &lower.Target{}, passes.Control{Verify: true})
			require.NoError(t, err)
			lines := opsOf(m)
			require.Equal(t, c.want, names(lines), lines)
		})
	}
}
