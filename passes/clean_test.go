package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
)

// TestEliminateDeadKeepsInit: what init derives, and from what, is used.
func TestEliminateDeadKeepsInit(t *testing.T) {
	const text = `module {
  constant @scales : f32[2]
  constant @minus : f32[]
  constant @cell : f32[]
  constant @dead : f32[]
  init {
    %0 = multiply(a=@scales, b=@minus) : f32[2]
    derive ^cell = %0
  }
  entry forward(%x: f32[2]) {
    %0 = add(a=%x, b=^cell) : f32[2]
    %1 = neg(x=@dead) : f32[]
    return %0: f32[2]
  }
}
`
	m := parse(t, text)
	before := parse(t, text)
	apply(t, "dce", m, &Options{})
	var names []string
	for _, c := range m.Constants {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"scales", "minus", "cell"}, names)
	requireSameValues(t, evaluate(t, before, eval.FP32, 1), evaluate(t, m, eval.FP32, 1), "")
}

// TestCommonUndefinedValues: undefined values of different types are not the same.
func TestCommonUndefinedValues(t *testing.T) {
	const text = `module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%x: f32[2], %y: bf16[3], %n: int(s0)) {
    %0, %1 = if(cond=%n) : f32[2], bf16[3] {
      %2 = undef() : f32[2]
      %3 = undef() : bf16[3]
      yield %2, %3
    } else {
      yield %x, %y
    }
    return %0: f32[2], %1: bf16[3]
  }
}
`
	m := parse(t, text)
	apply(t, "cse", m, &Options{})
	require.Equal(t, text, m.String())
}

// TestCanonicalizeKeepsLoadsFresh: a reshape to the same shape may be all that keeps a loaded value from
// being used after a write.
func TestCanonicalizeKeepsLoadsFresh(t *testing.T) {
	const text = `module {
  buffer @b : f32[2]
  entry forward(%x: f32[2]) {
    %0 = load @b() : f32[2]
    %1 = reshape(x=%0, shape=[2]) : f32[2]
    store @b(x=%x)
    %2 = neg(x=%1) : f32[2]
    return %2: f32[2]
  }
}
`
	m, before := parse(t, text), parse(t, text)
	apply(t, "canonicalize", m, &Options{})
	requireSameValues(t, evaluate(t, before, eval.FP32, 1), evaluate(t, m, eval.FP32, 1), "")
}
