package requirements

import (
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// With --sample forward takes temperature, top_k, top_p and seed, scalars of the graph, after its own inputs, and gives
// a token (B2, B4, B5, B6, C1, D1, D23); every export says in use_sampling which it is (B3).
func TestSamplingForward(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			for sample, want := range map[bool]string{
				false: "tokens input_pos",
				true:  "tokens input_pos temperature:f32[] top_k:i64[] top_p:f32[] seed:i64[]",
			} {
				m := compile(t, family.name, passes.Options{Sample: sample})
				inputs := m.Entry.Params[0].Param + " " + m.Entry.Params[1].Param
				for _, p := range m.Entry.Params[2:] {
					inputs += " " + p.Param + ":" + p.Type.String()
				}
				require.Equal(t, want, inputs)
				if sample {
					require.Equal(t, []ir.Type{ir.StaticType(ir.I64, 1)}, m.Entry.Outputs)
				}
				require.Contains(t, m.Metadata, ir.Method{Name: "use_sampling", Values: []any{sample}})
			}
		})
	}
}

// The head adds the same nodes to any model (A6, A9, C8, D22): one RandomBits (D3), an argmax in each arm of the
// temperature's If (D11), an If for each filter, one ItemInt for the seed (D18, D24), one for k and one for each
// condition. It takes no token of a sequence: its only Take is that of the k-th logit (A5, A9).
func TestNodesOfTheHead(t *testing.T) {
	t.Parallel()
	var first map[string]int
	for _, family := range families {
		added := nodes(t, compile(t, family.name, passes.Options{Sample: true}))
		for name, n := range nodes(t, compile(t, family.name, passes.Options{})) {
			added[name] -= n
		}
		maps.DeleteFunc(added, func(_ string, n int) bool { return n == 0 })
		// A cast of the logits, and casts and constants that the model has as well, are the model's.
		delete(added, "AsTypeNode")
		if first == nil {
			first = added
		}
		require.Empty(t, cmp.Diff(first, added), family.name)
		for name, want := range map[string]int{"RandomBitsNode": 1, "ArgmaxNode": 2, "IfNode": 3, "ItemIntNode": 5,
			"TakeNode": 1, "SortNode": 2, "SoftmaxNode": 1, "CumsumNode": 1} {
			require.Equal(t, want, added[name], name)
		}
	}
}

// The seed reaches RandomBits as an int that one ItemInt reads from the input (D18, D24).
func TestSeedIsRead(t *testing.T) {
	t.Parallel()
	m := head(t, ir.F32, 1, 8)
	seed, reads := m.Entry.Params[4], 0
	require.Equal(t, "seed", seed.Param)
	m.Entry.Body.Walk(func(op *ir.Op) {
		op.EachArg(func(a *ir.Arg) {
			if a.Value == seed {
				reads++
				require.Equal(t, "item_int", op.Def.Name)
			}
		})
		if op.Def.Name == "random_bits" {
			require.Equal(t, seed, op.Input("seed").Def.Input("x"))
		}
	})
	require.Equal(t, 1, reads)
}

// The head takes (B, vocab), of any module, and gives one token a row (A5, A6, C9, D1).
func TestHeadTakesRows(t *testing.T) {
	t.Parallel()
	for _, rows := range []int64{1, 3} {
		m := head(t, ir.BF16, rows, 11)
		require.Equal(t, []ir.Type{ir.StaticType(ir.I64, rows)}, m.Entry.Outputs)
		require.Len(t, m.Entry.Params, 5)
	}
}

// Everything between the logits and the token is float32 (D8).
func TestHeadComputesInFloat32(t *testing.T) {
	t.Parallel()
	head(t, ir.BF16, 2, 64).Entry.Body.Walk(func(op *ir.Op) {
		for _, v := range op.Results {
			if v.Type.Kind == ir.TensorKind && v.Type.DType.IsFloat() {
				require.Equal(t, ir.F32, v.Type.DType, "%s", op.Def.Name)
			}
		}
	})
}

// draw runs a head on logits.
func draw(t *testing.T, x *eval.Machine, logits *eval.Tensor, temperature float32, topK int64,
	topP float32, seed int64) []int64 {
	t.Helper()
	out := call(t, x, logits, float(temperature), integer(topK), float(topP), integer(seed))
	require.Equal(t, ir.I64, out.DType)
	return out.I
}

// ramp is logits of rows × vocab without ties: a permutation of multiples of step in each row. bf16 holds them.
func ramp(d ir.DType, rows, vocab int, step float32) (*eval.Tensor, []int64) {
	values, largest := make([]float32, rows*vocab), make([]int64, rows)
	for r := range rows {
		for i := range vocab {
			rank := (i*7 + r*5) % vocab // vocab is no multiple of 7
			values[r*vocab+i] = float32(float32(rank) * step)
			if rank == vocab-1 {
				largest[r] = int64(i)
			}
		}
	}
	return eval.Floats(d, []int{rows, vocab}, values), largest
}

// At temperature 0 and below the token is argmax, exactly, in bf16 too and whatever the filters (D11, D12); one program
// is nearly greedy at 1e-4 and diverse at 100 (D14).
func TestTemperature(t *testing.T) {
	t.Parallel()
	for _, d := range []ir.DType{ir.F32, ir.BF16} {
		const rows, vocab = 4, 100
		logits, largest := ramp(d, rows, vocab, 0.25)
		x := machine(t, head(t, d, rows, vocab), eval.Strict)
		seen := map[int64]bool{}
		for seed := range int64(20) {
			for _, temperature := range []float32{0, -1, 1e-4} {
				require.Equal(t, largest, draw(t, x, logits, temperature, 0, 1, seed),
					"%s, temperature %g", d, temperature)
				require.Equal(t, largest, draw(t, x, logits, temperature, 7, 0.4, seed), "%s, temperature %g, filtered",
					d, temperature)
			}
			for _, token := range draw(t, x, logits, 100, 0, 1, seed) {
				require.True(t, 0 <= token && token < vocab)
				seen[token] = true
			}
		}
		require.Greater(t, len(seen), 20)
	}
}

// The same seed gives the same tokens, from another machine and after other draws, and other seeds give others
// (D15, C6); the fused head draws what the sampler by itself draws, so that it can be taken apart (D19, E7). Both run
// on the reference engine here, the head as the graph that the delegate would get; MLX is not asked (C7).
func TestSeeds(t *testing.T) {
	t.Parallel()
	const rows, vocab = 2, 300
	logits, _ := ramp(ir.F32, rows, vocab, 0.01)
	m := head(t, ir.F32, rows, vocab)
	a, b := machine(t, m, eval.Strict), machine(t, m, eval.Strict)
	alone := &ir.Module{Entry: &ir.Func{Name: "sampler", Body: &ir.Region{}}}
	require.NoError(t, ir.Build(func() {
		f, builder := alone.Entry, &ir.Builder{Module: alone, Region: alone.Entry.Body}
		operands := []any{f.NewParam("logits", ir.StaticType(ir.F32, rows, vocab)),
			f.NewParam("temperature", ir.StaticType(ir.F32)),
			f.NewParam("top_k", ir.StaticType(ir.I64)), f.NewParam("top_p", ir.StaticType(ir.F32)),
			f.NewParam("seed", ir.StaticType(ir.I64))}
		f.Body.Results = []*ir.Value{builder.Value("sample", nil, operands...)}
		f.Outputs = []ir.Type{f.Body.Results[0].Type}
	}))
	sampler := machine(t, alone, eval.Strict)
	different := map[int64]bool{}
	for seed := int64(-20); seed < 20; seed++ {
		tokens := draw(t, a, logits, 1.5, 250, 0.95, seed)
		require.Equal(t, tokens, draw(t, b, logits, 1.5, 250, 0.95, seed))
		require.Equal(t, tokens, draw(t, a, logits, 1.5, 250, 0.95, seed))
		require.Equal(t, tokens, draw(t, sampler, logits, 1.5, 250, 0.95, seed))
		different[tokens[0]] = true
	}
	require.Greater(t, len(different), 20)
}

// Tokens come with the frequencies of softmax(logits/T), and filtered with those of the tokens that are kept (D2, D13,
// D17). The seeds are always the same, so the test cannot fail by chance.
func TestFrequencies(t *testing.T) {
	t.Parallel()
	const vocab, draws, temperature = 8, 4000, 2
	logits, _ := ramp(ir.F32, 1, vocab, 0.5)
	x := machine(t, head(t, ir.F32, 1, vocab), eval.Strict)
	for _, test := range []struct {
		topK int64
		topP float32
		kept int // of the most likely
	}{{0, 1, vocab}, {3, 1, 3}, {0, 0.5, 3}} {
		weights, sum := make([]float64, vocab), 0.0
		for i, v := range logits.F {
			if int(v/0.5) >= vocab-test.kept {
				weights[i] = math.Exp(float64(v) / temperature)
				sum += weights[i]
			}
		}
		counts := make([]float64, vocab)
		for seed := range int64(draws) {
			counts[draw(t, x, logits, temperature, test.topK, test.topP, seed)[0]]++
		}
		statistic := 0.0
		for i, w := range weights {
			want := draws * w / sum
			if w == 0 {
				require.Zero(t, counts[i], "token %d of %+v", i, test)
				continue
			}
			statistic += (counts[i] - want) * (counts[i] - want) / want
		}
		most := distuv.ChiSquared{K: float64(test.kept - 1)}.Quantile(0.999)
		require.Less(t, statistic, most, "%+v: %v", test, counts)
	}
}

// Half precision at the size of a real vocabulary: were any of the chain bf16, u would round to 1 and its noise to
// infinity for hundreds of tokens, and the first of them would win (D8, D9).
func TestLargeVocabulary(t *testing.T) {
	t.Parallel()
	const vocab, draws = 248320, 12
	x := machine(t, head(t, ir.BF16, 1, vocab), eval.Strict)
	logits := eval.Floats(ir.BF16, []int{1, vocab}, make([]float32, vocab))
	sum, seen := 0.0, map[int64]bool{}
	for seed := range int64(draws) {
		token := draw(t, x, logits, 1, 0, 1, seed)[0]
		seen[token] = true
		sum += float64(token) / vocab / draws
	}
	require.Len(t, seen, draws)
	require.InDelta(t, 0.5, sum, 0.25) // three standard deviations of a mean of 12
}

// Without a seed draws differ from call to call and stay in range (D4, D16).
func TestUnseeded(t *testing.T) {
	t.Parallel()
	m := compile(t, "qwen35moe-chat", passes.Options{Backend: passes.CUDA})
	x := machine(t, m, eval.Mixed)
	seen := map[int64]bool{}
	for range 20 {
		require.NoError(t, x.Reset())
		token := call(t, x, append(text(2), eval.Floats(ir.F32, []int{1}, []float32{100}))...).I[0]
		require.True(t, 0 <= token && token < 768)
		seen[token] = true
	}
	require.Greater(t, len(seen), 5) // fewer once in more than 10^30 runs
}

// A draw that is too large is an error before anything is drawn (D7).
func TestDrawIsBounded(t *testing.T) {
	t.Parallel()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: m.Entry.Body}
		n := m.Entry.NewParam("n", ir.IntType(ir.Sym(&ir.Symbol{Lo: 0, Hi: math.MaxInt32})))
		bits := b.Value("random_bits", nil, []any{n})
		m.Entry.Body.Results, m.Entry.Outputs = []*ir.Value{bits}, []ir.Type{bits.Type}
	}))
	x := machine(t, m, eval.Strict)
	out, err := x.Run([]eval.Value{{Int: 5}})
	require.NoError(t, err)
	require.Equal(t, 5, out[0].Tensor.Len())
	_, err = x.Run([]eval.Value{{Int: math.MaxInt32}})
	require.ErrorContains(t, err, "GiB")
}

// RandomBits is the last but one member of the delegate's union: it was appended, and no program of before it changes
// its meaning (D3).
func TestRandomBitsIsAppended(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 133, mlxgraph.OpNodeRandomBitsNode)
	require.Len(t, mlxgraph.EnumNamesOpNode, 135, "134 nodes and NONE")
}
