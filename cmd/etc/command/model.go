package command

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// modelFlags say how a language model is run.
type modelFlags struct {
	device, precision string
	threads           int
}

// add adds --device, --threads and --precision.
func (f *modelFlags) add(cmd *cobra.Command) {
	addDeviceFlags(cmd, &f.device, &f.threads)
	cmd.Flags().StringVar(&f.precision, "precision", "mixed", "fp32, mixed or strict")
}

// runner finds the engine and its options.
func (f modelFlags) runner() (engine.Engine, engine.Options, error) {
	precision, err := eval.ParsePrecision(f.precision)
	if err != nil {
		return nil, engine.Options{}, usageError{fmt.Errorf("--%w", err)}
	}
	if f.threads < 0 {
		return nil, engine.Options{}, usagef("--threads %d, want 0 or more", f.threads)
	}
	device, err := findEngine(f.device)
	return device, engine.Options{Precision: precision, Threads: f.threads}, err
}

// workers is the number of worker threads that the flags ask for.
func (f modelFlags) workers() int {
	if f.threads > 0 {
		return f.threads
	}
	return runtime.GOMAXPROCS(0)
}

// languageModel is an open file whose forward an engine has compiled.
type languageModel struct {
	*session.Model
	program *program.Program
}

// openModel opens a file and compiles its forward. What is no language model is an invalid file.
func openModel(path string, e engine.Engine, o engine.Options) (*languageModel, error) {
	p, err := program.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := p.Module("forward")
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	model, err := session.Load(m, e, o)
	if err != nil {
		return nil, errors.Join(invalidError{fmt.Errorf("%s: %w", path, err)}, p.Close())
	}
	return &languageModel{model, p}, nil
}

// Close frees the model and unmaps the file.
func (m *languageModel) Close() error { return errors.Join(m.Model.Close(), m.program.Close()) }
