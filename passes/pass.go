package passes

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// Backend is what a module is compiled for.
type Backend uint8

const (
	// MLX is the MLX delegate under ExecuTorch's runtime or ours: forward gives last-token logits.
	MLX Backend = iota
	// CUDA is the same delegate for our CUDA runtime: the authors' sampler stays in forward.
	CUDA
)

// Options tells the passes what to make.
type Options struct {
	Backend Backend
	// Sample fuses the sampling head: forward gives a token.
	Sample bool
	// Portable writes the gated delta rule as a Scan instead of a Metal kernel.
	Portable bool
	// Recipe says which weights get which bits. The zero value quantizes nothing.
	Recipe Recipe
	// Allocate has the pass allocate-bits add rules to the recipe; nil leaves it as it is.
	Allocate *Allocation
	// Report, where it is set, gets what became of the weights.
	Report *Report
	// Disable names passes that do not run, to measure what they are worth. What follows may need them.
	Disable []string
	// After is called after every pass with its name, for --print-ir-after; nil for none.
	After func(pass string, m *ir.Module) error
	// Verify runs the verifier after every pass, not only after the last.
	Verify bool
}

// Pass is a row of the table.
type Pass struct {
	// Name of the pass, as --print-ir-after takes it.
	Name string
	// Run changes the module.
	Run func(*ir.Module, *Options) error
	// When tells whether the pass applies; nil means always.
	When func(*Options) bool
	// After are the passes that must have run before, with the reason.
	After []Order
}

// Order is a constraint on the order of two passes.
type Order struct{ Pass, Because string }

// Table is every pass in the order in which they run.
var Table = []Pass{
	{Name: "canonicalize", Run: canonicalize},
	{Name: "strip-sampler", Run: stripSampler, When: func(o *Options) bool { return o.Backend != CUDA }},
	{Name: "last-token", Run: lastToken, After: []Order{
		{"strip-sampler", "it slices what forward returns, which is the token until the sampler is stripped"},
	}},
	{Name: "sampling-head", Run: samplingHead, When: func(o *Options) bool { return o.Sample }, After: []Order{
		{"last-token", "the head takes (B, vocab)"},
		{"strip-sampler", "one sampler is enough"},
	}},
	{Name: "fuse-projections", Run: fuseProjections},
	{Name: "round-constants", Run: roundConstants, When: func(o *Options) bool { return o.Recipe.RoundConstants }},
	{Name: "allocate-bits", Run: allocateBits, When: func(o *Options) bool { return o.Allocate != nil }, After: []Order{
		{"fuse-projections", "bits are chosen for the weights that are quantized, the fused ones"},
	}},
	{Name: "quantize", Run: quantizeWeights, When: func(o *Options) bool { return len(o.Recipe.Rules) > 0 || o.Report != nil }, After: []Order{
		{"allocate-bits", "it makes rules"},
		{"fuse-projections", "hqq's stop test sees the whole fused tensor, as ExecuTorch's does"},
		{"last-token", "a tied lm_head is told from the embedding by its operation, which last-token must have placed"},
	}},
	{Name: "decompose", Run: decompose, After: []Order{
		{"quantize", "a linear becomes another node for a quantized weight"},
		{"sampling-head", "sample is a composite"},
	}},
	{Name: "fold-constants", Run: foldConstants, After: []Order{
		{"round-constants", "a product of rounded constants is not the rounded product"},
		{"decompose", "decomposition makes constant expressions"},
	}},
	{Name: "cse", Run: eliminateCommon, After: []Order{
		{"decompose", "layers share sizes, positions and masks only once they are plain operations"},
	}},
	{Name: "dce", Run: eliminateDead, After: []Order{
		{"fold-constants", "it drops the constants that folding has used up"},
		{"cse", "it drops what cse has made unused"},
	}},
	{Name: "legalize", Run: legalize, After: []Order{
		{"dce", "a copy keeps a dead value alive"},
		{"cse", "cse would merge the copies that legalize inserts"},
	}},
}

// Names lists the passes in order.
func Names() []string {
	names := make([]string, len(Table))
	for i, p := range Table {
		names[i] = p.Name
	}
	return names
}

// Run runs the passes that apply. The error names the pass.
func Run(m *ir.Module, o *Options) error {
	if err := o.Recipe.check(); err != nil {
		return err
	}
	for i, p := range Table {
		if p.When != nil && !p.When(o) || slices.Contains(o.Disable, p.Name) {
			continue
		}
		if err := p.Run(m, o); err != nil {
			return fmt.Errorf("pass %s: %w", p.Name, err)
		}
		if o.Verify || i == len(Table)-1 {
			if err := ir.Verify(m); err != nil {
				return fmt.Errorf("after pass %s: %w", p.Name, err)
			}
		}
		if o.After != nil {
			if err := o.After(p.Name, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOrder reports a row whose constraints the order of the table breaks; a test calls it.
func checkOrder(table []Pass) error {
	var seen []string
	for _, p := range table {
		for _, c := range p.After {
			if !slices.Contains(seen, c.Pass) {
				return fmt.Errorf("pass %s must come after %s: %s", p.Name, c.Pass, c.Because)
			}
		}
		seen = append(seen, p.Name)
	}
	return nil
}
