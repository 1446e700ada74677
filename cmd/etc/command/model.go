package command

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// modelFlags say how a program is run.
type modelFlags struct {
	device, precision, level string
	threads                  int
	exact, noTune, verifyIR  bool
	deterministic            bool         // of commands that have addDeterministic
	storage                  storageFlags // of commands that have addStorage
	disablePasses            []string
}

// add adds --device, --threads, --cpu-features, --exact, --no-tune and --precision, which has this default.
func (f *modelFlags) add(cmd *cobra.Command, precision string) {
	fl := cmd.Flags()
	fl.StringVar(&f.device, "device", "auto", "what runs the program: auto, "+strings.Join(devices.Names(), ", "))
	fl.IntVar(&f.threads, "threads", 0, "worker threads, 0 for one per CPU")
	fl.StringVar(&f.level, "cpu-features", "",
		"kernels of device cpu: "+strings.Join(kernel.Levels(), ", ")+" (default: the last of them)")
	fl.BoolVar(&f.exact, "exact", false, "keep activations in float32 where device cpu would round them to 8 bits")
	fl.BoolVar(&f.noTune, "no-tune", false,
		"take the default kernels of a GPU: neither measure what is fastest on it nor use what was measured")
	fl.StringVar(&f.precision, "precision", precision, "fp32, mixed or strict")
	fl.StringSliceVar(&f.disablePasses, "disable-pass", nil,
		"do not run these passes of the runtime, to measure what they are worth")
	fl.BoolVar(&f.verifyIR, "verify-ir", false, "run the IR verifier after every pass of the runtime")
	fl.MarkHidden("disable-pass") //nolint:errcheck // it is there
	fl.MarkHidden("verify-ir")    //nolint:errcheck // it is there
}

// maxThreads bounds --threads and --jobs: more than processors have cores for, and fewer than cost memory.
const maxThreads = 4096

// runner finds the engine and its options, and chooses the kernels of the CPU engine for the whole process.
func (f modelFlags) runner() (engine.Engine, engine.Options, error) {
	precision, err := eval.ParsePrecision(f.precision)
	if err != nil {
		return nil, engine.Options{}, usageError{fmt.Errorf("--%w", err)}
	}
	if f.threads < 0 || f.threads > maxThreads {
		return nil, engine.Options{}, usagef("--threads %d, want 0 or more, at most %d", f.threads, maxThreads)
	}
	device, err := findEngine(f.device)
	if err != nil {
		return nil, engine.Options{}, err
	}
	if f.level != "" {
		if f.device != "auto" && f.device != "cpu" || precision == eval.Strict {
			return nil, engine.Options{},
				usagef("--cpu-features has no meaning with --device %s --precision %s", f.device, f.precision)
		}
		if err := kernel.SetLevel(f.level); err != nil {
			return nil, engine.Options{}, usagef("--cpu-features: %w", err)
		}
	}
	for _, name := range f.disablePasses {
		if err := checkRuntimePass("--disable-pass", name, device); err != nil {
			return nil, engine.Options{}, err
		}
	}
	if device, err = f.storage.storing(device, precision); err != nil {
		return nil, engine.Options{}, err
	}
	return device, engine.Options{Warn: func(text string) { logf(os.Stderr, "etc: %s", text) }, Precision: precision,
		Threads: f.threads, Exact: f.exact, NoTune: f.noTune,
		Deterministic: f.deterministic, DisablePasses: f.disablePasses, VerifyIR: f.verifyIR}, nil
}

// checkRuntimePass checks that a flag names a pass of the runtime's table for a device.
func checkRuntimePass(flag, name string, e engine.Engine) error {
	l, ok := e.(engine.Lowerer)
	if !ok {
		return usagef("%s %q: --device %s runs the operations of the graph as they stand and has no passes", flag, name,
			e.Name())
	}
	if names := l.PassNames(); !slices.Contains(names, name) || flag == "--disable-pass" && name == engine.BindShapes {
		return usagef("%s %q, want one of %s", flag, name, strings.Join(names, ", "))
	}
	return nil
}

// workers returns the number of worker threads that the flags ask for.
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
	need    int64 // bytes that it takes with one session
}

// loadModel opens a file and compiles its forward with load. A file that is not a language model is an invalid file.
// taken is the memory of the command's other models, in bytes; a model that does not fit beside them is refused.
func loadModel(path string, e engine.Engine, o engine.Options,
	load func(*ir.Module, engine.Engine, engine.Options) (*session.Model, error), taken int64) (*languageModel, error) {
	p, err := openProgram(path)
	if err != nil {
		return nil, err
	}
	m, err := p.Module("forward")
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	model, err := load(m, e, o)
	if err != nil {
		return nil, errors.Join(loadError(path, err), p.Close())
	}
	need := needOf(m, model.MaxSeqLen, e, o.Precision).Need(1)
	if err := checkMemory(path, m, model, e, o.Precision, 1, taken); err != nil {
		return nil, errors.Join(err, model.Close(), p.Close())
	}
	return &languageModel{model, p, need}, nil
}

// loadError returns an error of loading a program: of the file, unless the device is not there.
func loadError(path string, err error) error { return execution.LoadError(path, err) }

// openLanguage opens a program that is a language model, and returns its forward method and its description.
func openLanguage(path string) (p *program.Program, m *ir.Module, d session.Description, err error) {
	if p, err = openProgram(path); err != nil {
		return nil, nil, d, err
	}
	if m, err = p.Module("forward"); err == nil {
		if d, err = session.Describe(m); err != nil {
			err = invalidError{fmt.Errorf("%s: %w", path, err)}
		}
	}
	if err != nil {
		return nil, nil, d, errors.Join(err, p.Close())
	}
	return p, m, d, nil
}

// Close frees the model and unmaps the file.
func (m *languageModel) Close() error { return errors.Join(m.Model.Close(), m.program.Close()) }
