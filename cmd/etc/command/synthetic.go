package command

import (
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/synthetic"
)

// syntheticModels are the published models whose layer shapes synthetic has, with their depths.
var syntheticModels = []struct {
	name   string
	layers int
	config func(layers int) huggingface.Config
	family string // where several have such a configuration; see synthetic.Spec
}{
	{"qwen35moe-35b", 40, func(n int) huggingface.Config { return synthetic.Qwen35MoE35B(n) }, ""},
	{"qwen35-27b", 64, func(n int) huggingface.Config { return synthetic.Qwen35Dense27B(n) }, ""},
	{"qwen3next-80b", 48, func(n int) huggingface.Config { return synthetic.Qwen3Next80B(n) }, ""},
	{"qwen3moe-30b", 48, func(n int) huggingface.Config { return synthetic.Qwen3MoE30B(n) }, ""},
	{"qwen3-8b", 36, func(n int) huggingface.Config { return synthetic.Qwen3Dense8B(n) }, ""},
	{"gemma4-31b", 60, func(n int) huggingface.Config { return synthetic.Gemma431B(n) }, ""},
	{"gemma4-26b", 30, func(n int) huggingface.Config { return synthetic.Gemma426B(n) }, ""},
	{"gemma4-12b", 48, func(n int) huggingface.Config { return synthetic.Gemma412B(n) }, "gemma4unified"},
	{"gemma4-e4b", 42, func(n int) huggingface.Config { return synthetic.Gemma4E4B(n) }, ""},
	{"museglimmer-30b", 52, func(n int) huggingface.Config { return synthetic.MuseGlimmer30B(n) }, ""},
}

// newSynthetic returns a hidden command: it makes the checkpoints that BENCHMARKS.md measures.
func newSynthetic() *cobra.Command {
	var model, output string
	var layers, jobs int
	var seed uint64
	names := make([]string, len(syntheticModels))
	for i, m := range syntheticModels {
		names[i] = m.name
	}
	cmd := &cobra.Command{
		Use:    "synthetic --model NAME --output DIR",
		Short:  "Write a checkpoint of random weights in the shapes of a published model",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at := slices.Index(names, model)
			if at < 0 {
				return usagef("--model %q, want one of %s", model, strings.Join(names, ", "))
			}
			if output == "" {
				return usagef("--output DIR is missing: it names the directory for the checkpoint")
			}
			if jobs < 0 || jobs > maxThreads {
				return usagef("--jobs %d, want 0 or more, at most %d", jobs, maxThreads)
			}
			if !cmd.Flags().Changed("layers") {
				layers = syntheticModels[at].layers
			}
			config := syntheticModels[at].config(layers)
			size, err := synthetic.Bytes(config)
			if err != nil {
				return usageError{err}
			}
			spec := synthetic.Spec{Config: config, Family: syntheticModels[at].family, Seed: seed, Workers: jobs}
			if err := synthetic.Generate(output, spec); err != nil {
				return err
			}
			logf(cmd.ErrOrStderr(), "etc: wrote %s, %s of weights", output, humanize.IBytes(uint64(size)))
			return nil
		},
	}
	cmd.Flags().StringVar(&model, "model", "", "published model: "+strings.Join(names, ", "))
	cmd.Flags().IntVar(&layers, "layers", 0, "number of layers (default: the published model's)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "directory to write to; it must be empty or not exist")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of the weights")
	cmd.Flags().IntVarP(&jobs, "jobs", "j", 0, "files written at the same time, 0 for one per CPU")
	return cmd
}
