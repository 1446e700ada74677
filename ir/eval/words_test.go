package eval

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// TestPackedConstants: a constant that is read as packed codes only is kept as its words, not as integers of 8 bytes;
// the results are those of the same codes as inputs.
func TestPackedConstants(t *testing.T) {
	const body = `    %0 = quantized_matmul(x=%x, w=W, scales=%s, biases=%b) {group_size=32, bits=4, mode="affine", transpose=true} : f32[1,2]
    %1 = quantized(packed=W, scales=%s, biases=%b) {group_size=32, bits=4} : quantized<4,32,f32>[2,32]
    %2 = linear(x=%x, weight=%1) : f32[1,2]
    %3 = dequantize(w=W, scales=%s, biases=%b) {group_size=32, bits=4, mode="affine"} : f32[2,32]
`
	parsed := func(text string) *ir.Module {
		m, err := ir.Parse(text)
		require.NoError(t, err)
		return m
	}
	params := "%x: f32[1,32], %s: f32[2,1], %b: f32[2,1]"
	constant := parsed("module {\n  constant @w : u32[2,4]\n  entry forward(" + params + ") {\n" +
		strings.ReplaceAll(body, "W", "@w") + "    return %0: f32[1,2], %2: f32[1,2], %3: f32[2,32]\n  }\n}\n")
	input := parsed("module {\n  entry forward(" + params + ", %w: u32[2,4]) {\n" + strings.ReplaceAll(body, "W",
		"%w") + "    return %0: f32[1,2], %2: f32[1,2], %3: f32[2,32]\n  }\n}\n")
	both := parsed("module {\n  constant @w : u32[2,4]\n  entry forward(%n: u32[1]) {\n    %0 = take(x=@w, index=%n) {axis=0} : u32[1,4]\n    return %0: u32[1,4]\n  }\n}\n")
	raw := make([]byte, 4*8)
	words := make([]int64, 8)
	for i := range words {
		words[i] = int64(uint32(0x9e3779b9 * uint32(i+1)))
		binary.LittleEndian.PutUint32(raw[4*i:], uint32(words[i]))
	}
	constant.Constants[0].Data = ir.Bytes(ir.U32, []int64{2, 4}, raw)
	both.Constants[0].Data = constant.Constants[0].Data
	in := []Value{{Tensor: iota32(1, 32)}, {Tensor: f32([]int{2, 1}, 0.5, 2)}, {Tensor: f32([]int{2, 1}, -4, 1)}}
	store := NewConstants()
	x, err := NewMachine(constant, FP32, store)
	require.NoError(t, err)
	got, err := x.Run(in)
	require.NoError(t, err)
	plain, err := NewMachine(input, FP32, nil)
	require.NoError(t, err)
	want, err := plain.Run(append(in, Value{Tensor: Ints(ir.U32, []int{2, 4}, words)}))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Empty(t, store.values, "nothing else of them is kept")
	require.Len(t, store.words, 1)
	require.Len(t, store.words[constant.Constants[0]].words, 8)

	y, err := NewMachine(both, FP32, store)
	require.NoError(t, err)
	row, err := y.Run([]Value{{Tensor: Ints(ir.U32, []int{1}, []int64{1})}})
	require.NoError(t, err)
	require.Equal(t, words[4:], row[0].Tensor.I, "read as integers, they are integers")

	constant.Constants[0].Data = short{constant.Constants[0].Data}
	x, err = NewMachine(constant, FP32, nil)
	require.NoError(t, err)
	_, err = x.Run(in)
	require.ErrorContains(t, err, "quantized_matmul: operand w: constant @w: 28 bytes for u32[2 4], want 32")
}

// short is a constant with fewer bytes than its shape has.
type short struct{ ir.Data }

func (s short) Bytes() []byte { return make([]byte, 28) }
