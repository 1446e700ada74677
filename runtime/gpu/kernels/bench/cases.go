package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// four and eight are the forms that the default recipe gives weights: 4 and 8 bits in groups of 64.
var (
	four  = kernels.Format{Bits: 4, Group: 64}
	eight = kernels.Format{Bits: 8, Group: 64}
)

// cases returns what is measured: the products of Qwen3.5-35B-A3B and Gemma 4 31B. Dims are divided by small, which a
// test sets above 1. The function is long because it is a table.
func cases(small int) []testCase {
	s := func(n int) int { return max(64, n/small/64*64) }
	out := []testCase{
		matvec("qwen lm_head", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1,
			Norm: kernels.NormF32}, N: s(248320)}),
		matvec("qwen qkv", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1,
			Norm: kernels.NormF32}, N: s(8192)}),
		matvec("qwen out", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(4096), M: 1}, N: s(2048),
			Epilogue: kernels.AddMatrix}),
		matvec("qwen out of heads", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(4096), M: 1,
			Norm: kernels.NormF32, Eps: 1e-6}, N: s(2048), Epilogue: kernels.AddMatrix, Head: min(128, s(4096)),
			Activation: kernels.SiLU}),
		matvec("qwen out of heads, gate activated",
			kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(4096), M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: s(2048), Epilogue: kernels.AddMatrix, Head: min(128, s(4096))}),
		matvec("qwen router", kernels.MatVec{Vectors: kernels.Vectors{Format: eight, K: s(2048), M: 1}, N: 256}),
		many("qwen delta in", kernels.MatVecMany{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1,
			Norm: kernels.NormF32}, N: []int{s(8192), s(4096), 32, 32}}),
		convolved("qwen delta in, conv",
			kernels.MatVecMany{Vectors: kernels.Vectors{Format: four, K: s(2048), M: 1, Norm: kernels.NormF32},
				N: []int{s(12352)}}, s(8192)),
		matvec("gemma lm_head", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(5376), M: 1}, N: s(262144),
			Epilogue: kernels.Softcap, Cap: 30}),
		glu("gemma gate up", kernels.MatVecGLU{Vectors: kernels.Vectors{Format: four, K: s(5376), M: 1}, N: s(21504),
			Activation: kernels.GELUTanh}),
		matvec("gemma down", kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(21504), M: 1}, N: s(5376)}),
	}
	for _, m := range []int{2, 4, 8} {
		out = append(out, many(fmt.Sprintf("qwen router and shared gate of %d", m),
			kernels.MatVecMany{Vectors: kernels.Vectors{Format: eight, K: s(2048), M: m, Norm: kernels.NormF32},
				N: []int{256, 1}}))
		out = append(out, matvec(fmt.Sprintf("qwen qkv of %d", m),
			kernels.MatVec{Vectors: kernels.Vectors{Format: four, K: s(2048), M: m}, N: s(8192)}))
	}
	for _, m := range []int{1, 2, 4, 8} {
		out = append(out, many(fmt.Sprintf("qwen router, gate of %d", m),
			kernels.MatVecMany{Vectors: kernels.Vectors{Format: eight, K: s(2048), M: m, Norm: kernels.NormF32},
				N: []int{256, 1}}))
	}
	moe := kernels.Experts{Format: four, Count: max(8, 256/small), Top: 8, Hidden: s(2048), Inner: s(512),
		Activation: kernels.SiLU, Norm: kernels.NormF32}
	out = append(out, router("qwen top-k", kernels.Router{Experts: moe.Count, Top: moe.Top, Normalize: true, Scale: 1}),
		expertsUp("qwen experts up", moe), expertsDown("qwen experts down", moe))
	chosen := moe
	chosen.Router, chosen.Residual = kernels.Router{Experts: moe.Count, Top: moe.Top, Normalize: true, Scale: 1}, true
	out = append(out, expertsUp("qwen experts up, chosen", chosen))
	chosen.Shared = true
	out = append(out, expertsUp("qwen experts up, chosen, one shared", chosen),
		expertsDown("qwen experts down, one shared", chosen))
	chosen.Ahead = true
	out = append(out, expertsUp("qwen experts up, chosen, one shared, ahead", chosen))
	for _, c := range []struct{ tokens, n, k int }{{512, 8192, 2048}, {2048, 8192, 2048},
		{512, 5376, 21504}, {4096, 8192, 4096}} {
		for _, exact := range []bool{false, true} {
			name := fmt.Sprintf("prefill %d %dx%d", s(c.tokens), s(c.n), s(c.k))
			if exact {
				name += " fp32"
			}
			out = append(out, matmul(name,
				kernels.MatMul{Matrices: kernels.Matrices{Format: four, K: s(c.k), Exact: exact}, N: s(c.n)},
				s(c.tokens)))
		}
	}
	out = append(append(out, someRows(s)...), preparations(s)...)
	out = append(out,
		matmulGLU("prefill gemma gate up",
			kernels.MatMulGLU{Matrices: kernels.Matrices{Format: four, K: s(5376), Half: true}, N: s(21504),
				Activation: kernels.GELUTanh}, s(512)),
		dequantize("dequantize gemma gate", kernels.Dequantize{Format: four, N: s(21504), K: s(5376)}))
	for _, tokens := range []int{2, 4, 8} {
		out = append(out, fewTokens(chosen, tokens)...)
	}
	for _, tokens := range []int{8, 64} {
		out = append(out, sorted(moe, tokens)...)
	}
	for _, tokens := range []int{32, 128, 512, 2048, 4096} {
		out = append(out, manyExperts(moe, max(16, tokens/small))...)
	}
	return append(out, sequences(small)...)
}

// someRows are products as calls have them that decode for some streams.
func someRows(s func(int) int) (out []testCase) {
	for _, rows := range []int{2, 4, 8, 16, 32, 64, 128} {
		m := func(k int) kernels.Matrices { return kernels.Matrices{Format: four, K: s(k)} }
		out = append(out,
			matmul(fmt.Sprintf("%d rows of qwen qkv", rows), kernels.MatMul{Matrices: m(2048), N: s(8192)}, rows),
			matmul(fmt.Sprintf("%d rows of qwen out", rows), kernels.MatMul{Matrices: m(4096), N: s(2048)}, rows),
			matmulGLU(fmt.Sprintf("%d rows of gemma gate up", rows),
				kernels.MatMulGLU{Matrices: m(5376), N: s(21504), Activation: kernels.GELUTanh}, rows),
			matmul(fmt.Sprintf("%d rows of gemma down", rows), kernels.MatMul{Matrices: m(21504), N: s(5376)}, rows),
			matmul(fmt.Sprintf("%d rows of gemma q", rows), kernels.MatMul{Matrices: m(5376), N: s(8192)}, rows),
			matmul(fmt.Sprintf("%d rows of gemma out", rows), kernels.MatMul{Matrices: m(8192), N: s(5376)}, rows),
			matmul(fmt.Sprintf("%d rows of qwen router", rows),
				kernels.MatMul{Matrices: kernels.Matrices{Format: eight, K: s(2048)}, N: 256}, rows))
	}
	return out
}

// preparations are the dispatches before products of some rows: they convert rows to bf16 in the order of the product,
// with or without a norm.
func preparations(s func(int) int) (out []testCase) {
	for _, rows := range []int{8, 64, 128} {
		for _, k := range []int{512, 2048, 4096, 5376, 21504} {
			for _, norm := range []kernels.Norm{kernels.NoNorm, kernels.NormF32} {
				if norm != kernels.NoNorm && k != 2048 && k != 5376 {
					continue
				}
				p := kernels.Prepare{K: max(128, s(k)/128*128), Norm: norm, Eps: 1e-6, Packed: kernels.InLanes}
				name := fmt.Sprintf("prepare %dx%d", rows, k)
				if rows > 16 {
					p.Packed = rows / 8
				}
				if norm != kernels.NoNorm {
					name += ", normed"
				}
				l, err := p.Launch(rows)
				out = append(out, testCase{name: name, sizes: kernels.Sizes{Tokens: rows},
					bytes: float64(6 * rows * p.K), variants: only(fmt.Sprintf("packed %d", p.Packed), l, err)})
			}
		}
	}
	return out
}

// weights are the bytes of weights with so many rows in all.
func weights(f kernels.Format, rows, k int) float64 {
	return float64(rows*k*f.Bits/8 + 4*rows*k/f.Group)
}

// variantsOf makes a variant of each tuning or tile.
func variantsOf[T any](of []T, launch func(T) (kernels.Launch, error)) ([]variant, error) {
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

// product is a product of so many vectors with weights of so many rows in all.
func product(name string, v kernels.Vectors, rows int, tunings func(kernels.Machine) []kernels.Tuning,
	launch func(kernels.Tuning) (kernels.Launch, error)) testCase {
	return testCase{
		name: name, sizes: kernels.Sizes{Tokens: v.M}, bytes: weights(v.Format, rows, v.K),
		flops:    2 * float64(v.M*rows*v.K),
		variants: func(on kernels.Machine) ([]variant, error) { return variantsOf(tunings(on), launch) },
	}
}

func matvec(name string, v kernels.MatVec) testCase {
	return product(name, v.Vectors, v.N, v.Tunings, v.Launch)
}

func many(name string, v kernels.MatVecMany) testCase {
	rows := 0
	for _, n := range v.N {
		rows += n
	}
	return product(name, v.Vectors, rows, v.Tunings, v.Launch)
}

// convolved is a product with a convolution of its first rows behind it: that state rotates as weights do.
func convolved(name string, v kernels.MatVecMany, channels int) testCase {
	out := many(name, v)
	out.variants = func(on kernels.Machine) (out []variant, err error) {
		for _, early := range []bool{true, false} {
			v.Conv = &kernels.Conv{Channels: channels, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32,
				Reset: kernels.ResetFlag}
			v.Early, v.Activated = early, kernels.Activated{First: channels, Rows: min(channels/2, v.N[0]-channels),
				Activation: kernels.SiLU}
			some, err := variantsOf(v.Tunings(on), v.Launch)
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
	return out
}

func glu(name string, v kernels.MatVecGLU) testCase {
	return product(name, v.Vectors, 2*v.N, v.Tunings, v.Launch)
}

func router(name string, r kernels.Router) testCase {
	l, err := r.Launch(1)
	return testCase{name: name, sizes: kernels.Sizes{Tokens: 1}, variants: only("one threadgroup", l, err)}
}

// oneToken are the sizes of a mixture for one token. Only the weights of the experts that the token chooses are made;
// there are several such sets, and each dispatch reads another one, so that weights come from memory and not from a
// cache.
var oneToken = kernels.Sizes{Tokens: 1, Chosen: true}

// expertsUp returns the case that measures the first products (gate and up) of the experts of one token. e says whether
// the kernel chooses the experts or is given them, and whether there is a shared one.
func expertsUp(name string, e kernels.Experts) testCase {
	rows := 2 * e.Parts() * e.Inner
	return testCase{
		name: name, sizes: oneToken, bytes: weights(e.Format, rows, e.Hidden), flops: 2 * float64(rows*e.Hidden),
		variants: func(on kernels.Machine) ([]variant, error) {
			up, _ := e.Tunings(on)
			return variantsOf(up, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchUp(t, 1) })
		},
	}
}

// expertsDown returns the case that measures the second products (down) of the experts of one token, with a shared
// expert or without.
func expertsDown(name string, e kernels.Experts) testCase {
	rows := e.Parts() * e.Hidden
	return testCase{
		name: name, sizes: oneToken, bytes: weights(e.Format, rows, e.Inner), flops: 2 * float64(rows*e.Inner),
		variants: func(on kernels.Machine) ([]variant, error) {
			_, down := e.Tunings(on)
			return variantsOf(down, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchDown(t, 1) })
		},
	}
}

// fewTokens are both products of the experts of some tokens. The tokens choose at random among all experts. The bytes
// are those of all chosen experts, each counted once. There should be several copies of the weights (-rotate), since a
// dispatch reads the weights of few experts only.
func fewTokens(e kernels.Experts, tokens int) []testCase {
	none := math.Pow(1-float64(e.Top)/float64(e.Count), float64(tokens)) // part of the experts that no token chooses
	read := int(math.Round(float64(e.Count)*(1-none))) + 1
	add := func(product string, rows, k int, ways func(kernels.Machine) []kernels.Tuning,
		launch func(kernels.Tuning, int) (kernels.Launch, error)) testCase {
		return testCase{name: fmt.Sprintf("qwen experts %s of %d tokens", product, tokens),
			sizes: kernels.Sizes{Tokens: tokens}, bytes: weights(e.Format, read*rows, k),
			flops: 2 * float64(tokens*e.Parts()) * float64(rows*k),
			variants: func(on kernels.Machine) ([]variant, error) {
				return variantsOf(ways(on), func(t kernels.Tuning) (kernels.Launch, error) { return launch(t, tokens) })
			}}
	}
	const most = 6 // of the variants that are not for several tokens
	return []testCase{
		add("up", 2*e.Inner, e.Hidden, func(on kernels.Machine) []kernels.Tuning {
			up, _ := e.Tunings(on)
			return slices.Concat(e.OnceTunings(on, tokens), up[:min(len(up), most)])
		}, e.LaunchUp),
		add("down", e.Hidden, e.Inner, func(on kernels.Machine) []kernels.Tuning {
			_, down := e.Tunings(on)
			return down[:min(len(down), most)]
		}, e.LaunchDown),
	}
}

// tiled returns the case of a product in tiles, of tokens vectors with a weight of rows rows. It measures vectors that
// lie in rows and, on machines with kernels for them, packed ones. of returns the tiles worth measuring for such
// vectors, and the launch of each.
func tiled(name string, m kernels.Matrices, rows, tokens int,
	of func(m kernels.Matrices, on kernels.Machine) ([]kernels.Tile, func(kernels.Tile) (kernels.Launch, error)),
) testCase {
	return testCase{
		name: name, sizes: kernels.Sizes{Tokens: tokens},
		bytes: weights(m.Format, rows, m.K) + float64(tokens*(m.K*2+rows*4)),
		flops: 2 * float64(tokens) * float64(rows*m.K),
		variants: func(on kernels.Machine) (out []variant, err error) {
			for _, packed := range m.Packings(on, rows, tokens) {
				form := m
				form.Packed = packed
				tiles, launch := of(form, on)
				list, err := variantsOf(tiles, launch)
				if err != nil {
					return nil, err
				}
				out = append(out, list...)
			}
			return out, nil
		},
	}
}

func matmul(name string, m kernels.MatMul, tokens int) testCase {
	out := tiled(name, m.Matrices, m.N, tokens, func(form kernels.Matrices, on kernels.Machine) ([]kernels.Tile,
		func(kernels.Tile) (kernels.Launch, error)) {
		of := m
		of.Matrices = form
		return of.Tiles(on, tokens), func(t kernels.Tile) (kernels.Launch, error) { return of.Launch(t, tokens) }
	})
	ours := out.variants
	out.variants = func(on kernels.Machine) ([]variant, error) {
		out, err := ours(on)
		if !m.Exact {
			// The vectors follow the three buffers of the weight.
			out = append(out, variant{label: "cuBLAS, dense bf16",
				launch:  kernels.Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}},
				product: &device.Product{M: tokens, N: m.N, K: m.K, Float32: true},
				of:      func(list []*kernels.Buffer) *kernels.Buffer { return list[3] }})
		}
		return out, err
	}
	return out
}

func matmulGLU(name string, m kernels.MatMulGLU, tokens int) testCase {
	out := tiled(name, m.Matrices, 2*m.N, tokens, func(form kernels.Matrices, on kernels.Machine) ([]kernels.Tile,
		func(kernels.Tile) (kernels.Launch, error)) {
		of := m
		of.Matrices = form
		return of.Tiles(on, tokens), func(t kernels.Tile) (kernels.Launch, error) { return of.Launch(t, tokens) }
	})
	out.bytes = weights(m.Format, 2*m.N, m.K) + float64(tokens*(m.K+m.N)*2)
	return out
}

func dequantize(name string, d kernels.Dequantize) testCase {
	l, err := d.Launch()
	return testCase{name: name, bytes: weights(d.Format, d.N, d.K) + float64(d.N*d.K*2),
		variants: only("one thread for 8 columns", l, err)}
}

// manyExperts are the dispatches of a mixture of experts for a chunk, each on its own.
func manyExperts(few kernels.Experts, tokens int) []testCase {
	e := kernels.ManyExperts{Format: few.Format, Count: few.Count, Top: few.Top, Hidden: few.Hidden, Inner: few.Inner,
		Activation: few.Activation}
	sizes, pairs := kernels.Sizes{Tokens: tokens}, tokens*e.Top
	name := func(s string) string { return fmt.Sprintf("qwen experts %s of %d", s, tokens) }
	on, lanes := kernels.Machine{Target: kernels.CUDA}, e
	lanes.Lanes = true
	all := slices.Concat(lanes.Tiles(on, 8*e.Count/e.Top), e.Tiles(on, 8*e.Count/e.Top), e.Tiles(on, 32*e.Count/e.Top),
		e.Tiles(on, 512*e.Count))
	var out []testCase
	add := func(product string, rows, k int, fit []kernels.Tile,
		launch func(e kernels.ManyExperts, t kernels.Tile, tokens int) (kernels.Launch, error)) {
		out = append(out, testCase{
			name: name(fmt.Sprintf("%s by %d", product, fit[0].BM)), sizes: sizes,
			bytes: weights(e.Format, e.Count*rows, k), flops: 2 * float64(pairs) * float64(rows*k),
			variants: func(kernels.Machine) ([]variant, error) {
				return variantsOf(fit, func(t kernels.Tile) (kernels.Launch, error) {
					of := e
					of.Lanes = t.BK == 0
					return launch(of, t, tokens)
				})
			},
		})
	}
	for _, size := range []int{16, 32, 64, 128} {
		var fit []kernels.Tile
		for _, t := range all {
			if t.BM == size && !slices.Contains(fit, t) {
				fit = append(fit, t)
			}
		}
		if len(fit) > 0 {
			add("up", 2*e.Inner, e.Hidden, fit, kernels.ManyExperts.LaunchUp)
			add("down", e.Hidden, e.Inner, fit, kernels.ManyExperts.LaunchDown)
		}
	}
	return append(out, sorted(few, tokens)...)
}

// sorted are the dispatches of a mixture of experts before and after the products of a chunk: they choose experts, sort
// pairs of tokens and experts, and add up results.
func sorted(few kernels.Experts, tokens int) []testCase {
	e := kernels.ManyExperts{Format: few.Format, Count: few.Count, Top: few.Top, Hidden: few.Hidden, Inner: few.Inner}
	sizes := kernels.Sizes{Tokens: tokens}
	name := func(s string) string { return fmt.Sprintf("qwen experts %s of %d", s, tokens) }
	r := kernels.Router{Experts: few.Count, Top: few.Top, Normalize: true, Scale: 1}
	top, err := r.Launch(tokens)
	sort, err2 := e.LaunchSort(e.Tiles(kernels.Machine{Target: kernels.CUDA}, tokens)[0], tokens)
	combine, err3 := e.LaunchCombine(tokens)
	return []testCase{{name: name("top-k"), sizes: sizes, variants: only("one threadgroup a token", top, err)},
		{name: name("sort"), sizes: sizes, variants: only("one threadgroup", sort, err2)},
		{name: name("combine"), sizes: sizes, bytes: float64((e.Top + 1) * tokens * e.Hidden * 4),
			variants: only("one thread for 4 columns", combine, err3)}}
}
