package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/internal/calibration"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/compare"
	"github.com/etc-ml/etc/runtime/report"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// evalAgainstResult is what eval --against --json prints.
type evalAgainstResult struct {
	File       string `json:"file"`
	Text       string `json:"text"`
	Checkpoint string `json:"checkpoint"`
	Windows    int    `json:"windows"`
	Context    int    `json:"context"`
	calibrate.Quality
}

// againstFlags are those that go with eval --against: it computes in float32 on the CPU, in one way.
var againstFlags = []string{"against", "text", "context", "tokenizer", "threads", "json", unverifiedFlag}

// evalAgainst is etc eval --against.
func evalAgainst(cmd *cobra.Command, path string, f evalFlags) error {
	if f.threads < 0 || f.threads > maxThreads {
		return usagef("--threads %d, want 0 or more, at most %d", f.threads, maxThreads)
	}
	if anyChanged(cmd, "context") && f.context < 2 {
		return usagef("--context %d, want at least 2", f.context)
	}
	c, err := openAgainst(cmd, f.against)
	if err != nil {
		return err
	}
	defer c.Close()
	text, err := os.ReadFile(f.text)
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return invalidError{fmt.Errorf("%s: not UTF-8 text", f.text)}
	}
	r := evalAgainstResult{File: path, Text: f.text, Checkpoint: f.against, Context: f.context}
	e := &checkpointEvaluation{path: path, checkpoint: c, tokenizer: f.tokenizer, context: f.context, jobs: f.threads}
	q, err := e.run(cmd, func(t *tokenizer.Tokenizer) ([]int, error) {
		return t.Encode(string(text), tokenizer.EncodeOptions{ParseSpecial: true}), nil
	})
	if err != nil {
		return err
	}
	r.Quality, r.Windows, r.Context = *q, e.windows, e.context
	if f.json {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return writeQuality(shownOut(cmd), q,
		fmt.Sprintf("%d tokens in %s of up to %d", q.Tokens, count(r.Windows, "window"), r.Context))
}

// checkpointEvaluation compares the predictions of a program with those of its checkpoint.
type checkpointEvaluation struct {
	path          string
	checkpoint    *loaders.Checkpoint
	tokenizer     string // a file, or "" for that of the program
	context, jobs int    // 0: the default of each
	windows       int    // of the text, when it has run
}

// run compares on the tokens of a text, in windows of the context that follow each other.
func (e *checkpointEvaluation) run(cmd *cobra.Command,
	encode func(*tokenizer.Tokenizer) ([]int, error)) (*calibrate.Quality, error) {
	p, file, _, err := openLanguage(e.path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	text, err := openText(p, e.tokenizer, false)
	if err != nil {
		return nil, err
	}
	if e.context == 0 {
		e.context = min(calibration.Window, constantOf(file, "get_max_seq_len"))
	}
	m, err := e.checkpoint.Build(loaders.Options{MaxSeqLen: max(e.context, 2)})
	if err != nil {
		return nil, usageError{err}
	}
	if _, err := calibrate.Prepare(m, passes.Options{}); err != nil {
		return nil, err
	}
	ids, err := encode(text.Tokenizer)
	if err != nil {
		return nil, err
	}
	windows, err := e.cut(ids, prompt.SpecialPrefix(text.Tokenizer))
	if err != nil {
		return nil, err
	}
	shown, start := time.Now(), time.Now()
	return calibrate.Evaluate(cmd.Context(), m, fileWeights{compare.NewReader(file)},
		calibrate.Evaluation{Windows: windows, Jobs: e.jobs,
			Progress: func(done, total int, name string) {
				if time.Since(shown) > calibration.News {
					shown = time.Now()
					logf(cmd.ErrOrStderr(), "etc: compared %s, %.0f %% in %s", name, 100*float64(done)/float64(total),
						time.Since(start).Round(time.Second))
				}
			}})
}

// cut divides tokens into windows. Each window starts with prefix.
func (e *checkpointEvaluation) cut(ids, prefix []int) (windows [][]int, err error) {
	if len(ids) >= len(prefix) && slices.Equal(ids[:len(prefix)], prefix) {
		ids = ids[len(prefix):] // the text names its prefix itself
	}
	n := e.context - len(prefix)
	if n < 1 {
		return nil, usagef("--context %d, want more than the %d tokens that every text begins with",
			e.context, len(prefix))
	}
	for part := range slices.Chunk(ids, n) {
		if w := slices.Concat(prefix, part); len(w) > 1 { // one token alone predicts nothing that the text has
			windows = append(windows, w)
		}
	}
	if e.windows = len(windows); e.windows == 0 {
		return nil, usagef("the text has fewer than two tokens")
	}
	return windows, nil
}

// measureQuality measures the card of a text for verify.
func measureQuality(cmd *cobra.Command, path, checkpoint, name string) (*qualityCard, error) {
	text, err := calibration.Read("--text", name)
	if err != nil {
		return nil, err
	}
	c, err := openAgainst(cmd, checkpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	e := &checkpointEvaluation{path: path, checkpoint: c}
	card := &qualityCard{Text: text.Name}
	q, err := e.run(cmd, func(t *tokenizer.Tokenizer) ([]int, error) {
		ids, err := text.Tokens(t, c)
		if err != nil || name != calibration.Default {
			return ids, err
		}
		prefix := prompt.SpecialPrefix(t)
		_, held := calibration.Divide(ids, prefix)
		ids = nil
		for _, w := range held {
			ids = append(ids, w[len(prefix):]...)
		}
		return ids, nil
	})
	if err != nil {
		return nil, err
	}
	card.Quality = *q
	return card, nil
}

// figures returns the card's figures for a page; none for a nil card.
func (c *qualityCard) figures() []report.Figure {
	if c == nil {
		return nil
	}
	return qualityFigures(&c.Quality, c.of())
}

// fileWeights are the weights of a program, for package calibrate.
type fileWeights struct{ *compare.Reader }

func (f fileWeights) Rows(c *ir.Constant, kind passes.WeightKind) (calibrate.Rows, error) {
	read, err := f.Matrix(c, kind == passes.EmbeddingWeight)
	if err != nil {
		return nil, invalidError{fmt.Errorf(
			"%w; --against compares programs of etc export, by the names of their weights", err)}
	}
	cols := int(c.Data.Shape()[len(c.Data.Shape())-1])
	return func(first, n int) (dot.Matrix, error) {
		values, err := read(first, n)
		return dot.Dense(values, n, cols), err
	}, nil
}

func (f fileWeights) Constant(c *ir.Constant) ir.Data { return f.Vector(c) }

// writeQuality writes a quality card for people; of says what it was measured on.
func writeQuality(w io.Writer, q *calibrate.Quality, of string) error {
	_, err := fmt.Fprintf(w, "perplexity %.4f, the checkpoint's %.4f\nKL divergence from the checkpoint %.6f mean, "+
		"%.6f median, %.6f 99th percentile\n"+
		"same most likely token %.2f %%\n%s\n", q.Perplexity, q.Reference, q.Mean, q.Median, q.P99, 100*q.Top1, of)
	return err
}

// qualityFigures returns a quality card for a page.
func qualityFigures(q *calibrate.Quality, of string) []report.Figure {
	if q == nil {
		return nil
	}
	return []report.Figure{
		{Name: "KL divergence on " + of, Value: fmt.Sprintf("%.4g nats", q.Mean)},
		{Name: "median", Value: fmt.Sprintf("%.4g nats", q.Median)},
		{Name: "99th percentile", Value: fmt.Sprintf("%.4g nats", q.P99)},
		{Name: "same most likely token there", Value: fmt.Sprintf("%.1f %%", 100*q.Top1)},
		{Name: "perplexity", Value: fmt.Sprintf("%.3f, the checkpoint's %.3f", q.Perplexity, q.Reference)},
	}
}
