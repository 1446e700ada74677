package passes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// TestEveryCompositeIsDecomposed: the table of decompositions holds what builders may emit and the wire
// has no node for.
func TestEveryCompositeIsDecomposed(t *testing.T) {
	for name := range decompositions {
		require.Empty(t, ir.LookupOp(name).Node, name)
	}
	for _, name := range []string{"linear", "embedding", "top_k", "switch_mlp", "switch_geglu",
		"gated_delta_rule", "sample"} {
		require.Contains(t, decompositions, name)
	}
}

// gatedDelta is a module of the gated delta rule alone with its state in a buffer.
func gatedDelta(t testing.TB, d, state ir.DType, keyHeads, heads, keyDim, valueDim int64) *ir.Module {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	require.NoError(t, ir.Build(func() {
		f, b := m.Entry, &ir.Builder{Module: m, Region: m.Entry.Body}
		one, steps := ir.Const(1), ir.Sym(&ir.Symbol{Lo: 1, Hi: 8})
		param := func(name string, d ir.DType, dims ...int64) *ir.Value {
			return f.NewParam(name, ir.TensorType(d, append([]*ir.Expr{one, steps}, ir.Dims(dims...)...)...))
		}
		buffer := m.NewBuffer("state", ir.StaticType(state, 1, heads, valueDim, keyDim))
		q, k, v := param("q", d, keyHeads, keyDim), param("k", d, keyHeads, keyDim), param("v", d, heads, valueDim)
		op := b.Op("gated_delta_rule", nil, q, k, v, param("g", ir.F32, heads), param("beta", d, heads), b.Load(buffer))
		b.BufferOp("store", buffer, nil, op.Results[1])
		f.Body.Results, f.Outputs = op.Results[:1], []ir.Type{op.Results[0].Type}
	}))
	require.NoError(t, ir.Verify(m))
	return m
}

// TestGatedDelta: kernel, scan and composite give the same bits over several calls, for every number of
// heads and dims; a key dim that 32 threads cannot share evenly is a scan in any file.
func TestGatedDelta(t *testing.T) {
	for _, dims := range [][4]int64{{1, 1, 32, 1}, {2, 4, 64, 6}, {2, 2, 32, 8}, {1, 3, 96, 5},
		{2, 4, 24, 4}, {1, 2, 33, 3}} {
		for _, d := range []ir.DType{ir.F32, ir.BF16} {
			for _, portable := range []bool{false, true} {
				name := fmt.Sprintf("%v %s portable=%v", dims, d, portable)
				composite := gatedDelta(t, d, ir.F32, dims[0], dims[1], dims[2], dims[3])
				nodes := gatedDelta(t, d, ir.F32, dims[0], dims[1], dims[2], dims[3])
				lower(t, nodes, &Options{Portable: portable})
				kernels := 1
				if portable || dims[2]%32 != 0 {
					kernels = 0
				}
				require.Equal(t, kernels, count(nodes, "metal_kernel"), name)
				require.Equal(t, 1-kernels, count(nodes, "scan"), name)
				for _, length := range []int64{1, 5} {
					want := evaluate(t, composite, eval.FP32, length)
					requireSameValues(t, want, evaluate(t, nodes, eval.FP32, length), name)
					if kernels == 1 {
						want := evaluate(t, composite, eval.Strict, length)
						requireSameValues(t, want, evaluate(t, nodes, eval.Strict, length), name)
					}
				}
			}
		}
	}
}

// TestKernelThreads: the threads of a group share the rows of a head evenly.
func TestKernelThreads(t *testing.T) {
	for rows, want := range map[int64]int64{1: 1, 2: 2, 3: 1, 4: 4, 6: 2, 8: 4, 128: 4} {
		require.Equal(t, want, rowsPerGroup(rows))
		m := gatedDelta(t, ir.BF16, ir.F32, 1, 2, 32, rows)
		apply(t, "decompose", m, &Options{})
		m.Entry.Body.Walk(func(op *ir.Op) {
			if op.Def.Name != "metal_kernel" {
				return
			}
			require.Equal(t, []ir.Arg{ir.Int(32), ir.Int(rows), ir.Int(2)}, op.Operand("grid"))
			require.Equal(t, []ir.Arg{ir.Int(32), ir.Int(want), ir.Int(1)}, op.Operand("threadgroup"))
		})
	}
}

// TestSwitchMLP: both arms give what the composite gives, for dense and quantized experts, any number of
// tokens and experts per token, also where tokens share experts.
func TestSwitchMLP(t *testing.T) {
	for _, name := range []string{"switch_mlp", "switch_geglu"} {
		t.Run(name, func(t *testing.T) { testSwitchMLP(t, name) })
	}
}

func testSwitchMLP(t *testing.T, name string) {
	const experts, hidden, inner = 4, 64, 32
	for _, quantized := range []bool{false, true} {
		for _, perToken := range []int64{1, 3} {
			for _, cutoff := range []int{1, 4} {
				build := func() *ir.Module {
					m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
					require.NoError(t, ir.Build(func() {
						f, b := m.Entry, &ir.Builder{Module: m, Region: m.Entry.Body}
						tokens := ir.Sym(&ir.Symbol{Lo: 1, Hi: 64})
						x := f.NewParam("x", ir.TensorType(ir.BF16, ir.Const(1), tokens, ir.Const(hidden)))
						indices := f.NewParam("indices", ir.TensorType(ir.U32, ir.Const(1), tokens, ir.Const(perToken)))
						scores := f.NewParam("scores", ir.TensorType(ir.F32, ir.Const(1), tokens, ir.Const(perToken)))
						weight := func(name string, n, k int64) *ir.Value {
							return m.NewConstant(name, ir.StaticType(ir.BF16, experts, n, k),
								ir.Bytes(ir.BF16, []int64{experts, n, k},
									randomTensor(name, ir.BF16, []int{experts, int(n), int(k)}).Encode()))
						}
						y := b.Value(name, &ir.SwitchMLPAttrs{SortCutoff: cutoff}, x, weight("gate", inner, hidden),
							weight("up", inner, hidden),
							weight("down", hidden, inner), indices, scores)
						f.Body.Results, f.Outputs = []*ir.Value{y}, []ir.Type{y.Type}
					}))
					if quantized {
						apply(t, "quantize", m, &Options{Recipe: DefaultRecipe(minMax(4, 32), nil)})
					}
					return m
				}
				composite, nodes := build(), build()
				lower(t, nodes, &Options{})
				for _, p := range []eval.Precision{eval.FP32, eval.Strict} {
					for _, length := range []int64{1, 2, 4, 5, 9} {
						requireSameValues(t, evaluate(t, composite, p, length), evaluate(t, nodes, p, length),
							fmt.Sprintf("quantized=%v, %d experts per token, cutoff %d, %d tokens", quantized,
								perToken, cutoff, length))
					}
				}
			}
		}
	}
}

// TestTopK: the decomposition chooses and orders as the composite, with ties and infinities.
func TestTopK(t *testing.T) {
	for _, k := range []int{1, 3, 8} {
		build := func() *ir.Module {
			m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
			require.NoError(t, ir.Build(func() {
				b := &ir.Builder{Module: m, Region: m.Entry.Body}
				op := b.Op("top_k", &ir.TopKAttrs{K: k}, m.Entry.NewParam("x", ir.StaticType(ir.I32, 5, 8)))
				m.Entry.Body.Results = op.Results
				m.Entry.Outputs = []ir.Type{op.Results[0].Type, op.Results[1].Type}
			}))
			return m
		}
		composite, nodes := build(), build()
		apply(t, "decompose", nodes, &Options{})
		requireSameValues(t, evaluate(t, composite, eval.FP32, 1), evaluate(t, nodes, eval.FP32, 1), fmt.Sprint(k))
	}
}

func TestDecomposeErrors(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"quantized parameter of no parts", `module {
  entry forward(%x: bf16[1,64], %p: u32[4,8], %s: bf16[4,2]) {
    %0 = quantized(packed=%p, scales=%s) {group_size=32, bits=4} : quantized<4,32,bf16>[4,64]
    %1 = if(cond=1) : quantized<4,32,bf16>[4,64] {
      yield %0
    } else {
      yield %0
    }
    %2 = linear(x=%x, weight=%1) : bf16[1,4]
    return %2: bf16[1,4]
  }
}`, "a weight of type quantized<4,32,bf16>[4,64] is not joined from packed codes, scales and biases"},
		{"dynamic vocabulary", `module {
  symbol s0 [1, 8]
  entry forward(%x: bf16[1,s0], %t: f32[], %k: i64[], %seed: i64[]) {
    %0 = sample(logits=%x, temperature=%t, top_k=%k, seed=%seed) : i64[1]
    return %0: i64[1]
  }
}`, "dim s0 must be a constant"},
		{"dynamic hidden size", `module {
  symbol s0 [4, 4]
  entry forward(%x: bf16[1,2,s0], %w: bf16[3,4,4], %i: u32[1,2,2], %s: f32[1,2,2]) {
    %0 = switch_mlp(x=%x, gate=%w, up=%w, down=%w, indices=%i, scores=%s) : bf16[1,2,s0]
    return %0: bf16[1,2,s0]
  }
}`, "switch_mlp: experts per token 2 and hidden size s0 must be constants"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := decompose(parse(t, test.text), &Options{})
			require.ErrorContains(t, err, test.want)
		})
	}
}
