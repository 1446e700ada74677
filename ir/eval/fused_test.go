package eval

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// update runs an operation on a buffer that holds state.
func update(t *testing.T, op string, attrs any, p Precision, state *Tensor, operands ...any) *Tensor {
	t.Helper()
	out, err := tryUpdate(op, attrs, p, state, operands...)
	require.NoError(t, err)
	if len(out) == 0 {
		return nil
	}
	return out[0].Tensor
}

func tryUpdate(op string, attrs any, p Precision, state *Tensor, operands ...any) ([]Value, error) {
	def := ir.LookupOp(op)
	if attrs == nil {
		attrs = def.NewAttrs()
	}
	c := &Call{Op: &ir.Op{Def: def, Attrs: attrs, Args: make([][]ir.Arg, len(def.Operands)),
		Buffer: &ir.Buffer{Name: "b", Type: staticType(state)}},
		Precision: p, Args: make([][]Value, len(def.Operands))}
	for i, o := range operands {
		switch o := o.(type) {
		case *Tensor:
			c.Op.Args[i], c.Args[i] = []ir.Arg{ir.Use(&ir.Value{Type: staticType(o)})}, []Value{{Tensor: o}}
		case int:
			c.Op.Args[i], c.Args[i] = []ir.Arg{ir.Int(int64(o))}, []Value{{Int: int64(o)}}
		}
	}
	if err := ir.Infer(c.Op); err != nil {
		return nil, err
	}
	return Update(c, state)
}

// part takes rows [lo, hi) of an axis.
func part(t *testing.T, x *Tensor, axis, lo, hi int) *Tensor {
	t.Helper()
	return run(t, "slice", nil, FP32, x, axis, lo, hi)[0]
}

func join(t *testing.T, axis int, x ...*Tensor) *Tensor {
	t.Helper()
	return run(t, "concatenate", &ir.AxisAttrs{Axis: axis}, FP32, x)[0]
}

func TestLinearsIsLinear(t *testing.T) {
	x, q, w := floats(2, 3, 64), quantize(32, 5, 64), floats(7, 64)
	for _, p := range []Precision{FP32, Strict} {
		got := run(t, "linears", nil, p, x, []any{q, w})
		require.Equal(t, run(t, "linear", nil, p, x, q)[0], got[0])
		require.Equal(t, run(t, "linear", nil, p, x, w)[0], got[1])
	}
}

// TestFusedIsItsParts: the fused operations round like the operations that they are fused from.
func TestFusedIsItsParts(t *testing.T) {
	x, gate, row, limit := floats(3, 4), floats(3, 1), floats(4), Floats(ir.BF16, nil, []float32{30})
	x.DType, gate.DType = ir.BF16, ir.BF16
	for _, p := range []Precision{FP32, Strict} {
		do := func(op string, attrs any, args ...any) *Tensor { return run(t, op, attrs, p, args...)[0] }
		require.Equal(t, do("multiply", nil, do("sigmoid", nil, gate), x),
			do("glu", &ir.GLUAttrs{Activation: "sigmoid"}, gate, x))
		require.Equal(t, do("multiply", nil, do("silu", nil, x), row),
			do("glu", &ir.GLUAttrs{Activation: "silu"}, x, row))
		require.Equal(t, do("multiply", nil, do("gelu", &ir.GeluAttrs{Approximate: "tanh"}, x), x),
			do("glu", &ir.GLUAttrs{Activation: "gelu_tanh"}, x, x))
		require.Equal(t, do("multiply", nil, do("gelu", &ir.GeluAttrs{Approximate: "none"}, x), x),
			do("glu", &ir.GLUAttrs{Activation: "gelu"}, x, x))
		require.Equal(t, do("multiply", nil, do("tanh", nil, do("divide", nil, x, limit)), limit),
			do("softcap", nil, x, limit))
		softplus := do("logaddexp", nil, do("add", nil, x, row), Floats(ir.F32, nil, []float32{0}))
		require.Equal(t, do("exp", nil, do("multiply", nil, softplus, row)), do("delta_decay", nil, x, row, row))
	}
}

// TestCachedAttention feeds a sequence in chunks through caches and compares with attention over the
// whole sequence under a mask.
func TestCachedAttention(t *testing.T) {
	const total, heads, kvHeads, width = 40, 4, 2, 8
	q, k, v := floats(1, heads, total, width), floats(1, kvHeads, total, width), floats(1, kvHeads, total, width)
	slices.Reverse(v.F)
	for name, c := range map[string]struct {
		slots, window int
		chunks        []int
	}{
		"linear":              {total, 0, []int{7, 1, 1, 20, 11}},
		"ring":                {10, 6, []int{5, 5, 1, 1, 1, 3, 5, 5, 1, 5, 5, 3}},
		"ring, one by one":    {6, 6, slices.Repeat([]int{1}, total)},
		"window of one":       {3, 1, []int{3, 3, 2, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1}},
		"window, no wrapping": {total, 5, []int{20, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			window := c.window
			if window == 0 {
				window = total
			}
			mask, err := NewTensor(ir.Bool, total, total)
			require.NoError(t, err)
			for i := range total {
				for j := range total {
					mask.I[i*total+j] = int64(btoi(j <= i && j > i-window))
				}
			}
			want := run(t, "sdpa", &ir.SdpaAttrs{Scale: 0.5}, FP32, q, k, v, mask)[0]
			keys, values := Floats(ir.F32, []int{1, kvHeads, c.slots, width}, make([]float32, kvHeads*c.slots*width)),
				Floats(ir.F32, []int{1, kvHeads, c.slots, width}, make([]float32, kvHeads*c.slots*width))
			var got []*Tensor
			position := 0
			for _, n := range c.chunks {
				end := position + n
				update(t, "buffer_ring_update", &ir.AxisAttrs{Axis: 2}, FP32, keys,
					part(t, k, 2, position, end), position)
				update(t, "buffer_ring_update", &ir.AxisAttrs{Axis: -2}, FP32, values,
					part(t, v, 2, position, end), position)
				got = append(got, run(t, "cached_attention", &ir.CachedAttentionAttrs{Scale: 0.5, Window: c.window},
					FP32, part(t, q, 2, position, end), keys, values, position)[0])
				position = end
			}
			require.Equal(t, total, position)
			requireNear(t, want, join(t, 2, got...))
		})
	}
	attrs := &ir.CachedAttentionAttrs{Scale: 1}
	few := floats(1, kvHeads, 8, width)
	requireError(t, "position -1 is negative", "cached_attention", attrs, floats(1, heads, 1, width), few, few, -1)
	requireError(t, "3 positions from 6 on do not fit 8 slots", "cached_attention", attrs,
		floats(1, heads, 3, width), few, few, 6)
	requireError(t, "9 positions from 0 on do not fit 8 slots", "cached_attention",
		&ir.CachedAttentionAttrs{Scale: 1, Window: 4}, floats(1, heads, 9, width), few, few, 0)
	_, err := tryUpdate("buffer_ring_update", &ir.AxisAttrs{Axis: 2}, FP32, few, floats(1, kvHeads, 1, width), -1)
	require.ErrorContains(t, err, "at -1 of a ring")
}

// TestConvUpdate: a sequence in chunks gives what it gives at once, in both layouts of the buffer.
func TestConvUpdate(t *testing.T) {
	const total, channels, taps = 9, 6, 4
	x, w := floats(2, total, channels), floats(channels, taps, 1)
	padded := join(t, 1, Floats(ir.F32, []int{2, taps - 1, channels}, make([]float32, 2*(taps-1)*channels)), x)
	want := run(t, "silu", nil, FP32, run(t, "conv1d", &ir.Conv1DAttrs{Stride: 1, Dilation: 1, Groups: channels},
		FP32, padded, w)[0])[0]
	for _, first := range []bool{false, true} {
		state := floats(2, taps, channels)
		if first {
			state = floats(2, channels, taps)
		}
		attrs := &ir.BufferConvAttrs{Activation: "silu", ChannelFirst: first}
		yes, no := Ints(ir.Bool, nil, []int64{1}), Ints(ir.Bool, nil, []int64{0})
		got := []*Tensor{
			update(t, "buffer_conv", attrs, FP32, state, part(t, x, 1, 0, 2), w, yes), // forgets what was there
			update(t, "buffer_conv", attrs, FP32, state, part(t, x, 1, 2, 3), w, no),
			update(t, "buffer_conv", attrs, FP32, state, part(t, x, 1, 3, total), w),
		}
		requireNear(t, want, join(t, 1, got...))
		last := part(t, x, 1, total-taps, total)
		if first {
			last = run(t, "transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, FP32, last)[0]
		}
		require.Equal(t, last.F, state.F)
	}
	// Without an activation; mixed rounds what the buffer keeps.
	state := Floats(ir.BF16, []int{2, taps, channels}, make([]float32, 2*taps*channels))
	third := floats(2, taps, channels)
	for i := range third.F {
		third.F[i] /= 3
	}
	y := update(t, "buffer_conv", nil, Mixed, state, third, w)
	require.InDelta(t, float32(third.F[0]*w.F[3]), y.F[0], 1e-6)
	for i, v := range third.F {
		require.Equal(t, round(ir.BF16, v), state.F[i])
	}
}

func TestDeltaUpdateIsTheDeltaRule(t *testing.T) {
	const total, heads, width, keyWidth = 5, 2, 3, 4
	x := []*Tensor{floats(1, total, 1, keyWidth), floats(1, total, 1, keyWidth), floats(1, total, heads, width),
		floats(1, total, heads), floats(1, total, heads)}
	zeros := Floats(ir.F32, []int{1, heads, width, keyWidth}, make([]float32, heads*width*keyWidth))
	want := run(t, "gated_delta_rule", nil, FP32, x[0], x[1], x[2], x[3], x[4], zeros)
	state := floats(1, heads, width, keyWidth)
	var got []*Tensor
	for i, at := range []int{0, 2, 3} {
		end := []int{2, 3, total}[i]
		var args []any
		for _, t2 := range x {
			args = append(args, part(t, t2, 1, at, end))
		}
		got = append(got, update(t, "buffer_delta_rule", nil, FP32, state,
			append(args, Ints(ir.Bool, nil, []int64{int64(btoi(i == 0))}))...))
	}
	requireNear(t, want[0], join(t, 1, got...))
	requireNear(t, want[1], state)
	rounded := Floats(ir.BF16, zeros.Shape, slices.Clone(zeros.F))
	update(t, "buffer_delta_rule", nil, Mixed, rounded, x[0], x[1], x[2], x[3], x[4])
	for i, v := range want[1].F {
		require.Equal(t, round(ir.BF16, v), rounded.F[i])
	}
}
