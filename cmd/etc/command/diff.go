package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/runtime/diff"
)

type diffFlags struct{ json, full bool }

func newDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A.pte B.pte",
		Short: "Show what differs between two programs",
		Long: `diff compares two .pte files: inputs and outputs of the methods, constant methods, metadata, graphs and weights.

Graphs are compared as IR text, up to the numbers of values and symbols; the order of constants and the prefix
that ExecuTorch gives their names make no difference. Weights are compared as what they stand for: codes, scales
and biases are one weight. Where the values of a weight differ, the last column is the root of the sum of
(b-a)^2 over that of a^2, of dequantized values; so the diff of a quantized program and its original shows the
error of every weight. Long graphs and tables are cut unless --full.

The exit code is 0 where the files are equal in all this, which prints nothing, and 1 where they differ.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return runDiff(cmd, args[0], args[1], f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&f.full, "full", false, "show all lines of graphs and all weights")
	return cmd
}

func runDiff(cmd *cobra.Command, pathA, pathB string, f diffFlags) error {
	a, err := openProgram(pathA)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := openProgram(pathB)
	if err != nil {
		return err
	}
	defer b.Close()
	r, err := diff.Programs(a, b)
	if err != nil {
		return err
	}
	if f.json {
		if !f.full {
			r.Limit()
		}
		err = writeJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.WriteText(shownOut(cmd), f.full)
	}
	if err == nil && !r.Equal {
		return fmt.Errorf("%s and %s differ", pathA, pathB)
	}
	return err
}
