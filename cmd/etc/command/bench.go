package command

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/bench"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

type benchFlags struct {
	modelFlags
	prompt, generate, depth []int
	repetitions             int
	json                    bool
	sampler                 string
	streams                 []int
	served                  benchServeFlags
	observe                 observeFlags
	speculate               speculateFlags
}

// newBench makes the command etc bench. It is long because it is the list of its flags.
func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench FILE.pte | --serve URL",
		Short: "Measure how fast a language model runs",
		Long: `bench measures a language model in the terms of llama-bench: the row pp512 is the prefill of a prompt of 512
tokens, tg128 the generation of 128 tokens one by one from an empty context. -p and -n take several lengths
separated by commas; 0 leaves the row out. With -d the context holds so many tokens already, as in the row
tg128 @ d4096.

Each shape is run once, unmeasured, in the same process before it is measured. The tokens are pseudo-random
and the same in every run; stop tokens end nothing. A row shows the median of the repetitions in tokens per
second, their range, and the spread, which is the range over the median: rows that spread by more than 14 %
are too noisy to compare, which a note on standard error says.

With --streams each of so many sequences takes a prompt of its own and then all answer together, a token of each
in a call; -p and -n are the lengths of one prompt and one answer. A row shows the tokens per second of all
sequences: of the prompts, of the answers, and of both over the whole time, as llama-batched-bench does. The
runtime draws the tokens, the most likely ones. A program or a device that cannot run many sequences in one call
runs them one by one, which a note on standard error says.

With --serve a server is measured, as its clients see it: etc serve, or another one with /v1/completions and
/tokenize. So many streams (--concurrent) ask for answers of -n tokens to prompts of -p tokens, each prompt another
one, until --requests answers are there. A row shows the time until the first part of an answer and the time
between parts (half, and all but one in a hundred, were no longer), and tokens per second: of one stream behind its
first part, and of all. Prompts are new in every run, so that no prefix cache has them; those of --prompt-seed are
the same in every run of that number. The last column is what the server says it did not compute of the prompts,
because it had them.

With --speculate rounds of drafts are measured behind -d tokens (default 128), one sequence in calls as those of
serve: what the drafts take, what the call takes that verifies them, beside a call of one row. A row shows a number of
drafts, 1 to 7 or that of :K, the acceptance from which on the round is faster than none, and the tokens per second at
the acceptances that were published for prose, facts and code; --json has the curve. Models of random weights have no
acceptance of their own.

--profile and --trace cover the unmeasured runs too, and cost a little time themselves.

Speed of a model of toy size says nothing of a large one: measure the model that you talk about.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.served.url != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.served.url != "" {
				return measureServer(cmd, f)
			}
			return runBench(cmd, args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.IntSliceVarP(&f.prompt, "n-prompt", "p", []int{512}, "prompt lengths of the pp rows, 0 for none")
	fl.IntSliceVarP(&f.generate, "n-gen", "n", []int{128}, "numbers of tokens of the tg rows, 0 for none")
	fl.IntSliceVarP(&f.depth, "depth", "d", []int{0}, "tokens in the context before each measurement")
	fl.IntVarP(&f.repetitions, "repetitions", "r", 5, "measurements of each row")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	fl.IntSliceVar(&f.streams, "streams", nil, "measure so many sequences at a time, as 1,8,32")
	f.served.add(fl)
	addSampler(fl, &f.sampler)
	f.observe.add(cmd)
	f.add(cmd, "mixed")
	f.addDeterministic(cmd)
	f.speculate.addKind(cmd)
	f.addStorage(cmd)
	return cmd
}

// benchResult is what --json prints. Sizes are in bytes, speeds in tokens per second.
type benchResult struct {
	File      string      `json:"file"`
	Size      int64       `json:"size"`
	Device    string      `json:"device"`
	Precision string      `json:"precision"`
	Threads   int         `json:"threads"`
	Rows      []bench.Row `json:"rows"`
}

func runBench(cmd *cobra.Command, path string, f benchFlags) error {
	if err := f.served.unused(cmd); err != nil {
		return err
	}
	e, o, err := f.runner()
	if err != nil {
		return err
	}
	if err := checkSampler(f.sampler); err != nil {
		return err
	}
	for _, name := range []string{"depth", "sampler"} {
		if len(f.streams) > 0 && cmd.Flags().Changed(name) {
			return usagef("--streams measures from an empty context with the runtime's draws: leave out --%s", name)
		}
	}
	if f.speculate.asked() && (len(f.streams) > 0 || anyChanged(cmd, "n-prompt", "n-gen", "sampler")) {
		return usagef("--speculate measures rounds of one sequence: leave out --streams, --n-prompt, --n-gen " +
			"and --sampler")
	}
	if f.deterministic && len(f.streams) == 0 && !f.speculate.asked() {
		return usagef("--deterministic goes with --streams or --speculate: it is about sequences that share calls")
	}
	return f.observe.around(cmd, e, &o, path, func() error {
		if len(f.streams) > 0 {
			return measureStreams(cmd, path, f, e, o)
		}
		if f.speculate.asked() {
			return measureDrafts(cmd, path, f, e, o)
		}
		return measure(cmd, path, f, e, o)
	})
}

// measure measures and prints the rows.
func measure(cmd *cobra.Command, path string, f benchFlags, e engine.Engine, o engine.Options) error {
	load := session.LoadTokens
	if f.sampler == "runtime" {
		load = func(m *ir.Module, e engine.Engine, o engine.Options) (*session.Model, error) {
			return session.LoadDraws(m, e, o, session.Draws{})
		}
	}
	m, err := loadModel(path, e, o, load, 0)
	if err != nil {
		return err
	}
	defer m.Close()
	options := bench.Options{Prompt: f.prompt, Generate: f.generate, Depth: f.depth, Repetitions: f.repetitions}
	if err := bench.Check(m.Model, options); err != nil {
		return usagef("%s: %w", path, err)
	}
	options.Started = func(name string) {
		logf(cmd.ErrOrStderr(), "etc: %s, %d times after a warm-up", name,
			f.repetitions)
	}
	r := benchResult{File: path, Size: m.program.File.Size(), Device: m.Device,
		Precision: f.precision, Threads: f.workers()}
	if r.Rows, err = bench.Run(cmd.Context(), m.Model, options); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Noisy() {
			logf(cmd.ErrOrStderr(), "etc: %s spreads by %.1f %% of its median: too noisy to compare with anything",
				row.Test, 100*row.Spread)
		}
	}
	if f.json {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return r.writeMarkdown(shownOut(cmd))
}

// writeMarkdown writes the rows as a table whose columns also line up as plain text.
func (r benchResult) writeMarkdown(w io.Writer) error {
	table := [][]string{{"model", "size", "device", "precision", "threads", "test", "tokens/s", "min–max", "spread"}}
	for _, row := range r.Rows {
		table = append(table, []string{strings.ReplaceAll(filepath.Base(r.File), "|", `\|`),
			humanize.IBytes(uint64(r.Size)), r.Device, r.Precision, fmt.Sprint(r.Threads),
			row.Test, speed(row.Median), speed(row.Min) + "–" + speed(row.Max), fmt.Sprintf("%.1f %%", 100*row.Spread)})
	}
	return writeMarkdown(w, table, "lrllrlrrr")
}

// speed writes tokens per second with three digits or more.
func speed(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// writeMarkdown writes a table, its head first; align has an l or an r for each column.
func writeMarkdown(w io.Writer, table [][]string, align string) error {
	widths := make([]int, len(align))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)), 3)
		}
	}
	var b strings.Builder
	for n, row := range table {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if align[i] == 'r' {
				cell = pad + cell
			} else {
				cell += pad
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			rule := strings.Repeat("-", width)
			if align[i] == 'r' {
				rule = rule[1:] + ":"
			}
			b.WriteString("| " + rule + " ")
		}
		b.WriteString("|\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
