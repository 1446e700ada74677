package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/numeric"
)

// lengths cover whole vectors, parts of them and loops of several, at all levels.
var lengths = []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 256, 300}

// special are the numbers that elementary functions are tried at, besides random ones.
var special = []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)),
	float32(math.Inf(-1)), float32(math.NaN()),
	88.7228, 88.72284, 88.8, 89.1, 150, 1e30, -87.3365, -87.33655, -87.4, -104, -1e30,
	math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, 1e-38, -1e-20, 0.625, 0.62500006, -0.625, 0.3, 9.5, -9.5, 1e-4,
	0.34657, -0.34658, 0.5, 20}

// arguments are n numbers of all sizes, the special ones among them.
func arguments(r *rand.Rand, n int) []float32 {
	x := floats(r, n)
	for i := range x {
		x[i] *= float32(math.Exp2(float64(r.IntN(14) - 8)))
		if r.IntN(3) == 0 {
			x[i] = special[r.IntN(len(special))]
		}
	}
	return x
}

// requireULP fails where got is further than ulps units in the last place from want. A want below the normal
// numbers may be given as 0.
func requireULP(t *testing.T, want float64, got float32, ulps float64, what string, args ...any) {
	t.Helper()
	rounded := float32(want)
	switch {
	case math.IsNaN(want):
		require.True(t, got != got, append([]any{what + ": got %v, want NaN", got}, args...)...)
	case math.Abs(want) < 0x1p-126:
		require.LessOrEqual(t, math.Abs(float64(got)), 0x1p-126, what, args)
	case math.IsInf(float64(rounded), 0):
		require.Equal(t, rounded, got, what, args)
	default:
		_, exponent := math.Frexp(want)
		unit := math.Ldexp(1, max(exponent-24, -149))
		require.LessOrEqual(t, math.Abs(float64(got)-want)/unit, ulps, "%s: got %v, want %v %v", what, got, want, args)
	}
}

// Functions of one element against the same functions in float64.
func TestElementaryFunctions(t *testing.T) {
	sigmoid := func(x float64) float64 { return 1 / (1 + numeric.Exp(-x)) }
	ones := func(n int) []float32 {
		x := guarded[float32](n)
		for i := range x {
			x[i] = 1
		}
		return x
	}
	cases := []struct {
		name string
		ulps float64
		got  func(dst, x []float32)
		want func(x float64) float64
	}{
		{"Exp", 2, func(dst, x []float32) { Exp(dst, x, 0) }, func(x float64) float64 { return numeric.Exp(x) }},
		{"Sigmoid", 4, Sigmoid, sigmoid},
		{"Tanh", 2, Tanh, numeric.Tanh},
		{"SiLU", 5, SiLU, func(x float64) float64 { return x * sigmoid(x) }},
		{"SiLUMul", 5, func(dst, x []float32) { SiLUMul(dst, x, ones(len(x))) },
			func(x float64) float64 { return x * sigmoid(x) }},
		{"SigmoidMul", 4, func(dst, x []float32) { SigmoidMul(dst, x, ones(len(x))) }, sigmoid},
	}
	atEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, c := range cases {
			for round := range 30 {
				for _, n := range lengths {
					x := arguments(r, n)
					dst := floats(r, n)
					c.got(dst, x)
					for i, v := range x {
						want := c.want(float64(v))
						if v < -87 && c.name != "Exp" && c.name != "Tanh" {
							// e^-x is not finite or its inverse not normal; −Inf·0 is NaN.
							if math.IsNaN(want) {
								continue
							}
							require.LessOrEqual(t, math.Abs(float64(dst[i])), 1e-34, "%s(%v)", c.name, v)
							continue
						}
						requireULP(t, want, dst[i], c.ulps, c.name, v)
					}
					if round == 0 {
						inPlace := append([]float32(nil), x...)
						c.got(inPlace, inPlace)
						require.Equal(t, bits(dst), bits(inPlace), "%s in place", c.name)
					}
				}
				release()
			}
		}
	})
}

// The GELU of Gemma, whose argument of the exponential is rounded: the error grows with it.
func TestGELUTanhMul(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(1, 2))
		for _, n := range lengths {
			gate, up, dst := floats(r, n), floats(r, n), floats(r, n)
			for i := range gate {
				gate[i] *= 3
			}
			GELUTanhMul(dst, gate, up)
			for i, v := range gate {
				x := float64(v)
				u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
				want := x / 2 * (1 + numeric.Tanh(u)) * float64(up[i])
				if math.Abs(u) < 6 {
					requireULP(t, x/(1+numeric.Exp(-2*u))*float64(up[i]), dst[i], 8+4*math.Abs(u), "gelu", v)
				}
				require.InDelta(t, want, float64(dst[i]), 2e-6*(1+math.Abs(want)), "gelu(%v)", v)
			}
		}
	})
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

// What rounds once gives the same bits at every level, NaN and infinities too.
func TestExactFunctions(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(3, 4))
		g := genericVectorFunctions
		for _, n := range lengths {
			a, b := arguments(r, n), arguments(r, n)
			want, got := make([]float32, n), floats(r, n)
			g.add(want, a, b)
			Add(got, a, b)
			requireSame(t, want, got, "Add")
			g.mul(want, a, b)
			Mul(got, a, b)
			requireSame(t, want, got, "Mul")
			g.scale(want, a, 0.7)
			Scale(got, a, 0.7)
			requireSame(t, want, got, "Scale")
			require.Equal(t, g.maximum(a), Max(a))
			const rows, apart = 3, 5
			factors, many := []float32{0.7, 0, -3}, arguments(r, (rows-1)*(n+1)+n)
			wide, wantWide := guarded[float32]((rows-1)*(n+apart)+n), make([]float32, (rows-1)*(n+apart)+n)
			g.scaleRows(wantWide, n+apart, many, n+1, factors, n)
			active.scaleRows(wide, n+apart, many, n+1, factors, n)
			requireSame(t, wantWide, wide, "scaleRows")

			narrow, wantNarrow := guarded[byte](2*n), make([]byte, 2*n)
			for i := range a {
				if r.IntN(2) == 0 {
					a[i] = math.Float32frombits(r.Uint32())
				}
			}
			g.toBF16(wantNarrow, a)
			ToBF16(narrow, a)
			require.Equal(t, wantNarrow, narrow)
			for i := range narrow {
				narrow[i] = byte(r.Uint32())
			}
			g.fromBF16(want, narrow)
			FromBF16(got, narrow)
			require.Equal(t, bits(want), bits(got))
		}
	})
}

// requireSame compares bits, but takes any NaN for any other.
func requireSame(t *testing.T, want, got []float32, what string) {
	t.Helper()
	for i := range want {
		if want[i] != want[i] && got[i] != got[i] {
			continue
		}
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "%s: element %d of %d is %v, want %v",
			what, i, len(want), got[i], want[i])
	}
}

func TestToBF16(t *testing.T) {
	for _, c := range []struct {
		in   float32
		want uint16
	}{{1, 0x3f80}, {1 + 1.0/256, 0x3f80}, {1 + 3.0/256, 0x3f82}, {1 + 1.0/256 + 1.0/65536, 0x3f81},
		{math.MaxFloat32, 0x7f80}, {float32(math.Inf(-1)), 0xff80}} {
		var b [2]byte
		ToBF16(b[:], []float32{c.in})
		require.Equal(t, c.want, binary.LittleEndian.Uint16(b[:]), "%v", c.in)
	}
	var b [2]byte
	ToBF16(b[:], []float32{math.Float32frombits(0x7f800001)})
	require.Equal(t, uint16(0x7fc0), binary.LittleEndian.Uint16(b[:]))
}

// Sums and what has a fused product, against float64.
func TestSums(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(5, 6))
		for _, n := range lengths {
			a, b := floats(r, n), floats(r, n)
			dot, sum, dotSize, sumSize := 0.0, 0.0, 0.0, 0.0
			for i := range a {
				dot += float64(a[i]) * float64(b[i])
				dotSize += math.Abs(float64(a[i]) * float64(b[i]))
				sum += float64(a[i])
				sumSize += math.Abs(float64(a[i]))
			}
			requireClose(t, []float64{dot, sum}, []float64{dotSize, sumSize}, []float32{Dot(a, b), Sum(a)}, 1e-6,
				"Dot, Sum")

			got := append(guarded[float32](0), b...)
			Axpy(got, 0.3, a)
			want, size := make([]float64, n), make([]float64, n)
			for i := range a {
				want[i] = float64(b[i]) + float64(float32(0.3))*float64(a[i])
				size[i] = math.Abs(float64(b[i])) + math.Abs(float64(a[i]))
			}
			requireClose(t, want, size, got, 1e-7, "Axpy")

			for i := range a {
				want[i] = numeric.Exp(float64(a[i]) - 1.5)
			}
			e := floats(r, n)
			total := Exp(e, a, 1.5)
			sum = 0
			for i := range e {
				sum += float64(e[i])
			}
			requireClose(t, want, want, e, 5e-7, "Exp")
			requireClose(t, []float64{sum}, []float64{sum}, []float32{total}, 1e-6, "sum of Exp")
		}
	})
}

func TestNormAndSoftmax(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(7, 8))
		for _, n := range lengths[1:] {
			x, weight, dst := floats(r, n), floats(r, n), floats(r, n)
			squares, total, largest := 0.0, 0.0, math.Inf(-1)
			for _, v := range x {
				squares += float64(v) * float64(v)
				largest = max(largest, float64(v))
			}
			for _, v := range x {
				total += numeric.Exp(float64(v) - largest)
			}
			norm, plain, soft, size := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
			for i, v := range x {
				plain[i] = float64(v) / math.Sqrt(squares/float64(n)+1e-6)
				norm[i] = plain[i] * float64(weight[i])
				soft[i] = numeric.Exp(float64(v)-largest) / total
				size[i] = 10
			}
			RMSNorm(dst, x, weight, 1e-6)
			requireClose(t, norm, size, dst, 1e-6, "RMSNorm")
			RMSNorm(dst, x, nil, 1e-6)
			requireClose(t, plain, size, dst, 1e-6, "RMSNorm without weight")
			Softmax(dst, x)
			requireClose(t, soft, soft, dst, 1e-6, "Softmax")
			for i := range x {
				plain[i] = 30 * numeric.Tanh(float64(x[i])/30)
			}
			SoftCap(dst, x, 30)
			requireClose(t, plain, size, dst, 1e-6, "SoftCap")
		}
		RMSNorm(nil, nil, nil, 1)
		dst := []float32{1, 2, 3}
		Softmax(dst, []float32{float32(math.Inf(-1)), 0, float32(math.Inf(-1))})
		require.Equal(t, []float32{0, 1, 0}, dst)
	})
}

func TestRotate(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(9, 10))
		for _, n := range lengths {
			halves, cos, sin := floats(r, 2*n), floats(r, n), floats(r, n)
			pairs := make([]float32, 2*n)
			want, size := make([]float64, 2*n), make([]float64, 2*n)
			for i := range n {
				a, b := float64(halves[i]), float64(halves[n+i])
				pairs[2*i], pairs[2*i+1] = halves[i], halves[n+i]
				want[i] = a*float64(cos[i]) - b*float64(sin[i])
				want[n+i] = a*float64(sin[i]) + b*float64(cos[i])
				size[i] = (math.Abs(a) + math.Abs(b)) * (math.Abs(float64(cos[i])) + math.Abs(float64(sin[i])))
				size[n+i] = size[i]
			}
			Rotate(halves, cos, sin)
			requireClose(t, want, size, halves, 2e-7, "Rotate")
			RotatePairs(pairs, cos, sin)
			for i := range n {
				halves[i], halves[n+i] = pairs[2*i], pairs[2*i+1]
			}
			requireClose(t, want, size, halves, 2e-7, "RotatePairs")
		}
	})
}

func TestConvolve(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(11, 12))
		for _, channels := range lengths {
			for _, width := range []int{0, 1, 2, 4} {
				taps, weight, dst := floats(r, width*channels), floats(r, width*channels), floats(r, channels)
				want, size := make([]float64, channels), make([]float64, channels)
				for i := range taps {
					v := float64(taps[i]) * float64(weight[i])
					want[i%channels] += v
					size[i%channels] += math.Abs(v)
				}
				Convolve(dst, taps, weight)
				requireClose(t, want, size, dst, 1e-6, "Convolve")
			}
		}
	})
}

// Steps of the gated delta rule, in parts of the rows, against the rule in float64.
func TestDeltaStep(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, shape := range []struct{ rows, cols int }{{1, 1}, {3, 5}, {4, 16}, {8, 32}, {5, 128},
		{128, 128}, {2, 200}, {0, 8}} {
		seed := r.Uint64()
		atEachLevel(t, func(t *testing.T) {
			defer release()
			r := rand.New(rand.NewPCG(seed, 0))
			state := floats(r, shape.rows*shape.cols)
			exact := make([]float64, len(state))
			for i, v := range state {
				exact[i] = float64(v)
			}
			parts := append([]float32{}, state...)
			for range 4 {
				q, k, v := floats(r, shape.cols), floats(r, shape.cols), floats(r, shape.rows)
				Scale(k, k, 1/float32(math.Sqrt(float64(shape.cols))))
				const decay, beta = float32(0.875), float32(0.75)
				y := floats(r, shape.rows)
				DeltaStep(y, state, q, k, v, decay, beta)
				want, size := make([]float64, shape.rows), make([]float64, shape.rows)
				for i := range want {
					row := exact[i*shape.cols:][:shape.cols]
					seen := 0.0
					for j := range row {
						row[j] *= float64(decay)
						seen += row[j] * float64(k[j])
					}
					for j := range row {
						row[j] += (float64(v[i]) - seen) * float64(beta) * float64(k[j])
						want[i] += row[j] * float64(q[j])
						size[i] += 4 * (1 + math.Abs(row[j])) * (1 + math.Abs(float64(q[j])))
					}
				}
				requireClose(t, want, size, y, 1e-6, "y")
				half := shape.rows / 2
				yParts := make([]float32, shape.rows)
				DeltaStep(yParts[:half], parts[:half*shape.cols], q, k, v[:half], decay, beta)
				DeltaStep(yParts[half:], parts[half*shape.cols:], q, k, v[half:], decay, beta)
				require.Equal(t, y, yParts)
			}
			require.Equal(t, state, parts)
			size := make([]float64, len(state))
			for i := range size {
				size[i] = 10
			}
			requireClose(t, exact, size, state, 1e-6, "state")
		})
	}
}

func TestTouch(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(15, 16))
		for _, n := range []int{0, 1, 7, 8, 9, 255, 256, 257, 511, 512, 1000, 4096} {
			data := guarded[byte](n)
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			require.Equal(t, touchGeneric(data), Touch(data))
		}
	})
}

func TestVectorLengths(t *testing.T) {
	a, b := make([]float32, 4), make([]float32, 5)
	for _, call := range []func(){
		func() { Add(a, a, b) }, func() { Mul(a, b, a) }, func() { Scale(a, b, 1) },
		func() { Axpy(a, 1, b) }, func() { Dot(a, b) },
		func() { RMSNorm(a, a, b, 1) }, func() { Exp(a, b, 0) }, func() { Softmax(a, b) }, func() { Tanh(a, b) },
		func() { SiLUMul(a, a, b) },
		func() { Rotate(a, a, a) }, func() { Convolve(a, b, b) }, func() { DeltaStep(a, a, a, a, a, 1, 1) },
		func() { FromBF16(a, make([]byte, 7)) },
	} {
		require.Panics(t, call)
	}
}
