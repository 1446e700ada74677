package kernels_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// hopper is a machine on which products may be streamed.
var hopper = kernels.Machine{Target: kernels.CUDA, Cores: 132, TransferMemory: 225 << 10, TransferLeast: 16 << 20}

// TestStreams: large products are streamed where there are transfers and smaller ones held, by one threadgroup for a
// multiprocessor; another way follows the default, and all ways can be launched.
func TestStreams(t *testing.T) {
	vectors := func(k int) kernels.Vectors { return kernels.Vectors{Format: affine4, K: k, M: 1} }
	sum := func(k int) kernels.Vectors {
		return kernels.Vectors{Format: affine4, K: k, M: 1, Norm: kernels.NormF32,
			Sum: &kernels.VectorSum{Scaled: true, Kept: true}}
	}
	eight := kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 128}, K: 8192, M: 1}
	for name, c := range map[string]struct {
		variants []kernels.Tuning
		launch   func(kernels.Tuning) (kernels.Launch, error)
		at       int // of the first streamed one; -1 for none
	}{
		"one": {kernels.MatVec{Vectors: vectors(8192), N: 5376}.Tunings(hopper),
			kernels.MatVec{Vectors: vectors(8192), N: 5376}.Launch, 0},
		"long rows": {kernels.MatVec{Vectors: vectors(21504), N: 5376}.Tunings(hopper),
			kernels.MatVec{Vectors: vectors(21504), N: 5376}.Launch, 0},
		"several": {kernels.MatVecMany{Vectors: vectors(5376), N: []int{8192, 4096, 4096}}.Tunings(hopper),
			kernels.MatVecMany{Vectors: vectors(5376), N: []int{8192, 4096, 4096}}.Launch, 0},
		"a pair": {kernels.MatVecGLU{Vectors: vectors(5376), N: 21504}.Tunings(hopper),
			kernels.MatVecGLU{Vectors: vectors(5376), N: 21504}.Launch, 0},
		"codes of 8 bits": {kernels.MatVec{Vectors: eight, N: 8192}.Tunings(hopper),
			kernels.MatVec{Vectors: eight, N: 8192}.Launch, 0},
		"small": {kernels.MatVec{Vectors: vectors(2048), N: 8192}.Tunings(hopper),
			kernels.MatVec{Vectors: vectors(2048), N: 8192}.Launch, 0},
		"smaller": {kernels.MatVec{Vectors: vectors(2048), N: 512}.Tunings(hopper),
			kernels.MatVec{Vectors: vectors(2048), N: 512}.Launch, -1},
		"bf16": {kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16}, K: 8192, M: 1},
			N: 8192}.Tunings(hopper), kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16}, K: 8192,
			M: 1}, N: 8192}.Launch, -1},
		"groups of 32": {kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 4, Group: 32},
			K: 8192, M: 1}, N: 8192}.Tunings(hopper),
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 4, Group: 32}, K: 8192, M: 1},
				N: 8192}.Launch, -1},
		"a sum": {kernels.MatVec{Vectors: sum(5376), N: 16384}.Tunings(hopper),
			kernels.MatVec{Vectors: sum(5376), N: 16384}.Launch, 0},
		"a sum of a pair": {kernels.MatVecGLU{Vectors: sum(5376), N: 21504}.Tunings(hopper),
			kernels.MatVecGLU{Vectors: sum(5376), N: 21504}.Launch, 0},
		"two vectors": {kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 8192, M: 2},
			N: 8192}.Tunings(hopper), kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 8192, M: 2},
			N: 8192}.Launch, -1},
		"no multiprocessor": {kernels.MatVec{Vectors: vectors(8192),
			N: 8192}.Tunings(kernels.Machine{Target: kernels.CUDA}),
			kernels.MatVec{Vectors: vectors(8192), N: 8192}.Launch, -1},
	} {
		t.Run(name, func(t *testing.T) {
			first, others := -1, 0
			for i, w := range c.variants {
				l, err := c.launch(w)
				require.NoError(t, err, "%+v", w)
				require.LessOrEqual(t, l.Memory, hopper.TransferMemory)
				switch {
				case w.Stream == kernels.Stream{}:
					others++
					require.Zero(t, l.Memory)
				case first < 0:
					first = i
					require.Equal(t, name == "small", w.Stream.Resident)
					fallthrough
				default:
					require.Equal(t, [3]int{132, 1, 1}, l.Groups)
				}
			}
			require.Equal(t, c.at, first)
			require.Equal(t, !strings.HasPrefix(name, "a sum"), others > 0, "only streamed products make their vector")
			if first >= 0 && others > 0 {
				require.Equal(t, kernels.Stream{}, c.variants[1].Stream, "the defaults of both kinds come first")
			}
		})
	}
}

func TestStreamRefusals(t *testing.T) {
	product := kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 64}
	good := kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16, Columns: 512, Stages: 2}
	for _, c := range []struct {
		change func(v *kernels.MatVec, s *kernels.Stream)
		err    string
	}{
		{func(v *kernels.MatVec, s *kernels.Stream) {}, ""},
		{func(v *kernels.MatVec, s *kernels.Stream) { v.M = 2 }, "stream [64]×512: 2 vectors, one can be streamed to"},
		{func(v *kernels.MatVec, s *kernels.Stream) { v.Group = 32 },
			"stream [64]×512: weights 4bit/32, want 4 or 8 bits in groups of 64 or 128"},
		{func(v *kernels.MatVec, s *kernels.Stream) { v.K = 640 },
			"stream [64]×640: 640 columns, want a multiple of 256"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Simdgroups = 3 },
			"stream [64]×512: tuning: stages of 512 of 512 columns do not suit 3 simdgroups"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Strip = 24 },
			"stream [64]×512: tuning: strips of 24 rows, want a multiple of 16"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Stages = 1 },
			"stream [64]×512: tuning: 2 threadgroups with 1 stages for 64 rows"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Groups = 65 },
			"stream [64]×512: tuning: 65 threadgroups with 2 stages for 64 rows"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Columns, v.Sum = 256, &kernels.VectorSum{} },
			"stream_sum_one [64]×512: tuning: stages of 256 of 512 columns, want all for a vector that is a sum"},
		{func(v *kernels.MatVec, s *kernels.Stream) { *s, v.Sum = kernels.Stream{}, &kernels.VectorSum{} },
			"matvec [64]×512: a vector that is a sum, want the product to be streamed"},
		{func(v *kernels.MatVec, s *kernels.Stream) {
			v.Norm, v.Head, v.Sum = kernels.NormF32, 64, &kernels.VectorSum{}
		}, "matvec of 1 vectors of 512 columns in heads of 64: want one vector that is no sum, normed in heads of 8, 16, 32, 64 or 128"},
		{func(v *kernels.MatVec, s *kernels.Stream) { v.K, v.N, s.Columns = 768, 63, 768 },
			"stream [63]×768: [63] rows of 768 columns in strips of 16: scales do not begin at multiples of 16 bytes"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Resident, s.Stages = true, 2 }, ""},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Resident, s.Stages = true, 1 },
			"stream [64]×512: tuning: 1 resident strips of 16 rows, there are 32 rows"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Resident, s.Columns = true, 256 },
			"stream [64]×512: tuning: resident strips of 16 rows of 256 columns, want 16 of 512"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Resident, v.K, s.Columns = true, 768, 768 },
			"stream [64]×768: tuning: resident rows of 768 columns, whose scales do not take a multiple of 16 bytes"},
		{func(v *kernels.MatVec, s *kernels.Stream) { s.Resident, v.Sum = true, &kernels.VectorSum{} },
			"stream_sum_one [64]×512: tuning: resident weights with a vector that is a sum"},
	} {
		v, s := product, good
		c.change(&v, &s)
		_, err := v.Launch(kernels.Tuning{Stream: s})
		if c.err == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.err)
		}
	}
}

// TestStreamSums: a product makes its vector of another one and a residual, norms it, and leaves it behind.
func TestStreamSums(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sum    kernels.VectorSum
		norm   kernels.Norm
		k      int
		stream kernels.Stream
	}{
		"scaled, kept": {kernels.VectorSum{Eps: 1e-6, Scaled: true, Kept: true}, kernels.NormF32, 768,
			kernels.Stream{Groups: 2, Simdgroups: 3, Strip: 16, Columns: 768, Stages: 2}},
		"kept": {kernels.VectorSum{Eps: 1e-2, Kept: true}, kernels.NormPlain, 512,
			kernels.Stream{Groups: 3, Simdgroups: 2, Strip: 32, Columns: 512, Stages: 2, Apart: true}},
		"scaled, not kept": {kernels.VectorSum{Eps: 1e-6, Scaled: true}, kernels.NormBF16, 1024,
			kernels.Stream{Groups: 1, Simdgroups: 1, Strip: 16, Columns: 1024, Stages: 3}},
		"not normed behind": {kernels.VectorSum{Eps: 1e-6, Kept: true}, kernels.NoNorm, 512,
			kernels.Stream{Groups: 2, Simdgroups: 4, Strip: 16, Columns: 512, Stages: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			v := kernels.Vectors{Format: affine4, K: c.k, M: 1, Norm: c.norm, Eps: 1e-6, Sum: &c.sum}
			one := kernels.MatVec{Vectors: v, N: 72, Epilogue: kernels.AddMatrix}
			pair := kernels.MatVecGLU{Vectors: v, N: 72, Activation: kernels.GELUTanh}
			for _, launch := range []func(kernels.Tuning) (kernels.Launch, error){one.Launch, pair.Launch} {
				l, err := launch(kernels.Tuning{Stream: c.stream})
				require.NoError(t, err)
				whole := l.Case(kernels.Sizes{Whole: true})
				require.Equal(t, c.sum.Kept,
					slices.ContainsFunc(whole.Wants(), func(w kernels.Want) bool { return len(w.Values) == c.k }),
					"self-tests of the vector")
				kerneltest.Check(t, whole)
			}
		})
	}
}

// TestStreamNumbers: digits hold vectors of any size, of numbers that differ much in size, and what is no number stays
// none.
func TestStreamNumbers(t *testing.T) {
	t.Parallel()
	v := kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 20}
	ring := kernels.Tuning{Stream: kernels.Stream{Groups: 1, Simdgroups: 2, Strip: 16, Columns: 512, Stages: 2}}
	for name, change := range map[string]func(i int, x float32) float32{
		"zeros":        func(int, float32) float32 { return 0 },
		"1e30":         func(_ int, x float32) float32 { return x * 1e30 },
		"1e-20":        func(_ int, x float32) float32 { return x * 1e-20 },
		"one is large": func(i int, x float32) float32 { return x * float32(1+1000*btoi(i == 77)) },
		"powers of two": func(i int,
			x float32) float32 {
			return float32(math.Ldexp(math.Copysign(1, float64(x)), i%16))
		},
		"just below a power":  func(i int, x float32) float32 { return math.Nextafter32(2, 0) },
		"groups of their own": func(i int, x float32) float32 { return x * float32(math.Ldexp(1, i/64*3)) },
		"one is infinite": func(i int, x float32) float32 {
			return map[bool]float32{true: float32(math.Inf(1)), false: x}[i == 300]
		},
		"one is not a number": func(i int,
			x float32) float32 {
			return map[bool]float32{true: float32(math.NaN()), false: x}[i == 300]
		},
		"smaller than can count": func(int, float32) float32 { return 1e-40 },
	} {
		run := func(t *testing.T, tuning kernels.Tuning) {
			t.Parallel()
			l, err := v.Launch(tuning)
			require.NoError(t, err)
			r := seeded(5)
			w, x := r.weight(v.Format, v.N, v.K), r.floats(v.K)
			bad := false
			for i := range x {
				x[i] = change(i, x[i])
				bad = bad || x[i]-x[i] != 0
			}
			got, want := blank(v.N), blank(v.N)
			kerneltest.Run(t, l, kernels.MatVecArguments[any]{W: w.arguments(), X: x, Y: got, Step: []int32{1, 0}})
			v.Reference(&w.Weight, x, nil, nil, nil, want)
			if bad {
				for i, y := range got {
					require.False(t, y-y == 0, "row %d is %g", i, y)
				}
				return
			}
			if name == "smaller than can count" {
				for i := range want {
					require.InDelta(t, want[i], got[i], 1e-37)
				}
				return
			}
			requireClose(t, want, got, bound)
		}
		t.Run(name, func(t *testing.T) { run(t, ring) })
		t.Run(name+", held", func(t *testing.T) { run(t, holding(1, 2, 512, 2)) })
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestTransferMemory: no way asks for more memory than a machine has, with what the choice of experts has beside it;
// where there is little, those that ask for less are offered. A part of experts may have fewer rows than there are
// multiprocessors.
func TestTransferMemory(t *testing.T) {
	router := kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}
	experts := kernels.Experts{Format: affine4, Count: 256, Top: 8, Hidden: 2048, Inner: 512,
		Router: router, Shared: true}
	narrow := experts
	narrow.Inner = 128
	vectors := kernels.Vectors{Format: affine4, K: 2048, M: 1}
	large := kernels.Vectors{Format: affine4, K: 5376, M: 1}
	for memory, want := range map[int][]bool{225 << 10: {true, true, true, true, true, true},
		97 << 10: {true, false, false, true, false, true}, 32 << 10: make([]bool, 6)} {
		m := hopper
		m.TransferMemory = memory
		up, down := experts.Tunings(m)
		narrowUp, _ := narrow.Tunings(m)
		for i, c := range []struct {
			variants []kernels.Tuning
			launch   func(kernels.Tuning) (kernels.Launch, error)
			beside   int
		}{
			{kernels.MatVec{Vectors: vectors, N: 2048}.Tunings(m), kernels.MatVec{Vectors: vectors, N: 2048}.Launch, 0},
			{kernels.MatVec{Vectors: vectors, N: 8192}.Tunings(m), kernels.MatVec{Vectors: vectors, N: 8192}.Launch, 0},
			{up, func(t kernels.Tuning) (kernels.Launch, error) { return experts.LaunchUp(t, 1) }, 8 * (256 + 36)},
			{down, func(t kernels.Tuning) (kernels.Launch, error) { return experts.LaunchDown(t, 1) }, 8 * (256 + 36)},
			{narrowUp, func(t kernels.Tuning) (kernels.Launch, error) { return narrow.LaunchUp(t, 1) }, 8 * (256 + 36)},
			{kernels.MatVec{Vectors: large, N: 21504}.Tunings(m), kernels.MatVec{Vectors: large, N: 21504}.Launch, 0},
		} {
			some := false
			for _, w := range c.variants {
				l, err := c.launch(w)
				require.NoError(t, err, "%+v", w)
				if w.Stream != (kernels.Stream{}) {
					some = true
					require.LessOrEqual(t, l.Memory+c.beside, memory, "%d %+v", i, w)
				}
			}
			require.Equal(t, want[i], some, "case %d with %d bytes", i, memory)
		}
	}
}
