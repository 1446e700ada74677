package lower_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// mixture is a mixture of experts with an expert of all tokens and the residual.
const mixture = `module {
  symbol T [1, 64]
  constant @norm : f32[64]
  constant @router : bf16[8,64]
  constant @both : bf16[64,64]
  constant @score : bf16[1,64]
  constant @scale : f32[8,1]
  constant @shared : bf16[64,32]
  constant @gate : bf16[8,32,64]
  constant @up : bf16[8,32,64]
  constant @down : bf16[8,64,32]
  entry forward(%x: f32[1,T,64], %residual: f32[1,T,64]) {
    %n = sym_size(a=%x) {dim=1} : int(T)
    %0, %1, %2 = linears(x=%x, weights=[@router, @both, @score]) : f32[1,T,8], f32[1,T,64], f32[1,T,1]
    %3, %4 = top_k(x=%0) {k=2} : f32[1,T,2], u32[1,T,2]
    %5 = softmax(x=%3) {axis=-1, precise=true} : f32[1,T,2]
    %6 = switch_mlp(x=%x, gate=@gate, up=@up, down=@down, indices=%4, scores=%5) : f32[1,T,64]
    %7 = slice(x=%1, axis=2, start=0, stop=32) : f32[1,T,32]
    %8 = slice(x=%1, axis=2, start=32, stop=64) : f32[1,T,32]
    %9 = glu(gate=%7, x=%8) {activation="silu"} : f32[1,T,32]
    %10 = linear(x=%9, weight=@shared) : f32[1,T,64]
    %11 = glu(gate=%2, x=%10) {activation="sigmoid"} : f32[1,T,64]
    %12 = add(a=%6, b=%11) : f32[1,T,64]
    %13 = add(a=%residual, b=%12) : f32[1,T,64]
    return RESULTS
  }
}
`

// What gives the scores of the experts: as it stands in mixture, and times a number of each.
const (
	scores = `%5 = softmax(x=%3) {axis=-1, precise=true} : f32[1,T,2]`
	scaled = `%m = softmax(x=%3) {axis=-1, precise=true} : f32[1,T,2]
    %e = embedding(indices=%4, weight=@scale) : f32[1,T,2,1]
    %z = reshape(x=%e, shape=[1, -1, 2]) : f32[1,T,2]
    %5 = multiply(a=%m, b=%z) : f32[1,T,2]`
)

func TestExpertsRows(t *testing.T) {
	const result = "%13: f32[1,T,64]"
	few := []string{"matvec", "routed_experts"}
	shared := []string{"matvec_glu", "matvec", "gated_add"} // the expert of all tokens on its own
	many := []string{"prepare", "matmul", "matmul", "router", "matmul_glu", "matmul", "gated_add"}
	for name, c := range map[string]struct {
		old, by, results string
		normed           bool
		tokens           int
		refused          []string
		want             []string
		holds            string
	}{
		"a token": {tokens: 1, want: few,
			holds: "shared_gate=@both, shared_down=@shared, shared_score=%1, extra=%residual) {k=2, precise=true} : f32[1,1,64]"},
		"eight tokens": {tokens: 8, want: few},
		"normalized rows": {normed: true, tokens: 1, want: few,
			holds: "extra=%residual) {k=2, precise=true, norm=true, eps=1e-06} : f32[1,1,64]"},
		"many normalized rows": {normed: true, tokens: 9, want: append(many[:7:7], "sorted_experts"),
			holds: "%0 = prepare(x=%x, norm=@norm) {norm=true, eps=1e-06}"},
		"many tokens":          {tokens: 9, want: append(many[:7:7], "sorted_experts"), holds: "sorted_experts(x=%0,"},
		"many without sorting": {tokens: 9, refused: []string{"experts_sort"}, want: append(many[:7:7], "experts")},
		"another activation": {old: `{activation="silu"}`, by: `{activation="gelu"}`, tokens: 1,
			want: []string{"matvec", "matvec_glu", "matvec", "gated_add", "routed_experts"}},
		"the residual first": {old: "b=%11) : f32[1,T,64]\n    %13 = add(a=%residual, b=%12)",
			by:     "b=%residual) : f32[1,T,64]\n    %13 = add(a=%11, b=%12)",
			tokens: 1, want: few, holds: "shared_score=%1, extra=%residual)"},
		"gelu": {old: "switch_mlp", by: "switch_geglu", tokens: 1,
			want:  []string{"matvec", "matvec_glu", "matvec", "gated_add", "routed_experts"},
			holds: `{k=2, precise=true, activation="gelu_tanh"} : f32[1,1,64]`},
		"many with gelu": {old: "switch_mlp", by: "switch_geglu", tokens: 9,
			want: append(many[:7:7], "sorted_experts"), holds: `{activation="gelu_tanh"} : f32[1,9,64]`},
		"a scale of each expert": {old: scores, by: scaled, tokens: 1, want: few, holds: "scale=@scale"},
		"scales of many tokens": {old: scores, by: scaled, tokens: 9, want: append(many[:7:7], "sorted_experts"),
			holds: "router(logits=%1, scale=@scale) {k=2, precise=true}"},
		"scales that something reads": {old: scores, by: scaled, results: ", %z: f32[1,T,2]", tokens: 1,
			want: append(append([]string{"matvec", "router", "embedding"}, shared...), "experts")},
		"scores that are scaled and read": {old: scores, by: scaled, results: ", %m: f32[1,T,2]", tokens: 1,
			want: append(append([]string{"matvec", "router", "embedding", "multiply"}, shared...), "experts")},
		"halves the other way": {old: "gate=%7, x=%8", by: "gate=%8, x=%7", tokens: 1,
			want: []string{"matvec", "glu", "matvec", "gated_add", "routed_experts"}},
		"indices are a result": {results: ", %4: u32[1,T,2]", tokens: 1,
			want: append(append([]string{"matvec", "router"}, shared...), "experts")},
		"the sum inside": {results: ", %12: f32[1,T,64]", tokens: 1, want: append(few[:2:2], "residual_add")},
		"the experts are a result": {results: ", %6: f32[1,T,64]", tokens: 1,
			want: append(few[:2:2], "matvec_glu", "matvec", "glu", "residual_add", "residual_add")},
		"values of the router": {results: ", %3: f32[1,T,2]", tokens: 1,
			want: append(append([]string{"matvec", "top_k", "softmax"}, shared...), "experts")},
		"no kernel": {tokens: 1, refused: []string{"experts_up", "experts_choose", "experts_sort"},
			want: []string{"matvec", "router", "switch_mlp", "matvec_glu", "matvec", "glu",
				"residual_add", "residual_add"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(mixture, "RESULTS", result+c.results, 1)
			if c.old != "" {
				require.Contains(t, text, c.old)
				text = strings.Replace(text, c.old, c.by, 1)
			}
			if c.normed {
				text = strings.NewReplacer("switch_mlp(x=%x", "switch_mlp(x=%y",
					"    %0, %1, %2 = linears(x=%x",
					"    %y = rms_norm(x=%x, weight=@norm) {eps=1e-06} : f32[1,T,64]\n    %0, %1, %2 = linears(x=%y").Replace(text)
			}
			target := &lower.Target{Machine: kernels.Machine{Target: kernels.CUDA}, Precision: eval.Mixed,
				Refuses: refuses(c.refused...)}
			lines := lowered(t, text, c.tokens, target)
			require.Equal(t, c.want, names(lines), strings.Join(lines, "\n"))
			require.Contains(t, strings.Join(lines, "\n"), c.holds)
		})
	}
}

// quantizedMixture is a mixture of experts with an expert of all tokens and the residual, as models are exported.
const quantizedMixture = `module {
  symbol T [1, 8192]
  constant @router : bf16[8,256]
  constant @score : bf16[1,256]
  constant @codes : u32[256,32]
  constant @scales : bf16[256,4]
  constant @all.codes : u32[8,256,32]
  constant @all.scales : bf16[8,256,4]
  entry forward(%x: f32[1,T,256], %residual: f32[1,T,256]) {
    %w = quantized(packed=@codes, scales=@scales, biases=@scales) {group_size=64, bits=4} : quantized<4,64,bf16>[256,256]
    %all = quantized(packed=@all.codes, scales=@all.scales, biases=@all.scales) {group_size=64, bits=4} : quantized<4,64,bf16>[8,256,256]
    %0, %1, %2, %3 = linears(x=%x, weights=[@router, @score, %w, %w]) : f32[1,T,8], f32[1,T,1], f32[1,T,256], f32[1,T,256]
    %4, %5 = top_k(x=%0) {k=2} : f32[1,T,2], u32[1,T,2]
    %6 = softmax(x=%4) {axis=-1, precise=true} : f32[1,T,2]
    %7 = switch_mlp(x=%x, gate=%all, up=%all, down=%all, indices=%5, scores=%6) : f32[1,T,256]
    %8 = glu(gate=%2, x=%3) {activation="silu"} : f32[1,T,256]
    %9 = linear(x=%8, weight=%w) : f32[1,T,256]
    %10 = glu(gate=%1, x=%9) {activation="sigmoid"} : f32[1,T,256]
    %11 = add(a=%7, b=%10) : f32[1,T,256]
    %12 = add(a=%residual, b=%11) : f32[1,T,256]
    return %12: f32[1,T,256]
  }
}
`

// TestSharedAmongSorted: the shared expert is one of the sorted experts where these take rows in the order of lanes: on
// CUDA, where rows may be rounded, and up to 96 rows for each expert.
func TestSharedAmongSorted(t *testing.T) {
	const among = "shared_gate=%0, shared_up=%0, shared_down=%0, shared_score=%4, extra=%residual)"
	for name, c := range map[string]struct {
		machine   string
		precision eval.Precision
		tokens    int
		refused   string
		want      bool
	}{
		"nine tokens":     {"cuda", eval.Mixed, 9, "", true},
		"many tokens":     {"h100", eval.Mixed, 384, "", true},
		"more tokens":     {"h100", eval.Mixed, 388, "", false},
		"exact":           {"h100", eval.FP32, 9, "", false},
		"metal":           {"metal", eval.Mixed, 9, "", false},
		"no direct tiles": {"cuda", eval.Mixed, 9, "experts_direct_down", false},
	} {
		t.Run(name, func(t *testing.T) {
			target := &lower.Target{Machine: machines[c.machine], Precision: c.precision, Refuses: refuses(c.refused)}
			text := strings.Join(lowered(t, quantizedMixture, c.tokens, target), "\n")
			require.Contains(t, text, "sorted_experts")
			require.Equal(t, c.want, strings.Contains(text, among), text)
			require.Equal(t, c.want, !strings.Contains(text, "gated_add"), text)
		})
	}
}
