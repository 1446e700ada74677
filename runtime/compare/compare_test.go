package compare

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

func constants(entries ...any) *ir.Module {
	m := &ir.Module{}
	for i := 0; i < len(entries); i += 2 {
		d := entries[i+1].(ir.Data)
		m.NewConstant(entries[i].(string), ir.StaticType(d.DType(), d.Shape()...), d)
	}
	return m
}

func TestWeights(t *testing.T) {
	row := make([]float32, 32)
	for i := range row {
		row[i] = float32(i%16) - 8
	}
	codes := []byte{}
	for i := 0; i < 32; i += 2 {
		codes = append(codes, byte(i%16)|byte((i+1)%16)<<4)
	}
	bf16 := func(v float32) []byte { b := math.Float32bits(v) >> 16; return []byte{byte(b), byte(b >> 8)} }
	quantized := func(scale float32) *ir.Module {
		return constants("w.packed", ir.Bytes(ir.U32, []int64{1, 4}, codes), "w.scales",
			ir.Bytes(ir.BF16, []int64{1, 1}, bf16(scale)),
			"w.biases", ir.Bytes(ir.BF16, []int64{1, 1}, bf16(-8)))
	}
	original := constants("w", ir.Float32s([]int64{1, 32}, row...))

	exact, missing, extra, err := Weights(quantized(1), original)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.Empty(t, extra)
	require.Len(t, exact, 1)
	require.True(t, math.IsInf(float64(exact[0].SQNR), 1))
	require.Equal(t, 4, exact[0].Bits)
	require.Equal(t, 32, exact[0].Group)
	require.InDelta(t, 5, exact[0].BitsPerWeight, 1e-9) // 4 bits and 2×16 for 32 elements
	require.Equal(t, int64(32), exact[0].Histogram[0])

	off, _, _, err := Weights(quantized(1.0625), original)
	require.NoError(t, err)
	require.InDelta(t, 15*0.0625, off[0].Max, 1e-6)
	// Noise is the sum of (code/16)^2 over two rounds of 16 codes, signal that of (code-8)^2.
	noise, signal := 0.0, 0.0
	for c := range 16 {
		noise += 2 * float64(c*c) / 256
		signal += 2 * float64((c-8)*(c-8))
	}
	require.InDelta(t, 10*math.Log10(signal/noise), float64(off[0].SQNR), 1e-9)

	// What is no number differs from numbers only.
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		got []float32
		max float64
	}{{[]float32{1, inf, -inf, nan}, 0}, {[]float32{1.5, inf, -inf, nan}, 0.5},
		{[]float32{1, -inf, inf, nan}, math.MaxFloat32}, {[]float32{1, inf, -inf, 3}, math.MaxFloat32},
		{[]float32{nan, inf, -inf, nan}, math.MaxFloat32}} {
		got, _, _, err := Weights(constants("w", ir.Float32s([]int64{4}, test.got...)),
			constants("w", ir.Float32s([]int64{4}, 1, inf, -inf, nan)))
		require.NoError(t, err)
		require.Equal(t, test.max, got[0].Max, test.got)
		require.Equal(t, test.max == 0, math.IsInf(float64(got[0].SQNR), 1), test.got)
		_, err = json.Marshal(got)
		require.NoError(t, err)
	}

	_, missing, extra, err = Weights(constants("other", ir.Float32s([]int64{1}, 1)), original)
	require.NoError(t, err)
	require.Equal(t, []string{"w"}, missing)
	require.Equal(t, []string{"other"}, extra)

	_, _, _, err = Weights(constants("w", ir.Float32s([]int64{2}, 1, 2)), original)
	require.ErrorContains(t, err, "f32[2]")
	_, _, _, err = Weights(constants("w.packed", ir.Bytes(ir.U32, []int64{1, 4}, codes)), original)
	require.ErrorContains(t, err, "no ")
}

func TestDecibelJSON(t *testing.T) {
	b, err := json.Marshal([]Decibel{Decibel(math.Inf(1)), 20.98765, Decibel(math.Inf(-1)), Decibel(math.NaN())})
	require.NoError(t, err)
	require.Equal(t, `[null,20.99,"-Infinity","NaN"]`, string(b))
}

func TestNumberJSON(t *testing.T) {
	b, err := json.Marshal([]Number{0, 1e-9, 20.98765, Number(math.Inf(1)), Number(math.Inf(-1)), Number(math.NaN())})
	require.NoError(t, err)
	require.Equal(t, `[0,1e-9,20.98765,"Infinity","-Infinity","NaN"]`, string(b))
}

// Logits that are no numbers: what they make of the figures can be told, in JSON too.
func TestCompareLogitsThatAreNoNumbers(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		name      string
		want, got []float32
		json      string
	}{
		{"the program's are NaN", []float32{1, 2}, []float32{nan, nan},
			`{"position":0,"mean_error":"NaN","max_error":"NaN","kl_divergence":"NaN","top1_agrees":false}`},
		{"one of the checkpoint's is NaN", []float32{1, nan}, []float32{1, 2},
			`{"position":0,"mean_error":"NaN","max_error":"NaN","kl_divergence":"NaN","top1_agrees":false}`},
		{"all are NaN", []float32{nan, 1}, []float32{nan, 1},
			`{"position":0,"mean_error":"NaN","max_error":"NaN","kl_divergence":"NaN","top1_agrees":false}`},
		{"NaN beside an infinity", []float32{1, 2}, []float32{nan, inf},
			`{"position":0,"mean_error":"NaN","max_error":"NaN","kl_divergence":"NaN","top1_agrees":false}`},
		{"both exclude a token", []float32{0, -inf, 0}, []float32{0, -inf, 0},
			`{"position":0,"mean_error":0,"max_error":0,"kl_divergence":0,"top1_agrees":true}`},
		{"the program excludes a token", []float32{2, 1}, []float32{2, -inf},
			`{"position":0,"mean_error":"Infinity","max_error":"Infinity","kl_divergence":"Infinity","top1_agrees":true}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := json.Marshal(compareLogits(test.want, test.got))
			require.NoError(t, err)
			require.Equal(t, test.json, string(b))
		})
	}
}

// A stream that is NaN on either side, or differs where the checkpoint's is zero, is no equal stream.
func TestLayersThatAreNoNumbers(t *testing.T) {
	nan := float32(math.NaN())
	for _, test := range []struct {
		want, got float32
		json      string
	}{{1, 1, "0"}, {0, 0, "0"}, {2, 1, "0.5"}, {nan, 1, `"NaN"`}, {1, nan, `"NaN"`}, {0, 1, `"Infinity"`}} {
		side := func(v float32) *probe {
			return &probe{stream: map[int]*eval.Tensor{3: eval.Floats(ir.F32, []int{1}, []float32{v})}}
		}
		acc := newAccumulator()
		acc.add(side(test.want), side(test.got))
		b, err := json.Marshal(acc.layers())
		require.NoError(t, err)
		require.Equal(t, `[{"layer":3,"relative_error":`+test.json+`,"router_agreement":-1}]`, string(b))
	}
}

func TestCompareLogits(t *testing.T) {
	same := compareLogits([]float32{1, 2, 3}, []float32{1, 2, 3})
	require.Zero(t, same.Max)
	require.InDelta(t, 0, float64(same.KL), 1e-12)
	require.True(t, same.Agrees)
	off := compareLogits([]float32{0, 1}, []float32{1, 0})
	require.False(t, off.Agrees)
	require.InDelta(t, 1, float64(off.Mean), 1e-9)
	p := 1 / (1 + math.E)
	require.InDelta(t, (1-2*p)*1, float64(off.KL), 1e-9) // KL of (p, 1-p) from (1-p, p) is (1-2p) log((1-p)/p)
	require.True(t, math.IsNaN(float64(compareLogits([]float32{1}, nil).Mean)))
}
