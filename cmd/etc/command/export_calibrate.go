package command

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// How a calibration text is cut. All of it is part of the result.
const (
	calibrationWindow = 512 // tokens
	// calibrationWindows bounds the windows; of a longer text they are spread evenly.
	calibrationWindows = 96
	// heldOutEvery is how many windows there are to one that is held out.
	heldOutEvery = 12
	// defaultCorpus is the text in this program.
	defaultCorpus = "default"
)

// calibration is what --calibrate asks for: the text, and what it made of the checkpoint.
type calibration struct {
	flag   string // that names the text
	name   string // of the text
	hash   string // of its bytes
	text   []byte
	result *calibrate.Result
	dir    string
	keep   func() bool // whether the directory stays when the export fails
}

func (c *calibration) record() *record.Calibration {
	if c == nil {
		return nil
	}
	r := &record.Calibration{Text: c.name, SHA256: c.hash}
	if c.result != nil {
		r.Quality = c.result.Quality
	}
	return r
}

// close removes what the calibration has left, but for an export to go on with.
func (c *calibration) close(err error) error {
	if c == nil || c.dir == "" {
		return err
	}
	if c.result != nil {
		err = errors.Join(err, c.result.Close())
	}
	if err != nil && c.keep() {
		return err
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// openCalibration reads the text of --calibrate; nil where nothing asks for one.
func (f exportFlags) openCalibration(cmd *cobra.Command, r passes.Recipe) (*calibration, error) {
	calibrated := slices.ContainsFunc(r.Rules, func(rule passes.Rule) bool {
		return rule.Scheme != nil && rule.Scheme.Method.Calibrated() && rule.Kind == passes.LinearWeight
	})
	if !calibrated {
		if anyChanged(cmd, "calibrate") {
			return nil, usagef("--calibrate %s: the recipe has no linear weight whose method needs a text; give --qlinear 4w, and --quant-method auto, learned, gptq or weighted", f.calibrate)
		}
		if _, ok := calibratedMethods[f.method]; ok {
			return nil, usagef("--quant-method %s chooses linear weights by a text, and none is quantized: give --qlinear 4w", f.method)
		}
		return nil, nil
	}
	for _, x := range []struct {
		flag string
		set  bool
	}{{"--plan", f.plan}, {"--emit " + f.emit, f.emit != "pte"}} {
		if x.set {
			return nil, usagef("%s with a method that is calibrated: sizes, rules and program are those of --quant-method best; ask with that", x.flag)
		}
	}
	c, err := readCalibration("--calibrate", f.calibrate)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(c.text)
	c.hash = hex.EncodeToString(sum[:])
	return c, nil
}

// readCalibration reads the text that a flag names.
func readCalibration(flag, name string) (*calibration, error) {
	c := &calibration{flag: flag, name: name, text: calibrate.Corpus()}
	if name != defaultCorpus {
		var err error
		if c.text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		c.name = filepath.Base(name)
	}
	return c, nil
}

// run calibrates a checkpoint, as its own module of short windows.
func (c *calibration) run(cmd *cobra.Command, f exportFlags, in *loaders.Checkpoint,
	options passes.Options) (passes.Recipe, error) {
	windows, held, err := c.windows(f, in)
	if err != nil {
		return options.Recipe, err
	}
	m, err := in.Build(loaders.Options{MaxSeqLen: calibrationWindow})
	if err != nil {
		return options.Recipe, usageError{err}
	}
	options.Report = nil
	if options.Allocate != nil {
		if options.Damage, err = c.damage(cmd, f, in, options, windows); err != nil {
			return options.Recipe, err
		}
	}
	recipe, err := calibrate.Prepare(m, options)
	if err != nil {
		return recipe, err
	}
	if err := f.checkCalibrationMemory(cmd, m, len(windows)+2*len(held)); err != nil {
		return recipe, err
	}
	c.dir = f.output + ".calibration"
	c.keep = func() bool { return f.resume }
	if !f.resume {
		if err := os.RemoveAll(c.dir); err != nil {
			return recipe, err
		}
	}
	identity, err := c.identity(in, recipe)
	if err != nil {
		return recipe, err
	}
	logf(cmd.ErrOrStderr(), "etc: calibrating with %s, %s, and %d held out", c.name,
		count(len(windows), "window")+fmt.Sprintf(" of %d tokens", calibrationWindow), len(held))
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	shown, start := time.Now(), time.Now()
	c.result, err = calibrate.Run(ctx, m, calibrate.Options{Windows: windows, HeldOut: held, Recipe: recipe, Dir: c.dir,
		Identity: identity, Jobs: f.jobs,
		Progress: func(done, total int, name string) {
			if time.Since(shown) > calibrationNews {
				shown = time.Now()
				logf(cmd.ErrOrStderr(), "etc: calibrated %s, %.0f %% in %s", name, 100*float64(done)/float64(total),
					time.Since(start).Round(time.Second))
			}
		}})
	if errors.Is(err, context.Canceled) && f.resume {
		err = fmt.Errorf("%w; --resume goes on from %s", err, c.dir)
	}
	return recipe, err
}

// How much of the text tells the damage of quantization: so many windows, spread over it, and so many tokens of each.
// They are part of the result.
const (
	damageWindows = 4
	damageTokens  = 256
)

// damage measures what the predictions suffer when one weight alone is quantized.
func (c *calibration) damage(cmd *cobra.Command, f exportFlags, in *loaders.Checkpoint, o passes.Options,
	windows [][]int) (map[string]float64, error) {
	m, err := in.Build(loaders.Options{MaxSeqLen: damageTokens})
	if err != nil {
		return nil, usageError{err}
	}
	allocate := o.Allocate
	o.Allocate = nil
	if _, err := calibrate.Prepare(m, o); err != nil {
		return nil, err
	}
	var text [][]int
	n := min(damageWindows, len(windows))
	for i := range n {
		w := windows[i*len(windows)/n]
		text = append(text, w[:min(len(w), damageTokens)])
	}
	tried := func(name string, cols int) *quantize.Scheme {
		if o.Recipe.Names(name) {
			return nil
		}
		return allocate.Tried(cols)
	}
	need := calibrate.DamageMemory(m, n*damageTokens, tried)
	if limit, err := f.limit(cmd); err != nil || limit > 0 && need > limit {
		return nil, cmp.Or(err, error(memoryError{fmt.Errorf(
			"--max-ram %s: measuring the damage of each weight needs %s (--max-ram %d)",
			f.maxRAM, humanize.IBytes(uint64(need)), need)}))
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logf(cmd.ErrOrStderr(), "etc: measuring the damage of each weight on %s of %s", count(n, "window"), c.name)
	return calibrate.Damage(ctx, m, calibrate.DamageOptions{Windows: text, Jobs: f.jobs, Scheme: tried})
}

// calibrationNews is how often a calibration tells how far it is.
const calibrationNews = 10 * time.Second

// identity stands for all that the quantized weights follow from.
func (c *calibration) identity(in *loaders.Checkpoint, r passes.Recipe) (string, error) {
	properties, err := record.Identity(record.Record{Tool: toolVersion}, in)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d %d %d\n%s\n", c.hash, calibrationWindow, calibrationWindows, heldOutEvery,
		strings.Join(r.Lines(), "\n"))
	for _, p := range properties {
		if !p.Local {
			fmt.Fprintf(h, "%s: %s\n", p.Name, p.Value)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkCalibrationMemory refuses what --max-ram does not allow.
func (f exportFlags) checkCalibrationMemory(cmd *cobra.Command, m *ir.Module, windows int) error {
	limit, err := f.limit(cmd)
	if err != nil || limit == 0 {
		return err
	}
	if need := calibrate.Memory(m, windows*calibrationWindow); need > limit {
		return memoryError{fmt.Errorf("--max-ram %s: calibration needs %s (--max-ram %d)", f.maxRAM,
			humanize.IBytes(uint64(need)), need)}
	}
	return nil
}

// windows cuts the text into windows, and takes some out.
func (c *calibration) windows(f exportFlags, in *loaders.Checkpoint) (windows, held [][]int, err error) {
	if in.Model.Files.Tokenizer == nil {
		return nil, nil, usagef("--calibrate: %s has no %s to make tokens of the text with", in.Model.Dir,
			huggingface.TokenizerFile)
	}
	t, err := tokenizer.Parse(in.Model.Files.Tokenizer, filepath.Join(in.Model.Dir, huggingface.TokenizerFile))
	if err != nil {
		return nil, nil, invalidError{err}
	}
	ids, err := c.tokens(t, in)
	if err != nil {
		return nil, nil, err
	}
	windows, held = divide(ids, specialPrefix(t))
	if len(windows) == 0 || len(windows[0]) == 0 {
		return nil, nil, usagef("--calibrate %s: the text has no tokens", f.calibrate)
	}
	return windows, held, nil
}

// divide cuts tokens into windows that begin with prefix, and takes some out.
func divide(ids, prefix []int) (windows, held [][]int) {
	var all [][]int
	for part := range slices.Chunk(ids, calibrationWindow-len(prefix)) {
		if len(prefix)+len(part) == calibrationWindow || len(all) == 0 {
			all = append(all, slices.Concat(prefix, part))
		}
	}
	n := min(len(all), calibrationWindows)
	for i := range n {
		w := all[i*len(all)/n]
		if i%heldOutEvery == heldOutEvery/2 {
			held = append(held, w)
		} else {
			windows = append(windows, w)
		}
	}
	return windows, held
}

// document is a line of a calibration text in JSON: a text, or a conversation for the model's chat template.
type document struct {
	Text     *string        `json:"text"`
	Messages []chat.Message `json:"messages"`
}

// tokens are those of the text: of its lines where it is JSON, else of all of it.
func (c *calibration) tokens(t *tokenizer.Tokenizer, in *loaders.Checkpoint) ([]int, error) {
	if !utf8.Valid(c.text) {
		return nil, invalidError{fmt.Errorf("%s %s: not UTF-8 text", c.flag, c.name)}
	}
	if c.name != defaultCorpus && !strings.HasSuffix(c.name, ".jsonl") {
		return t.Encode(string(c.text), tokenizer.EncodeOptions{}), nil
	}
	render, err := conversations(in)
	if err != nil {
		return nil, err
	}
	var ids []int
	lines := json.NewDecoder(bytes.NewReader(c.text))
	for n := 1; ; n++ {
		var d document
		if err := lines.Decode(&d); errors.Is(err, io.EOF) {
			return ids, nil
		} else if err != nil {
			return nil, invalidError{fmt.Errorf("%s %s, document %d: %w", c.flag, c.name, n, err)}
		}
		switch {
		case d.Text != nil:
			ids = append(ids, t.Encode(*d.Text, tokenizer.EncodeOptions{})...)
		case len(d.Messages) > 0:
			text, err := render(d.Messages)
			if err != nil {
				return nil, invalidError{fmt.Errorf("%s %s, document %d: %w", c.flag, c.name, n, err)}
			}
			ids = append(ids, t.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})...)
		default:
			return nil, invalidError{fmt.Errorf("%s %s, document %d: want an object with \"text\" or \"messages\"",
				c.flag, c.name, n)}
		}
	}
}

// conversations renders conversations by the checkpoint's chat template; without one, their contents are paragraphs.
func conversations(in *loaders.Checkpoint) (func([]chat.Message) (string, error), error) {
	if in.Model.ChatTemplate == "" {
		return func(messages []chat.Message) (string, error) {
			var b strings.Builder
			for _, m := range messages {
				b.WriteString(m.Content + "\n\n")
			}
			return b.String(), nil
		}, nil
	}
	parsed, err := template.Parse(huggingface.ChatTemplateFile, in.Model.ChatTemplate)
	if err != nil {
		return nil, invalidError{err}
	}
	tokens, err := prompt.SpecialTokens(in)
	if err != nil {
		return nil, err
	}
	t := &prompt.Template{Parsed: parsed, Tokens: tokens}
	now := func() time.Time { return time.Unix(0, 0).UTC() } // the same tokens on every day
	return func(messages []chat.Message) (string, error) { return t.RenderAt(now, messages, false, nil) }, nil
}

// calibrated sets what the passes need of a calibration, where the recipe asks for one.
func (f exportFlags) calibrated(cmd *cobra.Command, in *loaders.Checkpoint, o *passes.Options) (*calibration, error) {
	r := o.Recipe
	if o.Allocate != nil {
		for _, s := range o.Allocate.Schemes {
			r.Rules = append(slices.Clip(r.Rules), passes.Rule{Kind: passes.LinearWeight, Scheme: &s})
		}
	}
	c, err := f.openCalibration(cmd, r)
	if c == nil || err != nil {
		return nil, err
	}
	if in.Prequantized() {
		return nil, usagef("--quant-method %s: %s holds weights that are quantized already, which calibration cannot run", f.method, in.Model.Dir)
	}
	recipe, err := c.run(cmd, f, in, *o)
	if err != nil {
		return nil, c.close(err)
	}
	o.Recipe, o.Allocate, o.Calibration = recipe, nil, c.result
	return c, nil
}

// printCalibration prints the quality card of a calibration.
func printCalibration(out io.Writer, c *calibration) {
	if c == nil || c.result.Quality == nil {
		return
	}
	q := c.result.Quality
	logf(out, "etc: on %s of %s that were held out, against the checkpoint: KL divergence %.5f mean, %.5f median, %.4f 99th percentile; same most likely token %.1f %%; perplexity %.3f, the checkpoint's %.3f",
		count(q.Tokens, "token"), c.name, q.Mean, q.Median, q.P99, 100*q.Top1, q.Perplexity, q.Reference)
}

// calibratedMethods are the methods that need a text, by the names of --quant-method.
var calibratedMethods = map[string]quantize.Method{
	"weighted": quantize.Weighted, "gptq": quantize.GPTQ, "learned": quantize.Learned, "auto": quantize.Learned,
}
