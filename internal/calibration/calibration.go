package calibration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/internal/version"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// These say how a calibration text is cut. The result depends on them.
const (
	Window = 512 // tokens
	// mostWindows is the largest number of windows. Those of a longer text are spread evenly over it.
	mostWindows = 96
	// Of every heldOutEvery windows one is held out.
	heldOutEvery = 12
	// Default is the name of the text in this program.
	Default = "default"
)

// Text is a text to calibrate with, and the results of calibrating a checkpoint with it.
type Text struct {
	// Name is the name of the text: a path, or [Default].
	Name string

	flag   string // the flag that named the text, for errors
	hash   string // SHA-256 of its bytes
	text   []byte
	result *calibrate.Result
	dir    string
	keep   bool // Close leaves the directory if the export failed
}

// Record returns what the build record says of the calibration; nil if c is.
func (c *Text) Record() *record.Calibration {
	if c == nil {
		return nil
	}
	r := &record.Calibration{Text: c.Name, SHA256: c.hash}
	if c.result != nil {
		r.Quality = c.result.Quality
	}
	return r
}

// Close deletes the files of the calibration. If the export failed with err and can be resumed, it leaves them.
func (c *Text) Close(err error) error {
	if c == nil || c.dir == "" {
		return err
	}
	if c.result != nil {
		err = errors.Join(err, c.result.Close())
	}
	if err != nil && c.keep {
		return err
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// Read reads a text: a file, or the built-in [Default]. flag is the flag that named it, as --calibrate.
func Read(flag, name string) (*Text, error) {
	c := &Text{flag: flag, Name: name, text: calibrate.Corpus()}
	if name != Default {
		var err error
		if c.text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		c.Name = filepath.Base(name)
	}
	sum := sha256.Sum256(c.text)
	c.hash = hex.EncodeToString(sum[:])
	return c, nil
}

// Needed reports whether the recipe has a method that chooses linear weights by a text.
func Needed(o *passes.Options) bool {
	rules := o.Recipe.Rules
	if o.Allocate != nil {
		for _, s := range o.Allocate.Schemes {
			rules = append(slices.Clip(rules), passes.Rule{Kind: passes.LinearWeight, Scheme: &s})
		}
	}
	return slices.ContainsFunc(rules, func(rule passes.Rule) bool {
		return rule.Scheme != nil && rule.Scheme.Method.Calibrated() && rule.Kind == passes.LinearWeight
	})
}

// Options are the settings of a calibration.
type Options struct {
	// Dir is the directory that results go to as they come. With Resume, results that are there are used, and the
	// directory stays after an error.
	Dir    string
	Resume bool
	// Jobs is the number of workers; 0 is one for each CPU. The result does not depend on it.
	Jobs int
	// MaxRAM bounds the memory of the process, in bytes; 0 is no bound. Fits, if not nil, returns an error for a need
	// of memory, in bytes, that is too large.
	MaxRAM int64
	Fits   func(what string, need int64) error
	// Log is told of the progress.
	Log func(format string, args ...any)
}

// Calibrate runs a checkpoint over the text, as a module of its own with short windows, and sets the results in o for
// the passes.
func (c *Text) Calibrate(ctx context.Context, in *loaders.Checkpoint, o *passes.Options, x Options) error {
	if in.Prequantized() {
		return kind.Usagef("%s: %s holds weights that are quantized already, which calibration cannot run", c.flag,
			in.Model.Dir)
	}
	recipe, err := c.run(ctx, x, in, *o)
	if err != nil {
		return c.Close(err)
	}
	o.Recipe, o.Allocate, o.Calibration = recipe, nil, c.result
	return nil
}

// run is Calibrate. It returns the recipe, with the bits chosen for a budget if there is one.
func (c *Text) run(ctx context.Context, f Options, in *loaders.Checkpoint,
	options passes.Options) (passes.Recipe, error) {
	windows, held, err := c.windows(in)
	if err != nil {
		return options.Recipe, err
	}
	m, err := in.Build(loaders.Options{MaxSeqLen: Window})
	if err != nil {
		return options.Recipe, kind.Of(kind.ErrUsage, err)
	}
	options.Report = nil
	if options.Allocate != nil {
		if options.Damage, err = c.damage(ctx, f, in, options, windows); err != nil {
			return options.Recipe, err
		}
	}
	recipe, err := calibrate.Prepare(m, options)
	if err != nil {
		return recipe, err
	}
	shown, start := time.Now(), time.Now()
	run := calibrate.Options{Windows: windows, HeldOut: held, Recipe: recipe, Dir: f.Dir, Jobs: f.Jobs,
		MaxRAM: f.MaxRAM,
		Progress: func(done, total int, name string) {
			if time.Since(shown) > News {
				shown = time.Now()
				f.Log("calibrated %s, %.0f %% in %s", name, 100*float64(done)/float64(total),
					time.Since(start).Round(time.Second))
			}
		}}
	need, err := calibrate.Memory(m, run)
	if err == nil {
		err = f.checkMemory("calibration", need)
	}
	if err != nil {
		return recipe, err
	}
	if run.Identity, err = c.identity(in, recipe); err != nil {
		return recipe, err
	}
	if err := c.take(f); err != nil {
		return recipe, err
	}
	f.Log("calibrating with %s, %s of %d tokens, and %d held out", c.Name, count(len(windows), "window"), Window,
		len(held))
	c.result, err = calibrate.Run(ctx, m, run)
	if errors.Is(err, context.Canceled) && f.Resume {
		err = fmt.Errorf("%w; --resume goes on from %s", err, f.Dir)
	}
	return recipe, err
}

// take makes the directory that of this calibration, once nothing speaks against that any more: what is there, perhaps
// the work of days that was cut, is deleted without Resume.
func (c *Text) take(f Options) error {
	if c.dir == f.Dir {
		return nil
	}
	c.dir, c.keep = f.Dir, f.Resume
	if f.Resume {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// The part of the text that damage is measured on: this many windows, spread over it, of this many tokens each. The
// result depends on them.
const (
	damageWindows = 4
	damageTokens  = 256
)

// damage returns the damage of each weight: see calibrate.Damage.
func (c *Text) damage(ctx context.Context, f Options, in *loaders.Checkpoint, o passes.Options,
	windows [][]int) (map[string]float64, error) {
	m, err := in.Build(loaders.Options{MaxSeqLen: damageTokens})
	if err != nil {
		return nil, kind.Of(kind.ErrUsage, err)
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
	run := calibrate.DamageOptions{Windows: text, Jobs: f.Jobs, Scheme: tried, Dir: f.Dir, MaxRAM: f.MaxRAM}
	need, err := calibrate.DamageMemory(m, run)
	if err == nil {
		err = f.checkMemory("measuring the damage of each weight", need)
	}
	if err != nil {
		return nil, err
	}
	if err := c.take(f); err != nil {
		return nil, err
	}
	f.Log("measuring the damage of each weight on %s of %s", count(n, "window"), c.Name)
	return calibrate.Damage(ctx, m, run)
}

// News is the time between two reports of progress.
const News = 10 * time.Second

// identity returns the hash of everything that the quantized weights depend on.
func (c *Text) identity(in *loaders.Checkpoint, r passes.Recipe) (string, error) {
	properties, err := record.Identity(record.Record{Tool: version.Tool}, in)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d %d %d\n%s\n", c.hash, Window, mostWindows, heldOutEvery,
		strings.Join(r.Lines(), "\n"))
	for _, p := range properties {
		if !p.Local {
			fmt.Fprintf(h, "%s: %s\n", p.Name, p.Value)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkMemory returns an error if something needs more memory than Fits allows.
func (f Options) checkMemory(what string, need int64) error {
	if f.Fits == nil {
		return nil
	}
	return f.Fits(what, need)
}

// windows cuts the text into windows, and holds some out.
func (c *Text) windows(in *loaders.Checkpoint) (windows, held [][]int, err error) {
	if in.Model.Files.Tokenizer == nil {
		return nil, nil, kind.Usagef("%s: %s has no %s to make tokens of the text with", c.flag, in.Model.Dir,
			huggingface.TokenizerFile)
	}
	t, err := tokenizer.Parse(in.Model.Files.Tokenizer, filepath.Join(in.Model.Dir, huggingface.TokenizerFile))
	if err != nil {
		return nil, nil, kind.Of(kind.ErrInvalid, err)
	}
	ids, err := c.Tokens(t, in)
	if err != nil {
		return nil, nil, err
	}
	windows, held = Divide(ids, prompt.SpecialPrefix(t))
	if len(windows) == 0 || len(windows[0]) == 0 {
		return nil, nil, kind.Usagef("%s %s: the text has no tokens", c.flag, c.Name)
	}
	return windows, held, nil
}

// Divide cuts tokens into windows that each begin with prefix, and holds some out.
func Divide(ids, prefix []int) (windows, held [][]int) {
	var all [][]int
	for part := range slices.Chunk(ids, Window-len(prefix)) {
		if len(prefix)+len(part) == Window || len(all) == 0 {
			all = append(all, slices.Concat(prefix, part))
		}
	}
	n := min(len(all), mostWindows)
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

// document is a line of a calibration text in JSON: a text, or a conversation to be rendered by the chat template.
type document struct {
	Text     *string        `json:"text"`
	Messages []chat.Message `json:"messages"`
}

// Tokens returns the tokens of the text: of each of its documents if it is JSON Lines, else of the whole.
func (c *Text) Tokens(t *tokenizer.Tokenizer, in *loaders.Checkpoint) ([]int, error) {
	if !utf8.Valid(c.text) {
		return nil, kind.Invalidf("%s %s: not UTF-8 text", c.flag, c.Name)
	}
	if c.Name != Default && !strings.HasSuffix(c.Name, ".jsonl") {
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
			return nil, kind.Invalidf("%s %s, document %d: %w", c.flag, c.Name, n, err)
		}
		switch {
		case d.Text != nil:
			ids = append(ids, t.Encode(*d.Text, tokenizer.EncodeOptions{})...)
		case len(d.Messages) > 0:
			text, err := render(d.Messages)
			if err != nil {
				return nil, kind.Invalidf("%s %s, document %d: %w", c.flag, c.Name, n, err)
			}
			ids = append(ids, t.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})...)
		default:
			return nil, kind.Invalidf("%s %s, document %d: want an object with \"text\" or \"messages\"",
				c.flag, c.Name, n)
		}
	}
}

// conversations returns a function that renders conversations with the checkpoint's chat template. Without a
// template, the messages become paragraphs.
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
		return nil, kind.Of(kind.ErrInvalid, err)
	}
	tokens, err := prompt.SpecialTokens(in)
	if err != nil {
		return nil, err
	}
	t := &prompt.Template{Parsed: parsed, Tokens: tokens}
	now := func() time.Time { return time.Unix(0, 0).UTC() } // the same tokens on every day
	return func(messages []chat.Message) (string, error) { return t.RenderAt(now, messages, false, nil) }, nil
}

// Card describes the quality of the result in a sentence; "" if nothing was held out.
func (c *Text) Card() string {
	if c == nil || c.result == nil || c.result.Quality == nil {
		return ""
	}
	q := c.result.Quality
	return fmt.Sprintf("on %s of %s that were held out, against the checkpoint: KL divergence %.5f mean, "+
		"%.5f median, %.4f 99th percentile; same most likely token %.1f %%; perplexity %.3f, the checkpoint's %.3f",
		count(q.Tokens, "token"), c.Name, q.Mean, q.Median, q.P99, 100*q.Top1, q.Perplexity, q.Reference)
}

// count writes a number of things in words.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Methods has the methods that need a text, by their names in --quant-method.
var Methods = map[string]quantize.Method{
	"weighted": quantize.Weighted, "gptq": quantize.GPTQ, "learned": quantize.Learned, "auto": quantize.Learned,
}
