package selftest_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/cuda"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/metal"
	"github.com/etc-ml/etc/runtime/gpu/metal/metaltest"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
)

// hosts are the devices that ETC_TEST_DEVICE names; without it, it is the emulator.
var hosts = map[string]func() (device.Device, error){
	"":      func() (device.Device, error) { return emulator.Open(emulator.Options{}) },
	"cuda":  func() (device.Device, error) { return cuda.Open(cuda.Options{}) },
	"metal": metal.Open,
}

// open opens the device, and gives what compiles kernels for it.
func open(t *testing.T) (device.Device, func(kernels.Launch) (device.Kernel, error)) {
	t.Helper()
	return openHost(t, hosts[os.Getenv("ETC_TEST_DEVICE")], func(text string) string { return text })
}

// openHost is open for a host, with kernels of texts that change has changed.
func openHost(t *testing.T, host func() (device.Device, error), change func(text string) string) (device.Device,
	func(kernels.Launch) (device.Kernel, error)) {
	t.Helper()
	d, err := host()
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	var mu sync.Mutex
	made := map[string]device.Kernel{}
	var open []interface{ Close() error }
	t.Cleanup(func() {
		for _, x := range slices.Backward(open) {
			require.NoError(t, x.Close())
		}
		require.NoError(t, d.Close())
	})
	return d, func(l kernels.Launch) (device.Kernel, error) {
		mu.Lock()
		defer mu.Unlock()
		if k := made[l.Key()]; k != nil {
			return k, nil
		}
		text, err := l.Source(d.Info().Target)
		if err != nil {
			return nil, err
		}
		library, err := d.Compile(device.Source{Name: l.File, Text: change(text)})
		if err != nil {
			return nil, err
		}
		open = append(open, library)
		k, err := library.Kernel(l.Kernel)
		if err == nil {
			made[l.Key()], open = k, append(open, k)
		}
		return k, err
	}
}

// launches are launches of every family, at odd shapes and at some of those that models have.
func launches(t *testing.T) map[string]kernels.Launch {
	out := map[string]kernels.Launch{}
	add := func(name string, l kernels.Launch, err error) {
		require.NoError(t, err, name)
		require.NotNil(t, l.Case, name)
		out[name] = l
	}
	affine := kernels.Format{Bits: 4, Group: 64}
	eight := kernels.Format{Bits: 8, Group: 32, Symmetric: true, F32: true}
	vectors := func(f kernels.Format, k, m int) kernels.Vectors { return kernels.Vectors{Format: f, K: k, M: m} }
	normed := kernels.Vectors{Format: affine, K: 512, M: 1, Norm: kernels.NormF32, Eps: 1e-6}
	one := func(name string, v interface {
		Launch(kernels.Tuning) (kernels.Launch, error)
	}) {
		l, err := v.Launch(kernels.Tuning{})
		add(name, l, err)
	}
	one("matvec", kernels.MatVec{Vectors: normed, N: 3001})
	one("matvec, vocabulary", kernels.MatVec{Vectors: vectors(affine, 256, 1), N: 200000,
		Epilogue: kernels.Softcap, Cap: 2})
	one("matvec of eight, sum", kernels.MatVec{Vectors: vectors(eight, 256, 8), N: 300, Epilogue: kernels.AddMatrix})
	one("matvec, bf16, bias", kernels.MatVec{Vectors: vectors(kernels.Format{Bits: 16}, 264, 2), N: 21,
		Epilogue: kernels.AddVector})
	one("matvec of gated heads", kernels.MatVec{Vectors: normed, N: 40, Head: 128, Activation: kernels.SiLU,
		Epilogue: kernels.AddMatrix})
	one("matvecs", kernels.MatVecMany{Vectors: normed, N: []int{400, 8, 33}})
	one("matvecs, convolution", kernels.MatVecMany{Vectors: normed, N: []int{400, 8},
		Conv: &kernels.Conv{Channels: 384, Taps: 4, Token: 384, SiLU: true, State: kernels.BF16, Weight: kernels.F32}})
	one("matvecs, convolution of channels",
		kernels.MatVecMany{Vectors: normed, N: []int{48},
			Conv: &kernels.Conv{Channels: 40, Taps: 3, Token: 40, State: kernels.F32, ChannelFirst: true,
				Weight: kernels.BF16, Reset: kernels.ResetFlag}})
	one("glu", kernels.MatVecGLU{Vectors: vectors(kernels.Format{Bits: 32}, 256, 3), N: 500,
		Activation: kernels.GELUTanh})
	experts := kernels.Experts{Format: affine, Count: 256, Top: 8, Hidden: 256, Inner: 128, Activation: kernels.SiLU,
		Norm: kernels.NormF32, Eps: 1e-6}
	l, err := experts.LaunchUp(kernels.Tuning{}, 3)
	add("experts up", l, err)
	experts.Residual = true
	l, err = experts.LaunchDown(kernels.Tuning{}, 3)
	add("experts down", l, err)
	experts.Router, experts.Shared = kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}, true
	l, err = experts.LaunchUp(kernels.Tuning{}, 3)
	add("experts up, chosen", l, err)
	l, err = experts.LaunchDown(kernels.Tuning{}, 1)
	add("experts down, one shared", l, err)
	for name, exact := range map[string]bool{"": false, ", exact": true} {
		many := kernels.ManyExperts{Format: affine, Count: 256, Top: 8, Hidden: 256, Inner: 128,
			Activation: kernels.SiLU, Exact: exact, Residual: true}
		tile := many.Tiles(kernels.Machine{Target: kernels.Metal}, 512)[0]
		l, err = many.LaunchSort(tile, 100)
		add("experts sort"+name, l, err)
		l, err = many.LaunchUp(tile, 100)
		add("experts up by tiles"+name, l, err)
		l, err = many.LaunchDown(tile, 100)
		add("experts down by tiles"+name, l, err)
		l, err = many.LaunchCombine(100)
		add("experts combine"+name, l, err)
		m := kernels.MatMul{Matrices: kernels.Matrices{Format: affine, K: 256, Exact: exact}, N: 300,
			Epilogue: kernels.AddMatrix}
		l, err = m.Launch(m.Tiles(kernels.Machine{Target: kernels.Metal}, 512)[0], 512)
		add("matmul"+name, l, err)
		g := kernels.MatMulGLU{Matrices: kernels.Matrices{Format: eight, K: 128, Exact: exact, Half: !exact}, N: 300,
			Activation: kernels.SiLU}
		l, err = g.Launch(m.Tiles(kernels.Machine{Target: kernels.Metal}, 16)[0], 16)
		add("matmul glu"+name, l, err)
		l, err = kernels.Prepare{K: 256, Exact: exact, Norm: kernels.NormF32, Eps: 1e-6}.Launch(64)
		add("prepare"+name, l, err)
	}
	many := kernels.ManyExperts{Format: affine, Count: 256, Top: 8, Hidden: 512, Inner: 256, Activation: kernels.SiLU,
		Lanes: true}
	direct := many.Tiles(kernels.Machine{Target: kernels.CUDA}, 512)[0]
	require.Zero(t, direct.BK)
	l, err = many.LaunchUp(direct, 100)
	add("experts up, direct", l, err)
	l, err = many.LaunchDown(direct, 100)
	add("experts down, direct", l, err)
	tile := kernels.Tile{BM: 16, BN: 64, WM: 1, WN: 2, Split: 4}
	l, err = kernels.MatMul{Matrices: kernels.Matrices{Format: affine, K: 512, Packed: kernels.InLanes}, N: 1000,
		Epilogue: kernels.AddMatrix}.Launch(tile, 100)
	add("matmul, direct", l, err)
	l, err = kernels.MatMulGLU{Matrices: kernels.Matrices{Format: affine, K: 512, Packed: kernels.InLanes}, N: 1000,
		Activation: kernels.SiLU}.Launch(tile, 100)
	add("matmul glu, direct", l, err)
	tile = kernels.Tile{BM: 8, BN: 32, WM: 1, WN: 1, Split: 2}
	l, err = kernels.MatMul{Matrices: kernels.Matrices{Format: kernels.Format{Bits: 8, Group: 64}, K: 256,
		Packed: kernels.InLanes},
		N: 1000}.Launch(tile, 8)
	add("matmul, direct, eight vectors", l, err)
	l, err = kernels.MatMulGLU{Matrices: kernels.Matrices{Format: affine, K: 256, Packed: kernels.InLanes}, N: 1000,
		Activation: kernels.SiLU}.Launch(tile, 8)
	add("matmul glu, direct, eight vectors", l, err)
	l, err = kernels.Dequantize{Format: affine, N: 1000, K: 256}.Launch()
	add("dequantize", l, err)
	l, err = kernels.Embedding{Format: affine, N: 100000, K: 256, Multiplier: 1.5}.Launch(9)
	add("embedding", l, err)
	l, err = kernels.RMSNorm{N: 700, Heads: 1, Pre: kernels.F32, PreEps: 1e-5, Add: true, Scale: kernels.F32, Sum: true,
		Weight: kernels.F32, Eps: 1e-6}.Launch(9)
	add("norm", l, err)
	l, err = kernels.RMSNorm{N: 128, Heads: 4, X: kernels.Rows{Token: 1000, Row: 128}, Weight: kernels.F32, Gated: true,
		Activation: kernels.SiLU, Gates: kernels.Rows{Token: 600, Row: 128}}.Launch(9)
	add("gated norm", l, err)
	l, err = kernels.Reduce{N: 256, Heads: 1}.SoftmaxLaunch(7)
	add("softmax", l, err)
	for kind, name := range []string{"sum", "mean", "max", "min", "argmax", "argmin"} {
		l, err = kernels.Reduce{Kind: kernels.Reduction(kind), N: 2000, Heads: 3,
			X: kernels.Rows{Token: 7000, Row: 2100}}.Launch(7)
		add("reduction to "+name, l, err)
	}
	l, err = kernels.Gather{N: 70, Rows: 1000, Each: 5, Table: kernels.F32, Out: kernels.F32,
		Index: kernels.I32}.Launch(7)
	add("gather", l, err)
	l, err = kernels.Gather{N: 64, Rows: 2, Each: 1, Table: kernels.BF16, Out: kernels.BF16,
		Index: kernels.I64}.Launch(1)
	add("gather of bf16", l, err)
	l, err = kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}.Launch(7)
	add("router", l, err)
	box := kernels.Box{kernels.Fixed(300), kernels.Fixed(70)}
	place := func(d kernels.DType, strides ...int) kernels.Place {
		return kernels.Place{DType: d, Strides: []kernels.Extent{kernels.Fixed(strides[0]), kernels.Fixed(strides[1])}}
	}
	for _, op := range []string{"add", "exp", "log", "power", "sigmoid", "glu_silu", "gated_add", "copy"} {
		e := kernels.Elementwise{Op: op, Box: box, Out: place(kernels.F32, 70, 1)}
		for i := range kernels.Arity(op) {
			e.In = append(e.In, []kernels.Place{place(kernels.F32, 1, 300), place(kernels.BF16, 1, 0),
				place(kernels.F32, 70, 1)}[i])
		}
		l, err = e.Launch(1)
		add(op, l, err)
	}
	l, err = kernels.RopeAngles{Dims: 64, Scale: 1}.Launch(9)
	add("angles", l, err)
	rope := kernels.Rope{D: 64, Dims: 16, QHeads: 4, KVHeads: 2, Q: kernels.Rows{Token: 768, Row: 128},
		K: kernels.Rows{Token: 768, Row: 64}, V: kernels.Rows{Token: 768, Row: 64},
		QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32,
		Cache: kernels.BF16, Slots: 4000}
	l, err = rope.Launch(9)
	add("rope", l, err)
	l, err = kernels.Rope{D: 32, Dims: 24, Traditional: true, QHeads: 3}.Launch(9)
	add("rope of queries", l, err)
	l, err = kernels.CacheWrite{D: 48, Heads: 2, Cache: kernels.F32, Slots: 6, Ring: true}.Launch(3)
	add("cache write", l, err)
	l, err = kernels.RowAngles{Dims: 64, Scale: 1}.Launch(9)
	add("angles of rows", l, err)
	blocks := kernels.Blocks{Rows: 64, Columns: 40, Cache: kernels.BF16}
	l, err = kernels.BlockWrite{Blocks: blocks, D: 48, Heads: 2}.Launch(9)
	add("block write", l, err)
	inBlocks := kernels.BlockAttention{Blocks: blocks, D: 64, Heads: 8, KVHeads: 2, Scale: 0.125, Gated: true,
		Gates: kernels.Rows{Token: 1024, Row: 128}}
	for name, rows := range map[string]int{"attention over blocks": 3, "attention of many over blocks": 70} {
		_, l, _, err = inBlocks.Launches(rows)
		add(name, l, err)
	}
	oneKernel := inBlocks
	oneKernel.Last, oneKernel.Half, oneKernel.Lanes = true, true, true
	l, _, _, err = oneKernel.Launches(3)
	add("attention over blocks in one kernel", l, err)
	l, err = inBlocks.ChunkLaunch(60, inBlocks.ChunkTunings(kernels.Machine{Target: kernels.Metal})[0])
	add("attention over blocks by tiles", l, err)
	inBlocks.Window = 100
	_, l, _, err = inBlocks.Launches(70)
	add("attention over blocks in a window", l, err)
	a := kernels.Attention{D: 64, Heads: 8, KVHeads: 2, Slots: 3000, Scale: 0.125, Cache: kernels.BF16, Gated: true,
		Gates: kernels.Rows{Token: 1024, Row: 128}}
	for name, tokens := range map[string]int{"attention": 1, "attention of many": 50} {
		_, l, _, err = a.Launches(tokens)
		add(name, l, err)
	}
	l, err = a.ChunkLaunch(60, a.ChunkTunings(kernels.Machine{Target: kernels.Metal})[0])
	add("attention by tiles", l, err)
	ring := kernels.Attention{D: 32, Heads: 4, KVHeads: 2, Slots: 50, Window: 16, Scale: 0.2, Cache: kernels.F32}
	_, l, _, err = ring.Launches(1)
	add("attention in a ring", l, err)
	turned := rope
	turned.QHeads, turned.Slots = a.Heads, a.Slots
	turned.Q, turned.K, turned.V = kernels.Rows{Token: 1024, Row: 128}, kernels.Rows{}, kernels.Rows{}
	step := kernels.AttentionStep{Attention: a, Rope: turned}
	_, l, _, err = step.Launches()
	add("attention step", l, err)
	step.Step.Last, step.Step.Short, step.Early = true, 20, true
	l, _, _, err = step.Launches()
	add("attention step that ends itself", l, err)
	conv := kernels.Conv{Channels: 200, Taps: 4, Token: 230, SiLU: true, State: kernels.BF16, Weight: kernels.F32,
		Reset: kernels.ResetFlag}
	l, err = conv.StepLaunch()
	add("conv", l, err)
	_, l, err = conv.Launches(60)
	add("conv of many", l, err)
	delta := kernels.Delta{DK: 64, DV: 32, KHeads: 2, Heads: 4, State: kernels.F32, Reset: kernels.ResetFlag}
	_, l, err = delta.Launches(60)
	add("delta in chunks", l, err)
	delta.Gates = kernels.F32
	l, err = delta.GatesLaunch(9)
	add("gates", l, err)
	delta.Norm, delta.Eps, delta.State = kernels.F32, 1e-6, kernels.BF16
	l, err = delta.StepLaunch()
	add("delta", l, err)
	for name, s := range map[string]kernels.Sample{"sample": {Vocab: 5000, Filters: true},
		"sample by temperature": {Vocab: 3000}, "argmax": {Vocab: 3000, Greedy: true},
		"draw": {Vocab: 3000, Filters: true, Rows: 5, MinP: true}} {
		_, _, l, err = s.Launches()
		add(name, l, err)
	}
	l, err = kernels.Adjust{Rows: 5, Vocab: 3000, Listed: 70, Bias: true, Counts: true, Fed: true, Mask: true}.Launch()
	add("adjust logits", l, err)
	_, l, err = kernels.Logprobs{Rows: 5, Vocab: 3000, Top: 20}.Launches()
	add("logprobs", l, err)
	return out
}

// TestTrials: every case is of its launch's kernel, and passes on the emulator.
func TestTrials(t *testing.T) {
	d, kernel := open(t)
	for name, l := range launches(t) {
		t.Run(name, func(t *testing.T) {
			test := l.Case(kernels.Sizes{})
			var keys []string
			for _, x := range test.Launches {
				require.Nil(t, x.Launch.Case)
				keys = append(keys, x.Launch.Key())
			}
			require.Contains(t, keys, l.Key())
			r, err := selftest.Run(d, test, kernel)
			require.NoError(t, err)
			t.Logf("off by %.2g of %.2g", r.Difference, r.Bound)
			require.LessOrEqual(t, r.Difference, 0.8*r.Bound,
				"near the bound: a device that rounds otherwise would fail")
		})
	}
}

// TestDifference: the largest difference is relative to the largest number, and a NaN is never near.
func TestDifference(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		dtype     kernels.DType
		want, got []float32
		expect    float64
	}{
		{kernels.F32, []float32{1, -4, 0}, []float32{1, -4, 0}, 0},
		{kernels.F32, []float32{1, -4, 0}, []float32{1.5, -4, 1}, 0.25},
		{kernels.F32, []float32{0, 0}, []float32{0, 0}, 0},
		{kernels.F32, []float32{0, 0}, []float32{0, 1e-30}, math.Inf(1)},
		{kernels.F32, []float32{1, 2}, []float32{1, nan}, math.Inf(1)},
		{kernels.F32, []float32{1, 2}, []float32{float32(math.Inf(-1)), 2}, math.Inf(1)},
		{kernels.BF16, []float32{2, 1}, []float32{2, 1.5}, 0.25},
		{kernels.I32, []float32{-1, 70000}, []float32{-1, 70000}, 0},
		{kernels.I32, []float32{-1, 4}, []float32{1, 4}, 0.5},
	} {
		w := kernels.Want{DType: c.dtype, Values: c.want}
		require.Equal(t, c.expect, w.Difference(c.dtype.Bytes(c.got)), "%+v", c)
		require.Equal(t, len(c.want)*c.dtype.Size(), w.Size())
	}
}

// TestKept: what passes is remembered by device and kernel, what fails is told of and tried again, and neither is of
// another device or another text of the kernel.
func TestKept(t *testing.T) {
	d, kernel := open(t)
	dir := t.TempDir()
	l, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 9, K: 64, Multiplier: 1}.Launch(2)
	require.NoError(t, err)
	other, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 9, K: 72, Multiplier: 1}.Launch(2)
	require.NoError(t, err)
	wrong := other
	wrong.Case = func(s kernels.Sizes) *kernels.Case {
		test := other.Case(s)
		test.Wants()[0].Values[7] += 0.5
		return test
	}
	tried := 0
	counted := func(l kernels.Launch) (device.Kernel, error) { tried++; return kernel(l) }
	attempt := func(identity string, l kernels.Launch) ([]selftest.Failure, int) {
		tried = 0
		failures := selftest.New(d, identity, selftest.Options{Dir: dir}).Test([]kernels.Launch{l, l}, counted)
		return failures, tried
	}
	target := d.Info().Target
	failures, n := attempt("a  GPU", l)
	require.Empty(t, failures)
	require.NotZero(t, n)
	_, n = attempt("a GPU", l)
	require.Zero(t, n, "it is known")
	_, n = attempt("another GPU", l)
	require.NotZero(t, n)
	for range 2 {
		failures, n = attempt("a GPU", wrong)
		require.Len(t, failures, 1)
		require.NotZero(t, n, "it is tried again")
		require.Regexp(t, `^embedding/embedding is off by 0\.\d+ of the largest number, where 1e-05 is allowed$`,
			failures[0].String())
		require.Equal(t, []string{other.Key()}, failures[0].Keys)
		passed, failed := selftest.Summary("a GPU", target, selftest.Options{Dir: dir})
		require.Equal(t, 1, passed)
		require.Equal(t, []string{failures[0].String()}, failed)
	}
	failures, _ = attempt("a GPU", other)
	require.Empty(t, failures)
	passed, failed := selftest.Summary("a GPU", target, selftest.Options{Dir: dir})
	require.Equal(t, 2, passed)
	require.Empty(t, failed, "a kernel that passes now")
	passed, _ = selftest.Summary("a third GPU", target, selftest.Options{Dir: dir})
	require.Zero(t, passed)
	files, err := filepath.Glob(filepath.Join(dir, "*.known"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, []byte(strings.Replace(string(text), "text ", "text 0", 1)), 0o600))
	}
	passed, failed = selftest.Summary("a GPU", target, selftest.Options{Dir: dir})
	require.Zero(t, passed, "of another version of etc")
	require.Empty(t, failed)
	_, n = attempt("a GPU", l)
	require.NotZero(t, n)
}

// TestUntried: what the device has no memory for, or has no case, is taken on trust and not remembered; what does not
// compile fails.
func TestUntried(t *testing.T) {
	d, kernel := open(t)
	dir := t.TempDir()
	l, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 9, K: 64, Multiplier: 1}.Launch(2)
	require.NoError(t, err)
	full := selftest.New(small{d}, "a GPU", selftest.Options{Dir: dir})
	require.Empty(t, full.Test([]kernels.Launch{l}, kernel))
	bare := l
	bare.Case = nil
	require.Empty(t, full.Test([]kernels.Launch{bare}, kernel))
	passed, failed := selftest.Summary("a GPU", d.Info().Target, selftest.Options{Dir: dir})
	require.Zero(t, passed)
	require.Empty(t, failed)
	same := selftest.New(d, "a GPU", selftest.Options{Dir: dir})
	wrong := l
	wrong.Case = func(s kernels.Sizes) *kernels.Case {
		test := l.Case(s)
		test.Wants()[0].Values[0] += 1
		return test
	}
	first := same.Test([]kernels.Launch{wrong, wrong}, kernel)
	require.Len(t, first, 1)
	require.Equal(t, first[0].String(), same.Test([]kernels.Launch{wrong, wrong}, kernel)[0].String(),
		"what has failed goes on failing")
	broken := func(kernels.Launch) (device.Kernel, error) { return nil, errors.New("line 7: a word too many") }
	failures := selftest.New(d, "a GPU", selftest.Options{Dir: dir}).Test([]kernels.Launch{l}, broken)
	require.Len(t, failures, 1)
	require.Equal(t, "embedding/embedding does not run: line 7: a word too many", failures[0].String())
	threads := l
	threads.Case = func(s kernels.Sizes) *kernels.Case {
		test := l.Case(s)
		test.Launches[0].Launch.Threads[0] = 2048
		return test
	}
	failures = selftest.New(d, "a GPU", selftest.Options{Dir: dir}).Test([]kernels.Launch{threads}, kernel)
	require.Len(t, failures, 1)
	require.ErrorContains(t, failures[0].Err, "2048", "a threadgroup that the kernel cannot have")
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Empty(t, selftest.New(d, "a GPU",
		selftest.Options{Dir: filepath.Join(file, "no")}).Test([]kernels.Launch{l}, kernel), "nothing can be kept")
}

// diverge is a fault of norms: some threads of a simdgroup do not take part in a sum.
func diverge(text string) string {
	return strings.Replace(text, "  sum = simd_sum(sum);\n", "  if (lane < 5) sum = simd_sum(sum);\n", 1)
}

// TestErrors: a kernel that ends in an error of the device fails, and the others are tried.
func TestErrors(t *testing.T) {
	for name, host := range map[string]func(*testing.T) func() (device.Device, error){
		"emulator":         func(*testing.T) func() (device.Device, error) { return hosts[""] },
		"Metal's stand-in": func(t *testing.T) func() (device.Device, error) { return metaltest.StandIn(t) },
	} {
		t.Run(name, func(t *testing.T) {
			d, kernel := openHost(t, host(t), diverge)
			p := selftest.New(d, "a GPU", selftest.Options{Dir: t.TempDir()})
			first, faulty, last := normThenEmbeddings(t)
			for range 2 {
				failures := p.Test([]kernels.Launch{first, faulty, last}, kernel)
				require.Len(t, failures, 1)
				require.False(t, failures[0].Lost)
				require.Equal(t, []string{faulty.Key()}, failures[0].Keys)
				require.Regexp(t, `^norm/norm does not run: (emulator: dispatch norm, kernel norm|metal: command buffer \d): simd operation in divergent code`, failures[0].String())
				require.NotContains(t, failures[0].String(), "\n", "the error once")
				require.NoError(t, d.Wait())
			}
		})
	}
}

// normThenEmbeddings are launches, the second of which diverge changes.
func normThenEmbeddings(t *testing.T) (first, norm, last kernels.Launch) {
	var err error
	first, err = kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 9, K: 64, Multiplier: 1}.Launch(2)
	require.NoError(t, err)
	norm, err = kernels.RMSNorm{N: 700, Heads: 1, X: kernels.Rows{Token: 700, Row: 700},
		Weight: kernels.F32, Eps: 1e-6}.Launch(2)
	require.NoError(t, err)
	last, err = kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 9, K: 72, Multiplier: 1}.Launch(2)
	require.NoError(t, err)
	return first, norm, last
}

// stuck is a device that does not recover.
type stuck struct{ device.Device }

func (d stuck) Recover() error { return d.Wait() }

// TestLost: where the device does not recover, nothing else is tried, and the next start refuses the kernel and tries
// the others.
func TestLost(t *testing.T) {
	dir, target := t.TempDir(), kernels.Target(0)
	first, faulty, last := normThenEmbeddings(t)
	launches := []kernels.Launch{first, faulty, last}
	start := func(change func(string) string, identity string) (*selftest.Tester, device.Device,
		func(kernels.Launch) (device.Kernel, error), map[string]int) {
		d, kernel := openHost(t, hosts[""], change)
		t.Cleanup(func() { require.NoError(t, d.Recover()) }) // ahead of its being closed
		target = d.Info().Target
		tried := map[string]int{}
		var mu sync.Mutex
		return selftest.New(stuck{d}, identity, selftest.Options{Dir: dir}), d,
			func(l kernels.Launch) (device.Kernel, error) {
				mu.Lock()
				tried[l.Key()]++
				mu.Unlock()
				return kernel(l)
			}, tried
	}
	const want = "norm/norm does not run: the device does not recover from it: emulator: dispatch norm, kernel norm: simd operation in divergent code"
	p, d, kernel, _ := start(diverge, "a GPU")
	failures := p.Test(launches, kernel)
	require.Len(t, failures, 1)
	require.True(t, failures[0].Lost)
	require.Contains(t, failures[0].String(), want)
	require.Error(t, d.Wait())
	third, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 9, K: 80, Multiplier: 1}.Launch(2)
	require.NoError(t, err)
	require.Empty(t, p.Test([]kernels.Launch{third}, kernel), "the error is not this kernel's")
	passed, failed := selftest.Summary("a GPU", target, selftest.Options{Dir: dir})
	require.Equal(t, 1, passed, "the first; the others were not tried")
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], want)

	p, d, kernel, tried := start(diverge, "a GPU")
	for range 2 {
		failures = p.Test(launches, kernel)
		require.Len(t, failures, 1)
		require.False(t, failures[0].Lost)
		require.Equal(t, []string{faulty.Key()}, failures[0].Keys)
		require.Contains(t, failures[0].String(), want)
		require.Regexp(t, ` \(so found a start before this one; it is not tried again while there is \S*\.known\)$`,
			failures[0].String())
	}
	require.Equal(t, map[string]int{last.Key(): 2}, tried, "compiled, and run")
	require.NoError(t, d.Wait())
	passed, _ = selftest.Summary("a GPU", target, selftest.Options{Dir: dir})
	require.Equal(t, 2, passed)

	p, _, kernel, tried = start(func(text string) string { return text }, "a GPU, another driver")
	require.Empty(t, p.Test(launches, kernel))
	require.Equal(t, 2, tried[faulty.Key()])
}

// small is a device that is full.
type small struct{ device.Device }

func (small) NewBuffer(int) (device.Buffer, error) { return nil, errors.New("there is no room") }
