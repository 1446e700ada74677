package command

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/calibration"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/internal/weights"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
)

type exportFlags struct {
	input                              inputFlags
	output, outputDir, backend, emit   string
	linear, embedding, recipe, method  string
	group, linearGroup, embeddingGroup int
	sample, portable, verifyIR         bool
	maxSeqLen, maxChunk, jobs          int
	printAfter, weights, draft         string
	targetBits                         float64
	calibrate                          string
	calibration                        *calibration.Text // what --calibrate has made; nil for none
	choice                             weights.Choice    // what is asked for of the weights
	disablePasses                      []string
	writeFlags
}

func newExport() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export [MODEL]",
		Short: "Compile a checkpoint to an ExecuTorch program",
		Long: `export compiles a checkpoint to one .pte file for ExecuTorch's MLX delegate: weights, graph, tokenizer and
defaults. It reads and writes in bounded memory.

MODEL is a directory in the layout of Hugging Face, as its authors, mlx-lm or ExecuTorch's quantize_and_save
wrote it (default: the current one), a GGUF file, or an id on the Hugging Face hub, org/name[@revision].
Weights that are quantized already stay as they are; --qlinear and --qembedding are for the others.

MODEL may also be an IR text (as --emit ir writes it) with --weights FILE.pte: the program of the text is
written with the weights of the file.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runExport(cmd, args, f) },
	}
	fl := cmd.Flags()
	f.input.register(cmd)
	fl.StringVarP(&f.output, "output", "o", "model.pte",
		"file to write; with --emit ir, json or recipe the default is model.ir, model.json or model.recipe")
	fl.StringVar(&f.outputDir, "output-dir", "", "directory to write model.pte to, or what --emit asks for")
	fl.StringVar(&f.backend, "backend", "mlx",
		"mlx (or metal): forward gives logits; cuda: forward gives a token, for etc run --device cuda")
	fl.StringVar(&f.linear, "qlinear", "none", "linear weights: none, 4w, 8w, mxfp4, mxfp8 or nvfp4")
	fl.IntVar(&f.group, "group-size", 64, "elements that share a scale: 32, 64 or 128")
	fl.IntVar(&f.linearGroup, "qlinear-group-size", 64, "same as --group-size")
	fl.StringVar(&f.embedding, "qembedding", "none", "embedding weights: none, 4w, 8w, mxfp4 or mxfp8")
	fl.IntVar(&f.embeddingGroup, "qembedding-group-size", 64,
		"elements of an embedding row that share a scale: 32, 64 or 128")
	fl.StringVar(&f.recipe, "recipe", "default", "which weights get which bits: default, executorch, or a recipe file")
	fl.Float64Var(&f.targetBits, "target-bpw", 0,
		"choose the bits of each linear weight by measured error, so many a weight on average; "+
			"with --calibrate by what quantizing each alone does to predictions of the text")
	fl.StringVar(&f.method, "quant-method", "best",
		"best, minmax or hqq (mxfp4, mxfp8 and nvfp4: minmax, which is MLX's own and their default, or best); by a "+
			"text (--calibrate) auto, learned, gptq or weighted")
	fl.StringVar(&f.calibrate, "calibrate", calibration.Default,
		"text to choose linear weights by: default for the one in this program, a text file, or .jsonl of {\"text\": "+
			"...} and {\"messages\": [...]}; --quant-method is auto then")
	fl.BoolVar(&f.sample, "sample", false, "fuse the sampling head: forward gives a token")
	fl.BoolVar(&f.portable, "portable", false, "write the gated delta rule as a scan instead of a Metal kernel")
	fl.IntVar(&f.maxSeqLen, "max-seq-len", 4096, "positions that the caches hold")
	fl.IntVar(&f.maxChunk, "max-prefill-chunk", 0, "most tokens of one call (default: the architecture's)")
	f.addDraft(cmd)
	fl.IntVarP(&f.jobs, "jobs", "j", 0, "workers, 0 for one per CPU")
	fl.StringVar(&f.emit, "emit", "pte",
		"what to write: pte, ir for the text of the lowered module, json for the tables of the file without weights, "+
			"or recipe for the rules (--output - for standard output)")
	fl.StringVar(&f.weights, "weights", "", "file with the weights of an IR text")
	fl.StringVar(&f.printAfter, "print-ir-after", "",
		"print the IR after a pass to standard error: "+strings.Join(passes.Names(), ", "))
	f.writeFlags.add(cmd)
	fl.StringSliceVar(&f.disablePasses, "disable-pass", nil, "do not run these passes, to measure what they are worth")
	fl.MarkHidden("disable-pass") //nolint:errcheck // it is there
	fl.BoolVar(&f.verifyIR, "verify-ir", false, "run the verifier after every pass")
	return cmd
}

func runExport(cmd *cobra.Command, args []string, f exportFlags) (err error) {
	dir, err := f.input.source(args)
	if err != nil {
		return err
	}
	if err := f.complete(cmd, dir); err != nil {
		return err
	}
	if strings.HasSuffix(dir, ".ir") {
		return exportText(cmd, dir, f)
	}
	if f.weights != "" {
		return usagef("--weights goes with an IR text; %s is a checkpoint", dir)
	}
	options, err := f.options(cmd)
	if err != nil {
		return err
	}
	c, err := f.openInput(cmd, dir)
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := f.build(cmd, c, options)
	if err != nil {
		return err
	}
	if f.calibration, err = f.calibrated(cmd, c, options); err != nil {
		return passError(dir, err)
	}
	defer func() { err = f.calibration.Close(err) }()
	if err := passes.Run(m, options); err != nil {
		return passError(dir, err)
	}
	if err := f.checkGiven(cmd, dir, options.Report); err != nil {
		return err
	}
	f.logCompiled(cmd, c, options)
	switch f.emit {
	case "ir":
		return f.writeText(cmd, dir, c, func(w io.Writer) error { return ir.Print(w, m) })
	case "recipe":
		return f.writeText(cmd, dir, c, func(w io.Writer) error {
			_, err := io.WriteString(w, options.Recipe.String())
			return err
		})
	}
	return f.emitProgram(cmd, dir, c, m, options)
}

// complete fills in what flags leave open, and refuses what is out of range or does not go together.
func (f *exportFlags) complete(cmd *cobra.Command, dir string) (err error) {
	if _, known := emitted[f.emit]; !known {
		return usagef("--emit %q, want pte, ir, json or recipe", f.emit)
	}
	if f.output, err = f.target(cmd); err != nil {
		return err
	}
	if err := f.resolveGroups(cmd); err != nil {
		return err
	}
	if err := f.checkOutput(cmd, dir); err != nil {
		return err
	}
	if f.jobs < 0 || f.jobs > maxThreads {
		return usagef("--jobs %d, want 0 or more, at most %d", f.jobs, maxThreads)
	}
	if anyChanged(cmd, "max-seq-len") && f.maxSeqLen < 2 {
		return usagef("--max-seq-len %d, want at least 2", f.maxSeqLen)
	}
	if anyChanged(cmd, "max-prefill-chunk") && f.maxChunk < 1 {
		return usagef("--max-prefill-chunk %d, want at least 1", f.maxChunk)
	}
	return f.writeFlags.check(cmd, f.emit)
}

// build makes the module of a checkpoint, with its draft and its stop tokens, and the recipe for it.
func (f *exportFlags) build(cmd *cobra.Command, c *loaders.Checkpoint, options *passes.Options) (*ir.Module, error) {
	if err := f.setDraft(cmd, c); err != nil {
		return nil, err
	}
	if err := f.setRecipe(cmd, c, options); err != nil {
		return nil, err
	}
	limits := loaders.Options{MaxPrefillChunk: f.maxChunk}
	if anyChanged(cmd, "max-seq-len") { // else it is less where the model was made for less
		limits.MaxSeqLen = f.maxSeqLen
	}
	m, err := c.Build(limits)
	if err != nil {
		return nil, usageError{err}
	}
	return m, prompt.SetStopTokens(logTo(cmd.ErrOrStderr()), c, m)
}

// logCompiled tells of the checkpoint and of the recipe what its author may not know.
func (f *exportFlags) logCompiled(cmd *cobra.Command, c *loaders.Checkpoint, options *passes.Options) {
	f.logInput(cmd, c)
	if f.recipe != "default" && f.recipe != "executorch" {
		for _, rule := range options.Recipe.Unused(options.Report) {
			logf(cmd.ErrOrStderr(), "etc: recipe %s: the rule %q decides about no weight: no name matches, "+
				"or rules before it do; --emit recipe and etc inspect --weights tell the names",
				options.Recipe.Name, rule)
		}
	}
	skipped := c.Skipped()
	for _, kind := range slices.Sorted(maps.Keys(skipped)) {
		logf(cmd.ErrOrStderr(), "etc: skipped %s", count(skipped[kind], kind+" tensor"))
	}
}

// emitProgram writes the program, or its tables.
func (f *exportFlags) emitProgram(cmd *cobra.Command, dir string, c *loaders.Checkpoint, m *ir.Module,
	options *passes.Options) error {
	file, err := newFile(c, m, options, *f)
	if err != nil {
		return err
	}
	file.Target = f.destination(dir, sourceFiles(c)...).options(cmd)
	if f.emit == "json" {
		return f.writeText(cmd, dir, c, func(w io.Writer) error { return codegen.WriteJSON(w, file) })
	}
	cached, err := f.useCache(cmd, &file, c)
	if err != nil {
		return err
	}
	defer cached()
	if done, err := f.prepare(cmd, &file, m, options.Report); done {
		return err
	}
	if err := writeProgram(cmd, *f, file); err != nil {
		return err
	}
	printQuality(cmd.ErrOrStderr(), options.Report)
	if card := f.calibration.Card(); card != "" {
		logf(cmd.ErrOrStderr(), "etc: %s", card)
	}
	if anyChanged(cmd, "target-bpw") {
		logf(cmd.ErrOrStderr(), "etc: linear weights take %.3f bits on average, as --target-bpw asks; "+
			"\"all\" counts embeddings too (--qembedding)", linearBits(options.Report))
	}
	return nil
}

// passError gives an error of the passes its kind.
func passError(dir string, err error) error {
	err = fmt.Errorf("%s: %w", dir, err)
	scheme, budget := (*passes.SchemeError)(nil), (*passes.BudgetError)(nil)
	if errors.As(err, &scheme) || errors.As(err, &budget) { // what the flags ask for
		return usageError{err}
	}
	return err
}

// invalidInput marks an error of a checkpoint's content; what the system says stays a failure.
func invalidInput(err error) error {
	if os.IsNotExist(err) || os.IsPermission(err) {
		return err
	}
	return invalidError{err}
}

// target returns the file to write.
func (f exportFlags) target(cmd *cobra.Command) (string, error) {
	name := emitted[f.emit].file
	if f.part != "" {
		name = f.partName()
	}
	if f.outputDir == "" {
		if !anyChanged(cmd, "output") {
			return name, nil
		}
		return f.output, nil
	}
	if anyChanged(cmd, "output") {
		return "", usagef("two outputs: --output %s and --output-dir %s", f.output, f.outputDir)
	}
	if err := os.MkdirAll(f.outputDir, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(f.outputDir, name), nil
}

// options reads the flags that the passes need, the recipe aside.
func (f exportFlags) options(cmd *cobra.Command) (*passes.Options, error) {
	o := &passes.Options{Sample: f.sample, Portable: f.portable, Verify: f.verifyIR, Disable: f.disablePasses}
	switch f.backend {
	case "mlx", "metal":
	case "cuda":
		o.Backend = passes.CUDA
		if f.sample {
			return nil, usagef("--sample with --backend cuda: forward keeps the authors' sampler there")
		}
	default:
		return nil, usagef("--backend %q, want mlx, metal or cuda", f.backend)
	}
	for _, p := range f.disablePasses {
		if err := checkPass("--disable-pass", p); err != nil {
			return nil, err
		}
	}
	if f.printAfter == "" {
		return o, nil
	}
	if err := checkPass("--print-ir-after", f.printAfter); err != nil {
		return nil, err
	}
	o.After = func(pass string, m *ir.Module) error {
		if pass != f.printAfter {
			return nil
		}
		return ir.Print(&shownWriter{w: cmd.ErrOrStderr()}, m)
	}
	return o, nil
}

// checkPass checks that a flag names a pass.
func checkPass(flag, name string) error {
	if !slices.Contains(passes.Names(), name) {
		return usagef("%s %q, want one of %s", flag, name, strings.Join(passes.Names(), ", "))
	}
	return nil
}

// resolveGroups settles the group sizes, which have several flags and defaults.
func (f *exportFlags) resolveGroups(cmd *cobra.Command) error {
	for _, x := range []struct {
		flag string
		size int
	}{{"group-size", f.group}, {"qlinear-group-size", f.linearGroup}, {"qembedding-group-size", f.embeddingGroup}} {
		if x.size != 32 && x.size != 64 && x.size != 128 {
			return usagef("--%s %d, want 32, 64 or 128", x.flag, x.size)
		}
	}
	if anyChanged(cmd, "qlinear-group-size") {
		if anyChanged(cmd, "group-size") && f.group != f.linearGroup {
			return usagef("--group-size %d and --qlinear-group-size %d", f.group, f.linearGroup)
		}
		f.group = f.linearGroup
	}
	f.choice = f.chooseWeights(cmd)
	return nil
}

// exportText writes the program of an IR text with the weights of a file. It is long because it is one sequence of
// steps, each of which needs what those before it made.
func exportText(cmd *cobra.Command, path string, f exportFlags) error {
	if f.weights == "" {
		return usagef("%s is an IR text; --weights FILE.pte names the file with its weights", path)
	}
	for _, flag := range []string{"backend", "qlinear", "group-size", "qlinear-group-size", "qembedding",
		"qembedding-group-size", "recipe",
		"quant-method", "calibrate", "target-bpw", "sample", "portable", "max-seq-len", "max-prefill-chunk", "draft",
		"cache", "emit", "print-ir-after", "verify-ir", "disable-pass"} {
		if anyChanged(cmd, flag) {
			return usagef("--%s goes with a checkpoint; %s is an IR text, which is written as it is", flag, path)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m, err := ir.Parse(string(b))
	if err != nil {
		return invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	p, err := openProgram(f.weights)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Bind(m); err != nil {
		return err
	}
	file := codegen.File{Module: m, Target: f.destination(path).options(cmd)}
	stored, err := readStored(p, m, f.weights)
	if err != nil {
		return err
	}
	defer stored.Close()
	if file.Identity, err = record.IdentityOfText(f.weights); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, c := range m.Constants {
		names[c.Name] = true
	}
	named := p.File.NamedData()
	for i, n := range named {
		if names[n.Key] {
			continue
		}
		raw, _ := p.File.Lookup(n.Key)
		if n.Key == keyBuild && i == len(named)-1 {
			if file.Record, err = record.OfText(raw, file); err != nil {
				return err
			}
			if file.Record != nil {
				continue
			}
		}
		file.Extra = append(file.Extra, codegen.NamedBytes{Key: n.Key, Bytes: raw})
	}
	if done, err := f.prepare(cmd, &file, m, nil); done {
		return err
	}
	return writeProgram(cmd, f, file)
}

// writeProgram writes the file, with a progress bar where somebody watches.
func writeProgram(cmd *cobra.Command, f exportFlags, file codegen.File) error {
	ctx, stop := interruptibleExport(cmd, f, &file)
	defer stop()
	defer holdSignals()()
	var bar *progressbar.ProgressBar
	if stderr, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(stderr.Fd())) {
		file.Progress = func(written, total int64) {
			if bar == nil {
				bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(stderr),
					progressbar.OptionShowBytes(true),
					progressbar.OptionSetDescription(f.output), progressbar.OptionClearOnFinish(),
					progressbar.OptionUseANSICodes(true))
			}
			bar.Set64(written) //nolint:errcheck // a bar that cannot be drawn is no reason to stop
		}
	}
	if err := f.write(ctx, f.output, file); err != nil {
		if bar != nil {
			bar.Clear() //nolint:errcheck // the error is on a line of its own then
		}
		return err
	}
	info, err := os.Stat(f.output)
	if err != nil {
		return err
	}
	logf(cmd.ErrOrStderr(), "etc: wrote %s, %s", f.output, humanize.IBytes(uint64(info.Size())))
	return f.signed(cmd, f.output)
}
