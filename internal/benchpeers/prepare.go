package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The npm package ships the sources of llama.cpp's release v0.5.0 as a git bundle.
const npmPackage = "node-llama-cpp@3.22.1"

// peers is the directory of everything that is made once.
type peers struct {
	dir   string
	etc   string // the program
	llama string // llama-bench
	// device is cpu, or cuda: a GPU.
	device string
	log    io.Writer
}

// command runs a program, whose output goes to the log.
func (p *peers) command(dir, name string, args ...string) error {
	fmt.Fprintf(p.log, "benchpeers: %s %s\n", name, strings.Join(args, " "))
	c := exec.Command(name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, p.log, p.log
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// batched returns the path of llama-batched-bench, which lies beside llama-bench.
func (p *peers) batched() string { return filepath.Join(filepath.Dir(p.llama), "llama-batched-bench") }

// build makes llama-bench and llama-batched-bench unless they are there.
func (p *peers) build() error {
	if p.llama != "" {
		return nil
	}
	p.llama = filepath.Join(p.dir, "build", "bin", "llama-bench")
	if exists(p.llama) && exists(p.batched()) {
		return nil
	}
	for _, tool := range []string{"npm", "git", "tar", "cmake"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("building llama.cpp needs npm, git, tar, cmake and a C++ compiler: %w; -llama-bench "+
				"FILE takes one that is built", err)
		}
	}
	source := filepath.Join(p.dir, "llama.cpp")
	if _, err := os.Stat(source); err != nil {
		archive := "node-llama-cpp-" + npmPackage[strings.IndexByte(npmPackage, '@')+1:] + ".tgz"
		if err := p.command(p.dir, "npm", "pack", npmPackage); err != nil {
			return err
		}
		if err := p.command(p.dir, "tar", "xzf", archive, "package/llama/gitRelease.bundle"); err != nil {
			return err
		}
		if err := p.command(p.dir, "git", "clone", "-q", "package/llama/gitRelease.bundle", "llama.cpp"); err != nil {
			return err
		}
		if err := mendTileConfig(filepath.Join(source, "ggml", "src", "ggml-cpu", "amx", "mmq.cpp")); err != nil {
			return err
		}
	}
	options := []string{"-S", source, "-B", filepath.Join(p.dir, "build"),
		"-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"}
	if p.onGPU() {
		options = append(options, "-DGGML_CUDA=ON")
	}
	for _, off := range []string{"LLAMA_CURL", "LLAMA_BUILD_SERVER", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS",
		"LLAMA_BUILD_EXAMPLES"} {
		options = append(options, "-D"+off+"=OFF")
	}
	if err := p.command(p.dir, "cmake", options...); err != nil {
		return err
	}
	return p.command(p.dir, "cmake", "--build", "build", "--target", "llama-bench", "llama-batched-bench",
		"-j", fmt.Sprint(runtime.NumCPU()))
}

// exists reports whether there is a file of that name.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// onGPU reports whether a GPU is measured.
func (p *peers) onGPU() bool { return p.device != "cpu" }

// mendTileConfig works around a bug of gcc 12: it takes ldtilecfg to read only 8 bytes, and drops most stores of the
// configuration of AMX tiles. Without this llama.cpp ends with an illegal instruction.
func mendTileConfig(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	load := []byte("_tile_loadconfig(&tc);")
	if bytes.Count(text, load) != 1 {
		return fmt.Errorf("%s: the load of the tile configuration is not where it was in v0.5.0", path)
	}
	return os.WriteFile(path, bytes.Replace(text, load, append([]byte(`__asm__ volatile("" :: "m"(tc)); `), load...),
		1), 0o644)
}

// files makes the files of a model for both programs and gives their paths.
func (p *peers) files(m model) (pte, ggufPath string, err error) {
	pte, ggufPath = filepath.Join(p.dir, m.name+".pte"), filepath.Join(p.dir, m.name+".gguf")
	if _, err := os.Stat(ggufPath); err != nil {
		fmt.Fprintf(p.log, "benchpeers: writing %s\n", ggufPath)
		if err := m.gguf(m.layers).write(ggufPath); err != nil {
			return "", "", err
		}
	}
	if _, err := os.Stat(pte); err == nil {
		return pte, ggufPath, nil
	}
	checkpoint := filepath.Join(p.dir, m.name+".checkpoint")
	defer os.RemoveAll(checkpoint)
	if err := p.command(p.dir, p.etc, "synthetic", "--model", m.synthetic, "--layers", fmt.Sprint(m.layers), "--seed",
		"1", "-o", checkpoint); err != nil {
		return "", "", err
	}
	args := []string{"export", checkpoint, "--qlinear", "4w", "--group-size", "64", "--quant-method", "minmax",
		"--max-seq-len", "20480", "-o", pte}
	if p.onGPU() {
		args = append(args, "--sample") // logits of a program without a sampler go to the host
	}
	return pte, ggufPath, p.command(p.dir, p.etc, args...)
}
