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
	"strconv"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/bench/serving"
)

// This file compares the servers of the two programs: -serve.

// served is the command line of a comparison of servers.
type served struct {
	concurrent                          string // streams at a time, separated by commas
	prompts                             string // kinds of prompts, separated by commas
	prompt, generate, rounds, perStream int
}

// servedContext is the context of a stream in tokens.
const servedContext = 1024

// prefixMemory is the memory for caches of prefixes in MiB, llama-server's default.
const prefixMemory = 8192

// Kinds of prompts.
const (
	newPrompts  = "new"   // no server has seen them
	sameAgain   = "again" // the same ones in every run; one run that does not count comes first
	seedOfAgain = "1"
)

// servedKind is what a row of the table is of.
type servedKind struct{ prompts, streams string }

// kinds lists the rows of the table for each server.
func (o served) kinds() ([]servedKind, error) {
	concurrent, err := numbersOf("-serve", o.concurrent)
	if err != nil {
		return nil, err
	}
	var out []servedKind
	for prompts := range strings.SplitSeq(o.prompts, ",") {
		if prompts != newPrompts && prompts != sameAgain {
			return nil, fmt.Errorf("-prompts: %q is neither %s nor %s", prompts, newPrompts, sameAgain)
		}
		for _, streams := range concurrent {
			out = append(out, servedKind{prompts, strconv.Itoa(streams)})
		}
	}
	return out, nil
}

// server is one of the two, while it runs.
type server struct {
	name, url string
	command   *exec.Cmd
	runs      map[servedKind][]servedRun
}

// servedRun is what a run of etc bench measured.
type servedRun struct {
	serving.Row
	worked time.Duration // processor time of the server, for the warm-up too; 0: not known
	others float64       // cores that other processes used meanwhile
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
		runs: map[servedKind][]servedRun{}}
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

// measure measures a server while the other one rests.
func (p *peers) measure(s *server, k servedKind, o served) (servedRun, error) {
	streams, err := strconv.Atoi(k.streams)
	if err != nil {
		return servedRun{}, err
	}
	args := []string{"bench", "--serve", s.url, "--concurrent", k.streams, "--requests",
		fmt.Sprint(streams * o.perStream), "-p", fmt.Sprint(o.prompt), "-n", fmt.Sprint(o.generate), "--json"}
	if k.prompts == sameAgain {
		args = append(args, "--prompt-seed", seedOfAgain)
	}
	c := exec.Command(p.etc, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, p.log
	start := time.Now()
	busy, _ := busyTime()
	worked, _ := processTime(s.command.Process.Pid)
	if err := c.Run(); err != nil {
		return servedRun{}, fmt.Errorf("%s: %w", s.name, err)
	}
	var result struct{ Rows []serving.Row }
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return servedRun{}, err
	}
	if len(result.Rows) != 1 {
		return servedRun{}, fmt.Errorf("%s: etc bench printed %d rows for one", s.name, len(result.Rows))
	}
	run := servedRun{Row: result.Rows[0]}
	after, known := processTime(s.command.Process.Pid)
	if known {
		run.worked = after - worked
		busyAfter, _ := busyTime()
		client := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		run.others = float64(busyAfter-busy-run.worked-client) / float64(time.Since(start))
	}
	return run, nil
}

// serve compares the servers of a model in turns, and writes a table of the medians.
func (p *peers) serve(w io.Writer, name string, threads string, o served) error {
	m, err := modelNamed(name)
	if err != nil {
		return err
	}
	kinds, err := o.kinds()
	if err != nil {
		return err
	}
	servers, err := p.startBoth(m, threads, kinds)
	for _, s := range servers {
		defer s.stop()
	}
	if err != nil {
		return err
	}
	if err := p.inTurns(servers, kinds, o); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s, %s threads, answers of %d tokens to prompts of %d, %d rounds\n\n", m.label, threads,
		o.generate, o.prompt, o.rounds)
	writeServed(w, kinds, servers...)
	return nil
}

// startBoth starts the servers of a model; those that it has started it returns with an error too.
func (p *peers) startBoth(m model, threads string, kinds []servedKind) ([]*server, error) {
	llama, err := p.buildServer()
	if err != nil {
		return nil, err
	}
	pte, ggufPath, err := p.serveFiles(m)
	if err != nil {
		return nil, err
	}
	most := 0
	for _, k := range kinds {
		n, err := strconv.Atoi(k.streams)
		if err != nil {
			return nil, err
		}
		most = max(most, n)
	}
	ours, err := p.start("etc", "/ready", p.etc, "serve", pte, "--device", p.device, "--threads", threads,
		"--max-concurrent", fmt.Sprint(most), "--cache-memory", fmt.Sprint(prefixMemory, "MiB"))
	if err != nil {
		return nil, err
	}
	args := []string{"-m", ggufPath, "-t", threads, "-np", fmt.Sprint(most), "-c", fmt.Sprint(most * servedContext),
		"--cache-ram", fmt.Sprint(prefixMemory)}
	if p.onGPU() {
		args = append(args, "-ngl", "99", "-fa", "on")
	}
	theirs, err := p.start("llama.cpp", "/health", llama, args...)
	if err != nil {
		return []*server{ours}, err
	}
	return []*server{ours, theirs}, nil
}

// inTurns measures all kinds of a round with both servers, of which another one is first in every round. New prompts
// come after the ones that come again, so that caches have room for these.
func (p *peers) inTurns(servers []*server, kinds []servedKind, o served) error {
	for _, prompts := range []string{sameAgain, newPrompts} {
		for round := range o.rounds {
			for _, k := range kinds {
				if k.prompts != prompts {
					continue
				}
				for i := range servers {
					s := servers[(i+round)%len(servers)]
					if round == 0 && prompts == sameAgain { // the caches are filled
						if _, err := p.measure(s, k, o); err != nil {
							return err
						}
					}
					run, err := p.measure(s, k, o)
					if err != nil {
						return err
					}
					s.runs[k] = append(s.runs[k], run)
				}
			}
		}
	}
	return nil
}

// writeServed writes the medians of all rounds.
func writeServed(w io.Writer, kinds []servedKind, servers ...*server) {
	fmt.Fprintln(w, "| prompts | streams | server | cached | first token, ms, p50 | p99 | between tokens, ms, p50 "+
		"| p99 | tokens/s of all | min–max | CPU, s |")
	fmt.Fprintln(w, "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	others := 0.0
	for _, k := range kinds {
		for _, s := range servers {
			column := func(f func(servedRun) float64) []float64 {
				var out []float64
				for _, r := range s.runs[k] {
					out = append(out, f(r))
				}
				slices.Sort(out)
				return out
			}
			middle := func(f func(servedRun) float64) float64 { return median(column(f)) }
			total := column(func(r servedRun) float64 { return r.Total })
			for _, r := range s.runs[k] {
				others = max(others, r.others)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %.0f %% | %.0f | %.0f | %.1f | %.1f | %.1f | %.1f–%.1f | %.2f |\n",
				k.prompts, k.streams, s.name,
				middle(func(r servedRun) float64 { return 100 * float64(r.Cached) / float64(r.Prompt*r.Requests) }),
				middle(func(r servedRun) float64 { return 1000 * r.First.P50 }),
				middle(func(r servedRun) float64 { return 1000 * r.First.P99 }),
				middle(func(r servedRun) float64 { return 1000 * r.Between.P50 }),
				middle(func(r servedRun) float64 { return 1000 * r.Between.P99 }),
				median(total), total[0], total[len(total)-1],
				middle(func(r servedRun) float64 { return r.worked.Seconds() }))
		}
	}
	fmt.Fprintf(w, "\nCPU is the processor time of the server in a run, its warm-up too, where the system tells. "+
		"Other processes used %.1f cores at most.\n", others)
}
