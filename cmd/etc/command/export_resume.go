package command

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/codegen"
)

// interruptibleExport makes an export one that Ctrl-C ends, and what ends processes in containers too, and that
// goes on where --resume asks for it.
func interruptibleExport(cmd *cobra.Command, f exportFlags, file *codegen.File) (context.Context, context.CancelFunc) {
	file.Resume = f.resume
	file.Log = func(message string) { logf(cmd.ErrOrStderr(), "etc: %s", message) }
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
	return beforeWriting(ctx, file), stop
}

// beforeWriting is called before a program is written. Tests set it.
var beforeWriting = func(ctx context.Context, _ *codegen.File) context.Context { return ctx }

// exportError gives an error of writing its kind: trying to resume another export is wrong usage.
func exportError(err error) error {
	if changed := (*codegen.ChangedError)(nil); errors.As(err, &changed) {
		return usageError{err}
	}
	return err
}
