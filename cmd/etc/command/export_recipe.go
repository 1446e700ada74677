package command

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/calibration"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// setRecipe settles how weights are quantized.
func (f *exportFlags) setRecipe(cmd *cobra.Command, c *loaders.Checkpoint, o *passes.Options) (err error) {
	if anyChanged(cmd, "calibrate") && !anyChanged(cmd, "quant-method") &&
		(f.recipe == "default" || f.recipe == "executorch") {
		f.method = "auto"
	}
	o.Report = &passes.Report{}
	if anyChanged(cmd, "target-bpw") {
		o.Recipe, o.Allocate, err = f.allocation(cmd, c)
		return err
	}
	o.Recipe, err = f.makeRecipe(cmd, c)
	return err
}

// leastBits and mostBits bound --target-bpw: 4 bits with a scale and a bias for 128 weights, and 32 bits.
const leastBits, mostBits = 4.25, 32

// allocation returns the choices for --target-bpw: 4 bits, 8 bits or the weight as it is. The groups have the size that
// a flag gives, else any size.
func (f exportFlags) allocation(cmd *cobra.Command, c *loaders.Checkpoint) (passes.Recipe, *passes.Allocation, error) {
	none := passes.Recipe{}
	if !(f.targetBits >= leastBits && f.targetBits <= mostBits) {
		return none, nil, usagef("--target-bpw %g, want %g to %g", f.targetBits, leastBits, float64(mostBits))
	}
	for _, flag := range []string{"recipe", "qlinear"} {
		if anyChanged(cmd, flag) {
			return none, nil, usagef("--target-bpw with --%s: the target alone decides how linears are quantized", flag)
		}
	}
	method, err := f.quantMethod()
	if err != nil {
		return none, nil, err
	}
	if method == quantize.HQQ || method.Calibrated() && !anyChanged(cmd, "calibrate") {
		return none, nil, usagef("--target-bpw with --quant-method %s, which looks at whole matrices; want best or "+
			"minmax, or a text to measure the damage to predictions by: --calibrate default", f.method)
	}
	embedding, err := f.parseScheme(cmd, "qembedding", f.embedding, f.embeddingGroup, method, "qembedding-group-size")
	if err != nil {
		return none, nil, err
	}
	if embedding != nil && method.Calibrated() { // its rows are taken, not multiplied: no input to fit to
		embedding.Method = quantize.Best
	}
	groups := []int{32, 64, 128}
	if anyChanged(cmd, "group-size", "qlinear-group-size") {
		groups = []int{f.group}
	}
	a := &passes.Allocation{BitsPerWeight: f.targetBits}
	for _, bits := range []int{4, 8} {
		for _, group := range groups {
			a.Schemes = append(a.Schemes, quantize.Scheme{Method: method, Bits: bits, GroupSize: group})
		}
	}
	return passes.AllocationRecipe(&quantize.Scheme{Method: method, Bits: 8, GroupSize: f.group}, embedding,
		c.Sensitive()...), a, nil
}

// readRecipe reads a recipe file, which alone says how weights are quantized.
func (f exportFlags) readRecipe(cmd *cobra.Command) (passes.Recipe, error) {
	for _, flag := range []string{"qlinear", "group-size", "qlinear-group-size", "qembedding",
		"qembedding-group-size", "quant-method"} {
		if anyChanged(cmd, flag) {
			return passes.Recipe{}, usagef("--%s with --recipe %s: the file says how weights are quantized", flag,
				f.recipe)
		}
	}
	text, err := os.ReadFile(f.recipe)
	if os.IsNotExist(err) {
		return passes.Recipe{}, usagef("--recipe %q, want default, executorch or a recipe file; there is no file of "+
			"that name (docs/recipes.md says what one holds)", f.recipe)
	} else if err != nil {
		return passes.Recipe{}, fmt.Errorf("--recipe: %w", err)
	}
	r, err := passes.ParseRecipe(filepath.Base(f.recipe), string(text))
	if err != nil {
		return r, invalidError{err}
	}
	return r, nil
}

// makeRecipe makes the recipe that --recipe names.
func (f exportFlags) makeRecipe(cmd *cobra.Command, c *loaders.Checkpoint) (passes.Recipe, error) {
	if f.recipe != "default" && f.recipe != "executorch" {
		return f.readRecipe(cmd)
	}
	method, err := f.quantMethod()
	if err != nil {
		return passes.Recipe{}, err
	}
	linear, err := f.parseScheme(cmd, "qlinear", f.linear, f.group, method, "group-size", "qlinear-group-size")
	if err != nil {
		return passes.Recipe{}, err
	}
	embedding, err := f.parseScheme(cmd, "qembedding", f.embedding, f.embeddingGroup, method, "qembedding-group-size")
	if err != nil {
		return passes.Recipe{}, err
	}
	if embedding != nil && method.Calibrated() { // its rows are taken, not multiplied: no input to fit to
		embedding.Method = quantize.Best
	}
	if f.recipe == "default" {
		return passes.DefaultRecipe(linear, embedding, c.Sensitive()...), nil
	}
	if anyChanged(cmd, "quant-method") {
		return passes.Recipe{}, usagef("--quant-method %s with --recipe executorch, which has methods of its own",
			f.method)
	}
	for _, s := range []*quantize.Scheme{linear, embedding} {
		if s != nil && s.Mode != ir.Affine {
			return passes.Recipe{}, usagef("%s with --recipe executorch: ExecuTorch's exporter has 4w and 8w", s.Mode)
		}
	}
	style := passes.ScaleOnly
	if c.ExporterUsesMinMax() {
		style = passes.MinMax
	}
	r, err := passes.ExecuTorchRecipe(style, linear, embedding)
	if err != nil {
		return r, usageError{err}
	}
	return r, nil
}

// quantMethod reads --quant-method.
func (f exportFlags) quantMethod() (quantize.Method, error) {
	switch f.method {
	case "best":
		return quantize.Best, nil
	case "minmax":
		return quantize.MinMax, nil
	case "hqq":
		return quantize.HQQ, nil
	}
	if m, ok := calibration.Methods[f.method]; ok {
		return m, nil
	}
	return 0, usagef("--quant-method %q, want best, minmax, hqq, auto, learned, gptq or weighted", f.method)
}

// parseScheme reads none, 4w, 8w, mxfp4, mxfp8 or, for linears, nvfp4.
func (f exportFlags) parseScheme(cmd *cobra.Command, flag, value string, group int, method quantize.Method,
	groupFlags ...string) (*quantize.Scheme, error) {
	s, ok := passes.ParseWeights(value)
	switch {
	case flag == "qlinear" && !ok:
		return nil, usagef("--%s %q, want none, 4w, 8w, mxfp4, mxfp8 or nvfp4", flag, value)
	case !ok || s != nil && s.Mode == ir.NVFP4 && flag != "qlinear":
		return nil, usagef("--%s %q, want none, 4w, 8w, mxfp4 or mxfp8", flag, value)
	case s == nil:
		return nil, nil
	case s.Mode == ir.Affine:
		s.Method, s.GroupSize = method, group
		return s, nil
	}
	if anyChanged(cmd, groupFlags...) && group != s.GroupSize {
		return nil, usagef("--%s %s with groups of %d: its groups are of %d", flag, value, group, s.GroupSize)
	}
	if anyChanged(cmd, "quant-method") { // else as MLX chooses scales
		s.Method = method
	}
	if s.Method == quantize.HQQ {
		return nil, usagef("--%s %s with --quant-method hqq, which has scales and codes of mode affine; want "+
			"minmax or best", flag, value)
	}
	return s, nil
}
