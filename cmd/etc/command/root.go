package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Exit codes; scripts rely on them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // wrong flags or arguments
	exitInvalid = 3 // the input file is invalid
	exitMemory  = 4 // would not fit in memory
	// exitInternal is for what no input should cause: a fault of etc, of a device, or of a file that was cut meanwhile.
	exitInternal = 5
)

// exitCodes are the exit codes and what they mean, for the manual page.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitDone, "done"},
	{exitFailed, "failed; files differ (diff); interrupted"},
	{exitUsage, "wrong flags or arguments"},
	{exitInvalid, "an input file is invalid"},
	{exitMemory, "would not fit in memory"},
	{exitInternal, "internal: a fault of etc, of a device, or of a file that was cut while it was read"},
}

// usageError is an error of the command line: a flag, an argument, or what they ask of a file.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// memoryError is an error about memory that a plan would need.
type memoryError struct{ err error }

func (e memoryError) Error() string { return e.err.Error() }
func (e memoryError) Unwrap() error { return e.err }

// invalidError marks an error as one of an input file's content.
type invalidError struct{ err error }

func (e invalidError) Error() string { return e.err.Error() }
func (e invalidError) Unwrap() error { return e.err }

// Main runs the command line and gives the exit code. It prints the error, if there is one.
func Main(args []string) (code int) {
	fault.Readable()
	defer func() {
		if r := recover(); r != nil {
			err := fault.Of("", r)
			printError(err)
			code = exitCode(err)
		}
	}()
	if err := checkFiles(); err != nil {
		printError(err)
		return exitCode(err)
	}
	ctx, stop := watchSignals()
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		printError(err)
	}
	return exitCode(err)
}

// traceVariable makes an internal fault print where it happened.
const traceVariable = "ETC_TRACE"

// printError prints an error, and after an internal one in the same line what to do.
func printError(err error) {
	var internal *fault.Error
	var of *device.FaultError
	switch {
	case errors.As(err, &internal) && internal.Unreadable():
		logf(os.Stderr, "etc: internal: %v; see that nothing writes to the file while it is read, and run again", err)
	case errors.As(err, &internal):
		logf(os.Stderr, "etc: internal: %v; this is a defect of etc: please report it with the command and the file "+
			"(%s=1 prints where it is)", err, traceVariable)
	case errors.As(err, &of):
		logf(os.Stderr, "etc: internal: %v; run again, or with --device cpu (etc doctor tells of the devices)", err)
	case errors.Is(err, context.Canceled): // only signals end contexts here
		logf(os.Stderr, "etc: %s", strings.ReplaceAll(flagNames.Replace(err.Error()),
			context.Canceled.Error(), "interrupted"))
	default:
		logf(os.Stderr, "etc: %s", flagNames.Replace(err.Error()))
	}
	if internal != nil && os.Getenv(traceVariable) == "1" {
		os.Stderr.Write(internal.Stack)
	}
}

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	var usage usageError
	var target *outfile.TargetError
	var memory memoryError
	var invalid invalidError
	var internal *fault.Error
	var of *device.FaultError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &of) && strings.Contains(err.Error(), "OUT_OF_MEMORY"):
		return exitMemory
	case errors.Is(err, device.ErrUnavailable):
		return exitFailed
	case errors.As(err, &internal), errors.As(err, &of):
		return exitInternal
	case errors.As(err, &usage), errors.As(err, &target), errors.Is(err, kind.ErrUsage):
		return exitUsage
	case errors.As(err, &memory), errors.Is(err, kind.ErrMemory):
		return exitMemory
	case errors.As(err, &invalid), errors.Is(err, kind.ErrInvalid):
		return exitInvalid
	}
	return exitFailed
}

// newRoot builds the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "etc",
		Short: "Compile language models to ExecuTorch programs and run them",
		Long: `etc compiles language models to ExecuTorch programs (.pte) and runs them on CPUs and GPUs.

export makes a program of a checkpoint in the layout of Hugging Face, of a GGUF file, or of a model on the hub. run
answers prompts with it, and chats.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	info, _ := debug.ReadBuildInfo()
	root.Version = versionOf(info).String()
	root.SetVersionTemplate("{{.Version}}\n")
	// Flags take - or _.
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	root.AddCommand(newExport(), newLink(), newCache(), newRun(), newServe(), newExec(), newInspect(), newVerify(),
		newTokenize(), newTemplate(), newVersion(), newSynthetic(), newBench(), newEval(), newDiff(), newDoctor())
	root.AddCommand(newMan(root))
	//nolint:errcheck // nobody could be told
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd) })
	root.Example = examples["etc"]
	for _, c := range root.Commands() {
		c.Args = usageArgs(c.Args)
		c.Example = examples[c.Name()]
	}
	return root
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return argumentsError(cmd, args, err)
		}
		return nil
	}
}

// logf writes a line to standard error.
func logf(w io.Writer, format string, args ...any) {
	io.WriteString(w, shown(fmt.Sprintf(format, args...))+"\n")
} //nolint:errcheck // nobody could be told
