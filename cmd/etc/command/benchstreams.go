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
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/bench"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// streamsResult is what --streams --json prints. Sizes are in bytes, speeds in tokens per second.
type streamsResult struct {
	File      string `json:"file"`
	Size      int64  `json:"size"`
	Device    string `json:"device"`
	Precision string `json:"precision"`
	Threads   int    `json:"threads"`
	// OneByOne is why sequences do not share calls; empty where they do.
	OneByOne string            `json:"one_by_one,omitempty"`
	Rows     []bench.StreamRow `json:"rows"`
}

// measureStreams measures and prints the rows of many sequences at a time.
func measureStreams(cmd *cobra.Command, path string, f benchFlags, e engine.Engine, o engine.Options) error {
	options := bench.StreamOptions{Streams: f.streams, Prompt: f.prompt, Generate: f.generate,
		Repetitions: f.repetitions}
	p, m, d, err := openLanguage(path)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := options.Check(d.MaxSeqLen); err != nil {
		return usagef("%s: %w", path, err)
	}
	if e, err = chosen(e, o.Precision); err != nil {
		return loadError(path, err)
	}
	x, err := streamsExecutor(path, m, d.MaxSeqLen, e, o, options)
	if err != nil {
		return err
	}
	limits := x.Limits()
	streams, positions := options.Most()
	pool, err := batch.NewPool(x, int64(streams)*x.Layout().Bytes(x.Layout().Most(positions, limits.Rows)))
	if err != nil {
		return errors.Join(err, x.Close())
	}
	defer pool.Close()
	if limits.Vocab < 1 {
		return usagef("%s: the program does not say how large its vocabulary is (get_vocab_size), so no token is "+
			"known to be valid", path)
	}
	r := streamsResult{File: path, Size: p.File.Size(), Device: e.Name(), Precision: f.precision, Threads: f.workers()}
	if limits.OneByOne {
		r.OneByOne = limits.Why
		logf(cmd.ErrOrStderr(), "etc: sequences run one by one: %s", limits.Why)
	}
	options.Started = func(streams, prompt, generate int) {
		logf(cmd.ErrOrStderr(), "etc: %s of %d and %d tokens, %d times after a warm-up",
			count(streams, "stream"), prompt,
			generate, f.repetitions)
	}
	if r.Rows, err = bench.RunStreams(cmd.Context(), pool, options); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Noisy() {
			logf(cmd.ErrOrStderr(), "etc: %s: decode spreads by %.1f %% of its median: too noisy to compare "+
				"with anything",
				count(row.Streams, "stream"), 100*row.Spread)
		}
	}
	if f.json {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return r.writeMarkdown(shownOut(cmd))
}

// streamsExecutor compiles a program of maxSeqLen positions for the most sequences of a measurement, which hold what
// they use.
func streamsExecutor(path string, m *ir.Module, maxSeqLen int, e engine.Engine, o engine.Options,
	options bench.StreamOptions) (batch.Executor, error) {
	streams, positions := options.Most()
	ragged := batch.RaggedOptions{Engine: o, Sequences: streams, Positions: positions}
	need := needOf(m, maxSeqLen, e, o.Precision)
	available, where := memoryOn(e)
	f := fit{File: path, Need: need.Within(maxSeqLen, positions), Context: positions, Sessions: streams, Device: where,
		Advice: "measure fewer streams, or shorter ones"}
	shared := ragged
	inner, storage := execution.StorageOf(e)
	shared.Storage = storage
	if state, err := batch.SequenceBytes(m, inner, shared); err == nil {
		f.Need.State = state // blocks, of a window too no more than a sequence has
	}
	if err := f.Check(available); err != nil {
		return nil, err
	}
	return newExecutor(path, m, e, ragged,
		// sessions hold the state of a whole context
		max(need.State, 1), func(m *ir.Module, model *session.Model) error {
			return checkMemory(path, m, model, e, o.Precision, streams, 0)
		})
}

// writeMarkdown writes the rows as a table whose columns also line up as plain text.
func (r streamsResult) writeMarkdown(w io.Writer) error {
	table := [][]string{{"model", "size", "device", "precision", "threads", "streams", "prompt",
		"answer", "prompt tokens/s",
		"answer tokens/s", "all tokens/s", "spread"}}
	for _, row := range r.Rows {
		table = append(table, []string{strings.ReplaceAll(filepath.Base(r.File), "|", `\|`),
			humanize.IBytes(uint64(r.Size)), r.Device,
			r.Precision, fmt.Sprint(r.Threads), fmt.Sprint(row.Streams), fmt.Sprint(row.Prompt),
			fmt.Sprint(row.Generate),
			speed(row.Median.Prefill), speed(row.Median.Decode), speed(row.Median.Total),
			fmt.Sprintf("%.1f %%", 100*row.Spread)})
	}
	return writeMarkdown(w, table, "lrllrrrrrrrr")
}
