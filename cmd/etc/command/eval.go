package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/evaluate"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

type evalFlags struct {
	modelFlags
	speculateFlags
	qa, text, reference, tokenizer, template string
	against                                  string
	every, limit, context, stride            int
	exactReference, think, noThink, json     bool
}

func newEval() *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval FILE.pte (--qa FILE.json | --text FILE)",
		Short: "Measure how well a language model answers",
		Long: `eval measures a program by questions with exact answers, or by how well it predicts a text.

--qa FILE.json holds an array of objects: "q", the question; "prompt_ids", the tokens of the whole prompt (without
them the chat template makes the prompt of "q"); "ids", the tokens of the answer; "expect", its text. Each
question is answered at temperature 0 in a context of its own. An answer is right if its tokens up to the stop
token and its text are exactly those; what the file does not have is not compared. The score goes to standard
output, what was wrong to standard error.

--text FILE gives the perplexity of a text, exp of the mean of -ln p(token), with its standard error. Windows of
--context tokens slide over the text by --stride tokens; each token is scored once, with the tokens before it in
its window known. Names of special tokens in the text are those tokens; if the tokenizer begins texts with a
special token, every window begins with it. --reference OTHER.pte compares with another program of the same
vocabulary: the mean, median, 99th percentile and maximum over the tokens of the Kullback-Leibler divergence
D(other || file) in nats, and how often both find the same token most likely. With --qa these are the tokens of the
answers that the file gives. --exact-reference runs the other program with exact activations (--exact); without
--reference that is the same file, which shows what rounding activations costs. All need programs that give logits
(etc export without --sample).

--against CHECKPOINT compares the weights of the file with those of the checkpoint that it was made of, on the text of
--text: both run layer by layer in float32 on the CPU, with one weight in memory at a time, so that checkpoints that
are larger than the memory can be compared. Windows of --context tokens follow each other; every prediction counts.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runEval(cmd, args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.qa, "qa", "", "JSON file of questions with exact answers")
	fl.IntVar(&f.every, "every", 1, "take every n-th question only")
	fl.IntVar(&f.limit, "limit", 0, "take at most so many questions, 0 for all")
	fl.StringVar(&f.template, "chat-template", "", "chat template to use for --qa instead of the file's")
	fl.BoolVar(&f.think, "think", false, "let the model think first, where its template knows of it")
	fl.BoolVar(&f.noThink, "no-think", false, "do not let the model think first")
	fl.StringVar(&f.text, "text", "", "text file to predict")
	fl.StringVar(&f.reference, "reference", "", "program to compare predictions with")
	fl.BoolVar(&f.exactReference, "exact-reference", false,
		"run the reference with --exact; without --reference it is the same file")
	fl.IntVar(&f.context, "context", 0, "tokens of a window (default: 512, or the model's context if that is smaller)")
	fl.IntVar(&f.stride, "stride", 0, "tokens by which the window moves on (default: half the window)")
	fl.StringVar(&f.against, "against", "",
		"checkpoint to compare predictions with: a directory, a GGUF file, or an id on the Hugging Face hub")
	var unverified bool // openHub looks at the flag
	addUnverified(cmd, &unverified)
	fl.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer.json to use instead of the file's")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	f.addKind(cmd)
	f.add(cmd, "mixed")
	f.addStorage(cmd)
	return cmd
}

// check refuses flags that do not go together.
func (f evalFlags) check(cmd *cobra.Command) error {
	if f.against != "" {
		return f.checkAgainst(cmd)
	}
	if anyChanged(cmd, unverifiedFlag) {
		return usagef("--%s has no meaning without --against", unverifiedFlag)
	}
	chosen, other := "--qa", []string{"context", "stride"}
	switch {
	case f.qa == "" && f.text == "":
		return usagef("nothing to evaluate: give --qa FILE.json or --text FILE")
	case f.qa != "" && f.text != "":
		return usagef("--qa and --text: give one of them")
	case f.text != "":
		chosen, other = "--text", []string{"every", "limit", "chat-template", "think", "no-think", "speculate"}
	}
	if f.asked() && (f.reference != "" || f.exactReference) {
		return usagef("--speculate with --reference, which compares logits")
	}
	for _, name := range other {
		if cmd.Flags().Changed(name) {
			return usagef("--%s has no meaning with %s", name, chosen)
		}
	}
	switch {
	case f.think && f.noThink:
		return usagef("--think and --no-think: give one of them")
	case f.every < 1:
		return usagef("--every %d, want at least 1", f.every)
	case f.limit < 0:
		return usagef("--limit %d, want 0 or more", f.limit)
	}
	return nil
}

// checkAgainst refuses what does not go with --against.
func (f evalFlags) checkAgainst(cmd *cobra.Command) (err error) {
	if f.text == "" {
		return usagef("--against %s compares predictions of a text: give --text FILE", f.against)
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if err == nil && !slices.Contains(againstFlags, flag.Name) {
			err = usagef("--%s has no meaning with --against, which computes both sides in float32 on the CPU",
				flag.Name)
		}
	})
	return err
}

// runEval runs etc eval over a text. It is long because it is one sequence of steps, each of which needs what those
// before it made.
func runEval(cmd *cobra.Command, path string, f evalFlags) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	if f.against != "" {
		return evalAgainst(cmd, path, f)
	}
	e, o, err := f.runner()
	if err != nil {
		return err
	}
	load := session.Load
	if f.text != "" {
		load = session.LoadRows // every row counts
	}
	if f.asked() {
		return evalDrafts(cmd, path, e, o, f)
	}
	m, err := loadModel(path, e, o, load, 0)
	if err != nil {
		return err
	}
	defer m.Close()
	text, err := f.openText(m.program)
	if err != nil {
		return err
	}
	var reference *languageModel
	if f.exactReference {
		f.reference = cmp.Or(f.reference, path)
		o.Exact = true
	}
	if f.reference != "" {
		declared, _ := storageOf(e) // the reference keeps its state as it is declared
		if reference, err = loadModel(f.reference, declared, o, load, m.need); err != nil {
			return err
		}
		defer reference.Close()
		if err := sameTokenizer(m, reference); err != nil {
			return err
		}
	}
	if f.qa != "" {
		return evalQuestions(cmd, m.Model, reference, nil, text, f)
	}
	return evalText(cmd, m, reference, text, f)
}

// openText reads what the file says about text, and the flags that change it.
func (f evalFlags) openText(p *program.Program) (*text, error) {
	text, err := openText(p, f.tokenizer, f.qa != "")
	if err != nil || f.qa == "" {
		return text, err
	}
	if f.think || f.noThink {
		text.Think = &f.think
	}
	text.Template, err = openTemplate(p, f.template)
	return text, err
}

// evalDrafts has a program that drafts answer the questions.
func evalDrafts(cmd *cobra.Command, path string, e engine.Engine, o engine.Options, f evalFlags) (err error) {
	p, err := openProgram(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	text, err := f.openText(p)
	if err != nil {
		return err
	}
	a, err := f.openAnswerer(cmd, path, p, e, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	answer := func(ctx context.Context, r session.Request) (session.Answer, error) {
		// A session may choose one token more than the context holds.
		r.MaxNewTokens = min(r.MaxNewTokens, a.Model().MaxSeqLen-len(r.Prompt))
		return a.Generate(ctx, r)
	}
	return evalQuestions(cmd, a.Model(), nil, answer, text, f)
}

// qaResult is what --qa --json prints.
type qaResult struct {
	File      string `json:"file"`
	QA        string `json:"qa"`
	Reference string `json:"reference_file,omitempty"`
	Device    string `json:"device"`
	evaluate.QAResult
}

// evalQuestions asks the questions of a file. answer gives the answers where that is no session of m.
func evalQuestions(cmd *cobra.Command, m *session.Model, reference *languageModel,
	answer func(context.Context, session.Request) (session.Answer, error), text *text, f evalFlags) error {
	b, err := os.ReadFile(f.qa)
	if err != nil {
		return err
	}
	questions, err := evaluate.ParseQuestions(f.qa, b)
	if err != nil {
		return invalidError{err}
	}
	if len(text.Stop) == 0 {
		logf(cmd.ErrOrStderr(), "etc: %s names no stop token (get_eos_ids), so no answer can end", text.File)
	}
	options := evaluate.QAOptions{
		Encode: questionEncoder(text),
		Stop:   text.Stop,
		Answer: answer,
		Done: func(a evaluate.QAAnswer) {
			if !a.Right {
				logf(cmd.ErrOrStderr(), "%s", missText(a))
			}
		},
	}
	if text.Tokenizer != nil {
		options.Decode = text.Decode
	}
	r := qaResult{File: text.File, QA: f.qa, Device: m.Device}
	if reference != nil {
		options.Reference, r.Reference = reference.Model, f.reference
	}
	r.QAResult, err = evaluate.QA(cmd.Context(), m, evaluate.Choose(questions, f.every, f.limit), options)
	if q := (*evaluate.QuestionError)(nil); errors.As(err, &q) {
		return usagef("%s: %w", f.qa, err)
	}
	if c := (*evaluate.ReferenceError)(nil); errors.As(err, &c) {
		return usagef("%s: %w", text.File, err)
	}
	if err != nil {
		return err
	}
	if f.json {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d/%d\n", r.Right, r.Questions)
	if r.Divergence != nil {
		writeDivergence(&out, r.Divergence)
		fmt.Fprintf(&out, "%d tokens compared\n", r.Predictions)
	}
	_, err = shownOut(cmd).Write(out.Bytes())
	return err
}

// questionEncoder makes prompts of questions by the chat template; nil where there is none.
func questionEncoder(t *text) func(question string) ([]int, error) {
	if t.Tokenizer == nil || t.Template == nil {
		return nil
	}
	return func(question string) ([]int, error) { return t.Encode("", question, false) }
}

// missText describes a wrong answer.
func missText(a evaluate.QAAnswer) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "question %d", a.Number)
	if a.Question != "" {
		fmt.Fprintf(&b, " %q", a.Question)
	}
	if a.WantText != nil {
		fmt.Fprintf(&b, ": want %q", *a.WantText)
		if a.Text != *a.WantText {
			fmt.Fprintf(&b, ", got %q", a.Text)
		}
	}
	if a.WantTokens != nil && !slices.Equal(a.Tokens, a.WantTokens) {
		fmt.Fprintf(&b, ": want tokens %v, got %v", a.WantTokens, a.Tokens)
	}
	if a.Stop != session.StopEOS {
		b.WriteString(", which did not end")
	}
	return b.String()
}

// evalTextResult is what --text --json prints.
type evalTextResult struct {
	File      string `json:"file"`
	Text      string `json:"text"`
	Reference string `json:"reference_file,omitempty"`
	Device    string `json:"device"`
	evaluate.TextResult
}

func evalText(cmd *cobra.Command, m, reference *languageModel, text *text, f evalFlags) error {
	b, err := os.ReadFile(f.text)
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return invalidError{fmt.Errorf("%s: not UTF-8 text", f.text)}
	}
	options := evaluate.TextOptions{Context: f.context, Stride: f.stride, Prefix: prompt.SpecialPrefix(text.Tokenizer)}
	tokens := text.Tokenizer.Encode(string(b), tokenizer.EncodeOptions{ParseSpecial: true})
	if n := len(options.Prefix); len(tokens) > n && slices.Equal(tokens[:n], options.Prefix) {
		tokens = tokens[n:] // the text names its prefix itself
	}
	r := evalTextResult{File: text.File, Text: f.text, Device: m.Device}
	if !cmd.Flags().Changed("context") {
		options.Context = min(512, m.MaxSeqLen)
	}
	var other *session.Model
	if reference != nil {
		other, r.Reference = reference.Model, f.reference
		if !cmd.Flags().Changed("context") {
			options.Context = min(options.Context, other.MaxSeqLen)
		}
	}
	if !cmd.Flags().Changed("stride") {
		options.Stride = max(1, options.Context/2)
	}
	if err := evaluate.CheckText(m.Model, other, tokens, options); err != nil {
		return usagef("%s: %w", text.File, err)
	}
	if r.TextResult, err = evaluate.Text(cmd.Context(), m.Model, other, tokens, options); err != nil {
		return fmt.Errorf("%s: %w", text.File, err)
	}
	if f.json {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return r.write(cmd)
}

// write writes the figures for people.
func (r evalTextResult) write(cmd *cobra.Command) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "perplexity %.4f ± %.4f\n", r.Perplexity.Perplexity, r.Error)
	if r.Divergence != nil {
		fmt.Fprintf(&b, "reference perplexity %.4f ± %.4f\n", r.TextResult.Reference.Perplexity,
			r.TextResult.Reference.Error)
		writeDivergence(&b, r.Divergence)
	}
	fmt.Fprintf(&b, "%d of %d tokens scored in %d windows of %d, stride %d\n", r.Scored, r.Tokens,
		r.Windows, r.Context, r.Stride)
	_, err := shownOut(cmd).Write(b.Bytes())
	return err
}

// writeDivergence writes what two programs differ by.
func writeDivergence(w io.Writer, d *evaluate.Divergence) {
	fmt.Fprintf(w, "KL divergence from the reference %.6f mean, %.6f median, %.6f 99th percentile, %.6f max\n", d.Mean,
		d.Median, d.P99, d.Max)
	fmt.Fprintf(w, "same most likely token %.2f %%\n", 100*d.Top1)
}

// sameTokenizer refuses to compare files whose tokens mean different texts.
func sameTokenizer(m, reference *languageModel) error {
	a, ok := m.program.File.Lookup(prompt.KeyTokenizer)
	b, also := reference.program.File.Lookup(prompt.KeyTokenizer)
	if ok && also && !bytes.Equal(a, b) {
		return usagef("--reference %s has another tokenizer than %s, so their tokens cannot be compared",
			reference.program.File.Name(), m.program.File.Name())
	}
	return nil
}
