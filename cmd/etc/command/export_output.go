package command

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/loaders"
)

// emitted is what --emit takes, with the name and the kind of the file that it writes.
var emitted = map[string]struct {
	file string
	kind outfile.Kind
}{
	"pte":    {"model.pte", outfile.Program},
	"ir":     {"model.ir", outfile.Text},
	"json":   {"model.json", outfile.JSON},
	"recipe": {"model.recipe", outfile.Text},
}

// destination is where the export writes. Whatever it reads is an input: model, more files of the checkpoint, and
// those of flags.
func (f exportFlags) destination(model string, more ...string) destination {
	kind := emitted[f.emit].kind
	if f.part != "" {
		kind = outfile.Part
	}
	return destination{path: f.output, kind: kind,
		inputs: append([]string{model, f.weights, f.recipe, f.sign, f.draftPath()}, more...)}
}

// checkOutput refuses a place where nothing can be written, before the checkpoint is read.
func (f exportFlags) checkOutput(cmd *cobra.Command, model string) error {
	to := f.destination(model)
	if f.emit == "pte" && to.stream(cmd) != nil {
		return usagef("--output %s: a program is written to a file only; --emit ir writes its text to standard output",
			f.output)
	}
	if f.plan {
		return nil // nothing is written
	}
	if f.sign != "" {
		if err := checkSignatures(f.output, f.sign); err != nil {
			return err
		}
	}
	return to.check(cmd)
}

// writeText writes a text instead of a program, and says where.
func (f exportFlags) writeText(cmd *cobra.Command, model string, c *loaders.Checkpoint,
	write func(io.Writer) error) error {
	to := f.destination(model, sourceFiles(c)...)
	err := to.write(cmd, write)
	if err == nil && to.stream(cmd) == nil {
		logf(cmd.ErrOrStderr(), "etc: wrote %s", f.output)
	}
	return err
}

// sourceFiles returns the files that hold the weights of a checkpoint.
func sourceFiles(c *loaders.Checkpoint) []string {
	var out []string
	for _, s := range c.Sources() {
		if path, _, ok := s.Place(); ok && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}
