package lower_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// block is an entry for products and normalizations of rows of 256 numbers. BODY and RESULTS are for tests to fill in.
const block = `module {
  symbol T [1, 300]
  constant @norm : f32[256]
  constant @before : f32[256]
  constant @head : f32[32]
  constant @scale : f32[1]
  constant @cap : f32[]
  constant @bias : f32[256]
  constant @a : bf16[256,256]
  constant @b : bf16[256,256]
  constant @c : bf16[64,256]
  constant @d : f32[512,256]
  constant @codes : u32[256,32]
  constant @scales : bf16[256,4]
  constant @biases : bf16[256,4]
  constant @taps : bf16[64,4,1]
  buffer @state : bf16[1,4,64]
  buffer @sum : f32[2,256]
  entry forward(%x: f32[1,T,256], %y: f32[1,T,256], %z: f32[1,T,256]) {
BODY
    return RESULTS
  }
}
`

// rowCase is what the rows make of an entry for so many tokens on a device: the operations that are no views and make
// no weights, in order.
type rowCase struct {
	body, results string
	tokens        int
	target        lower.Target
	want          string
}

// module is the entry.
func (c rowCase) module(t *testing.T) *ir.Module {
	t.Helper()
	m, err := ir.Parse(strings.NewReplacer("BODY", c.body, "RESULTS", c.results).Replace(block))
	require.NoError(t, err)
	return m
}

// run lowers the entry, and compares what it computes on the reference machine with what it computed before.
func (c rowCase) run(t *testing.T) {
	t.Helper()
	m := c.module(t)
	random := rand.New(rand.NewPCG(1, 2))
	tensor := func(d ir.DType, dims []int) *eval.Tensor {
		x, err := eval.NewTensor(d, dims...)
		require.NoError(t, err)
		for i := range x.F {
			x.F[i] = float32(random.NormFloat64())
		}
		for i := range x.I {
			x.I[i] = int64(random.Uint32())
		}
		return x
	}
	for _, k := range m.Constants {
		dims, _ := plan.Sizes{}.Dims(k.Value.Type)
		static, _ := k.Value.Type.Static()
		k.Data = ir.Bytes(k.Value.Type.DType, static, tensor(k.Value.Type.DType, dims).Encode())
	}
	in := make([]eval.Value, len(m.Entry.Params))
	for i, shape := range plan.Shapes(m, c.tokens) {
		in[i].Tensor = tensor(m.Entry.Params[i].Type.DType, shape)
	}
	if c.target.Machine.Target != kernels.CUDA {
		c.target.Machine.Target = kernels.Metal
	}
	lowered, err := lower.Run(m, plan.Shapes(m, c.tokens), &c.target, passes.Control{Verify: true})
	require.NoError(t, err)
	var got []string
	for _, op := range lowered.Entry.Body.Ops {
		if !op.Def.IsView() && op.Def.Name != "quantized" {
			got = append(got, op.Def.Name)
		}
	}
	require.Equal(t, c.want, strings.Join(got, " "), "%s", lowered)
	for _, v := range lowered.Entry.Body.Results {
		require.Equal(t, ir.F32, v.Type.DType)
	}
	var out [2][]eval.Value
	for i, of := range []*ir.Module{m, lowered} {
		machine, err := eval.NewMachine(of, c.target.Precision, nil)
		require.NoError(t, err)
		for range 2 { // the second time there is a state
			out[i], err = machine.Run(in)
			require.NoError(t, err)
		}
	}
	for i, want := range out[0] {
		require.Equal(t, want.Tensor.Shape, out[1][i].Tensor.Shape)
		requireClose(t, want.Tensor.F, out[1][i].Tensor.F, 1e-5, "result %d", i)
	}
}

// Parts of blocks.
const (
	residual = `    %n = rms_norm(x=%x, weight=@before) {eps=1e-06} : f32[1,T,256]
    %s = add(a=%y, b=%n) : f32[1,T,256]
    %m = multiply(a=%s, b=@scale) : f32[1,T,256]
    %o = rms_norm(x=%m, weight=@norm) {eps=1e-05} : f32[1,T,256]`
	heads = `    %h = reshape(x=%x, shape=[1, -1, 8, 32]) : f32[1,T,8,32]
    %g = reshape(x=%y, shape=[1, -1, 8, 32]) : f32[1,T,8,32]
    %n = rms_norm(x=%h, weight=@head) {eps=1e-06} : f32[1,T,8,32]
    %i = glu(gate=%g, x=%n) {activation="silu"} : f32[1,T,8,32]
    %r = reshape(x=%i, shape=[1, -1, 256]) : f32[1,T,256]`
	threeProducts = `    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,T,256]
    %p, %q, %r = linears(x=%n, weights=[@a, @c, @b]) : f32[1,T,256], f32[1,T,64], f32[1,T,256]`
	twoHalves = `    %n = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,T,256]
    %p = linear(x=%n, weight=@d) : f32[1,T,512]
    %g = slice(x=%p, axis=2, start=0, stop=256) : f32[1,T,256]
    %u = slice(x=%p, axis=2, start=256, stop=512) : f32[1,T,256]
    %o = glu(gate=%g, x=%u) {activation="gelu_tanh"} : f32[1,T,256]`
	convolution = `    %n = rms_norm(x=%x) {eps=1e-06} : f32[1,T,256]
    %p, %q = linears(x=%n, weights=[@a, @c]) : f32[1,T,256], f32[1,T,64]
    %t = slice(x=%p, axis=2, start=0, stop=64) : f32[1,T,64]
    %o = buffer_conv @state(x=%t, w=@taps) {activation="silu"} : f32[1,T,64]
    %g = glu(gate=%q, x=%o) {activation="sigmoid"} : f32[1,T,64]`
	quantized = `
    %w = quantized(packed=@codes, scales=@scales, biases=@biases) {group_size=64, bits=4} : quantized<4,64,bf16>[256,256]`
	ofSum     = residual + quantized + "\n    %p = linear(x=%o, weight=%w) : f32[1,T,256]"
	pairOfSum = residual + quantized + `
    %p, %q = linears(x=%o, weights=[%w, %w]) : f32[1,T,256], f32[1,T,256]
    %g = glu(gate=%p, x=%q) {activation="silu"} : f32[1,T,256]`
)

// refuse refuses the kernels of files.
func refuse(files ...string) lower.Target {
	return lower.Target{Refuses: func(l kernels.Launch) bool {
		for _, f := range files {
			if l.File == f {
				return true
			}
		}
		return false
	}}
}

// library is a device with a library of matrix products.
func library() lower.Target {
	return lower.Target{Precision: eval.Mixed, Library: func(rows, n, k int) bool { return n%64 == 0 }}
}

func TestRowsOfSums(t *testing.T) {
	for name, c := range map[string]rowCase{
		"a sum": {`    %o = add(a=%x, b=%y) : f32[1,T,256]`, "%o: f32[1,T,256]", 3,
			lower.Target{}, "residual_add"},
		"of another shape": {`    %o = add(a=%x, b=@bias) : f32[1,T,256]`, "%o: f32[1,T,256]", 3,
			lower.Target{}, "add"},
		"a residual that is not dense": {"    %l = slice(x=%x, axis=2, start=0, stop=64) : f32[1,T,64]\n    %r = slice(x=%x, axis=2, start=64, stop=128) : f32[1,T,64]\n    %o = add(a=%l, b=%r) : f32[1,T,64]", "%o: f32[1,T,64]", 3, lower.Target{}, "add"},
		"normalized":                   {residual, "%o: f32[1,T,256]", 3, lower.Target{}, "add_norm"},
		"normalized, and the sum": {residual, "%o: f32[1,T,256], %m: f32[1,T,256]", 3,
			lower.Target{}, "add_norm"},
		"normalized, and before": {residual, "%o: f32[1,T,256], %n: f32[1,T,256]", 3,
			lower.Target{}, "rms_norm add_norm"},
		"normalized, and before scaling": {residual, "%o: f32[1,T,256], %s: f32[1,T,256]", 3, lower.Target{},
			"residual_add multiply rms_norm"},
		"without a kernel": {residual, "%o: f32[1,T,256]", 3, refuse("norm"),
			"rms_norm add multiply rms_norm"},
		"with a gate": {heads, "%r: f32[1,T,256]", 3, lower.Target{}, "gated_norm"},
		"with a gate, and without": {heads, "%r: f32[1,T,256], %n: f32[1,T,8,32]", 3,
			lower.Target{}, "rms_norm glu"},
	} {
		t.Run(name, c.run)
	}
}

func TestRowsOfProducts(t *testing.T) {
	const three, oneMore = "%p: f32[1,T,256], %q: f32[1,T,64], %r: f32[1,T,256]",
		threeProducts + "\n    %o = add(a=%r, b=%y) : f32[1,T,256]"
	for name, c := range map[string]rowCase{
		"a row": {threeProducts, three, 1, lower.Target{}, "matvec"},
		"of those that are read": {threeProducts, "%q: f32[1,T,64], %n: f32[1,T,256]", 1,
			lower.Target{}, "rms_norm matvec"},
		"many rows": {threeProducts, three, 40, lower.Target{}, "prepare matmul matmul matmul"},
		"many rows by a library": {threeProducts, three, 64, library(),
			"prepare library_product library_product library_product"},
		"one that the library has not": {"    %o = linear(x=%x, weight=@d) : f32[1,T,512]", "%o: f32[1,T,512]", 64,
			lower.Target{Precision: eval.Mixed, Library: func(rows, n, k int) bool { return n < 512 }},
			"prepare matmul"},
		"of f32 by a library": {"    %o = linear(x=%x, weight=@d) : f32[1,T,512]", "%o: f32[1,T,512]", 64,
			library(), "dense_weight prepare library_product"},
		"of codes by a library": {quantized[1:] + "\n    %o = linear(x=%x, weight=%w) : f32[1,T,256]",
			"%o: f32[1,T,256]", 64, library(), "dense_weight prepare library_product"},
		"of symmetric codes by a library": {strings.Replace(quantized[1:], ", biases=@biases", "",
			1) + "\n    %o = linear(x=%x, weight=%w) : f32[1,T,256]", "%o: f32[1,T,256]", 64, library(),
			"dense_weight prepare library_product"},
		"of what a buffer holds": {"    %l = load @sum() : f32[2,256]\n    %o = linear(x=%l, weight=@a) : f32[2,256]",
			"%o: f32[2,256]", 1, lower.Target{}, "load matvec"},
		"many rows without a kernel": {threeProducts, three, 40, refuse("matmul"),
			"rms_norm matvec matvec matvec"},
		"and a sum": {oneMore, "%o: f32[1,T,256]", 2, lower.Target{}, "matvec"},
		"and a sum, which is not all": {oneMore, "%o: f32[1,T,256], %r: f32[1,T,256]", 2, lower.Target{},
			"matvec residual_add"},
		"of many rows, and a sum": {oneMore, "%o: f32[1,T,256]", 40, lower.Target{}, "prepare matmul"},
		"of many rows, by a library": {oneMore, "%o: f32[1,T,256]", 64, library(),
			"prepare library_product residual_add"},
		"and a bias": {"    %o = linear(x=%x, weight=@a, bias=@bias) : f32[1,T,256]",
			"%o: f32[1,T,256]", 9, lower.Target{}, "matmul"},
		"and a bound":                {"    %p = linear(x=%x, weight=@a) : f32[1,T,256]\n    %o = softcap(x=%p, cap=@cap) : f32[1,T,256]", "%o: f32[1,T,256]", 1, lower.Target{}, "matvec"},
		"of rows that do not follow": {"    %p = transpose(x=%x) {perm=[0, 2, 1]} : f32[1,256,T]\n    %q = broadcast_to(x=%p, shape=[2, 256, -1]) : f32[2,256,T]\n    %s = transpose(x=%q) {perm=[0, 2, 1]} : f32[2,T,256]\n    %o = linear(x=%s, weight=@c) : f32[2,T,64]", "%o: f32[2,T,64]", 2, lower.Target{}, "copy matvec"},
		"of the same rows, not all used": {oneMore, "%o: f32[1,T,256], %q: f32[1,T,64]", 2,
			lower.Target{}, "matvec matvec"},
		"a pair of halves":    {twoHalves, "%o: f32[1,T,256]", 3, lower.Target{}, "matvec_glu"},
		"a pair of many rows": {twoHalves, "%o: f32[1,T,256]", 30, lower.Target{}, "prepare matmul_glu"},
		"a pair by a library": {twoHalves, "%o: f32[1,T,256]", 64, library(),
			"dense_weight prepare library_product glu"},
		"a pair with something in between": {strings.Replace(twoHalves, "    %o = glu(gate=%g, ",
			"    %v = exp(x=%g) : f32[1,T,256]\n    %o = glu(gate=%v, ", 1), "%o: f32[1,T,256]", 3,
			lower.Target{}, "matvec exp glu"},
		"a convolution": {convolution, "%o: f32[1,T,64], %g: f32[1,T,64]", 1,
			lower.Target{}, "matvec_conv glu"},
		"a convolution of several tokens": {convolution, "%o: f32[1,T,64], %g: f32[1,T,64]", 2, lower.Target{},
			"matvec buffer_conv glu"},
		"a convolution of another's result": {strings.Replace(convolution, "x=%p, axis=2, start=0, stop=64",
			"x=%p, axis=2, start=64, stop=128", 1), "%o: f32[1,T,64], %g: f32[1,T,64]", 1, lower.Target{},
			"matvec buffer_conv glu"},
	} {
		t.Run(name, c.run)
	}
}

func TestRowsOfProductsBehindNorms(t *testing.T) {
	const ofHeads = heads + "\n    %p = linear(x=%r, weight=@a) : f32[1,T,256]\n    %o = add(a=%z, b=%p) : f32[1,T,256]"
	streams := lower.Target{Machine: machines["streams"]}
	for name, c := range map[string]rowCase{
		"of heads":                   {ofHeads, "%o: f32[1,T,256]", 1, lower.Target{}, "matvec_heads"},
		"of heads of several tokens": {ofHeads, "%o: f32[1,T,256]", 2, lower.Target{}, "gated_norm matvec"},
		"of a sum":                   {ofSum, "%p: f32[1,T,256]", 1, streams, "matvec_sum"},
		"of a sum that is kept": {ofSum + "\n    %k = add(a=%p, b=%m) : f32[1,T,256]", "%k: f32[1,T,256]", 1,
			streams, "add_norm matvec"},
		"of a sum that is a result": {ofSum, "%p: f32[1,T,256], %m: f32[1,T,256]", 1, streams, "matvec_sum"},
		"of a sum that others read": {ofSum, "%p: f32[1,T,256], %o: f32[1,T,256]", 1, streams, "add_norm matvec"},
		"that is not streamed":      {ofSum, "%p: f32[1,T,256]", 1, lower.Target{}, "add_norm matvec"},
		"a pair of a sum":           {pairOfSum, "%g: f32[1,T,256]", 1, streams, "matvec_glu_sum"},
		"a pair of several tokens":  {pairOfSum, "%g: f32[1,T,256]", 2, streams, "add_norm matvec_glu"},
	} {
		t.Run(name, c.run)
	}
}

// TestSmallProducts: where the device has tiles for few rows, several products of the same rows with small weights are
// one kernel of vectors, which normalizes the rows, too; others have a kernel each, and one for their rows.
func TestSmallProducts(t *testing.T) {
	t.Parallel()
	const text = `module {
  symbol T [1, 65]
  constant @norm : f32[512]
  constant @c1 : u32[256,%[1]d]
  constant @s1 : bf16[256,8]
  constant @b1 : bf16[256,8]
  constant @c2 : u32[%[2]d,128]
  constant @s2 : bf16[%[2]d,8]
  constant @b2 : bf16[%[2]d,8]
  entry forward(%%x: f32[1,T,512]) {
    %%w1 = quantized(packed=@c1, scales=@s1, biases=@b1) {group_size=64, bits=%[3]d} : quantized<%[3]d,64,bf16>[256,512]
    %%w2 = quantized(packed=@c2, scales=@s2, biases=@b2) {group_size=64, bits=8} : quantized<8,64,bf16>[%[2]d,512]
    %%0 = rms_norm(x=%%x, weight=@norm) {eps=1e-06} : f32[1,T,512]
    %%1, %%2 = linears(x=%%0, weights=[%%w1, %%w2]) : f32[1,T,256], f32[1,T,%[2]d]
    return %%1: f32[1,T,256], %%2: f32[1,T,%[2]d]
  }
}
`
	const together, apart = "matvec", "prepare matmul matmul"
	machine := machines["cuda"]
	machine.Cores = 132
	for name, c := range map[string]struct {
		rows, bits, second int
		want               string
	}{
		"few rows":      {8, 8, 1, together},
		"more rows":     {9, 8, 1, together},
		"many rows":     {64, 8, 1, together},
		"too many rows": {65, 8, 1, apart},
		"large weights": {2, 8, 2000, apart},
		"two formats":   {2, 4, 1, apart},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ir.Parse(fmt.Sprintf(text, 512*c.bits/32, c.second, c.bits))
			require.NoError(t, err)
			made, err := lower.Run(m, plan.Shapes(m, c.rows), &lower.Target{Machine: machine,
				Precision: eval.Mixed}, passes.Control{Verify: true})
			require.NoError(t, err)
			require.Equal(t, "quantized quantized "+c.want, strings.Join(names(opsOf(made)), " "))
		})
	}
}

// TestSumsAreRounded: norms of residual sums, and gated pairs of products, write the rows of tiled products as these
// take them, unless something else reads them or products do not round.
func TestSumsAreRounded(t *testing.T) {
	mixed := lower.Target{Precision: eval.Mixed}
	const down = pairOfSum + "\n    %r = linear(x=%g, weight=%w) : f32[1,T,256]"
	for name, c := range map[string]rowCase{
		"a sum":                  {ofSum, "%p: f32[1,T,256]", 12, mixed, "add_norm matmul"},
		"a sum that is a result": {ofSum, "%p: f32[1,T,256], %m: f32[1,T,256]", 12, mixed, "add_norm matmul"},
		"a sum that others read": {ofSum, "%p: f32[1,T,256], %o: f32[1,T,256]", 12, mixed, "add_norm prepare matmul"},
		"exact":                  {ofSum, "%p: f32[1,T,256]", 12, lower.Target{}, "add_norm matmul"},
		"a pair":                 {down, "%r: f32[1,T,256]", 12, mixed, "add_norm matmul_glu matmul"},
		"a pair that others read": {down, "%r: f32[1,T,256], %g: f32[1,T,256]", 12, mixed,
			"add_norm matmul_glu prepare matmul"},
	} {
		t.Run(name, c.run)
	}
}

// TestAttentionIsRounded: attention over blocks writes the rows of a tiled product as it takes them, with a gate and
// without, unless its kernel also goes by tiles or something else reads the rows. A call that decodes has no tiles.
func TestAttentionIsRounded(t *testing.T) {
	t.Parallel()
	const gated, plain = "%12 = linear(x=%11, weight=%w) : f32[1,R,64]", "%12 = linear(x=%10, weight=%w) : f32[1,R,64]"
	const rounded, prepared = "rows_attention matmul", "rows_attention prepare matmul"
	for name, c := range map[string]struct {
		product, results string
		rows             int
		refuse           string
		want             string
	}{
		"gated":        {gated, "%12: f32[1,R,64]", 10, "", rounded},
		"without gate": {plain, "%12: f32[1,R,64]", 10, "", rounded},
		"refused":      {gated, "%12: f32[1,R,64]", 10, "BLOCK_OUT_T=bfloat", prepared},
		"tiles":        {gated, "%12: f32[1,R,64]", 20, "", prepared},
		"decoding":     {gated, "%12: f32[1,R,64]", -20, "", rounded},
		"read twice":   {gated, "%11: f32[1,R,256], %12: f32[1,R,64]", 10, "", prepared},
	} {
		t.Run(name, func(t *testing.T) {
			blocks := "%blocks: i32[3,3]"
			if c.rows < 0 { // a call that wants logits of all its rows, with a sequence for every two of them
				c.rows, blocks = -c.rows, "%wanted: i32[R], %blocks: i32[10,3]"
			}
			m, err := ir.Parse(strings.NewReplacer("%blocks: i32[3,3]", blocks, "  buffer @k", "  constant @codes : u32[64,32]\n"+
				"  constant @scales : bf16[64,4]\n  constant @biases : bf16[64,4]\n  buffer @k", "    %0 =",
				"    %w = quantized(packed=@codes, scales=@scales, biases=@biases) {group_size=64, bits=4}"+
					" : quantized<4,64,bf16>[64,256]\n    %0 =", "return RESULTS", c.product+"\n    return "+c.results).
				Replace(attendRows))
			require.NoError(t, err)
			target := &lower.Target{Machine: machines["cuda"], Precision: eval.Mixed,
				Refuses: func(l kernels.Launch) bool { return c.refuse != "" && strings.Contains(l.Key(), c.refuse) }}
			made, err := lower.Run(m, plan.Shapes(m, c.rows), target, passes.Control{Verify: true})
			require.NoError(t, err)
			list := names(opsOf(made))
			require.Equal(t, c.want, strings.Join(list[slices.Index(list, "rows_attention"):], " "))
		})
	}
}

// TestGatedRowsAreRounded: gated norms of heads write the rows of tiled products as these take them, unless the device
// must not use that kernel, or products do not round.
func TestGatedRowsAreRounded(t *testing.T) {
	t.Parallel()
	fused, err := fuse.Fuse(fusetest.Load(t, "etc-qwen35moe-chat-sample"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		target lower.Target
		tokens int
		want   int // of the three layers with a delta rule
	}{
		"few rows":  {lower.Target{Precision: eval.Mixed}, 3, 3},
		"many rows": {lower.Target{Precision: eval.Mixed}, 40, 3},
		"one row":   {lower.Target{Precision: eval.Mixed}, 1, 0},
		"exact":     {lower.Target{Precision: eval.FP32}, 40, 0},
		"refused": {lower.Target{Precision: eval.Mixed, Refuses: func(l kernels.Launch) bool {
			return strings.Contains(l.Key(), "NORM_OUT_T=bfloat")
		}}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.target.Machine = machines["cuda"]
			made, err := lower.Run(fused, plan.Shapes(fused, c.tokens), &c.target, passes.Control{Verify: true})
			require.NoError(t, err)
			rounded := slices.DeleteFunc(opsOf(made), func(line string) bool {
				return !strings.Contains(line, " gated_norm(") || !strings.Contains(line, "prepared=true")
			})
			require.Len(t, rounded, c.want)
		})
	}
}
