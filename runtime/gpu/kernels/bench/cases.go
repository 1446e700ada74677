package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// four and eight are the formats of the default recipe.
var (
	four  = kernels.Format{Bits: 4, Group: 64}
	eight = kernels.Format{Bits: 8, Group: 64}
)

// cases are the products of both models; dims are divided by small, for a test.
func cases(small int) []testCase {
	s := func(n int) int { return max(64, n/small/64*64) }
	out := []testCase{
		matvec("qwen lm_head", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1, Norm: kernels.NormF32}, N: s(248320)}),
		matvec("qwen qkv", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1, Norm: kernels.NormF32}, N: s(8192)}),
		matvec("qwen out", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(4096), M: 1}, N: s(2048), Epilogue: kernels.AddMatrix}),
		matvec("qwen out of heads", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(4096), M: 1, Norm: kernels.NormF32, Eps: 1e-6}, N: s(2048), Epilogue: kernels.AddMatrix, Head: min(128, s(4096)), Activation: kernels.SiLU}),
		matvec("qwen out of heads, gate activated", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(4096), M: 1, Norm: kernels.NormF32, Eps: 1e-6}, N: s(2048), Epilogue: kernels.AddMatrix, Head: min(128, s(4096))}),
		matvec("qwen router", kernels.MatVec{Vectors: kernels.Vectors{Format: eight, K: s(2048), M: 1}, N: 256}),
		many("qwen delta in", kernels.MatVecMany{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1, Norm: kernels.NormF32}, N: []int{s(8192), s(4096), 32, 32}}),
		convolved("qwen delta in, conv", kernels.MatVecMany{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1, Norm: kernels.NormF32}, N: []int{s(12352)}}, s(8192)),
		matvec("gemma lm_head", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(5376), M: 1}, N: s(262144), Epilogue: kernels.Softcap, Cap: 30}),
		glu("gemma gate up", kernels.MatVecGLU{Vectors: kernels.Vectors{Format: four, K: s(5376), M: 1}, N: s(21504), Activation: kernels.GELUTanh}),
		matvec("gemma down", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(21504), M: 1}, N: s(5376)}),
	}
	for _, m := range []int{2, 4, 8} {
		out = append(out, matvec(fmt.Sprintf("qwen qkv of %d", m), kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(2048), M: m}, N: s(8192)}))
	}
	moe := kernels.Experts{Format: four, Count: max(8, 256/small), Top: 8, Hidden: s(2048), Inner: s(512), Activation: kernels.SiLU, Norm: kernels.NormF32}
	out = append(out, router("qwen top-k", kernels.Router{Experts: moe.Count, Top: moe.Top, Normalize: true, Scale: 1}),
		expertsUp("qwen experts up", moe), expertsDown("qwen experts down", moe))
	chosen := moe
	chosen.Router, chosen.Residual = kernels.Router{Experts: moe.Count, Top: moe.Top, Normalize: true, Scale: 1}, true
	out = append(out, expertsUp("qwen experts up, chosen", chosen))
	chosen.Shared = true
	out = append(out, expertsUp("qwen experts up, chosen, one shared", chosen), expertsDown("qwen experts down, one shared", chosen))
	chosen.Ahead = true
	out = append(out, expertsUp("qwen experts up, chosen, one shared, ahead", chosen))
	for _, c := range []struct{ tokens, n, k int }{{512, 8192, 2048}, {2048, 8192, 2048}, {512, 5376, 21504}, {4096, 8192, 4096}} {
		for _, exact := range []bool{false, true} {
			name := fmt.Sprintf("prefill %d %dx%d", s(c.tokens), s(c.n), s(c.k))
			if exact {
				name += " fp32"
			}
			out = append(out, matmul(name, kernels.MatMul{Matrices: kernels.Matrices{Format: four, K: s(c.k), Exact: exact}, N: s(c.n)}, s(c.tokens)))
		}
	}
	out = append(out,
		matmulGLU("prefill gemma gate up", kernels.MatMulGLU{Matrices: kernels.Matrices{Format: four, K: s(5376), Half: true}, N: s(21504), Activation: kernels.GELUTanh}, s(512)),
		dequantize("dequantize gemma gate", kernels.Dequantize{Format: four, N: s(21504), K: s(5376)}))
	for _, tokens := range []int{512, 2048, 4096} {
		out = append(out, manyExperts(moe, max(16, tokens/small))...)
	}
	return append(out, sequences(small)...)
}

// weight are the buffers of a weight: w, scales, biases.
func weight(f kernels.Format, n, k int) []memory {
	size := n * k / f.Group * 2
	return []memory{{content: codes, bytes: n * k * f.Bits / 8}, {content: scales, bytes: size}, {content: scales, bytes: size}}
}

func total(memory []memory) (bytes float64) {
	for _, m := range memory {
		bytes += float64(m.bytes)
	}
	return bytes
}

func vectors(n int) memory   { return memory{content: values, bytes: n * 4} }
func results(n int) memory   { return memory{content: zeros, bytes: n * 4} }
func step(tokens int) memory { return integers(int32(tokens), 0) }

func integers(ints ...int32) memory {
	return memory{content: numbers, bytes: len(ints) * 4, ints: ints}
}

// tuned makes variants of tunings.
func tuned(tunings []kernels.Tuning, launch func(kernels.Tuning) (kernels.Launch, error), buffers ...int) ([]variant, error) {
	var out []variant
	for _, t := range tunings {
		l, err := launch(t)
		if err != nil {
			return nil, err
		}
		out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l, buffers: buffers})
	}
	return out, nil
}

// tiled makes variants of tiles.
func tiled(tiles []kernels.Tile, launch func(kernels.Tile) (kernels.Launch, error), buffers ...int) ([]variant, error) {
	var out []variant
	for _, t := range tiles {
		l, err := launch(t)
		if err != nil {
			return nil, err
		}
		out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l, buffers: buffers})
	}
	return out, nil
}

func matvec(name string, v kernels.MatVec) testCase {
	w := weight(v.Format, v.N, v.K)
	return testCase{
		name: name, memory: append(w, vectors(v.M*v.K), vectors(v.K), vectors(v.M*v.N), results(v.M*v.N), step(v.M), vectors(v.K)), result: 6,
		bytes: total(w), flops: 2 * float64(v.M*v.N*v.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			return tuned(v.Tunings(on), v.Launch, 0, 1, 2, 3, 4, 8, 5, 6, 7)
		},
	}
}

func many(name string, v kernels.MatVecMany) testCase {
	var all []memory
	var buffers []int
	rows := 0
	for _, n := range v.N {
		for i := range 4 {
			buffers = append(buffers, len(all)+i)
		}
		all = append(append(all, weight(v.Format, n, v.K)...), results(v.M*n))
		rows += n
	}
	bytes, at := total(all), len(all)
	return testCase{
		name: name, memory: append(all, vectors(v.M*v.K), vectors(v.K), step(v.M)), result: 3, bytes: bytes, flops: 2 * float64(v.M*rows*v.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			return tuned(v.Tunings(on), v.Launch, append(buffers, at, at+1, at, at, at, at, at, at, at+2)...)
		},
	}
}

// convolved is a product with a convolution of its first rows behind it: that state rotates as weights do.
func convolved(name string, v kernels.MatVecMany, channels int) testCase {
	c := many(name, v)
	last := len(c.memory)
	c.memory = append(c.memory, memory{content: scales, bytes: 16 * channels}, memory{content: scales, bytes: 8 * channels}, results(channels), results(v.N[0]-channels))
	c.variants = func(on kernels.Machine) (out []variant, err error) {
		for _, early := range []bool{true, false} {
			v.Conv = &kernels.Conv{Channels: channels, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32, Reset: kernels.ResetFlag}
			v.Early, v.Activated = early, kernels.Activated{First: channels, Rows: min(channels/2, v.N[0]-channels), Activation: kernels.SiLU}
			some, err := tuned(v.Tunings(on), v.Launch, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, last, 6, last+1, last+2, last+1, last+3, 6)
			if err != nil {
				return nil, err
			}
			for i := range some {
				some[i].label += fmt.Sprintf(" early %v", early)
			}
			out = append(out, some...)
		}
		return out, nil
	}
	return c
}

func glu(name string, v kernels.MatVecGLU) testCase {
	w := append(weight(v.Format, v.N, v.K), weight(v.Format, v.N, v.K)...)
	return testCase{
		name: name, memory: append(w, vectors(v.M*v.K), vectors(v.K), results(v.M*v.N), step(v.M)), result: 8, bytes: total(w), flops: 4 * float64(v.M*v.N*v.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			return tuned(v.Tunings(on), v.Launch, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		},
	}
}

// chosen are the experts of a token, spread over all of them.
func chosen(count, top, tokens int) memory {
	ints := make([]int32, tokens*top)
	for i := range ints {
		ints[i] = int32((i*(count/top) + i/top*7) % count)
	}
	return integers(ints...)
}

func router(name string, r kernels.Router) testCase {
	return testCase{
		name: name, memory: []memory{vectors(r.Experts), results(r.Top), results(r.Top), step(1)}, result: 2,
		variants: func(kernels.Machine) ([]variant, error) {
			l, err := r.Launch(1)
			return []variant{{label: "one threadgroup", launch: l, buffers: []int{0, 1, 2, 3}}}, err
		},
	}
}

// favoured are logits that choose the first experts of all.
func favoured(r kernels.Router) memory {
	ints := make([]int32, r.Experts)
	for i := range ints {
		logit := float32(i*37%r.Experts)/float32(r.Experts) - 2
		if i < r.Top {
			logit += 3
		}
		ints[i] = int32(math.Float32bits(logit))
	}
	return integers(ints...)
}

// expertsUp are the first products of a token: of experts that are given or that it chooses, with a shared one or without.
// There is no memory but for the first Top experts, so that what a dispatch reads rotates.
func expertsUp(name string, e kernels.Experts) testCase {
	n := e.Parts()
	w := append(weight(e.Format, e.Top*e.Inner, e.Hidden), weight(e.Format, e.Top*e.Inner, e.Hidden)...)
	of := []int{0, 1, 2, 3, 4, 5}
	all, buffers := slices.Clone(w), slices.Clone(of)
	if e.Router.Top == 0 {
		all, buffers = append(all, chosen(e.Top, e.Top, 1)), append(buffers, 6)
	} else {
		if e.Shared {
			all = append(append(all, weight(e.Format, e.Inner, e.Hidden)...), weight(e.Format, e.Inner, e.Hidden)...)
			of = []int{6, 7, 8, 9, 10, 11}
		}
		down := []int{len(all), len(all) + 1, len(all) + 2}
		all = append(all, weight(e.Format, e.Top*e.Hidden, e.Inner)...)
		buffers = append(slices.Concat(buffers, of, down, down), len(all), len(all))
		all = append(all, favoured(e.Router))
	}
	x := len(all)
	all, buffers = append(all, vectors(e.Hidden), vectors(e.Hidden)), append(buffers, x, x+1)
	if e.Router.Top > 0 {
		all, buffers = append(all, results(n), results(n)), append(buffers, x+2, x+3)
	}
	out := len(all)
	return testCase{
		name: name, memory: append(all, results(n*e.Inner), step(1)), result: out,
		bytes: total(w) * float64(n) / float64(e.Top), flops: 4 * float64(n*e.Inner*e.Hidden),
		variants: func(on kernels.Machine) ([]variant, error) {
			up, _ := e.Tunings(on, 1)
			return tuned(up, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchUp(t, 1) }, append(buffers, out, out+1)...)
		},
	}
}

// expertsDown are the second products of a token, with those of a shared expert or without.
func expertsDown(name string, e kernels.Experts) testCase {
	n := e.Parts()
	w := weight(e.Format, e.Top*e.Hidden, e.Inner)
	all, buffers := slices.Clone(w), []int{0, 1, 2}
	if e.Shared {
		all, buffers = append(all, weight(e.Format, e.Hidden, e.Inner)...), append(buffers, 3, 4, 5)
	}
	at := len(all)
	all = append(all, chosen(e.Top, n, 1), vectors(n), vectors(n*e.Inner), vectors(e.Hidden), results(e.Hidden), step(1))
	buffers = append(buffers, at, at+1, at+2, at+3, at+4)
	return testCase{
		name: name, memory: all, result: at + 4,
		bytes: total(w) * float64(n) / float64(e.Top), flops: 2 * float64(n*e.Inner*e.Hidden),
		variants: func(on kernels.Machine) ([]variant, error) {
			_, down := e.Tunings(on, 1)
			return tuned(down, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchDown(t, 1) }, append(buffers, at+5)...)
		},
	}
}

// rows are vectors as tiled products take them.
func rows(n int, exact bool) memory {
	if exact {
		return vectors(n)
	}
	return memory{content: halves, bytes: n * 2}
}

func matmul(name string, m kernels.MatMul, tokens int) testCase {
	w := weight(m.Format, m.N, m.K)
	dense := memory{content: zeros, bytes: 2}
	if !m.Exact {
		dense = memory{content: halves, bytes: m.N * m.K * 2}
	}
	return testCase{
		name: name, memory: append(w, rows(tokens*m.K, m.Exact), results(tokens*m.N), step(tokens), dense), result: 4,
		bytes: total(w) + float64(tokens*(m.K*2+m.N*4)), flops: 2 * float64(tokens) * float64(m.N*m.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			out, err := tiled(m.Tiles(on.Target, tokens), func(t kernels.Tile) (kernels.Launch, error) { return m.Launch(t, tokens) }, 0, 1, 2, 3, 3, 4, 5)
			if !m.Exact {
				out = append(out, variant{label: "cuBLAS, dense bf16", launch: kernels.Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}}, product: &device.Product{M: tokens, N: m.N, K: m.K, Float32: true}, buffers: []int{3, 6, 4}})
			}
			return out, err
		},
	}
}

func matmulGLU(name string, m kernels.MatMulGLU, tokens int) testCase {
	w := append(weight(m.Format, m.N, m.K), weight(m.Format, m.N, m.K)...)
	return testCase{
		name: name, memory: append(w, rows(tokens*m.K, m.Exact), memory{content: zeros, bytes: tokens * m.N * 2}, step(tokens)), result: 7, half: true,
		bytes: total(w) + float64(tokens*(m.K+m.N)*2), flops: 4 * float64(tokens) * float64(m.N*m.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			return tiled(m.Tiles(on.Target, tokens), func(t kernels.Tile) (kernels.Launch, error) { return m.Launch(t, tokens) }, 0, 1, 2, 3, 4, 5, 6, 7, 8)
		},
	}
}

func dequantize(name string, d kernels.Dequantize) testCase {
	w := weight(d.Format, d.N, d.K)
	return testCase{
		name: name, memory: append(w, memory{content: zeros, bytes: d.N * d.K * 2}), result: 3, half: true, bytes: total(w) + float64(d.N*d.K*2),
		variants: func(kernels.Machine) ([]variant, error) {
			l, err := d.Launch()
			return []variant{{label: "one thread for 8 columns", launch: l, buffers: []int{0, 1, 2, 3}}}, err
		},
	}
}

// manyExperts are the dispatches of a mixture of experts for a chunk, each on its own. Tiles are those of the twin,
// since all variants of a case share their inputs: they differ in what they do with 16 rows at a time.
func manyExperts(few kernels.Experts, tokens int) []testCase {
	e := kernels.ManyExperts{Format: few.Format, Count: few.Count, Top: few.Top, Hidden: few.Hidden, Inner: few.Inner, Activation: few.Activation}
	experts := chosen(e.Count, e.Top, tokens)
	pairs := tokens * e.Top
	name := func(s string) string { return fmt.Sprintf("qwen experts %s of %d", s, tokens) }
	var out []testCase
	for _, size := range []int{16, 32, 64, 128} {
		var fit []kernels.Tile
		for _, t := range slices.Concat(e.Tiles(kernels.CUDA, 8*e.Count/e.Top), e.Tiles(kernels.CUDA, 32*e.Count/e.Top), e.Tiles(kernels.CUDA, 512*e.Count)) {
			if slices.Contains(fit, t) {
				continue
			}
			if t.BM == size {
				fit = append(fit, t)
			}
		}
		if len(fit) == 0 {
			continue
		}
		order, tiles := e.TwinSort(kernels.Tile{BM: size}, experts.ints)
		table := make([]int32, 0, 4*e.MaxTiles(fit[0], tokens))
		for _, t := range tiles {
			table = append(table, t[:]...)
		}
		for len(table) < cap(table) {
			table = append(table, -1, 0, 0, 0)
		}
		w := append(weight(e.Format, e.Count*e.Inner, e.Hidden), weight(e.Format, e.Count*e.Inner, e.Hidden)...)
		out = append(out, testCase{
			name: name(fmt.Sprintf("up by %d", size)), memory: append(w, integers(order...), integers(table...), rows(tokens*e.Hidden, false), memory{content: zeros, bytes: pairs * e.Inner * 2}), result: 9, half: true,
			bytes: total(w), flops: 4 * float64(pairs) * float64(e.Inner*e.Hidden),
			variants: func(kernels.Machine) ([]variant, error) {
				return tiled(fit, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchUp(t, tokens) }, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			},
		})
		w = weight(e.Format, e.Count*e.Hidden, e.Inner)
		out = append(out, testCase{
			name: name(fmt.Sprintf("down by %d", size)), memory: append(w, integers(order...), integers(table...), rows(pairs*e.Inner, false), results(pairs*e.Hidden)), result: 6,
			bytes: total(w), flops: 2 * float64(pairs) * float64(e.Inner*e.Hidden),
			variants: func(kernels.Machine) ([]variant, error) {
				return tiled(fit, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchDown(t, tokens) }, 0, 1, 2, 3, 4, 5, 6)
			},
		})
	}
	tile := e.Tiles(kernels.CUDA, tokens)[0]
	return append(out, testCase{
		name: name("sort"), memory: []memory{experts, results(pairs), results(4 * e.MaxTiles(tile, tokens)), step(tokens)}, result: 1,
		variants: func(kernels.Machine) ([]variant, error) {
			l, err := e.LaunchSort(tile, tokens)
			return []variant{{label: "one threadgroup", launch: l, buffers: []int{0, 1, 2, 3}}}, err
		},
	}, testCase{
		name: name("combine"), memory: []memory{vectors(pairs * e.Hidden), vectors(pairs), results(tokens * e.Hidden), step(tokens)}, result: 2,
		bytes: float64((pairs + tokens) * e.Hidden * 4),
		variants: func(kernels.Machine) ([]variant, error) {
			l, err := e.LaunchCombine(tokens)
			return []variant{{label: "one thread for 4 columns", launch: l, buffers: []int{0, 1, 0, 2, 3}}}, err
		},
	})
}
