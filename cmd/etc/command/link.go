package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/outfile"
)

func newLink() *cobra.Command {
	var output string
	var jobs int
	var f writeFlags
	cmd := &cobra.Command{
		Use:   "link PART...",
		Short: "Put the parts of a program together",
		Long: `link joins the parts that etc export --part I/N wrote, on any machines and in any order, to the very file
that one export would have written. Every part is checked; one that is damaged, missing, there twice, or of another
export is refused by its name.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if jobs < 0 || jobs > maxThreads {
				return usagef("--jobs %d, want 0 or more, at most %d", jobs, maxThreads)
			}
			if err := f.readKey(cmd); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
			defer stop()
			to := destination{path: output, kind: outfile.Program, inputs: append([]string{f.sign}, args...)}
			if to.stream(cmd) != nil {
				return usagef("--output %s: a program is written to a file only", output)
			}
			if f.key != nil {
				if err := checkSignatures(output, f.sign); err != nil {
					return err
				}
			}
			defer holdSignals()()
			if err := link(ctx, output, args, jobs, to.options(cmd)); err != nil {
				return err
			}
			info, err := os.Stat(output)
			if err != nil {
				return err
			}
			logf(cmd.ErrOrStderr(), "etc: linked %s to %s, %s", count(len(args), "part"), output,
				humanize.IBytes(uint64(info.Size())))
			return f.signed(cmd, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "model.pte", "file to write")
	cmd.Flags().IntVarP(&jobs, "jobs", "j", 0, "workers, 0 for one per CPU")
	cmd.Flags().StringVar(&f.sign, "sign", "",
		"private key of minisign to sign the file with; writes FILE.root and FILE.root.minisig")
	return cmd
}

func link(ctx context.Context, output string, parts []string, jobs int, o outfile.Options) error {
	err := codegen.Link(ctx, output, parts, jobs, o)
	if part := (*codegen.PartError)(nil); errors.As(err, &part) {
		return invalidError{err}
	}
	return err
}
