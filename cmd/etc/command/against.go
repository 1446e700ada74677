package command

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/compare"
	"github.com/etc-ml/etc/runtime/report"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// againstPrompts are texts of several kinds; the checkpoint's own tokenizer makes tokens of them.
var againstPrompts = []string{
	"What is the capital of France? The capital of France is Paris.",
	"def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
	"17 + 25 = 42, and 3 times 14 is 42 too.",
}

// againstReport is the numeric comparison of a program with its checkpoint.
type againstReport struct {
	File       string           `json:"file"`
	Checkpoint string           `json:"checkpoint"`
	Weights    []compare.Weight `json:"weights"`
	Missing    []string         `json:"missing"`
	Extra      []string         `json:"extra"`
	Layers     []compare.Layer  `json:"layers"`
	Logits     []compare.Logits `json:"logits"`
	Metadata   []metadataCheck  `json:"metadata"`
	// Quality is nil where there is neither --text nor a card in the build record.
	Quality *qualityCard `json:"quality,omitempty"`
	// Sources is nil where the file has no build record.
	Sources *sourceCheck `json:"sources,omitempty"`
}

// qualityCard is how far predictions are from the checkpoint's, and on what.
type qualityCard struct {
	Text string `json:"text"`
	// Recorded says that the export has measured it.
	Recorded bool `json:"recorded,omitempty"`
	calibrate.Quality
}

// of says what a card was measured on.
func (c *qualityCard) of() string {
	if c.Recorded {
		return "what was held out of " + c.Text
	}
	return c.Text
}

// metadataCheck tells whether a piece of metadata is the checkpoint's.
type metadataCheck struct {
	Key   string `json:"key"`
	Equal bool   `json:"equal"`
}

// compareAgainst compares a program with a checkpoint. tokens bounds the tokens that are run. It is long because it is
// one sequence of steps, each of which needs what those before it made.
func compareAgainst(cmd *cobra.Command, path, checkpoint string, tokens int) (*againstReport, error) {
	p, file, _, err := openLanguage(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	c, err := openAgainst(cmd, checkpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	original, err := c.Build(loaders.Options{MaxSeqLen: constantOf(file, "get_max_seq_len")})
	if err != nil {
		return nil, invalidError{fmt.Errorf("%s: its context is none that the checkpoint has: %w", path, err)}
	}
	if err := prompt.SetStopTokens(func(string) {}, c, original); err != nil {
		return nil, err
	}
	if err := passes.Run(original, &passes.Options{}); err != nil {
		return nil, err
	}
	r := &againstReport{File: path, Checkpoint: checkpoint}
	if record, err := readRecord(p); err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	} else if record != nil {
		if r.Sources, err = checkSources(cmd.Context(), record, c); err != nil {
			return nil, err
		}
		if k := record.Calibration; k != nil && k.Quality != nil {
			r.Quality = &qualityCard{k.Text, true, *k.Quality}
		}
	}
	if r.Weights, r.Missing, r.Extra, err = compare.Weights(file, original); err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	r.Missing, r.Extra = append([]string{}, r.Missing...), append([]string{}, r.Extra...) // [] in JSON, not null
	prompts, err := tokenizedPrompts(c, tokens, constantOf(original, "get_max_seq_len"))
	if err != nil {
		return nil, err
	}
	if err := checkComparison(path, checkpoint, file, original); err != nil {
		return nil, err
	}
	if r.Layers, r.Logits, err = compare.Run(file, original, prompts); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := c.Model.Files
	for _, x := range []struct {
		key  string
		want []byte
	}{{prompt.KeyTokenizer, f.Tokenizer}, {prompt.KeyTokenizerConfig, f.TokenizerConfig},
		{prompt.KeyChatTemplate, []byte(c.Model.ChatTemplate)}, {prompt.KeyGenerationConfig, f.GenerationConfig},
		{prompt.KeyConfig, f.Config}} {
		got, ok := p.File.Lookup(x.key)
		if ok || len(x.want) > 0 {
			r.Metadata = append(r.Metadata, metadataCheck{x.key, string(got) == string(x.want)})
		}
	}
	r.Metadata = append(r.Metadata, metadataCheck{prompt.StopMethod,
		slices.Equal(methodValues(file, prompt.StopMethod), methodValues(original, prompt.StopMethod))})
	return r, nil
}

// methodValues returns the results of a constant method, or nil where there is no such method.
func methodValues(m *ir.Module, name string) []any {
	for _, k := range m.Metadata {
		if k.Name == name {
			return k.Values
		}
	}
	return nil
}

// constantOf returns the integer that a constant method gives, 0 where there is no such method.
func constantOf(m *ir.Module, name string) int {
	if values := methodValues(m, name); len(values) == 1 {
		if v, ok := values[0].(int64); ok {
			return int(v)
		}
	}
	return 0
}

// tokenizedPrompts encodes the prompts by the checkpoint's tokenizer, at most tokens in all and context in each;
// without one they are ids in a row.
func tokenizedPrompts(c *loaders.Checkpoint, tokens, context int) ([][]int, error) {
	var out [][]int
	if c.Model.Files.Tokenizer == nil {
		ids := make([]int, min(tokens, context, c.Model.Config.Vocabulary()))
		for i := range ids {
			ids[i] = i
		}
		return [][]int{ids}, nil
	}
	t, err := tokenizer.Parse(c.Model.Files.Tokenizer, "tokenizer.json")
	if err != nil {
		return nil, invalidError{err}
	}
	for _, text := range againstPrompts {
		ids := t.Encode(text, tokenizer.EncodeOptions{AddSpecial: true})
		ids = ids[:min(len(ids), tokens, context)]
		if tokens -= len(ids); len(ids) > 0 {
			out = append(out, ids)
		}
	}
	return out, nil
}

// write prints the report as tables: kinds of weights, the worst weights, layers, logits.
func (r *againstReport) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "kind of weight\tweights\telements\tbits/weight\tmean SQNR dB\tmin SQNR dB\tmax error\n")
	for _, k := range r.kinds() {
		fmt.Fprintf(w, "%s\t%d\t%s\t%.2f\t%s\t%s\t%.3g\n", k.name, k.count,
			humanize.SIWithDigits(float64(k.elements), 1, ""), k.bits(), decibel(k.mean()), decibel(k.least), k.most)
	}
	if len(r.Missing)+len(r.Extra) > 0 {
		fmt.Fprintf(w, "\nonly in the checkpoint: %s\nonly in the file: %s\n", someOf(r.Missing), someOf(r.Extra))
	}
	if len(r.Layers) > 0 {
		fmt.Fprintf(w, "\nlayer\trelative error\trouter agreement\n")
		for _, l := range r.Layers {
			router := "-"
			if l.Router >= 0 {
				router = fmt.Sprintf("%.1f %%", 100*l.Router)
			}
			fmt.Fprintf(w, "%d\t%.4f\t%s\n", l.Layer, l.Error, router)
		}
	}
	if n := len(r.Logits); n > 0 {
		var mean, most, kl float64
		agrees := 0
		for _, l := range r.Logits {
			mean, most, kl = mean+float64(l.Mean)/float64(n), max(most, float64(l.Max)), kl+float64(l.KL)/float64(n)
			if l.Agrees {
				agrees++
			}
		}
		fmt.Fprintf(w, "\nlogits over %d tokens\tmean error %.4g\tmax error %.4g\tKL divergence %.4g\ttop-1 "+
			"agreement %.1f %%\n", n, mean, most, kl, 100*float64(agrees)/float64(n))
	}
	if q := r.Quality; q != nil {
		fmt.Fprintf(w, "\n%s, %d tokens\tKL divergence mean %.4g\tmedian %.4g\t99th percentile %.4g\ttop-1 agreement "+
			"%.1f %%\tperplexity %.4g\tthe checkpoint's %.4g\n",
			q.of(), q.Tokens, q.Mean, q.Median, q.P99, 100*q.Top1, q.Perplexity, q.Reference)
	}
	var other []string
	for _, m := range r.Metadata {
		if !m.Equal {
			other = append(other, m.Key)
		}
	}
	if len(other) > 0 {
		fmt.Fprintf(w, "\nnot the checkpoint's: %s\n", strings.Join(other, ", "))
	}
	if r.Sources != nil {
		fmt.Fprintf(w, "\n%s\n", r.Sources)
	}
	return w.Flush()
}

// someOf lists the first names; --json has all.
func someOf(names []string) string {
	const most = 4
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func decibel(v float64) string {
	if math.IsInf(v, 1) {
		return "exact"
	}
	return fmt.Sprintf("%.1f", v)
}

// weightKind sums up the weights of one kind: those whose names differ in the layer only.
type weightKind struct {
	name          string
	count, finite int
	elements      int64
	stored        float64 // bits
	sum           float64
	least, most   float64
}

func (k *weightKind) bits() float64 { return k.stored / math.Max(float64(k.elements), 1) }

func (k *weightKind) mean() float64 {
	if k.finite == 0 {
		return math.Inf(1)
	}
	return k.sum / float64(k.finite)
}

// kindOf returns a weight's name with the layer's number left out.
func kindOf(name string) string {
	if before, _, rest, ok := ir.SplitLayer(name); ok {
		return before + ".N." + rest
	}
	return name
}

// kinds groups the weights by kind, in the order in which kinds appear.
func (r *againstReport) kinds() []*weightKind {
	var out []*weightKind
	for _, w := range r.Weights {
		name := kindOf(w.Name)
		i := slices.IndexFunc(out, func(k *weightKind) bool { return k.name == name })
		if i < 0 {
			out = append(out, &weightKind{name: name, least: math.Inf(1)})
			i = len(out) - 1
		}
		k := out[i]
		k.count++
		k.elements += w.Elements
		k.stored += w.BitsPerWeight * float64(w.Elements)
		if v := float64(w.SQNR); !math.IsInf(v, 1) {
			k.finite++
			k.sum += v
			k.least = math.Min(k.least, v)
		}
		k.most = math.Max(k.most, w.Max)
	}
	return out
}

// runAgainst is etc verify --against.
func runAgainst(cmd *cobra.Command, path, checkpoint, page, text string, tokens int, asJSON bool) error {
	if tokens < 1 {
		return usagef("--tokens %d, want at least 1", tokens)
	}
	to := destination{path: page, kind: outfile.Page, inputs: []string{path, checkpoint}}
	if to.isOutput(cmd) {
		return usagef("--html %s: the tables go to standard output; name a file", page)
	}
	if err := to.check(cmd); err != nil {
		return err
	}
	r, err := compareAgainst(cmd, path, checkpoint, tokens)
	if err != nil {
		return err
	}
	if text != "" {
		if r.Quality, err = measureQuality(cmd, path, checkpoint, text); err != nil {
			return err
		}
	}
	if page != "" {
		err := to.write(cmd, func(w io.Writer) error {
			return report.Comparison(w, path, checkpoint, r.Weights, r.Layers, r.Logits, r.Quality.figures()...)
		})
		if err != nil {
			return err
		}
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.write(shownOut(cmd))
	}
	if err == nil && r.Sources != nil && !r.Sources.ok() {
		err = invalidError{fmt.Errorf("%s was not made of %s: %s", path, checkpoint, r.Sources)}
	}
	return err
}
