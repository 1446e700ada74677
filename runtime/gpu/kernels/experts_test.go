package kernels_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// checkExperts checks both products of a mixture of experts.
func checkExperts(t *testing.T, e kernels.Experts, upTuning, downTuning kernels.Tuning, tokens, written int) {
	t.Helper()
	up, err := e.LaunchUp(upTuning, tokens)
	require.NoError(t, err)
	down, err := e.LaunchDown(downTuning, tokens)
	require.NoError(t, err)
	for _, l := range []kernels.Launch{up, down} {
		kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: written, Capacity: tokens}))
	}
}

func TestExperts(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		e    kernels.Experts
		u, d kernels.Tuning
	}{
		{kernels.Experts{Format: affine4, Count: 5, Top: 3, Hidden: 128, Inner: 64, Activation: kernels.SiLU},
			kernels.Tuning{Lanes: 8}, kernels.Tuning{}},
		{kernels.Experts{Format: affine4, Count: 5, Top: 2, Hidden: 320, Inner: 192, Activation: kernels.SiLU,
			Norm: kernels.NormBF16, Eps: 1e-6, Residual: true},
			kernels.Tuning{Permute: true, Split: 2}, kernels.Tuning{Permute: true, Split: 2, Sets: 2, Chunk: 256}},
		{kernels.Experts{Format: kernels.Format{Bits: 8, Group: 32, Symmetric: true}, Count: 4, Top: 2, Hidden: 128,
			Inner: 96, Activation: kernels.GELUTanh, Norm: kernels.NormF32}, kernels.Tuning{}, kernels.Tuning{}},
		{kernels.Experts{Format: kernels.Format{Bits: 16}, Count: 4, Top: 2, Hidden: 128, Inner: 104,
			Activation: kernels.SiLU}, kernels.Tuning{}, kernels.Tuning{}},
		{kernels.Experts{Format: mxfp4, Count: 4, Top: 2, Hidden: 128, Inner: 96, Activation: kernels.SiLU,
			Norm: kernels.NormBF16}, kernels.Tuning{}, kernels.Tuning{}},
		{kernels.Experts{Format: nvfp4, Count: 4, Top: 2, Hidden: 128, Inner: 96, Activation: kernels.SiLU},
			kernels.Tuning{}, kernels.Tuning{}},
		{kernels.Experts{Format: mxfp8, Count: 4, Top: 2, Hidden: 128, Inner: 96, Activation: kernels.SiLU,
			Residual: true}, kernels.Tuning{}, kernels.Tuning{}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			checkExperts(t, c.e, c.u, c.d, 3, 2)
		})
	}
}

// TestExpertsChosen: the first product chooses the experts as the router does, with a shared expert and without, for
// any number of tokens.
func TestExpertsChosen(t *testing.T) {
	t.Parallel()
	chosen := func(e kernels.Experts, r kernels.Router) kernels.Experts {
		r.Experts, r.Top = e.Count, e.Top
		if r.Scale == 0 {
			r.Scale = 1
		}
		e.Router = r
		if e.Activation == kernels.Identity {
			e.Activation = kernels.SiLU
		}
		return e
	}
	softmax := kernels.Router{Normalize: true}
	for i, c := range []struct {
		e               kernels.Experts
		u, d            kernels.Tuning
		tokens, written int
	}{
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 128, Inner: 64, Shared: true,
			Norm: kernels.NormF32, Eps: 1e-6, Residual: true, Ahead: true}, softmax),
			kernels.Tuning{Lanes: 8, Split: 2}, kernels.Tuning{Lanes: 8, Split: 2}, 1, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 128, Inner: 64, Shared: true,
			Norm: kernels.NormF32, Eps: 1e-6, Residual: true, Ahead: true}, softmax),
			kernels.Tuning{Rows: 2, Sets: 9, Permute: true}, kernels.Tuning{Rows: 1, Sets: 5, Permute: true}, 1, 1},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 4, Group: 32}, Count: 64, Top: 8, Hidden: 96, Inner: 32,
			Shared: true}, softmax), kernels.Tuning{Permute: true, Rows: 2},
			kernels.Tuning{Permute: true, Rows: 2, Lanes: 16}, 2, 2},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 4, Group: 128, Symmetric: true}, Count: 6, Top: 2,
			Hidden: 128, Inner: 128, Shared: true}, kernels.Router{Logits: true, Normalize: true}), kernels.Tuning{},
			kernels.Tuning{Chunk: 64, Split: 3}, 8, 5},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 8, Group: 64}, Count: 33, Top: 5, Hidden: 128, Inner: 64,
			Shared: true, Norm: kernels.NormPlain}, kernels.Router{Scale: 2.5}), kernels.Tuning{Split: 2},
			kernels.Tuning{Split: 2}, 3, 2},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 16}, Count: 9, Top: 2, Hidden: 64, Inner: 40, Shared: true,
			Norm: kernels.NormBF16, Ahead: true}, softmax), kernels.Tuning{}, kernels.Tuning{}, 4, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 17, Top: 1, Hidden: 64, Inner: 64, Residual: true},
			kernels.Router{Logits: true, Scale: 0.5}), kernels.Tuning{}, kernels.Tuning{}, 1, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 70, Top: 17, Hidden: 64, Inner: 64, Norm: kernels.NormF32},
			softmax), kernels.Tuning{}, kernels.Tuning{}, 6, 4},
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 512, Inner: 128, Shared: true,
			Norm: kernels.NormF32, Eps: 1e-6, Residual: true, Ahead: true}, softmax),
			holding(33, 4, 512, 2), holding(32, 4, 512, 1), 1, 1},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 8, Group: 128, Symmetric: true}, Count: 33, Top: 5,
			Hidden: 1024, Inner: 128, Shared: true}, kernels.Router{Scale: 2.5}),
			holding(128, 8, 1024, 1), holding(64, 6, 768, 1), 1, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 512, Inner: 128, Shared: true}, softmax),
			kernels.Tuning{}, holding(33, 4, 512, 1), 1, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 512, Inner: 128, Norm: kernels.NormF32,
			Eps: 1e-6}, softmax), holding(33, 4, 512, 2), kernels.Tuning{}, 1, 1},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 4, Group: 128, F32: true}, Count: 60, Top: 9, Hidden: 512,
			Inner: 256, Shared: true, Norm: kernels.NormBF16, Residual: true}, softmax),
			holding(128, 2, 512, 3), holding(37, 10, 2560, 1), 1, 1},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 8, Group: 64}, Count: 60, Top: 17, Hidden: 512, Inner: 128,
			Shared: true}, softmax), holding(64, 1, 512, 5), holding(37, 18, 2304, 1), 1, 1},
		// One simdgroup copies; a threadgroup has 1, 2 and up to 8 rows of a part.
		{chosen(kernels.Experts{Format: affine4, Count: 20, Top: 2, Hidden: 1536, Inner: 256, Shared: true,
			Norm: kernels.NormF32, Eps: 1e-6, Residual: true}, softmax),
			holding(256, 3, 1536, 1), holding(96, 3, 768, 1), 1, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 20, Top: 6, Hidden: 3584, Inner: 256, Shared: true,
			Residual: true}, softmax), holding(128, 7, 3584, 2), holding(224, 7, 1792, 1), 1, 1},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 4, Group: 128, Symmetric: true, F32: true}, Count: 20,
			Top: 2, Hidden: 1536, Inner: 256, Shared: true}, softmax),
			holding(33, 3, 1536, 3), holding(96, 3, 768, 1), 1, 1},
		{chosen(kernels.Experts{Format: affine4, Count: 4, Top: 4, Hidden: 64, Inner: 64}, softmax),
			kernels.Tuning{Lanes: 16, Split: 2}, kernels.Tuning{Lanes: 16}, 7, 7},
		{chosen(kernels.Experts{Format: affine4, Count: 128, Top: 8, Hidden: 128, Inner: 64, Norm: kernels.NormF32,
			Eps: 1e-6, Ahead: true, Activation: kernels.GELUTanh},
			kernels.Router{Normalize: true, Scales: kernels.BF16}), kernels.Tuning{}, kernels.Tuning{}, 2, 2},
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 512, Inner: 128, Shared: true,
			Residual: true, Activation: kernels.GELUTanh},
			kernels.Router{Normalize: true, Scales: kernels.F32}), holding(33, 4, 512, 2),
			holding(32, 4, 512, 1), 1, 1},
		// Resident weights of several tokens, of which some are not there.
		{chosen(kernels.Experts{Format: affine4, Count: 40, Top: 3, Hidden: 512, Inner: 128, Shared: true,
			Norm: kernels.NormF32, Eps: 1e-6, Residual: true, Ahead: true}, softmax),
			holding(33, 4, 512, 2), holding(32, 4, 512, 1), 2, 2},
		{chosen(kernels.Experts{Format: kernels.Format{Bits: 8, Group: 128, Symmetric: true}, Count: 33, Top: 5,
			Hidden: 1024, Inner: 128, Shared: true}, kernels.Router{Scale: 2.5}),
			holding(128, 8, 1024, 1), holding(64, 6, 768, 1), 4, 3},
		{chosen(kernels.Experts{Format: mxfp4, Count: 9, Top: 3, Hidden: 96, Inner: 32, Shared: true}, softmax),
			kernels.Tuning{Rows: 2}, kernels.Tuning{Rows: 2, Lanes: 16}, 2, 2},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			checkExperts(t, c.e, c.u, c.d, c.tokens, c.written)
		})
	}
}

// TestExpertsChosenAsRouter: the choice is that of the kernel router, to the last bit: ties of all logits, zeros of
// both signs, infinities and NaN, logits that differ by less than their probabilities show.
func TestExpertsChosenAsRouter(t *testing.T) {
	t.Parallel()
	e := kernels.Experts{Format: kernels.Format{Bits: 4, Group: 32}, Count: 256, Top: 8, Hidden: 32, Inner: 8,
		Activation: kernels.SiLU, Shared: true,
		Router: kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}}
	const tokens = 8
	r := seeded(tokens)
	w0, w1, w := r.weight(e.Format, 256*e.Inner, e.Hidden), r.weight(e.Format, 256*e.Inner, e.Hidden),
		r.weight(e.Format, 256*e.Hidden, e.Inner)
	v0, v1, v := r.weight(e.Format, e.Inner, e.Hidden), r.weight(e.Format, e.Inner, e.Hidden),
		r.weight(e.Format, e.Hidden, e.Inner)
	logits, gates := r.floats(tokens*256), r.floats(tokens)
	chosen, weights := make([]int32, tokens*9), blank(tokens*9)
	for i := range logits {
		logits[i] = float32(math.Round(float64(4*logits[i])) / 4)
		at := i % 256
		switch i / 256 {
		case 0: // numbers of a normal distribution, in steps of a quarter
		case 1:
			logits[i] = 1
		case 2:
			logits[i] = float32(math.Copysign(0, float64(at%2)-0.5))
		case 3:
			logits[i] = float32(at/3) - 90
		case 4:
			logits[i] = math.Float32frombits(0x3a800000 + uint32(at*37%256))
		case 5:
			if at == 100 || at == 7 {
				logits[i] = math.Float32frombits(0x7fc00000 + uint32(at%2)<<31)
			}
		case 6:
			logits[i] = float32(math.Inf(-1))
			if at > 200 {
				logits[i] = -float32(at)
			}
		case 7: // all of the largest in one lane's
			logits[i] = -1
			if at%32 == 5 {
				logits[i] = float32(at)
			}
		}
	}
	router, err := e.Router.Launch(tokens)
	require.NoError(t, err)
	experts, scores := make([]int32, tokens*8), blank(tokens*8)
	kerneltest.Run(t, router, kernels.RouterArguments[any]{Logits: logits, Experts: experts, Scores: scores,
		Step: []int32{tokens, 0}})
	up, err := e.LaunchUp(kernels.Tuning{}, tokens)
	require.NoError(t, err)
	kerneltest.Run(t, up, kernels.ExpertsChooseArguments[any]{W0: w0.arguments(), W1: w1.arguments(),
		V0: v0.arguments(), V1: v1.arguments(), D: w.arguments(), E: v.arguments(),
		Logits: logits, Gates: gates, X: r.floats(tokens * e.Hidden), Experts: chosen, Scores: weights,
		Y: blank(tokens * 9 * e.Inner), Step: []int32{tokens, 0}})
	want := make([]int32, tokens*9)
	e.ReferenceChoice(logits, nil, gates, want, blank(tokens*9))
	require.Equal(t, want, chosen)
	for i := range tokens {
		require.Equal(t, experts[i*8:(i+1)*8], chosen[i*9+1:(i+1)*9])
		for j := range 8 {
			want, got := scores[i*8+j], weights[i*9+1+j]
			require.True(t, want == got || want != want && got != got, "token %d, expert %d: %g, want %g", i, j, got,
				want)
		}
	}
}

func TestExpertsRefused(t *testing.T) {
	e := kernels.Experts{Format: affine4, Count: 8, Top: 2, Hidden: 64, Inner: 64, Shared: true}
	_, err := e.LaunchUp(kernels.Tuning{}, 1)
	require.EqualError(t, err, "experts_up 8×64×64: a shared expert beside experts that are given, want them chosen")
	e.Router = kernels.Router{Experts: 8, Top: 3}
	_, err = e.LaunchDown(kernels.Tuning{}, 1)
	require.EqualError(t, err, "experts_down 8×64×64: a router that chooses 3 of 8 experts for 2 of 8")
	e.Count, e.Router = 600, kernels.Router{Experts: 600, Top: 2}
	_, err = e.LaunchUp(kernels.Tuning{}, 1)
	require.EqualError(t, err, "experts_up 600×64×64: router: the 2 largest of 600 experts, want at most 32 of at most 512")
	e.Count, e.Router, e.Hidden = 512, kernels.Router{Experts: 512, Top: 2}, 7168
	_, err = e.LaunchUp(kernels.Tuning{Chunk: 7168}, 1)
	require.EqualError(t, err, "experts_up 512×64×7168: tuning: 34308 bytes of threadgroup memory with the choice of experts, there are 32768")
	e = kernels.Experts{Format: affine4, Count: 8, Top: 3, Hidden: 512, Inner: 128, Shared: true,
		Router: kernels.Router{Experts: 8, Top: 3, Scale: 1}}
	few := e
	few.Hidden = 510
	for _, c := range []struct {
		launch func(kernels.Tuning, int) (kernels.Launch, error)
		tuning kernels.Tuning
		tokens int
		err    string
	}{
		{e.LaunchUp, holding(32, 4, 512, 2), 2, ""},
		{e.LaunchUp, holding(40, 4, 512, 2), 1, ""},
		{e.LaunchUp, holding(43, 4, 512, 2), 1,
			"stream_choose 8×128×512: tuning: 3 rows of a part in a threadgroup, want 1, 2, 4 or 8, with resident weights"},
		{e.LaunchUp, holding(129, 4, 512, 1), 1,
			"stream_choose 8×128×512: tuning: 129 threadgroups for 128 rows of a part"},
		{e.LaunchUp, holding(32, 4, 512, 1), 1,
			"stream_choose 8×128×512: tuning: 1 resident strips of 8 rows, there are 16 rows"},
		{e.LaunchDown, holding(32, 2, 512, 1), 1,
			"stream_join 8×512×128: tuning: 2 simdgroups with 1 strips, want one resident strip and a simdgroup for each of 4 parts, one of them shared"},
		{e.LaunchDown, holding(16, 4, 512, 1), 1,
			"stream_join 8×512×128: tuning: 1 resident strips of 16 rows, there are 32 rows"},
		{few.LaunchDown, holding(32, 4, 512, 1), 1,
			"stream_join 8×510×128: tuning: 510 resident rows, the scales of 4 take a multiple of 16 bytes"},
		{kernels.Experts{Format: affine4, Count: 8, Top: 2, Hidden: 512, Inner: 128}.LaunchUp, holding(32, 4, 512, 2),
			1, "stream_choose 8×128×512: tuning: resident weights with experts that are given, want a kernel that chooses them"},
	} {
		_, err = c.launch(c.tuning, c.tokens)
		if c.err == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.err)
		}
	}
}

// TestReleasesWhatIsWritten: the threadgroup that writes which experts were chosen lets the next kernel start only when
// they are published, since that one may read them before its wait.
func TestReleasesWhatIsWritten(t *testing.T) {
	t.Parallel()
	e := kernels.Experts{Format: affine4, Count: 8, Top: 3, Hidden: 512, Inner: 128,
		Router: kernels.Router{Experts: 8, Top: 3, Scale: 1}}
	for name, tuning := range map[string]kernels.Tuning{"read": {}, "held": holding(32, 4, 512, 2)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := e.LaunchUp(tuning, 1)
			require.NoError(t, err)
			l.Groups = [3]int{1, 1, 1}
			text, err := l.Source(kernels.CPU)
			require.NoError(t, err)
			for from, to := range map[string]string{
				// All lanes publish, what is written by then. There is no such transfer as below: the emulator says so.
				"inline void port_publish() {}": "inline void port_publish() { published++; }",
				"  port_publish();":             "  if (lane < ROUTER_TOP && experts[to + EXPERTS_SHARED + lane] != places[lane]) emulator_transfer_expect(nullptr, 0, 0);\n  port_publish();",
				"inline void port_release() {}": "inline thread_local int published;\ninline void port_release() { if (published % 32 != 0 || published == 0) emulator_transfer_expect(nullptr, 0, 0); }",
			} {
				require.Contains(t, text, from)
				text = strings.Replace(text, from, to, 1)
			}
			var buffers []any
			for _, b := range l.Case(kernels.Sizes{Whole: true, Tokens: 1}).Launches[0].Buffers {
				buffers = append(buffers, kerneltest.Memory(b))
			}
			for _, o := range kerneltest.Schedules(t, text, l, buffers...) {
				require.NoError(t, o.Err)
			}
		})
	}
}
