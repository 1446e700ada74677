package fp8

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// TestDecoded compares codes with the values that the format's definition lists.
func TestDecoded(t *testing.T) {
	for code, want := range map[byte]float32{
		0x00: 0, 0x01: 0x1p-9, 0x07: 0x1.cp-7, 0x08: 0x1p-6, 0x38: 1, 0x39: 1.125, 0x3f: 1.875, 0x40: 2, 0x7e: 448,
		0xfe: -448, 0xb8: -1, 0x81: -0x1p-9,
	} {
		require.Equal(t, want, decoded[code], "%#x", code)
	}
	require.True(t, math.Signbit(float64(decoded[0x80])))
	for _, code := range []byte{0x7f, 0xff} {
		require.True(t, math.IsNaN(float64(decoded[code])))
	}
	for code := range 126 {
		require.Less(t, decoded[code], decoded[code+1])
	}
}

// pattern is a tensor of u8 whose bytes are no NaN.
func pattern(name string, shape ...int64) builder.Tensor {
	p := make([]byte, ir.Elements(shape))
	for i := range p {
		p[i] = byte(i*37%127 + i%2*128)
	}
	return builder.Tensor{Name: name, DType: DType, Shape: shape, Data: ir.Bytes(ir.U8, shape, p)}
}

func floats(name string, shape []int64, v ...float32) builder.Tensor {
	return builder.Tensor{Name: name, DType: "F32", Shape: shape, Data: ir.Float32s(shape, v...)}
}

// TestValues: every element is its code times the scale of its block, for blocks that do not divide the matrix, for
// several matrices, and wherever a read begins and ends.
func TestValues(t *testing.T) {
	codes := pattern("x.weight", 2, 5, 7)
	scales := make([]float32, 2*3*3)
	for i := range scales {
		scales[i] = float32(i+1) / 3
	}
	list, parts, err := Fold(&Config{Rows: 2, Columns: 3},
		[]builder.Tensor{codes, floats("x.weight_scale_inv", []int64{2, 3, 3}, scales...)})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"x.weight": {"x.weight", "x.weight_scale_inv"}}, parts)
	require.Len(t, list, 1)
	d := list[0].Data
	require.Equal(t, ir.F32, d.DType())
	require.Equal(t, []int64{2, 5, 7}, d.Shape())
	raw, err := ir.ReadData(codes.Data)
	require.NoError(t, err)
	want := make([]byte, 0, 4*len(raw))
	for i, c := range raw {
		m, r, k := i/35, i/7%5, i%7
		want = binary.LittleEndian.AppendUint32(want, math.Float32bits(decoded[c]*scales[m*9+r/2*3+k/3]))
	}
	for off := range len(want) {
		for _, n := range []int{1, 3, 4, 11, 28, 29, 77, len(want)} {
			p := make([]byte, n)
			got, err := d.ReadAt(p, int64(off))
			require.Equal(t, min(n, len(want)-off), got)
			require.Equal(t, want[off:off+got], p[:got], "%d bytes at %d", n, off)
			if got < n {
				require.Equal(t, io.EOF, err)
			} else {
				require.NoError(t, err)
			}
		}
	}
	_, err = d.ReadAt(make([]byte, 1), int64(len(want)))
	require.Equal(t, io.EOF, err)
	_, err = d.ReadAt(make([]byte, 1), -1)
	require.Equal(t, io.EOF, err)
}

func TestFoldRefuses(t *testing.T) {
	c := &Config{Rows: 128, Columns: 128, file: "config.json"}
	for _, test := range []struct {
		tensors []builder.Tensor
		err     string
	}{
		{[]builder.Tensor{pattern("a.weight", 2, 3)},
			"config.json: tensor a.weight_scale_inv: expected BF16, F16 or F32 [1,1], a scale for each block of 128×128, found none"},
		{[]builder.Tensor{pattern("a.weight", 200, 3), floats("a.weight_scale_inv", []int64{1, 1}, 1)},
			"expected BF16, F16 or F32 [2,1], a scale for each block of 128×128, found F32 [1,1]"},
		{[]builder.Tensor{pattern("a.weight", 2, 3), {Name: "a.weight_scale_inv", DType: "U8", Shape: []int64{1, 1},
			Data: ir.Bytes(ir.U8, []int64{1, 1}, []byte{1})}}, "found U8 [1,1]"},
		{[]builder.Tensor{pattern("a", 3)},
			"config.json: tensor a: expected a matrix in blocks of 128×128, found F8_E4M3 [3]"},
	} {
		_, _, err := Fold(c, test.tensors)
		require.ErrorContains(t, err, test.err)
	}
}

func TestParseConfig(t *testing.T) {
	section := func(method, format, block string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(
			`{"quant_method":%s,"fmt":%s,"weight_block_size":%s,"activation_scheme":"dynamic"}`, method, format, block))
	}
	good := section(`"fp8"`, `"e4m3"`, `[128, 64]`)
	require.True(t, Is(good))
	require.False(t, Is(section(`"gptq"`, `""`, `[1,1]`)))
	require.False(t, Is(json.RawMessage(`3`)))
	c, err := ParseConfig("f", good)
	require.NoError(t, err)
	require.Equal(t, &Config{128, 64, "f"}, c)
	for _, test := range []struct{ format, block, err string }{
		{`"e5m2"`, `[128,128]`, `f: quantization_config.fmt: expected "e4m3", the only format that etc supports, found "e5m2"`},
		{`"e4m3"`, `null`, `f: quantization_config.weight_block_size: expected two integers from 1 to 65536: etc supports scales of blocks only, found null`},
		{`"e4m3"`, `[128]`, `found [128]`},
		{`"e4m3"`, `[0,128]`, `found [0,128]`},
		{`"e4m3"`, `[128,1000000]`, `found [128,1000000]`},
		{`"e4m3"`, `"x"`, `f: quantization_config: expected an object with weight_block_size`},
	} {
		_, err := ParseConfig("f", section(`"fp8"`, test.format, test.block))
		require.ErrorContains(t, err, test.err)
	}
}
