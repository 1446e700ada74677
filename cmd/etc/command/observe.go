package command

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/profile"
	"github.com/etc-ml/etc/runtime/reference"
)

// observeFlags ask what the time goes into.
type observeFlags struct {
	profile bool
	trace   string
}

func (f *observeFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.profile, "profile", false,
		"print to standard error where the time went, by kind of operation and by layer, and how near that is to "+
			"what the machine can do")
	cmd.Flags().StringVar(&f.trace, "trace", "", "write a trace of every step to this file, for Perfetto or Chrome")
}

// around runs something whose programs the flags ask about: it sets o.Observe before and writes what was
// observed after. program is the file that is run.
func (f observeFlags) around(cmd *cobra.Command, e engine.Engine, o *engine.Options, program string,
	run func() error) error {
	if !f.profile && f.trace == "" {
		return run()
	}
	switch {
	case e.Name() == (reference.Engine{}).Name():
		return usagef("--profile and --trace tell of the steps of a plan; device %s runs the operations of the graph "+
			"as they stand", e.Name())
	case o.Precision == eval.Strict:
		return usagef("--profile and --trace tell of the steps of a plan; --precision strict runs on device " +
			"reference, which has none")
	}
	trace := destination{path: f.trace, kind: outfile.JSON, inputs: []string{program}}
	if trace.isOutput(cmd) {
		return usagef("--trace %s: what %s prints goes to standard output; name a file", f.trace, cmd.Name())
	}
	if err := trace.check(cmd); err != nil {
		return err
	}
	var p profile.Profile
	if f.profile {
		o.Observe = p.Observe
	}
	inner := run
	if f.trace != "" {
		inner = func() error {
			return trace.write(cmd, func(w io.Writer) error {
				t := profile.NewTrace(w)
				o.Observe = t.Observe
				if f.profile {
					o.Observe = func(s *engine.Step) {
						p.Observe(s)
						t.Observe(s)
					}
				}
				err := run()
				return errors.Join(err, t.Close())
			})
		}
	}
	if err := inner(); err != nil {
		return err
	}
	if !f.profile {
		return nil
	}
	var c profile.Ceiling
	if e.Name() == (cpu.Engine{}).Name() {
		c.Threads = modelFlags{threads: o.Threads}.workers()
		c.BytesPerSecond, c.OperationsPerSecond = cpu.Probe(*o)
	}
	return p.WriteText(cmd.ErrOrStderr(), c)
}
