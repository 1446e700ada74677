package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
)

// models returns the names in the results, in their order.
func models(results []result) (names []string) {
	for _, r := range results {
		if !slices.Contains(names, r.Model) {
			names = append(names, r.Model)
		}
	}
	return names
}

// plain returns the result that others of the same model are told beside: MLX's own 4 bits in groups of 64.
func plain(results []result, model string) *result {
	for i, r := range results {
		if r.same(model, setting{Form: "4w", Group: 64, Method: "minmax"}) {
			return &results[i]
		}
	}
	return nil
}

// writeTable prints a table for each model.
func writeTable(w io.Writer, results []result) {
	for _, model := range models(results) {
		base := plain(results, model)
		fmt.Fprintf(w, "%s\n\n", model)
		fmt.Fprintln(w, "| form | group | method | bits | KL mean | × minmax | KL median | same first token | "+
			"perplexity | file, bytes | processor time, s | peak memory, MiB |")
		fmt.Fprintln(w, "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
		for _, s := range settings() {
			i := slices.IndexFunc(results, func(r result) bool { return r.same(model, s) })
			if i < 0 {
				continue
			}
			r := results[i]
			group, ratio := "", ""
			if r.Group > 0 {
				group = strconv.Itoa(r.Group)
			}
			if base != nil {
				ratio = fmt.Sprintf("%.2f", r.KL/base.KL)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %.2f | %.5f | %s | %.5f | %.1f %% | %.3f | %d | %.1f | %d |\n", r.Form,
				group, r.Method, r.Bits, r.KL, ratio,
				r.Median, 100*r.Top1, r.Perplexity, r.Bytes, r.Seconds, r.Memory>>20)
		}
		if base != nil {
			fmt.Fprintf(w, "\nThe checkpoint's perplexity is %.3f.\n\n", base.Reference)
		}
	}
}
