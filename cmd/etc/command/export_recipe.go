package command

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/weights"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
)

// chooseWeights returns what the flags ask for of the weights, --recipe with a file aside.
func (f *exportFlags) chooseWeights(cmd *cobra.Command) weights.Choice {
	w := weights.Choice{Linear: f.linear, Embedding: f.embedding, Recipe: f.recipe,
		Text: anyChanged(cmd, "calibrate") && f.namesRecipe(),
		Names: weights.Names{Linear: "--qlinear", Embedding: "--qembedding", Method: "--quant-method",
			Recipe: "--recipe", TargetBits: "--target-bpw", Calibrate: "--calibrate"}}
	if anyChanged(cmd, "group-size", "qlinear-group-size") {
		w.Group = f.group
	}
	if anyChanged(cmd, "qembedding-group-size") {
		w.EmbeddingGroup = f.embeddingGroup
	}
	if anyChanged(cmd, "quant-method") {
		w.Method = f.method
	}
	return w
}

// namesRecipe reports whether --recipe has the name of a recipe, not that of a file.
func (f *exportFlags) namesRecipe() bool {
	return f.recipe == weights.Default || f.recipe == weights.ExecuTorch
}

// setRecipe settles how weights are quantized.
func (f *exportFlags) setRecipe(cmd *cobra.Command, c *loaders.Checkpoint, o *passes.Options) (err error) {
	o.Report = &passes.Report{}
	switch {
	case anyChanged(cmd, "target-bpw"):
		for _, flag := range []string{"recipe", "qlinear"} {
			if anyChanged(cmd, flag) {
				return usagef("--target-bpw with --%s: the target alone decides how linears are quantized", flag)
			}
		}
		o.Recipe, o.Allocate, err = f.choice.Allocate(c, f.targetBits)
	case f.namesRecipe():
		o.Recipe, err = f.choice.MakeRecipe(c)
	default:
		o.Recipe, err = f.readRecipe(cmd)
	}
	return err
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
