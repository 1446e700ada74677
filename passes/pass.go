package passes

import "github.com/etc-ml/etc/ir"

// Backend is the target that a module is compiled for.
type Backend uint8

const (
	// MLX is the MLX delegate under ExecuTorch's runtime or ours: forward gives last-token logits.
	MLX Backend = iota
	// CUDA is the same delegate for our CUDA runtime: the authors' sampler stays in forward.
	CUDA
)

// Options are the options of the passes.
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
	// Damage is the damage to predictions when one weight alone is quantized with [Allocation.Tried], by the weight's
	// name. With it, allocate-bits spends bits where they lower the sum of the damages most; a weight that it does not
	// name counts as the mean of the others. If it is nil, the weights' own errors are used.
	Damage map[string]float64
	// Calibration has the weights of methods that need calibration; nil where there are none.
	Calibration Calibration
	// Report, where it is set, gets what became of the weights.
	Report *Report
	// Disable names passes that do not run, to measure what they are worth. What follows may need them.
	Disable []string
	// After is called after every pass with its name, for --print-ir-after; nil for none.
	After func(pass string, m *ir.Module) error
	// Verify runs the verifier after every pass, not only after the last.
	Verify bool
}

// Pass is a row of the compiler's table.
type Pass = Row[*Options]

// Table is every pass in the order in which they run.
var Table = Ordered(
	Pass{Name: "canonicalize", Run: canonicalize},
	Pass{Name: "strip-sampler", Run: stripSampler, When: func(o *Options) bool { return o.Backend != CUDA }},
	Pass{Name: "last-token", Run: lastToken, After: []Order{
		{"strip-sampler", "it slices what forward returns, which is the token until the sampler is stripped"},
	}},
	Pass{Name: "sampling-head", Run: samplingHead, When: func(o *Options) bool { return o.Sample }, After: []Order{
		{"last-token", "the head takes (B, vocab)"},
		{"strip-sampler", "one sampler is enough"},
	}},
	Pass{Name: "fuse-projections", Run: fuseProjections},
	Pass{Name: "round-constants", Run: roundConstants, When: func(o *Options) bool { return o.Recipe.RoundConstants }},
	Pass{Name: "allocate-bits", Run: allocateBits, When: func(o *Options) bool { return o.Allocate != nil },
		After: []Order{
			{"fuse-projections", "bits are chosen for the weights that are quantized, the fused ones"},
		}},
	Pass{Name: "quantize", Run: quantizeWeights, When: func(o *Options) bool {
		return len(o.Recipe.Rules) > 0 ||
			o.Report != nil
	}, After: []Order{
		{"allocate-bits", "it makes rules"},
		{"fuse-projections", "hqq's stop test sees the whole fused tensor, as ExecuTorch's does"},
		{"last-token", "a tied lm_head is told from the embedding by its operation, which last-token must have placed"},
	}},
	Pass{Name: "decompose", Run: decompose, After: []Order{
		{"quantize", "a linear becomes another node for a quantized weight"},
		{"sampling-head", "sample is a composite"},
	}},
	Pass{Name: "fold-constants", Run: foldConstants, After: []Order{
		{"round-constants", "a product of rounded constants is not the rounded product"},
		{"decompose", "decomposition makes constant expressions"},
	}},
	Pass{Name: "cse", Run: eliminateCommon, After: []Order{
		{"decompose", "layers share sizes, positions and masks only once they are plain operations"},
	}},
	Pass{Name: "dce", Run: eliminateDead, After: []Order{
		{"fold-constants", "it drops the constants that folding has used up"},
		{"cse", "it drops what cse has made unused"},
	}},
	Pass{Name: "legalize", Run: legalize, After: []Order{
		{"dce", "a copy keeps a dead value alive"},
		{"cse", "cse would merge the copies that legalize inserts"},
	}},
)

// Names lists the passes in order.
func Names() []string { return Table.Names() }

// Run runs the passes that apply. The error names the pass.
func Run(m *ir.Module, o *Options) error {
	if err := o.Recipe.check(); err != nil {
		return err
	}
	return Table.Run(m, o, Control{Disable: o.Disable, After: o.After, Verify: o.Verify})
}

// Through runs the passes that apply up to one, and the verifier after it.
func Through(m *ir.Module, o *Options, last string) error {
	if err := o.Recipe.check(); err != nil {
		return err
	}
	return Table.Run(m, o, Control{Disable: o.Disable, After: o.After, Verify: o.Verify, Through: last})
}
