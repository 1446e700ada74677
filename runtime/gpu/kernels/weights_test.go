package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// random makes the numbers of a test, the same in every run.
type random struct{ *rand.Rand }

func seeded(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 5))} }

func (r random) floats(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

// stored is a weight of random codes with what a kernel reads of it.
type stored struct {
	kernels.Weight
	scales, biases any
}

// arguments are the buffers that kernels take.
func (w stored) arguments() kernels.WeightArguments[any] {
	return kernels.WeightArguments[any]{Data: w.Words, Scales: w.scales, Biases: w.biases}
}

// products makes weights of the same columns, and room for their results.
func (r random) products(f kernels.Format, rows []int, k int) (a kernels.MatVecManyArguments[any],
	weights []stored, results [][]float32) {
	to, y := [...]*kernels.WeightArguments[any]{&a.W0, &a.W1, &a.W2, &a.W3}, [...]*any{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	for i, n := range rows {
		w, out := r.weight(f, n, k), blank(n)
		weights, results = append(weights, w), append(results, out)
		*to[i], *y[i] = w.arguments(), out
	}
	return a, weights, results
}

func (r random) weight(f kernels.Format, n, k int) stored {
	w := stored{Weight: kernels.Weight{Format: f, N: n, K: k, Words: make([]uint32, n*k*f.Bits/32)}}
	w.scales, w.biases = w.Words, w.Words
	switch f.Bits {
	case 16:
		for i := range w.Words {
			w.Words[i] = bf16(float32(r.NormFloat64())) | bf16(float32(r.NormFloat64()))<<16
		}
		return w
	case 32:
		for i := range w.Words {
			w.Words[i] = math.Float32bits(float32(r.NormFloat64()))
		}
		return w
	}
	for i := range w.Words {
		w.Words[i] = r.Uint32()
	}
	if f.Floats {
		bytes := make([]byte, n*k/f.Group)
		for i := range bytes {
			bytes[i] = byte(127 - 2*f.Bits/4*f.Bits/4 + r.IntN(3))
			w.Scales = append(w.Scales, uint32(bytes[i]))
		}
		w.scales = bytes
		return w
	}
	levels := float32(int(1) << f.Bits)
	for range n * k / f.Group {
		s := (0.1 + 0.3*r.Float32()) / levels
		b := -s * levels * (0.4 + 0.2*r.Float32())
		if f.F32 {
			w.Scales, w.Biases = append(w.Scales, math.Float32bits(s)), append(w.Biases, math.Float32bits(b))
		} else {
			w.Scales, w.Biases = append(w.Scales, bf16(s)), append(w.Biases, bf16(b))
		}
	}
	w.scales, w.biases = w.Scales, w.Biases
	if !f.F32 {
		w.scales, w.biases = halves(w.Scales), halves(w.Biases)
	}
	if f.Symmetric {
		w.Biases, w.biases = nil, w.Words
	}
	return w
}

func bf16(f float32) uint32 {
	u := math.Float32bits(f)
	return (u + 0x7fff + (u >> 16 & 1)) >> 16
}

func halves(in []uint32) []uint16 {
	out := make([]uint16, len(in))
	for i, v := range in {
		out[i] = uint16(v)
	}
	return out
}

// blank is an output that shows what a kernel does not write.
func blank(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(math.NaN())
	}
	return out
}

// requireClose compares with the reference implementation: the largest difference relative to the size of the whole.
func requireClose(t testing.TB, want, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	var size float64
	for _, v := range want {
		size = max(size, math.Abs(float64(v)))
	}
	for i := range want {
		d := math.Abs(float64(want[i]) - float64(got[i]))
		if !(d <= tolerance*size) {
			require.Fail(t, "not close", "element %d of %d: %g, want %g (of numbers up to %g)", i, len(want), got[i],
				want[i], size)
		}
	}
}

// mxfp4, mxfp8 and nvfp4 are the formats of codes that are floats.
var (
	nvfp4 = kernels.Format{Bits: 4, Group: 16, Floats: true, Symmetric: true}
	mxfp4 = kernels.Format{Bits: 4, Group: 32, Floats: true, Symmetric: true}
	mxfp8 = kernels.Format{Bits: 8, Group: 32, Floats: true, Symmetric: true}
)

// formats are the formats that every matrix kernel is tested with.
var formats = []kernels.Format{
	{Bits: 4, Group: 32}, {Bits: 4, Group: 64}, {Bits: 4, Group: 128, Symmetric: true},
	{Bits: 8, Group: 64}, {Bits: 8, Group: 32, Symmetric: true, F32: true}, {Bits: 16}, {Bits: 32},
	mxfp4, mxfp8, nvfp4,
}
