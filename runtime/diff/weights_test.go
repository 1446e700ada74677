package diff_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/diff"
)

// change gives the weights of the model with one of them edited.
func change(name string, edit func(v *eval.Tensor)) map[string]*eval.Tensor {
	w := weightsOf()
	edit(w[name])
	return w
}

// rms is the closed formula of the relative error.
func rms(n int, a, b func(i int) float32) float64 {
	d, s := 0.0, 0.0
	for i := range n {
		d += math.Pow(float64(b(i))-float64(a(i)), 2)
		s += math.Pow(float64(a(i)), 2)
	}
	return math.Sqrt(d / s)
}

func TestWeights(t *testing.T) {
	const codes, scales, biases = "head.weight.packed", "head.weight.scales", "head.weight.biases"
	quantized := &diff.Form{Format: "affine 4-bit g32 f32", Shape: []int64{6, 32}, Size: 96 + 24 + 24}
	plain := &diff.Form{Format: "f32", Shape: []int64{6, 32}, Size: 768}
	const n = 6 * 32
	ptr := func(v float64) *float64 { return &v }
	for _, test := range []struct {
		name string
		a, b file
		want []diff.Weight
	}{
		{"dense weight", file{text: model, weights: weightsOf()},
			file{text: model, weights: change("embed.weight", func(v *eval.Tensor) { v.F[40] += 2 })},
			[]diff.Weight{{Name: "embed.weight", Change: diff.Changed, A: plain, B: plain,
				RelativeRMS: ptr(rms(n, embedding, func(i int) float32 {
					if i == 40 {
						return embedding(i) + 2
					}
					return embedding(i)
				}))}}},
		// the fourth of the second word
		{"code", file{text: model, weights: weightsOf()},
			file{text: model, weights: change(codes, func(v *eval.Tensor) { v.I[1] ^= 1 << 12 })},
			[]diff.Weight{{Name: "head.weight", Change: diff.Changed, A: quantized, B: quantized,
				RelativeRMS: ptr(rms(n, headWeight, func(i int) float32 {
					if i == 11 {
						return scale(0)*float32(code(11)^1) + bias(0)
					}
					return headWeight(i)
				}))}}},
		{"scale", file{text: model, weights: weightsOf()},
			file{text: model, weights: change(scales, func(v *eval.Tensor) { v.F[5] = 7 })},
			[]diff.Weight{{Name: "head.weight", Change: diff.Changed, A: quantized, B: quantized,
				RelativeRMS: ptr(rms(n, headWeight, func(i int) float32 {
					if i/32 == 5 {
						return 7*float32(code(i)) + bias(5)
					}
					return headWeight(i)
				}))}}},
		{"bias", file{text: model, weights: weightsOf()},
			file{text: model, weights: change(biases, func(v *eval.Tensor) { v.F[0]-- })},
			[]diff.Weight{{Name: "head.weight", Change: diff.Changed, A: quantized, B: quantized,
				RelativeRMS: ptr(rms(n, headWeight, func(i int) float32 {
					if i/32 == 0 {
						return headWeight(i) - 1
					}
					return headWeight(i)
				}))}}},
		{"quantized without an error", file{text: dense, weights: weightsOf()}, file{text: model, weights: weightsOf()},
			[]diff.Weight{{Name: "head.weight", Change: diff.Retyped, A: plain, B: quantized, RelativeRMS: ptr(0)}}},
		{"quantized with an error", file{text: dense,
			weights: change("head.weight", func(v *eval.Tensor) { v.F[3] *= 1.5 })},
			file{text: model, weights: weightsOf()},
			[]diff.Weight{{Name: "head.weight", Change: diff.Retyped, A: plain, B: quantized,
				RelativeRMS: ptr(rms(n, func(i int) float32 {
					if i == 3 {
						return headWeight(i) * 1.5
					}
					return headWeight(i)
				}, headWeight))}}},
		{"zeros", file{text: model, weights: change("embed.weight", func(v *eval.Tensor) { clear(v.F) })},
			file{text: model, weights: weightsOf()},
			[]diff.Weight{{Name: "embed.weight", Change: diff.Changed, A: plain, B: plain}}},
		{"other zeros", file{text: model, weights: change("embed.weight", func(v *eval.Tensor) { clear(v.F) })},
			file{text: model, weights: change("embed.weight", func(v *eval.Tensor) {
				for i := range v.F {
					v.F[i] = float32(math.Copysign(0, -1))
				}
			})}, []diff.Weight{{Name: "embed.weight", Change: diff.Changed, A: plain, B: plain, RelativeRMS: ptr(0)}}},
		{"NaN", file{text: model, weights: weightsOf()},
			file{text: model, weights: change("embed.weight", func(v *eval.Tensor) { v.F[0] = float32(math.NaN()) })},
			[]diff.Weight{{Name: "embed.weight", Change: diff.Changed, A: plain, B: plain}}},
		{"added and removed", file{text: edit(model, "  buffer @count", "  constant @old : i32[2]\n  buffer @count"),
			weights: weightsOf()},
			file{text: edit(model, "  buffer @count", "  constant @new : bf16[3]\n  buffer @count"),
				weights: weightsOf()},
			[]diff.Weight{
				{Name: "old", Change: diff.Removed, A: &diff.Form{Format: "i32", Shape: []int64{2}, Size: 8}},
				{Name: "new", Change: diff.Added, B: &diff.Form{Format: "bf16", Shape: []int64{3}, Size: 6}}}},
		{"another dtype and shape", file{text: edit(model, "  buffer @count",
			"  constant @x : f32[2]\n  constant @y : f32[2]\n  constant @z : i64[]\n  buffer @count"),
			weights: weightsOf()},
			file{text: edit(model, "  buffer @count",
				"  constant @x : bf16[2]\n  constant @y : f32[1,2]\n  constant @z : i32[]\n  buffer @count"),
				weights: weightsOf()},
			[]diff.Weight{
				{Name: "x", Change: diff.Retyped, A: &diff.Form{Format: "f32", Shape: []int64{2}, Size: 8},
					B: &diff.Form{Format: "bf16", Shape: []int64{2}, Size: 4}, RelativeRMS: ptr(0)},
				{Name: "y", Change: diff.Retyped, A: &diff.Form{Format: "f32", Shape: []int64{2}, Size: 8},
					B: &diff.Form{Format: "f32", Shape: []int64{1, 2}, Size: 8}},
				{Name: "z", Change: diff.Retyped, A: &diff.Form{Format: "i64", Shape: []int64{}, Size: 8},
					B: &diff.Form{Format: "i32", Shape: []int64{}, Size: 4}}}},
		{"a dense weight beside its quantized form",
			file{text: edit(model, "  constant @head.weight.packed",
				"  constant @head.weight : f32[6,32]\n  constant @head.weight.packed"), weights: weightsOf()},
			file{text: dense, weights: weightsOf()},
			[]diff.Weight{{Name: "head.weight", Change: diff.Removed, A: quantized}}},
		{"the same, the other way round",
			file{text: edit(model, "  buffer @count", "  constant @head.weight : f32[6,32]\n  buffer @count"),
				weights: weightsOf()},
			file{text: dense, weights: weightsOf()},
			[]diff.Weight{{Name: "head.weight", Change: diff.Removed, A: quantized}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := compare(t, test.a, test.b)
			for i := range r.Weights {
				w := &r.Weights[i]
				if w.A != nil && w.B != nil {
					require.Len(t, w.A.Hash, 64)
					require.Len(t, w.B.Hash, 64)
					w.A.Hash, w.B.Hash = "", ""
				}
			}
			require.Empty(t, cmp.Diff(test.want, r.Weights,
				cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12 })))
			require.False(t, r.Equal)
		})
	}
}

// Biases that an init chain derives from the scales, as ExecuTorch writes symmetric weights: they are those
// of -8 times the scales, and parts of the weight.
func TestDerivedBiases(t *testing.T) {
	symmetric := edit(model, "  constant @head.weight.biases : f32[6,1]\n",
		"  constant @head.weight.dummy : f32[]\n  constant @minus8 : f32[]\n",
		"  entry forward", "  init {\n    %0 = multiply(a=@head.weight.scales, b=@minus8) : f32[6,1]\n    derive ^head.weight.dummy = %0\n  }\n  entry forward",
		"biases=@head.weight.biases", "biases=^head.weight.dummy")
	weights := weightsOf()
	weights["minus8"] = eval.Floats(weights["embed.weight"].DType, nil, []float32{-8})
	half := weightsOf()
	for i := range half["head.weight"].F {
		half["head.weight"].F[i] = scale(i/32) * (float32(code(i)) - 8)
	}
	r := compare(t, file{text: symmetric, weights: weights}, file{text: dense, weights: half})
	require.Len(t, r.Weights, 2)
	require.Equal(t, "head.weight", r.Weights[0].Name)
	require.Equal(t, diff.Retyped, r.Weights[0].Change)
	require.Zero(t, *r.Weights[0].RelativeRMS)
	require.Equal(t, "minus8", r.Weights[1].Name)
	require.Equal(t, diff.Removed, r.Weights[1].Change)

	other := weightsOf()
	other["minus8"] = eval.Floats(weights["embed.weight"].DType, nil, []float32{-7})
	r = compare(t, file{text: symmetric, weights: weights}, file{text: symmetric, weights: other})
	require.Equal(t, []string{"head.weight", "minus8"}, []string{r.Weights[0].Name, r.Weights[1].Name})
	require.InDelta(t, rms(6*32, func(i int) float32 { return scale(i/32) * (float32(code(i)) - 8) },
		func(i int) float32 { return scale(i/32) * (float32(code(i)) - 7) }),
		*r.Weights[0].RelativeRMS, 1e-12)
	require.True(t, compare(t, file{text: symmetric, weights: weights}, file{text: symmetric, weights: weights}).Equal)
}

// The names that exporters give codes are those of their weights, so that files of both compare.
func TestLogicalNames(t *testing.T) {
	for _, name := range []string{"head.parametrizations.weight.original0_to_packed",
		"head.parametrizations.weight.original0_int4_to_packed", "head.weight_to_packed",
		"head.weight.qdata_to_packed"} {
		text := strings.ReplaceAll(model, "@head.weight.packed", "@"+name)
		weights := weightsOf()
		weights[name] = weights["head.weight.packed"]
		r := compare(t, file{text: text, weights: weights}, file{text: dense, weights: weightsOf()})
		require.Len(t, r.Weights, 1, name)
		require.Equal(t, "head.weight", r.Weights[0].Name)
		require.Zero(t, *r.Weights[0].RelativeRMS)
	}
}

// Embeddings are looked up before they are dequantized; their rows are still those of a quantized weight.
func TestQuantizedEmbedding(t *testing.T) {
	text := edit(model, "  constant @embed.weight : f32[6,32]\n",
		"  constant @embed.weight.packed : u32[6,4]\n  constant @embed.weight.scales : f32[6,1]\n  constant @embed.weight.biases : f32[6,1]\n",
		"    %0 = take(x=@embed.weight, index=%tokens) : f32[1,s0,32]\n",
		`    %12 = take(x=@embed.weight.packed, index=%tokens) : u32[1,s0,4]
    %13 = take(x=@embed.weight.scales, index=%tokens) : f32[1,s0,1]
    %14 = take(x=@embed.weight.biases, index=%tokens) : f32[1,s0,1]
    %0 = dequantize(w=%12, scales=%13, biases=%14) {group_size=32, bits=4, mode="affine"} : f32[1,s0,32]
`)
	weights := weightsOf()
	for _, part := range []string{".packed", ".scales", ".biases"} {
		weights["embed.weight"+part] = weights["head.weight"+part]
	}
	plain := weightsOf()
	plain["embed.weight"] = plain["head.weight"]
	r := compare(t, file{text: text, weights: weights}, file{text: model, weights: plain})
	require.Len(t, r.Weights, 1)
	require.Equal(t, "embed.weight", r.Weights[0].Name)
	require.Zero(t, *r.Weights[0].RelativeRMS)
	require.True(t, slices.Equal([]int64{6, 32}, r.Weights[0].A.Shape))
}

// Weights are read in pieces of whole rows; the last one is shorter.
func TestPieces(t *testing.T) {
	const rows, columns = 600, 1000
	text := edit(model, "  buffer @count", "  constant @large : f32[600,1000]\n  buffer @count")
	value := func(i int) float32 { return float32(i%13) - 5 }
	for _, at := range []int{0, 262*columns - 1, 262 * columns, rows*columns - 1} {
		var w [2]map[string]*eval.Tensor
		for i := range w {
			w[i] = weightsOf()
			v := make([]float32, rows*columns)
			for j := range v {
				v[j] = value(j)
			}
			w[i]["large"] = eval.Floats(w[i]["embed.weight"].DType, []int{rows, columns}, v)
		}
		w[1]["large"].F[at] += 100
		r := compare(t, file{text: text, weights: w[0]}, file{text: text, weights: w[1]})
		require.Len(t, r.Weights, 1)
		want := rms(rows*columns, value, func(i int) float32 {
			if i == at {
				return value(i) + 100
			}
			return value(i)
		})
		require.InDelta(t, want, *r.Weights[0].RelativeRMS, 1e-12, "element %d", at)
	}
}
