package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/etc-ml/etc/runtime/bench"
)

// This file runs both programs with several streams in one process. Each stream has a prompt of its own. First all
// prompts are computed, and then one token of every stream in each call.

// runLlamaStreams returns what llama-batched-bench says. It measures each number of streams once.
func (p *peers) runLlamaStreams(path string, s setting, n plan) (samples, *exec.Cmd, error) {
	args := []string{"-m", path, "-t", fmt.Sprint(s.Threads), "-npp", fmt.Sprint(n.prompt), "-ntg",
		fmt.Sprint(n.generate), "-npl", list(n.streams), "-c", fmt.Sprint(slices.Max(n.streams) * (n.prompt + n.generate)),
		"--output-format", "jsonl"}
	if p.onGPU() {
		args = append(args, "-ngl", "99", "-fa", "on")
	}
	text, c, err := p.output(p.batched(), args...)
	if err != nil {
		return nil, nil, err
	}
	got, err := llamaStreams(text)
	if err == nil && len(got) != 3*len(n.streams) {
		err = fmt.Errorf("figures of %d tests, want %d", len(got), 3*len(n.streams))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.batched(), err)
	}
	return got, c, nil
}

// llamaStreams reads what llama-batched-bench prints: an object on a line for each number of streams, and other lines.
func llamaStreams(text []byte) (got samples, err error) {
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		var row struct {
			Prompt   int     `json:"pp"`
			Generate int     `json:"tg"`
			Streams  int     `json:"pl"`
			Prefill  float64 `json:"speed_pp"`
			Decode   float64 `json:"speed_tg"`
			Total    float64 `json:"speed"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, err
		}
		got = append(got, streamSamples(row.Streams, row.Prompt, row.Generate, []float64{row.Prefill},
			[]float64{row.Decode}, []float64{row.Total})...)
	}
	return got, nil
}

// runEtcStreams returns what etc bench --streams says.
func (p *peers) runEtcStreams(path string, s setting, n plan) (samples, *exec.Cmd, error) {
	text, c, err := p.output(p.etc, "bench", path, "--device", p.device, "--threads", fmt.Sprint(s.Threads), "--streams",
		list(n.streams), "-p", fmt.Sprint(n.prompt), "-n", fmt.Sprint(n.generate), "-r", fmt.Sprint(n.repetitions),
		"--json")
	if err != nil {
		return nil, nil, err
	}
	got, err := etcStreams(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.etc, err)
	}
	return got, c, nil
}

// etcStreams reads what etc bench --streams --json prints.
func etcStreams(text []byte) (got samples, err error) {
	var printed struct {
		Rows []bench.StreamRow `json:"rows"`
	}
	if err := json.Unmarshal(text, &printed); err != nil {
		return nil, err
	}
	for _, row := range printed.Rows {
		var prefill, decode, total []float64
		for _, x := range row.Samples {
			prefill, decode, total = append(prefill, x.Prefill), append(decode, x.Decode), append(total, x.Total)
		}
		got = append(got, streamSamples(row.Streams, row.Prompt, row.Generate, prefill, decode, total)...)
	}
	return got, nil
}

// streamSamples are the three tests of a number of streams.
func streamSamples(streams, prompt, generate int, prefill, decode, total []float64) samples {
	return samples{
		{fmt.Sprintf("pp%d", prompt), streams, prefill},
		{fmt.Sprintf("tg%d", generate), streams, decode},
		{fmt.Sprintf("pp%d+tg%d", prompt, generate), streams, total},
	}
}

// list writes numbers with commas between them.
func list(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
}
