package command

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/bench"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

// draftsResult is what --json prints with --speculate.
type draftsResult struct {
	File      string `json:"file"`
	Size      int64  `json:"size"`
	Device    string `json:"device"`
	Precision string `json:"precision"`
	Threads   int    `json:"threads"`
	// Draft is mtp, assistant or ngram.
	Draft string           `json:"draft"`
	Depth int              `json:"depth"`
	Rows  []bench.DraftRow `json:"rows"`
}

// mostMeasured is the most drafts of a round that is measured where nobody says how many: their call has 8 rows.
const mostMeasured = 7

// draftDepth is the number of tokens before a round where nobody says how many.
const draftDepth = 128

// measureDrafts measures and prints rounds that draft and verify. It is long because it is one sequence of steps, each
// of which needs what those before it made.
func measureDrafts(cmd *cobra.Command, path string, f benchFlags, e engine.Engine, o engine.Options) (err error) {
	p, err := openProgram(path)
	if err != nil {
		return err
	}
	defer p.Close()
	if len(f.depth) > 1 {
		return usagef("--speculate measures at one depth, found --depth with %d", len(f.depth))
	}
	d, err := f.speculate.in(cmd, path, p)
	if err != nil {
		return err
	}
	m, err := execution.ModuleWith(p, d.Kind)
	if err != nil {
		return err
	}
	about, err := session.Describe(m.Only(m.Entry))
	if err != nil {
		return invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	options := f.draftOptions(cmd, d.Drafting)
	if err := options.Check(about.MaxSeqLen); err != nil {
		return usagef("%s: %w", path, err)
	}
	if e, err = chosen(e, o.Precision); err != nil {
		return loadError(path, err)
	}
	e, storage := storageOf(e)
	x, err := batch.NewRagged(m, e, batch.RaggedOptions{Engine: o, Sequences: 2, Positions: about.MaxSeqLen,
		Drafts: mostMeasured, Draft: d.Kind, Storage: storage})
	if refused := execution.RefusedStorage(path, storage, err); refused != nil {
		return refused
	}
	var single *batch.NotRaggedError
	if errors.As(err, &single) {
		return usagef("%s: --speculate: %w", path, single)
	}
	if err != nil {
		return loadError(path, err)
	}
	pool, err := batch.NewPool(x, x.Layout().Bytes(x.Units()))
	if err != nil {
		return errors.Join(err, x.Close())
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	logf(cmd.ErrOrStderr(), "etc: rounds after %d tokens, %d times after a warm-up, in turns",
		options.Depth, f.repetitions)
	r := draftsResult{File: path, Size: p.File.Size(), Device: e.Name(), Precision: f.precision, Threads: f.workers(),
		Draft: "ngram", Depth: options.Depth}
	if d.Kind != speculate.None {
		r.Draft = string(d.Kind)
	}
	if r.Rows, err = bench.RunDrafts(cmd.Context(), pool, options); err != nil {
		return err
	}
	if f.json {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return r.writeMarkdown(shownOut(cmd))
}

// draftOptions returns the options of the measurement.
func (f benchFlags) draftOptions(cmd *cobra.Command, d batch.Drafting) bench.DraftOptions {
	o := bench.DraftOptions{Depth: draftDepth, Text: d.Kind == speculate.None, Repetitions: f.repetitions}
	if cmd.Flags().Changed("depth") && len(f.depth) > 0 {
		o.Depth = f.depth[0]
	}
	for k := range mostMeasured {
		o.Drafts = append(o.Drafts, k+1)
	}
	if d.Fixed {
		o.Drafts = []int{d.Most}
	}
	return o
}

// writeMarkdown writes the rows as a table whose columns also line up as plain text.
func (r draftsResult) writeMarkdown(w io.Writer) error {
	head := []string{"model", "size", "device", "precision", "threads", "draft", "drafts", "one row ms",
		"draft ms", "verify ms",
		"round", "breaks even"}
	for _, a := range bench.Published {
		head = append(head, fmt.Sprintf("tokens/s at %g", a))
	}
	table := [][]string{head}
	for _, row := range r.Rows {
		even := "never"
		if b := row.Break(); b <= 1 {
			even = fmt.Sprintf("%.2f", b)
		}
		line := []string{strings.ReplaceAll(filepath.Base(r.File), "|", `\|`), humanize.IBytes(uint64(r.Size)),
			r.Device,
			r.Precision, fmt.Sprint(r.Threads), r.Draft, fmt.Sprint(row.Drafts), milliseconds(row.Plain),
			milliseconds(row.Draft), milliseconds(row.Verify), fmt.Sprintf("%.2f×", row.Ratio), even}
		for _, a := range bench.Published {
			for _, s := range row.Curve {
				if s.Acceptance == a {
					line = append(line, fmt.Sprintf("%s (%.2f×)", speed(s.TokensPerSecond), s.Gain))
					break
				}
			}
		}
		table = append(table, line)
	}
	return writeMarkdown(w, table, "lrllrlrrrrrrrrr")
}

// milliseconds writes a time with three digits or more.
func milliseconds(seconds float64) string { return fmt.Sprintf("%.3g", 1000*seconds) }
