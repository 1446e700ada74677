package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/etc-ml/etc/runtime/bench"
)

// keep appends results to a file.
func keep(path string, results []result) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, r := range results {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return f.Close()
}

// kept reads the results of a commit, those of one setting together.
func kept(path, commit string) ([]result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []result
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if r.Commit != commit {
			continue
		}
		if i := slices.IndexFunc(all, func(o result) bool { return o.setting == r.setting }); i >= 0 {
			all[i].Etc, all[i].Llama, all[i].Read = append(all[i].Etc, r.Etc...), append(all[i].Llama, r.Llama...),
				append(all[i].Read, r.Read...)
			continue
		}
		all = append(all, r)
	}
	return all, lines.Err()
}

// median returns the median of the samples, or 0 where a part was not measured.
func median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	return bench.Median(samples)
}

// writeTable writes results in Markdown: medians, the slowest and the fastest in parentheses.
func writeTable(w io.Writer, results []result) {
	slices.SortStableFunc(results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Busy, b.Busy), cmp.Compare(a.Test[:2], b.Test[:2]),
			cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.Threads, b.Threads), cmp.Compare(a.Streams, b.Streams))
	})
	fmt.Fprintln(w, "| Model | test | threads | etc, tokens/s | llama.cpp, tokens/s | ratio | read, GB/s | etc of "+
		"read | llama.cpp of read |")
	fmt.Fprintln(w, "| --- | --- | --: | --: | --: | --: | --: | --: | --: |")
	all := models()
	for _, r := range results {
		test := r.Test
		if r.Depth > 0 {
			test += fmt.Sprintf(" @ d%d", r.Depth)
		}
		if r.Streams > 0 {
			test += fmt.Sprintf(", streams: %d", r.Streams)
		}
		if r.Device != "" {
			test += " on " + r.Device
		}
		if r.Busy > 0 {
			test += fmt.Sprintf(", %d cores busy", r.Busy)
		}
		read, etcShare, llamaShare := "", "", ""
		if len(r.Read) > 0 && strings.HasPrefix(r.Test, "tg") && r.Depth == 0 && r.Streams == 0 {
			m := all[r.Model]
			bytes, most := m.gguf(m.layers).tokenBytes(), median(r.Read)
			share := func(speed float64) string { return fmt.Sprintf("%.0f %%", 100*speed*bytes/1e9/most) }
			read, etcShare, llamaShare = fmt.Sprintf("%.0f", most), share(median(r.Etc)), share(median(r.Llama))
		}
		fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %.2f | %s | %s | %s |\n", all[r.Model].label, test, r.Threads,
			speeds(r.Etc), speeds(r.Llama),
			median(r.Etc)/median(r.Llama), read, etcShare, llamaShare)
	}
}

func speeds(samples []float64) string {
	if len(samples) == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", median(samples), slices.Min(samples), slices.Max(samples))
}
