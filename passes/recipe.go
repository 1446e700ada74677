package passes

import (
	"fmt"
	"path"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// WeightKind is the use that a weight is put to.
type WeightKind uint8

const (
	// LinearWeight is the matrix of a linear, expert matrices among them.
	LinearWeight WeightKind = iota
	// EmbeddingWeight is the table of an embedding.
	EmbeddingWeight
	// DraftWeight is the matrix of a linear that only methods beside the main one use: a draft's.
	DraftWeight
)

// Recipe says which weights are quantized, and how. The first rule that matches a weight decides; a weight that no rule
// matches stays as it is. For a draft's weights the rules for drafts come first. Where none of them matches, the rules
// for linears apply, except for rules that name layers, which are layers of the main method.
type Recipe struct {
	Name  string
	Rules []Rule
	// RoundConstants rounds every floating-point constant that is not a quantized weight to bf16, as
	// ExecuTorch's exporter does.
	RoundConstants bool
}

// Rule is a rule of a recipe.
type Rule struct {
	Kind WeightKind
	// Pattern is matched against the constant's name as path.Match does (* stands for any run of
	// characters); "" matches every name.
	Pattern string
	// Layers limits the rule to weights of these layers. An empty list means no limit: the rule then also holds for
	// weights that belong to no layer.
	Layers []LayerRange
	// Scheme is how the weight is quantized; nil leaves it as it is.
	Scheme *quantize.Scheme
}

// match returns the scheme for a weight; nil for none.
func (r Recipe) match(kind WeightKind, name string) *quantize.Scheme {
	if rule := r.rule(kind, name); rule != nil {
		return rule.Scheme
	}
	return nil
}

// Scheme returns the scheme for a weight; nil for one that stays as it is.
func (r Recipe) Scheme(kind WeightKind, name string) *quantize.Scheme { return r.match(kind, name) }

// Names reports whether a rule decides about a weight of a linear.
func (r Recipe) Names(name string) bool { return r.rule(LinearWeight, name) != nil }

// rule returns the rule that decides about a weight; nil for none.
func (r Recipe) rule(kind WeightKind, name string) *Rule {
	if kind == DraftWeight {
		if rule := r.first(kind, name, nil); rule != nil {
			return rule
		}
		return r.first(LinearWeight, name, func(rule Rule) bool { return len(rule.Layers) == 0 })
	}
	return r.first(kind, name, nil)
}

// first returns the first rule for a kind that matches a name, of those that among takes; nil takes all.
func (r Recipe) first(kind WeightKind, name string, among func(Rule) bool) *Rule {
	for i, rule := range r.Rules {
		if rule.Kind != kind || among != nil && !among(rule) {
			continue
		}
		if ok, _ := path.Match(rule.Pattern, name); (ok || rule.Pattern == "") && rule.hasLayer(name) {
			return &r.Rules[i]
		}
	}
	return nil
}

func (rule Rule) hasLayer(name string) bool {
	if len(rule.Layers) == 0 {
		return true
	}
	_, n, _, ok := ir.SplitLayer(name)
	return ok && slices.ContainsFunc(rule.Layers, func(l LayerRange) bool { return l.First <= n && n <= l.Last })
}

// check reports a pattern that no name can match because it is malformed.
func (r Recipe) check() error {
	for _, rule := range r.Rules {
		if _, err := path.Match(rule.Pattern, ""); err != nil {
			return fmt.Errorf("recipe %s: pattern %q: %w", r.Name, rule.Pattern, err)
		}
	}
	return nil
}

// sensitive are the weights that stay at 8 bits under the default recipe: the router, whose errors send
// tokens to wrong experts, and the gate of the shared expert, a single row. Both are small (mlx-lm does
// the same; see RATIONALE.md).
var sensitive = []string{"*.mlp.gate.weight", "*.shared_expert_gate.weight"}

// DefaultRecipe quantizes linears and embeddings with the given schemes, nil for none. It keeps routers and
// shared-expert gates at 8 bits in mode affine, and also weights that the patterns more match: an architecture's own
// sensitive weights.
func DefaultRecipe(linear, embedding *quantize.Scheme, more ...string) Recipe {
	r := Recipe{Name: "default"}
	if linear != nil {
		eight := *linear
		eight.Mode, eight.Bits = ir.Affine, 8
		if linear.Mode == ir.NVFP4 { // whose groups of 16 no mode multiplies by with 8 bits
			eight.GroupSize = 32
		}
		for _, p := range slices.Concat(sensitive, more) {
			r.Rules = append(r.Rules, Rule{Kind: LinearWeight, Pattern: p, Scheme: &eight})
		}
		r.Rules = append(r.Rules, Rule{Kind: LinearWeight, Scheme: linear})
	}
	if embedding != nil {
		r.Rules = append(r.Rules, Rule{Kind: EmbeddingWeight, Scheme: embedding})
	}
	return r
}

// AllocationRecipe returns the recipe to put rules of an [Allocation] before: what DefaultRecipe keeps at 8 bits gets
// the scheme sensitive, embeddings the scheme embedding, nil for none, and the other linears are not decided.
func AllocationRecipe(sensitiveScheme *quantize.Scheme, embedding *quantize.Scheme, more ...string) Recipe {
	r := DefaultRecipe(sensitiveScheme, embedding, more...)
	last := len(sensitive) + len(more)
	r.Rules = slices.Delete(r.Rules, last, last+1)
	r.Name = "allocated"
	return r
}

// ExecuTorchStyle is one of the ways in which ExecuTorch's exporter quantizes; an architecture says
// which is its own.
type ExecuTorchStyle uint8

const (
	// ScaleOnly quantizes every linear with hqq scale-only; embeddings only where asked, with one group a row.
	ScaleOnly ExecuTorchStyle = iota
	// MinMax quantizes every linear with 4-bit asymmetric min/max and the embedding with 8 bits and one
	// symmetric group a row.
	MinMax
)

// ExecuTorchRecipe gives every weight and constant what ExecuTorch's exporter gives it, bit for bit.
// linear and embedding give bits and group sizes, nil for none; their methods are the exporter's.
func ExecuTorchRecipe(style ExecuTorchStyle, linear, embedding *quantize.Scheme) (Recipe, error) {
	r := Recipe{Name: "executorch", RoundConstants: true}
	if style == MinMax {
		if linear != nil {
			if linear.Bits != 4 {
				return r, fmt.Errorf("recipe executorch: %d-bit linears; ExecuTorch's exporter has 4 bits for this "+
					"architecture", linear.Bits)
			}
			r.Rules = append(r.Rules,
				Rule{Kind: LinearWeight, Scheme: &quantize.Scheme{Method: quantize.TorchAOAsymmetric, Bits: 4,
					GroupSize: linear.GroupSize}},
				Rule{Kind: EmbeddingWeight, Scheme: &quantize.Scheme{Method: quantize.TorchAOSymmetric, Bits: 8}})
		}
		return r, nil
	}
	if linear != nil {
		r.Rules = append(r.Rules, Rule{Kind: LinearWeight,
			Scheme: &quantize.Scheme{Method: quantize.HQQ, Bits: linear.Bits, GroupSize: linear.GroupSize}})
	}
	if embedding != nil {
		r.Rules = append(r.Rules, Rule{Kind: EmbeddingWeight,
			Scheme: &quantize.Scheme{Method: quantize.HQQ, Bits: embedding.Bits, GroupSize: embedding.GroupSize}})
	}
	return r, nil
}
