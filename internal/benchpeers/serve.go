package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/bench/serving"
)

// This file compares the servers of the two programs: -serve.

// served is the command line of a comparison of servers.
type served struct {
	concurrent                          string // streams at a time, separated by commas
	prompt, generate, rounds, perStream int
}

// servedContext is the context of a stream in tokens.
const servedContext = 1024

// server is one of the two, while it runs.
type server struct {
	name, url string
	command   *exec.Cmd
	rows      map[int][]serving.Row // by streams
}

// serveFiles makes the files of a model for both servers: a GGUF file with a vocabulary, and the program of it.
func (p *peers) serveFiles(m model) (pte, ggufPath string, err error) {
	pte, ggufPath = filepath.Join(p.dir, m.name+"-served.pte"), filepath.Join(p.dir, m.name+"-served.gguf")
	if _, err := os.Stat(ggufPath); err != nil {
		fmt.Fprintf(p.log, "benchpeers: writing %s\n", ggufPath)
		g := m.gguf(m.layers)
		newVocabulary(g.vocabularySize()).addTo(g)
		if err := g.write(ggufPath); err != nil {
			return "", "", err
		}
	}
	if _, err := os.Stat(pte); err == nil {
		return pte, ggufPath, nil
	}
	return pte, ggufPath, p.command(p.dir, p.etc, "export", ggufPath, "--max-seq-len", fmt.Sprint(servedContext), "-o",
		pte)
}

// vocabularySize returns the number of rows of the embedding.
func (g *gguf) vocabularySize() int {
	i := slices.IndexFunc(g.tensors, func(t tensor) bool { return t.name == "token_embd.weight" })
	return int(g.tensors[i].dims[1])
}

// buildServer builds llama-server in the folder of llama-bench, unless it is there.
func (p *peers) buildServer() (string, error) {
	if err := p.build(); err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(p.llama), "llama-server")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := p.command(p.dir, "cmake", "-S", "llama.cpp", "-B", "build", "-DLLAMA_BUILD_SERVER=ON",
		"-DLLAMA_BUILD_UI=OFF"); err != nil {
		return "", err
	}
	return path, p.command(p.dir, "cmake", "--build", "build", "--target", "llama-server", "-j",
		fmt.Sprint(runtime.NumCPU()))
}

// start starts a server at a free port, which %d stands for in its arguments, and waits until it answers.
func (p *peers) start(name, ready, program string, args ...string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	args = append(args, "--port", fmt.Sprint(port))
	fmt.Fprintf(p.log, "benchpeers: %s %s\n", program, strings.Join(args, " "))
	s := &server{name: name, url: fmt.Sprintf("http://127.0.0.1:%d", port), command: exec.Command(program, args...),
		rows: map[int][]serving.Row{}}
	s.command.Stdout, s.command.Stderr = io.Discard, io.Discard
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		r, err := http.Get(s.url + ready)
		if err != nil {
			continue
		}
		if err := r.Body.Close(); err == nil && r.StatusCode == http.StatusOK {
			return s, nil
		}
	}
	s.stop()
	return nil, fmt.Errorf("%s does not answer at %s%s", program, s.url, ready)
}

// stop ends a server.
func (s *server) stop() {
	s.command.Process.Signal(os.Interrupt) //nolint:errcheck // Wait tells when it has gone
	s.command.Wait()                       //nolint:errcheck // so it ends
}

// measure measures a server and stores the results.
func (p *peers) measure(s *server, streams string, o served) error {
	n := 0
	if _, err := fmt.Sscan(streams, &n); err != nil || n < 1 {
		return fmt.Errorf("-serve: %q is no number of streams", streams)
	}
	c := exec.Command(p.etc, "bench", "--serve", s.url, "--concurrent", streams, "--requests",
		fmt.Sprint(n*o.perStream),
		"-p", fmt.Sprint(o.prompt), "-n", fmt.Sprint(o.generate), "--json")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, p.log
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	var result struct{ Rows []serving.Row }
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return err
	}
	s.rows[n] = append(s.rows[n], result.Rows...)
	return nil
}

// serve compares the servers of a model in turns, and writes a table of the medians.
func (p *peers) serve(w io.Writer, name string, threads string, o served) error {
	m, ok := models()[name]
	if !ok {
		return fmt.Errorf("-models: there is no %q", name)
	}
	llama, err := p.buildServer()
	if err != nil {
		return err
	}
	pte, ggufPath, err := p.serveFiles(m)
	if err != nil {
		return err
	}
	streams := strings.Split(o.concurrent, ",")
	most := streams[len(streams)-1]
	slots := 0
	if _, err := fmt.Sscan(most, &slots); err != nil {
		return fmt.Errorf("-serve: %q is no number of streams", most)
	}
	ours, err := p.start("etc", "/ready", p.etc, "serve", pte, "--device", "cpu", "--threads", threads,
		"--max-concurrent", most)
	if err != nil {
		return err
	}
	defer ours.stop()
	theirs, err := p.start("llama.cpp", "/health", llama, "-m", ggufPath, "-t", threads, "-np", most, "-c",
		fmt.Sprint(slots*servedContext))
	if err != nil {
		return err
	}
	defer theirs.stop()
	for round := range o.rounds {
		for _, n := range streams {
			pair := []*server{ours, theirs}
			if round%2 == 1 {
				slices.Reverse(pair)
			}
			for _, s := range pair {
				if err := p.measure(s, n, o); err != nil {
					return err
				}
			}
		}
	}
	fmt.Fprintf(w, "%s, %s threads, answers of %d tokens to prompts of %d, %d rounds\n\n", m.label, threads,
		o.generate, o.prompt, o.rounds)
	writeServed(w, streams, ours, theirs)
	return nil
}

// writeServed writes the medians of all rounds.
func writeServed(w io.Writer, streams []string, servers ...*server) {
	fmt.Fprintln(w, "| streams | server | first token, ms, p50 | p99 | between tokens, ms, p50 | p99 | tokens/s of "+
		"all | min–max |")
	fmt.Fprintln(w, "|---:|---|---:|---:|---:|---:|---:|---:|")
	for _, n := range streams {
		for _, s := range servers {
			count := 0
			fmt.Sscan(n, &count) //nolint:errcheck // measure has read it
			column := func(f func(serving.Row) float64) []float64 {
				var out []float64
				for _, r := range s.rows[count] {
					out = append(out, f(r))
				}
				slices.Sort(out)
				return out
			}
			ms := func(f func(serving.Row) float64) float64 { return 1000 * median(column(f)) }
			total := column(func(r serving.Row) float64 { return r.Total })
			fmt.Fprintf(w, "| %s | %s | %.0f | %.0f | %.1f | %.1f | %.1f | %.1f–%.1f |\n", n, s.name,
				ms(func(r serving.Row) float64 { return r.First.P50 }),
				ms(func(r serving.Row) float64 { return r.First.P99 }),
				ms(func(r serving.Row) float64 { return r.Between.P50 }),
				ms(func(r serving.Row) float64 { return r.Between.P99 }),
				median(total), total[0], total[len(total)-1])
		}
	}
}
