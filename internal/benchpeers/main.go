package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if os.Getenv(spinning) != "" {
		spin()
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		os.Exit(1)
	}
}

// run reads the flags and measures. It is long because it is the list of its flags.
func run() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	p := &peers{log: os.Stderr}
	flag.StringVar(&p.dir, "dir", filepath.Join(cache, "etc-peers"),
		"where sources, models and results are kept; 10 to 30 GB")
	flag.StringVar(&p.etc, "etc", filepath.Join("bin", "etc"), "the program etc")
	flag.StringVar(&p.llama, "llama-bench", "", "a llama-bench that is built, instead of building one")
	names := flag.String("models", "qwen4,gemma6",
		"names with the number of layers: qwen4|8|12|40, gemma6|12|60, qwen-dense4|8|64, qwen-next4|16, "+
			"gemma-moe6|12|30")
	flag.StringVar(&p.device, "device", "cpu", "cpu, or cuda for a GPU, which holds all layers of both programs")
	threads := flag.String("threads", "1,2,4", "numbers of threads")
	depths := flag.String("depths", "0", "tokens in the context before a measurement")
	var n plan
	flag.IntVar(&n.prompt, "p", 512, "tokens of the prompt, 0 for none")
	flag.IntVar(&n.generate, "n", 64, "tokens generated, 0 for none")
	flag.IntVar(&n.rounds, "rounds", 3, "how often each program runs")
	flag.IntVar(&n.repetitions, "r", 2, "measurements of a run")
	busy := flag.Int("busy", 0, "busy processes beside")
	streams := flag.String("streams", "",
		"compare so many streams at a time, as 1,4,8, with llama-batched-bench, at depth 0")
	files := flag.Bool("files", false, "only make the files of the models that are not there")
	only := flag.Bool("table", false, "only print the table of the results of this commit")
	var o served
	flag.StringVar(&o.concurrent, "serve", "",
		"compare the servers, of one number of threads, with so many streams at a time, as 1,4,16")
	flag.IntVar(&o.perStream, "answers", 2, "answers of each stream, with -serve")
	flag.StringVar(&o.prompts, "prompts", "new,again",
		"prompts, with -serve: new ones, and the same ones again, which servers have in their caches")
	commit := flag.String("commit", "", "what the results are of (default: git's HEAD)")
	flag.Parse()

	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if p.etc, err = filepath.Abs(p.etc); err != nil {
		return err
	}
	if *files {
		return p.makeFiles(*names, o.concurrent != "")
	}
	if o.concurrent != "" {
		o.prompt, o.generate, o.rounds = n.prompt, n.generate, n.rounds
		for name := range strings.SplitSeq(*names, ",") {
			if err := p.serve(os.Stdout, name, *threads, o); err != nil {
				return err
			}
		}
		return nil
	}
	if *streams != "" {
		if n.streams, err = numbersOf("-streams", *streams); err != nil {
			return err
		}
	}
	if len(n.streams) > 0 && (*depths != "0" || n.prompt < 1 || n.generate < 1) {
		return fmt.Errorf("-streams takes -depths 0, and a prompt (-p) and an answer (-n) of at least one token")
	}
	if *commit == "" {
		head, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
		if err != nil {
			return fmt.Errorf("git rev-parse: %w; -commit names what is measured", err)
		}
		*commit = strings.TrimSpace(string(head))
	}
	path := filepath.Join(p.dir, "results.jsonl")
	if !*only {
		if err := p.measureAll(path, *commit, *names, *threads, *depths, *busy, n); err != nil {
			return err
		}
	}
	results, err := kept(path, *commit)
	if err != nil {
		return err
	}
	fmt.Printf("commit %s\n\n", *commit)
	writeTable(os.Stdout, results)
	return nil
}

// numbersOf returns the positive numbers of a flag, separated by commas.
func numbersOf(flag, list string) (out []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q is no positive number", flag, text)
		}
		out = append(out, n)
	}
	return out, nil
}

// makeFiles makes the files of models, those of servers or of the others.
func (p *peers) makeFiles(names string, served bool) error {
	for name := range strings.SplitSeq(names, ",") {
		m, err := modelNamed(name)
		if err != nil {
			return err
		}
		of := p.files
		if served {
			of = p.serveFiles
		}
		if _, _, err := of(m); err != nil {
			return err
		}
	}
	return nil
}

// measureAll measures every combination of a list of models, numbers of threads and depths.
func (p *peers) measureAll(path, commit, names, threads, depths string, busy int, n plan) error {
	numbers, err := numbersOf("-threads", threads)
	if err != nil {
		return err
	}
	if err := p.build(); err != nil {
		return err
	}
	for name := range strings.SplitSeq(names, ",") {
		m, err := modelNamed(name)
		if err != nil {
			return err
		}
		for _, t := range numbers {
			for _, d := range strings.Split(depths, ",") {
				s := setting{Model: name, Threads: t, Busy: busy}
				if p.onGPU() {
					s.Device = p.device
				}
				var err error
				if s.Depth, err = strconv.Atoi(d); err != nil || s.Depth < 0 {
					return fmt.Errorf("-depths: %q is no number of tokens", d)
				}
				fmt.Fprintf(p.log, "benchpeers: %s, %d threads, depth %d\n", name, s.Threads, s.Depth)
				results, err := p.compare(m, s, n)
				if err != nil {
					return err
				}
				for i := range results {
					results[i].Commit = commit
				}
				if err := keep(path, results); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
