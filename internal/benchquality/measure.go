package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// setting is a way to quantize the linears of a model.
type setting struct {
	Form   string // "4w", "mxfp4", "target 5"
	Group  int
	Method string
	flags  []string
}

// name returns the name of a setting in messages and for -only.
func (s setting) name() string { return fmt.Sprintf("%s/%d %s", s.Form, s.Group, s.Method) }

// settings returns the settings of the table in its order.
func settings() (all []setting) {
	affine := func(form string, group int, methods ...string) {
		for _, m := range methods {
			all = append(all, setting{form, group, m,
				[]string{"--qlinear", form, "--group-size", fmt.Sprint(group), "--quant-method", m}})
		}
	}
	affine("4w", 128, "minmax", "best", "auto")
	affine("4w", 64, "minmax", "hqq", "best", "weighted", "gptq", "auto")
	affine("4w", 32, "minmax", "best", "auto")
	affine("8w", 64, "minmax", "best", "auto")
	for _, form := range []string{"mxfp4", "mxfp8"} {
		for _, m := range []string{"minmax", "best"} {
			all = append(all, setting{form, 32, m, []string{"--qlinear", form, "--quant-method", m}})
		}
	}
	for _, m := range []string{"minmax", "best"} {
		all = append(all, setting{"nvfp4", 16, m, []string{"--qlinear", "nvfp4", "--quant-method", m}})
	}
	for _, bits := range []string{"4.5", "5", "6"} {
		all = append(all, setting{"target " + bits, 0, "auto",
			[]string{"--target-bpw", bits, "--quant-method", "auto"}})
	}
	return all
}

// calibrated reports whether a setting needs a text.
func (s setting) calibrated() bool {
	return slices.Contains([]string{"weighted", "gptq", "auto"}, s.Method)
}

// result is the result of a setting.
type result struct {
	Commit string `json:"commit"`
	Model  string `json:"model"`
	Form   string `json:"form"`
	Group  int    `json:"group,omitempty"`
	Method string `json:"method"`
	// Bits is the number of bits per quantized weight, including scales and biases.
	Bits       float64 `json:"bits"`
	Bytes      int64   `json:"bytes"` // of the file
	KL         float64 `json:"kl_mean"`
	Median     float64 `json:"kl_median"`
	Top1       float64 `json:"top1_agreement"`
	Perplexity float64 `json:"perplexity"`
	Reference  float64 `json:"reference_perplexity"`
	Seconds    float64 `json:"processor_seconds"` // of the export
	Memory     int64   `json:"peak_bytes"`        // of the export, 0 where the system does not tell
}

// same reports whether r is of a setting of a model.
func (r result) same(model string, s setting) bool {
	return r.Model == model && r.Form == s.Form && r.Group == s.Group && r.Method == s.Method
}

// bench measures settings.
type bench struct {
	dir, etc, text, calibrate, commit string
	log                               io.Writer
}

func (b *bench) path() string { return filepath.Join(b.dir, "results.jsonl") }

// measureAll measures the settings that have no result yet.
func (b *bench) measureAll(models []string, only string) error {
	if b.text == "" || len(models) == 0 {
		return errors.New("give -text FILE and checkpoints as NAME=DIR")
	}
	before, err := b.kept()
	if err != nil {
		return err
	}
	for _, m := range models {
		model, checkpoint, ok := strings.Cut(m, "=")
		if !ok {
			return fmt.Errorf("%s: want NAME=CHECKPOINT", m)
		}
		for _, s := range settings() {
			if !strings.Contains(s.name(), only) ||
				slices.ContainsFunc(before, func(r result) bool { return r.same(model, s) }) {
				continue
			}
			fmt.Fprintf(b.log, "benchquality: %s %s\n", model, s.name())
			r, err := b.measure(model, checkpoint, s)
			if err != nil {
				return fmt.Errorf("%s %s: %w", model, s.name(), err)
			}
			if err := b.keep(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure exports a model and compares it with its checkpoint.
func (b *bench) measure(model, checkpoint string, s setting) (result, error) {
	r := result{Commit: b.commit, Model: model, Form: s.Form, Group: s.Group, Method: s.Method}
	file := filepath.Join(b.dir, "file.pte")
	defer os.Remove(file)
	args := append([]string{"export", checkpoint, "-o", file}, s.flags...)
	if s.calibrated() {
		args = append(args, "--calibrate", b.calibrate)
	}
	export := exec.Command(b.etc, args...)
	if out, err := export.CombinedOutput(); err != nil {
		return r, fmt.Errorf("%w: %s", err, out)
	}
	r.Seconds = (export.ProcessState.UserTime() + export.ProcessState.SystemTime()).Seconds()
	r.Memory = peakMemory(export.ProcessState)
	info, err := os.Stat(file)
	if err != nil {
		return r, err
	}
	r.Bytes = info.Size()
	if err := b.json(&r, "eval", file, "--against", checkpoint, "--text", b.text, "--json"); err != nil {
		return r, err
	}
	var x inspected
	if err := b.json(&x, "inspect", file, "--json"); err != nil {
		return r, err
	}
	r.Bits = x.bits()
	return r, nil
}

// inspected is the part of etc inspect --json about weights.
type inspected struct {
	Methods []struct {
		Graph struct {
			Storage []struct {
				Format         string
				Elements, Size int64
			}
		}
	}
}

// bits returns the average number of bits per quantized weight.
func (x inspected) bits() float64 {
	var elements, size int64
	for _, m := range x.Methods {
		for _, s := range m.Graph.Storage {
			if strings.Contains(s.Format, "-bit g") {
				elements, size = elements+s.Elements, size+s.Size
			}
		}
	}
	return 8 * float64(size) / float64(max(elements, 1))
}

// json runs etc and parses its output.
func (b *bench) json(to any, args ...string) error {
	c := exec.Command(b.etc, args...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, &said)
	}
	return json.Unmarshal(out, to)
}

// keep appends a result.
func (b *bench) keep(r result) error {
	f, err := os.OpenFile(b.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(r), f.Close())
}

// kept reads the results of the commit.
func (b *bench) kept() (all []result, err error) {
	f, err := os.Open(b.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", b.path(), n, err)
		}
		if r.Commit == b.commit {
			all = append(all, r)
		}
	}
	return all, lines.Err()
}
