package passes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// decoder is the end of a model as a loader builds it: a norm, lm_head, a soft cap in float32, the authors'
// sampler.
const decoder = `module {
  symbol s0 [1, 8]
  constant @norm.weight : bf16[64]
  constant @lm_head.weight : bf16[16,64]
  constant @scalar.f32.30 : f32[]
  buffer @seen : bf16[8,64]
  method get_vocab_size = [16]
  method use_sampling = [false]
  entry forward(%x: bf16[1,s0,64], %temperature: f32[1]) {
    %0 = sym_size(a=%x) {dim=1} : int(s0)
    %1 = reshape(x=%x, shape=[%0, 64]) : bf16[s0,64]
    buffer_slice_update @seen(update=%1, axis=0, start=0, stop=%0)
    %2 = rms_norm(x=%x, weight=@norm.weight) {eps=1e-06} : bf16[1,s0,64]
    %3 = linear(x=%2, weight=@lm_head.weight) : bf16[1,s0,16]
    %4 = astype(x=%3) {scalar_type=f32} : f32[1,s0,16]
    %5 = divide(a=%4, b=@scalar.f32.30) : f32[1,s0,16]
    %6 = tanh(x=%5) : f32[1,s0,16]
    %7 = multiply(a=%6, b=@scalar.f32.30) : f32[1,s0,16]
    %8 = take(x=%7, index=-1) {axis=1} : f32[1,16]
    %9 = sample(logits=%8, temperature=%temperature) : i64[1]
    return %9: i64[1]
  }
}
`

// withoutSampler is the same model built without one.
var withoutSampler = strings.NewReplacer(", %temperature: f32[1]", "",
	"    %8 = take(x=%7, index=-1) {axis=1} : f32[1,16]\n    %9 = sample(logits=%8, temperature=%temperature) : i64[1]\n    return %9: i64[1]",
	"    return %7: f32[1,s0,16]").Replace(decoder)

// TestStripLeavesNoTrace: requirement E3. After stripping, and after all passes, the module is the one
// that never had a sampler.
func TestStripLeavesNoTrace(t *testing.T) {
	stripped, never := parse(t, decoder), parse(t, withoutSampler)
	require.Equal(t, withoutSampler, never.String())
	apply(t, "strip-sampler", stripped, &Options{})
	require.Equal(t, never.String(), stripped.String())
	for _, o := range []Options{{}, {Sample: true}, {Recipe: DefaultRecipe(minMax(4, 32), minMax(8, 64))},
		{Recipe: Recipe{RoundConstants: true}}} {
		stripped, never := parse(t, decoder), parse(t, withoutSampler)
		a, b := o, o
		require.NoError(t, Run(stripped, &a))
		require.NoError(t, Run(never, &b))
		require.Equal(t, never.String(), stripped.String())
	}
}

// TestCUDAKeepsTheSampler: requirements A13, E4, E6.
func TestCUDAKeepsTheSampler(t *testing.T) {
	m := parse(t, decoder)
	require.NoError(t, Run(m, &Options{Backend: CUDA}))
	require.Len(t, m.Entry.Params, 2)
	require.Equal(t, "temperature", m.Entry.Params[1].Param)
	require.Equal(t, "i64[1]", m.Entry.Outputs[0].String())
	require.Equal(t, 1, count(m, "random_bits"))
	require.Zero(t, count(m, "if"), "the authors' sampler has no greedy branch: it clamps the temperature")
}

// TestHeadWorksOnOnePosition: requirements A1, A2, A3. Whatever the number of tokens, lm_head multiplies
// one row, and forward returns (B, vocab).
func TestHeadWorksOnOnePosition(t *testing.T) {
	for name, o := range map[string]Options{
		"addmm":            {},
		"quantized_matmul": {Recipe: DefaultRecipe(minMax(4, 32), nil)},
	} {
		m := parse(t, decoder)
		require.NoError(t, Run(m, &o))
		require.Equal(t, "f32[1,16]", m.Entry.Outputs[0].String())
		require.Equal(t, 1, count(m, name))
		m.Entry.Body.Walk(func(op *ir.Op) {
			switch op.Def.Name {
			case name:
				x := op.Args[0][0].Value
				require.Equal(t, "bf16[1,64]", x.Type.String())
				require.Equal(t, "rms_norm", x.Def.Def.Name)
				require.True(t, isLastTake(x.Def.Input("x").Def), "the slice comes first")
			case "rms_norm", "divide", "tanh", "multiply":
				require.Equal(t, 2, op.Result().Type.Rank())
			}
		})
	}
}

// TestSliceBeforeIsSliceAfter: requirement A4, on all passes and lengths of the prompt.
func TestSliceBeforeIsSliceAfter(t *testing.T) {
	for _, p := range []eval.Precision{eval.FP32, eval.Strict} {
		for _, length := range []int64{1, 2, 8} {
			before, after := parse(t, withoutSampler), parse(t, withoutSampler)
			require.NoError(t, Run(after, &Options{}))
			want := evaluate(t, before, p, length)
			lastPositions(want)
			requireSameValues(t, want, evaluate(t, after, p, length), "logits and state")
		}
	}
}

// TestSamplingHeadInputs: requirements B2, B5, B6, D18, D23. The scalars are 0-d tensors after the
// model's own inputs, in the order of the ABI; only the sequence is dynamic.
func TestSamplingHeadInputs(t *testing.T) {
	m := parse(t, decoder)
	require.NoError(t, Run(m, &Options{Sample: true}))
	var params []string
	for i, p := range m.Entry.Params {
		require.Equal(t, i, p.Index)
		params = append(params, p.Param+" "+ir.TensorType(p.Type.DType, p.Type.Shape...).String())
	}
	require.Equal(t, []string{"x bf16[1,s0,64]", "temperature f32[]", "top_k i64[]", "top_p f32[]", "seed i64[]"},
		params)
	require.Equal(t, "i64[1]", m.Entry.Outputs[0].String())
	for _, method := range m.Metadata {
		if method.Name == "use_sampling" {
			require.Equal(t, []any{true}, method.Values)
		}
	}
	// Metadata that says nothing of sampling gets the method.
	m = parse(t, strings.Replace(decoder, "  method use_sampling = [false]\n", "", 1))
	require.NoError(t, Run(m, &Options{Sample: true}))
	require.Equal(t, ir.Method{Name: "use_sampling", Values: []any{true}}, m.Metadata[1])
}

// headOf gives the module of a sampling head alone, decomposed, for logits (batch, vocab) and the
// operands that it is given.
func headOf(t testing.TB, d ir.DType, batch, vocab int64, operands ...string) *ir.Module {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	require.NoError(t, ir.Build(func() {
		f, b := m.Entry, &ir.Builder{Module: m, Region: m.Entry.Body}
		args := []any{f.NewParam("logits", ir.StaticType(d, batch, vocab))}
		for _, name := range []string{"temperature", "top_k", "top_p", "seed"} {
			var v any
			for _, have := range operands {
				if have != name {
					continue
				}
				d := ir.F32
				if name == "top_k" || name == "seed" {
					d = ir.I64
				}
				v = f.NewParam(name, ir.StaticType(d))
			}
			args = append(args, v)
		}
		token := b.Value("sample", nil, args...)
		f.Body.Results, f.Outputs = []*ir.Value{token}, []ir.Type{token.Type}
	}))
	require.NoError(t, ir.Verify(m))
	return m
}

// TestSamplingHeadNodes: the nodes of the head (requirements A5, A9, C9, D1, D11, D22, D24). It has no
// slice of the last token; the one take is of top-k's threshold. A greedy argmax stands in the else arm
// of the condition on the temperature, an If for each filter within the other.
func TestSamplingHeadNodes(t *testing.T) {
	all := []string{"temperature", "top_k", "top_p", "seed"}
	for _, test := range []struct {
		operands []string
		want     map[string]int
	}{
		{all, map[string]int{"if": 3, "argmax": 2, "random_bits": 1, "item_int": 5, "sort": 2, "take": 1, "softmax": 1,
			"cumsum": 1, "log": 2, "divide": 2}},
		{[]string{"temperature", "top_k", "top_p"},
			map[string]int{"if": 3, "argmax": 2, "random_bits": 1, "item_int": 4, "sort": 2, "take": 1}},
		{[]string{"temperature", "top_p", "seed"}, map[string]int{"if": 2, "argmax": 2, "random_bits": 1, "item_int": 3,
			"sort": 1, "take": 0, "softmax": 1}},
		{[]string{"temperature", "seed"}, map[string]int{"if": 1, "argmax": 2, "random_bits": 1, "item_int": 2,
			"sort": 0, "take": 0}},
		{[]string{"temperature"}, map[string]int{"if": 0, "argmax": 1, "random_bits": 1, "item_int": 0,
			"sort": 0, "take": 0}},
	} {
		m := headOf(t, ir.BF16, 4, 64, test.operands...)
		apply(t, "decompose", m, &Options{})
		for name, n := range test.want {
			require.Equal(t, n, count(m, name), "%s of %v", name, test.operands)
		}
		require.Equal(t, "i64[4]", m.Entry.Outputs[0].String())
		m.Entry.Body.Walk(func(op *ir.Op) {
			require.False(t, isLastTake(op), "the head slices no token")
			if op.Def.Name == "random_bits" {
				seed := op.Input("seed")
				require.Equal(t, test.operands[len(test.operands)-1] == "seed", seed != nil)
				if seed != nil { // a register that item_int reads of the input
					require.Equal(t, "item_int", seed.Def.Def.Name)
					require.Equal(t, "seed", seed.Def.Input("x").Param)
				}
				require.Equal(t, 4, ir.Attrs[ir.RandomBitsAttrs](op).Width)
			}
			if op.Def.Name == "argmax" && op.Input("x").Param != "logits" {
				require.Equal(t, ir.F32, op.Input("x").Type.DType, "the chain is in float32 (D8)")
			}
		})
	}
	seeded, unseeded := headOf(t, ir.F32, 1, 8, all...), headOf(t, ir.F32, 1, 8, all[:3]...)
	apply(t, "decompose", seeded, &Options{})
	apply(t, "decompose", unseeded, &Options{})
	for i := range ir.Ops { // D24: a seed adds one item_int and nothing else
		name := ir.Ops[i].Name
		want := count(unseeded, name)
		if name == "item_int" {
			want++
		}
		require.Equal(t, want, count(seeded, name), name)
	}
}

// sampleOnce runs a head on logits with parameters by name.
func sampleOnce(t testing.TB, machine *eval.Machine, m *ir.Module, logits *eval.Tensor,
	parameters map[string]float64) []int64 {
	t.Helper()
	inputs := []eval.Value{{Tensor: logits}}
	for _, p := range m.Entry.Params[1:] {
		v := eval.Floats(ir.F32, []int{}, []float32{float32(parameters[p.Param])})
		if p.Type.DType == ir.I64 {
			v = eval.Ints(ir.I64, []int{}, []int64{int64(parameters[p.Param])})
		}
		inputs = append(inputs, eval.Value{Tensor: v})
	}
	out, err := machine.Run(inputs)
	require.NoError(t, err)
	return out[0].Tensor.I
}

// TestDecomposedSampleIsTheComposite: the same tokens for seeds, temperatures and filters, off, on and
// at their bounds, for logits with ties too (requirements D2, D10, D14, D15; D11 and D12 where the
// temperature is not positive).
func TestDecomposedSampleIsTheComposite(t *testing.T) {
	compared, seen := 0, map[int64]bool{}
	for _, d := range []ir.DType{ir.F32, ir.BF16} {
		for _, vocab := range []int64{1, 7, 300} {
			composite := headOf(t, d, 4, vocab, "temperature", "top_k", "top_p", "seed")
			nodes := headOf(t, d, 4, vocab, "temperature", "top_k", "top_p", "seed")
			lower(t, nodes, &Options{})
			logits := randomTensor("logits", d, []int{4, int(vocab)})
			for i := range logits.F {
				logits.F[i] = float32(int(logits.F[i]*4)) / 2 // ties
			}
			for _, p := range []eval.Precision{eval.FP32, eval.Strict} {
				a, err := eval.NewMachine(composite, p, nil)
				require.NoError(t, err)
				b, err := eval.NewMachine(nodes, p, nil)
				require.NoError(t, err)
				for _, temperature := range []float64{-1, 0, 1e-4, 0.7, 100} {
					for _, topK := range []float64{-3, 0, 1, 2, 40, float64(vocab), 1 << 40} {
						for _, topP := range []float64{1, 0.9, 0.3, 1e-6} {
							for _, seed := range []float64{float64(compared), float64(compared) - 1<<40} {
								params := map[string]float64{"temperature": temperature, "top_k": topK,
									"top_p": topP, "seed": seed}
								want := sampleOnce(t, a, composite, logits, params)
								require.Equal(t, want, sampleOnce(t, b, nodes, logits, params),
									"%s[4,%d] %v", d, vocab, params)
								if temperature <= 0 {
									requireArgmax(t, logits, want)
								}
								compared++
								for _, token := range want {
									seen[token] = true
								}
							}
						}
					}
				}
			}
		}
	}
	require.Greater(t, compared, 3000)
	require.Greater(t, len(seen), 100, "the tokens differ, or the comparison says nothing")
}

func requireArgmax(t testing.TB, logits *eval.Tensor, tokens []int64) {
	t.Helper()
	n := logits.Shape[1]
	for r, token := range tokens {
		best := 0
		for i, v := range logits.F[r*n : (r+1)*n] {
			if v > logits.F[r*n+best] {
				best = i
			}
		}
		require.EqualValues(t, best, token)
	}
}

// TestUnseededSample: without a seed draws vary (D4, D16), and the filters work all the same.
func TestUnseededSample(t *testing.T) {
	logits := randomTensor("logits", ir.F32, []int{2, 40})
	m := headOf(t, ir.F32, 2, 40, "temperature", "top_k", "top_p")
	require.NoError(t, Run(m, &Options{Backend: CUDA}))
	machine, err := eval.NewMachine(m, eval.FP32, nil)
	require.NoError(t, err)
	seen := map[int64]bool{}
	for range 50 {
		requireArgmax(t, logits, sampleOnce(t, machine, m, logits,
			map[string]float64{"temperature": 1, "top_k": 1, "top_p": 1}))
		requireArgmax(t, logits, sampleOnce(t, machine, m, logits, map[string]float64{"temperature": 1, "top_p": 1e-6}))
		requireArgmax(t, logits, sampleOnce(t, machine, m, logits, map[string]float64{"temperature": 0, "top_p": 1}))
		seen[sampleOnce(t, machine, m, logits, map[string]float64{"temperature": 10, "top_p": 1})[0]] = true
	}
	require.Greater(t, len(seen), 5)

	// The authors' sampler is greedy in effect at temperature 0, which it clamps (E8).
	m = headOf(t, ir.F32, 2, 40, "temperature")
	require.NoError(t, Run(m, &Options{Backend: CUDA}))
	machine, err = eval.NewMachine(m, eval.FP32, nil)
	require.NoError(t, err)
	for range 20 {
		requireArgmax(t, logits, sampleOnce(t, machine, m, logits, map[string]float64{"temperature": 0}))
	}
}
