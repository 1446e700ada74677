package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A form is what a mode has, and says how many words and scales a row takes.
func TestWeightForm(t *testing.T) {
	for _, test := range []struct {
		mode          string
		bits, group   int
		text, err     string
		words, groups int64 // of 256 columns
	}{
		{"affine", 4, 64, "affine 4-bit g64", "", 32, 4},
		{"affine", 3, 32, "affine 3-bit g32", "", 24, 8},
		{"mxfp4", 4, 32, "mxfp4 4-bit g32", "", 32, 8},
		{"mxfp8", 8, 32, "mxfp8 8-bit g32", "", 64, 8},
		{"nvfp4", 4, 16, "nvfp4 4-bit g16", "", 32, 16},
		{"affine", 7, 64, "", "mode affine has bits of [2 3 4 5 6 8], found 7", 0, 0},
		{"mxfp4", 4, 64, "", "mode mxfp4 has group sizes of [32], found 64", 0, 0},
		{"int4", 4, 64, "", `mode must be affine, mxfp4, mxfp8 or nvfp4, found "int4"`, 0, 0},
	} {
		f, err := NewWeightForm(test.mode, test.bits, test.group)
		if test.err != "" {
			require.EqualError(t, err, test.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.text, f.String())
		require.Equal(t, test.words, f.Words(256))
		require.Equal(t, int64(256), f.Columns(test.words))
		require.Equal(t, test.groups, f.Groups(256))
	}
	require.Error(t, WeightForm{}.Check(), "the zero value is no form")
}

// The form of an operation's weight is read from its attributes, whatever they are called.
func TestFormOf(t *testing.T) {
	want := WeightForm{MXFP4, 4, 32}
	for _, attrs := range []any{
		&QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: "mxfp4"},
		&GatherQmmAttrs{GroupSize: 32, Bits: 4, Mode: "mxfp4"},
		&DequantizeAttrs{GroupSize: 32, Bits: 4, Mode: "mxfp4"},
	} {
		f, ok := FormOf(&Op{Attrs: attrs})
		require.True(t, ok)
		require.Equal(t, want, f)
	}
	f, ok := FormOf(&Op{Attrs: &QuantizedAttrs{GroupSize: 64, Bits: 4}})
	require.True(t, ok)
	require.Equal(t, WeightForm{Affine, 4, 64}, f)
	_, ok = FormOf(&Op{Def: LookupOp("softmax"), Attrs: &SoftmaxAttrs{}})
	require.False(t, ok)
}

// A weight in another mode than affine has a text form that reads as itself, no biases, and the dtype that it says.
func TestQuantizedModes(t *testing.T) {
	m := &Module{Entry: &Func{Name: "forward", Body: &Region{}}}
	w := m.NewConstant("w", StaticType(U32, 8, 8), nil)
	s := m.NewConstant("s", StaticType(U8, 8, 2), nil)
	b := &Builder{Module: m, Region: m.Entry.Body}
	var q, half *Value
	require.NoError(t, Build(func() {
		q = b.Value("quantized", NewQuantizedAttrs(WeightForm{MXFP4, 4, 32}, BF16), w, s)
		half = b.Value("quantized", NewQuantizedAttrs(WeightForm{MXFP4, 4, 32}, F16), w, s)
	}))
	require.Equal(t, "quantized<mxfp4,4,32,bf16>[8,64]", q.Type.String())
	require.Equal(t, "quantized<mxfp4,4,32,f16>[8,64]", half.Type.String())
	require.Equal(t, " {group_size=32, bits=4, mode=mxfp4}", FormatAttrs(q.Def))
	require.Equal(t, " {group_size=32, bits=4, mode=mxfp4, dtype=f16}", FormatAttrs(half.Def))
	m.Entry.Body.Results, m.Entry.Outputs = []*Value{}, []Type{}
	again, err := Parse(m.String())
	require.NoError(t, err)
	require.Equal(t, m.String(), again.String())
	for _, wrong := range []struct {
		attrs  *QuantizedAttrs
		biases bool
		want   string
	}{
		{&QuantizedAttrs{GroupSize: 64, Bits: 4, Mode: MXFP4}, false, "mode mxfp4 has group sizes of [32], found 64"},
		{&QuantizedAttrs{GroupSize: 32, Bits: 4, Mode: MXFP4}, true, "mode mxfp4 has no biases"},
		{&QuantizedAttrs{GroupSize: 32, Bits: 4}, false, "scales"},
	} {
		var biases any
		if wrong.biases {
			biases = s
		}
		require.ErrorContains(t, Build(func() { b.Value("quantized", wrong.attrs, w, s, biases) }), wrong.want)
	}
}
