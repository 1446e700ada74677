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

// weight is memory for a weight.
func weight(f kernels.Format, n, k int) kernels.WeightArguments[*memory] {
	size := n * k / f.Group * 2
	return kernels.WeightArguments[*memory]{Data: &memory{content: codes, bytes: n * k * f.Bits / 8}, Scales: &memory{content: scales, bytes: size}, Biases: &memory{content: scales, bytes: size}}
}

// total is the size of weights in bytes.
func total(weights ...kernels.WeightArguments[*memory]) (bytes float64) {
	for _, w := range weights {
		bytes += float64(w.Data.bytes + w.Scales.bytes + w.Biases.bytes)
	}
	return bytes
}

func vectors(n int) *memory   { return &memory{content: values, bytes: n * 4} }
func results(n int) *memory   { return &memory{content: zeros, bytes: n * 4} }
func step(tokens int) *memory { return integers(int32(tokens), 0) }

func integers(ints ...int32) *memory {
	return &memory{content: numbers, bytes: len(ints) * 4, ints: ints}
}

// ways makes a variant of each tuning or tile.
func ways[T any](of []T, launch func(T) (kernels.Launch, error)) ([]variant, error) {
	var out []variant
	for _, t := range of {
		l, err := launch(t)
		if err != nil {
			return nil, err
		}
		out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l})
	}
	return out, nil
}

// only is the one way that there is.
func only(label string, l kernels.Launch, err error) func(kernels.Machine) ([]variant, error) {
	return func(kernels.Machine) ([]variant, error) { return []variant{{label: label, launch: l}}, err }
}

func matvec(name string, v kernels.MatVec) testCase {
	a := kernels.MatVecArguments[*memory]{W: weight(v.Format, v.N, v.K), X: vectors(v.M * v.K), Norm: vectors(v.K), Gate: vectors(v.K), Extra: vectors(v.M * v.N),
		Y: results(v.M * v.N), Step: step(v.M)}
	return testCase{
		name: name, arguments: a, result: a.Y, bytes: total(a.W), flops: 2 * float64(v.M*v.N*v.K),
		variants: func(on kernels.Machine) ([]variant, error) { return ways(v.Tunings(on), v.Launch) },
	}
}

// manyOf is memory for several products.
func manyOf(v kernels.MatVecMany) (a kernels.MatVecManyArguments[*memory], bytes, flops float64) {
	a = kernels.MatVecManyArguments[*memory]{X: vectors(v.M * v.K), Norm: vectors(v.K), Step: step(v.M)}
	to, y := [...]*kernels.WeightArguments[*memory]{&a.W0, &a.W1, &a.W2, &a.W3}, [...]**memory{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	for i, n := range v.N {
		*to[i], *y[i] = weight(v.Format, n, v.K), results(v.M*n)
		bytes, flops = bytes+total(*to[i]), flops+2*float64(v.M*n*v.K)
	}
	return a, bytes, flops
}

func many(name string, v kernels.MatVecMany) testCase {
	a, bytes, flops := manyOf(v)
	return testCase{
		name: name, arguments: a, result: a.Y0, bytes: bytes, flops: flops,
		variants: func(on kernels.Machine) ([]variant, error) { return ways(v.Tunings(on), v.Launch) },
	}
}

// convolved is a product with a convolution of its first rows behind it: that state rotates as weights do.
func convolved(name string, v kernels.MatVecMany, channels int) testCase {
	a, bytes, flops := manyOf(v)
	a.ConvW, a.Reset = &memory{content: scales, bytes: 16 * channels}, a.Step
	a.State, a.ConvY, a.Activated = &memory{content: scales, bytes: 8 * channels}, results(channels), results(v.N[0]-channels)
	a.Next = a.State
	return testCase{
		name: name, arguments: a, result: a.Y0, bytes: bytes, flops: flops,
		variants: func(on kernels.Machine) (out []variant, err error) {
			for _, early := range []bool{true, false} {
				v.Conv = &kernels.Conv{Channels: channels, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32, Reset: kernels.ResetFlag}
				v.Early, v.Activated = early, kernels.Activated{First: channels, Rows: min(channels/2, v.N[0]-channels), Activation: kernels.SiLU}
				some, err := ways(v.Tunings(on), v.Launch)
				if err != nil {
					return nil, err
				}
				for i := range some {
					some[i].label += fmt.Sprintf(" early %v", early)
				}
				out = append(out, some...)
			}
			return out, nil
		},
	}
}

func glu(name string, v kernels.MatVecGLU) testCase {
	a := kernels.MatVecGLUArguments[*memory]{W0: weight(v.Format, v.N, v.K), W1: weight(v.Format, v.N, v.K), X: vectors(v.M * v.K), Norm: vectors(v.K),
		Y: results(v.M * v.N), Step: step(v.M)}
	return testCase{
		name: name, arguments: a, result: a.Y, bytes: total(a.W0, a.W1), flops: 4 * float64(v.M*v.N*v.K),
		variants: func(on kernels.Machine) ([]variant, error) { return ways(v.Tunings(on), v.Launch) },
	}
}

// chosen are the experts of a token, spread over all of them.
func chosen(count, top, tokens int) *memory {
	ints := make([]int32, tokens*top)
	for i := range ints {
		ints[i] = int32((i*(count/top) + i/top*7) % count)
	}
	return integers(ints...)
}

func router(name string, r kernels.Router) testCase {
	a := kernels.RouterArguments[*memory]{Logits: vectors(r.Experts), Experts: results(r.Top), Scores: results(r.Top), Step: step(1)}
	l, err := r.Launch(1)
	return testCase{name: name, arguments: a, result: a.Scores, variants: only("one threadgroup", l, err)}
}

// favoured are logits that choose the first experts of all.
func favoured(r kernels.Router) *memory {
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
	n, y := e.Parts(), results(e.Parts()*e.Inner)
	gate, up := weight(e.Format, e.Top*e.Inner, e.Hidden), weight(e.Format, e.Top*e.Inner, e.Hidden)
	var a arguments = kernels.ExpertsUpArguments[*memory]{W0: gate, W1: up, Experts: chosen(e.Top, e.Top, 1), X: vectors(e.Hidden), Norm: vectors(e.Hidden), Y: y, Step: step(1)}
	if e.Router.Top > 0 {
		choose := kernels.ExpertsChooseArguments[*memory]{W0: gate, W1: up, D: weight(e.Format, e.Top*e.Hidden, e.Inner), Logits: favoured(e.Router),
			X: vectors(e.Hidden), Norm: vectors(e.Hidden), Experts: results(n), Scores: results(n), Y: y, Step: step(1)}
		if e.Shared {
			choose.V0, choose.V1 = weight(e.Format, e.Inner, e.Hidden), weight(e.Format, e.Inner, e.Hidden)
		}
		a = choose
	}
	return testCase{
		name: name, arguments: a, result: y, bytes: total(gate, up) * float64(n) / float64(e.Top), flops: 4 * float64(n*e.Inner*e.Hidden),
		variants: func(on kernels.Machine) ([]variant, error) {
			up, _ := e.Tunings(on, 1)
			return ways(up, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchUp(t, 1) })
		},
	}
}

// expertsDown are the second products of a token, with those of a shared expert or without.
func expertsDown(name string, e kernels.Experts) testCase {
	n, y := e.Parts(), results(e.Hidden)
	w, experts, scores, x, extra := weight(e.Format, e.Top*e.Hidden, e.Inner), chosen(e.Top, n, 1), vectors(n), vectors(n*e.Inner), vectors(e.Hidden)
	var a arguments = kernels.ExpertsDownArguments[*memory]{W: w, Experts: experts, Scores: scores, X: x, Extra: extra, Y: y, Step: step(1)}
	if e.Shared {
		a = kernels.ExpertsJoinArguments[*memory]{W: w, V: weight(e.Format, e.Hidden, e.Inner), Experts: experts, Scores: scores, X: x, Extra: extra, Y: y, Step: step(1)}
	}
	return testCase{
		name: name, arguments: a, result: y, bytes: total(w) * float64(n) / float64(e.Top), flops: 2 * float64(n*e.Inner*e.Hidden),
		variants: func(on kernels.Machine) ([]variant, error) {
			_, down := e.Tunings(on, 1)
			return ways(down, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchDown(t, 1) })
		},
	}
}

// rows are vectors as tiled products take them.
func rows(n int, exact bool) *memory {
	if exact {
		return vectors(n)
	}
	return &memory{content: halves, bytes: n * 2}
}

func matmul(name string, m kernels.MatMul, tokens int) testCase {
	a := kernels.MatMulArguments[*memory]{W: weight(m.Format, m.N, m.K), X: rows(tokens*m.K, m.Exact), Y: results(tokens * m.N), Step: step(tokens)}
	return testCase{
		name: name, arguments: a, result: a.Y, bytes: total(a.W) + float64(tokens*(m.K*2+m.N*4)), flops: 2 * float64(tokens) * float64(m.N*m.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			out, err := ways(m.Tiles(on.Target, tokens), func(t kernels.Tile) (kernels.Launch, error) { return m.Launch(t, tokens) })
			if !m.Exact {
				dense := &memory{content: halves, bytes: m.N * m.K * 2}
				out = append(out, variant{label: "cuBLAS, dense bf16", launch: kernels.Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}},
					product: &device.Product{M: tokens, N: m.N, K: m.K, Float32: true}, of: []*memory{a.X, dense, a.Y}})
			}
			return out, err
		},
	}
}

func matmulGLU(name string, m kernels.MatMulGLU, tokens int) testCase {
	a := kernels.MatMulGLUArguments[*memory]{W0: weight(m.Format, m.N, m.K), W1: weight(m.Format, m.N, m.K), X: rows(tokens*m.K, m.Exact),
		Y: &memory{content: zeros, bytes: tokens * m.N * 2}, Step: step(tokens)}
	return testCase{
		name: name, arguments: a, result: a.Y, half: true, bytes: total(a.W0, a.W1) + float64(tokens*(m.K+m.N)*2), flops: 4 * float64(tokens) * float64(m.N*m.K),
		variants: func(on kernels.Machine) ([]variant, error) {
			return ways(m.Tiles(on.Target, tokens), func(t kernels.Tile) (kernels.Launch, error) { return m.Launch(t, tokens) })
		},
	}
}

func dequantize(name string, d kernels.Dequantize) testCase {
	a := kernels.DequantizeArguments[*memory]{W: weight(d.Format, d.N, d.K), Y: &memory{content: zeros, bytes: d.N * d.K * 2}}
	l, err := d.Launch()
	return testCase{name: name, arguments: a, result: a.Y, half: true, bytes: total(a.W) + float64(d.N*d.K*2), variants: only("one thread for 8 columns", l, err)}
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
		up := kernels.ExpertsMatMulUpArguments[*memory]{W0: weight(e.Format, e.Count*e.Inner, e.Hidden), W1: weight(e.Format, e.Count*e.Inner, e.Hidden),
			Order: integers(order...), Tiles: integers(table...), X: rows(tokens*e.Hidden, false), H: &memory{content: zeros, bytes: pairs * e.Inner * 2}}
		out = append(out, testCase{
			name: name(fmt.Sprintf("up by %d", size)), arguments: up, result: up.H, half: true, bytes: total(up.W0, up.W1), flops: 4 * float64(pairs) * float64(e.Inner*e.Hidden),
			variants: func(kernels.Machine) ([]variant, error) {
				return ways(fit, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchUp(t, tokens) })
			},
		})
		down := kernels.ExpertsMatMulDownArguments[*memory]{W: weight(e.Format, e.Count*e.Hidden, e.Inner), Order: up.Order, Tiles: up.Tiles,
			H: rows(pairs*e.Inner, false), Y: results(pairs * e.Hidden)}
		out = append(out, testCase{
			name: name(fmt.Sprintf("down by %d", size)), arguments: down, result: down.Y, bytes: total(down.W), flops: 2 * float64(pairs) * float64(e.Inner*e.Hidden),
			variants: func(kernels.Machine) ([]variant, error) {
				return ways(fit, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchDown(t, tokens) })
			},
		})
	}
	tile := e.Tiles(kernels.CUDA, tokens)[0]
	sort := kernels.ExpertsSortArguments[*memory]{Experts: experts, Order: results(pairs), Tiles: results(4 * e.MaxTiles(tile, tokens)), Step: step(tokens)}
	combine := kernels.ExpertsCombineArguments[*memory]{X: vectors(pairs * e.Hidden), Scores: vectors(pairs), Y: results(tokens * e.Hidden), Step: step(tokens)}
	l, err := e.LaunchSort(tile, tokens)
	l2, err2 := e.LaunchCombine(tokens)
	return append(out,
		testCase{name: name("sort"), arguments: sort, result: sort.Order, variants: only("one threadgroup", l, err)},
		testCase{name: name("combine"), arguments: combine, result: combine.Y, bytes: float64((pairs + tokens) * e.Hidden * 4), variants: only("one thread for 4 columns", l2, err2)})
}
