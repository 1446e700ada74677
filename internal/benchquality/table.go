package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
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

// tableHead is how the first line of a table begins.
const tableHead = "| form | group | method |"

// readTable reads the tables that writeTable has printed, among other text. The name of a model is the line with text
// before its table. What the table does not have, or has rounded, is so in the results.
func readTable(r io.Reader) (results []result, err error) {
	var model, before string
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, tableHead):
			model = before
		case model == "" || strings.HasPrefix(line, "| ---"):
		case strings.HasPrefix(line, "| "):
			row, err := readRow(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			row.Model = model
			results = append(results, row)
		default:
			model = ""
		}
		if strings.TrimSpace(line) != "" {
			before = line
		}
	}
	return results, lines.Err()
}

// readRow reads a line of a table.
func readRow(line string) (r result, err error) {
	cells := strings.Split(strings.Trim(line, "| "), " | ")
	const columns = 12
	if len(cells) != columns {
		return r, fmt.Errorf("%d columns, expected %d", len(cells), columns)
	}
	for i := range cells {
		cells[i] = strings.TrimSuffix(strings.TrimSpace(cells[i]), " %")
	}
	r.Form, r.Method = cells[0], cells[2]
	if cells[1] != "" {
		if r.Group, err = strconv.Atoi(cells[1]); err != nil {
			return r, err
		}
	}
	for _, x := range []struct {
		column int
		to     *float64
	}{{3, &r.Bits}, {4, &r.KL}, {6, &r.Median}, {7, &r.Top1}, {8, &r.Perplexity}, {10, &r.Seconds}} {
		if *x.to, err = strconv.ParseFloat(cells[x.column], 64); err != nil {
			return r, err
		}
	}
	r.Top1 /= 100
	if r.Bytes, err = strconv.ParseInt(cells[9], 10, 64); err != nil {
		return r, err
	}
	r.Memory, err = strconv.ParseInt(cells[11], 10, 64)
	r.Memory <<= 20
	return r, err
}
