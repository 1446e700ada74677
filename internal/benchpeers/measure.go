package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/cpu/pool"
)

// setting is one configuration that is measured with both programs.
type setting struct {
	Model   string `json:"model"`
	Threads int    `json:"threads"`
	Depth   int    `json:"depth"`
	Busy    int    `json:"busy"`              // processes that do nothing but keep a core busy
	Streams int    `json:"streams,omitempty"` // answers at a time in one process; 0: one, as llama-bench has it
	Test    string `json:"test"`              // pp512, tg64; of streams also pp512+tg64, which is both together
	Device  string `json:"device,omitempty"`  // empty: cpu
}

// result are the figures of one setting, in tokens per second; a line of results.jsonl.
type result struct {
	setting
	Etc   []float64 `json:"etc"`
	Llama []float64 `json:"llama"`
	// Read is the bandwidth of a plain read with as many threads, before and after, in GB/s.
	Read   []float64 `json:"read"`
	Commit string    `json:"commit"`
	Time   time.Time `json:"time"`
}

// plan is the command line of a comparison.
type plan struct {
	prompt, generate, rounds, repetitions int
	// streams are the numbers of streams that are compared; none: one stream, with llama-bench.
	streams []int
}

// compare runs both programs in turns for one model and number of threads.
func (p *peers) compare(m model, s setting, n plan) ([]result, error) {
	pte, ggufPath, err := p.files(m)
	if err != nil {
		return nil, err
	}
	all := map[setting]*result{}
	var order []*result
	at := func(x sample) *result {
		of := s
		of.Test, of.Streams = x.test, x.streams
		if all[of] == nil {
			all[of] = &result{setting: of, Time: time.Now().UTC().Truncate(time.Second)}
			order = append(order, all[of])
		}
		return all[of]
	}
	llama, etc := p.runLlama, p.runEtc
	if len(n.streams) > 0 {
		llama, etc = p.runLlamaStreams, p.runEtcStreams
	}
	stop, err := startSpinners(s.Busy)
	if err != nil {
		return nil, err
	}
	defer stop()
	var reads []float64
	for range n.rounds {
		if s.Busy == 0 && !p.onGPU() {
			reads = append(reads, readSpeed(s.Threads))
		}
		speeds, err := p.alone(s, func() (samples, *exec.Cmd, error) { return llama(ggufPath, s, n) })
		if err != nil {
			return nil, err
		}
		for _, x := range speeds {
			at(x).Llama = append(at(x).Llama, x.speeds...)
		}
		if speeds, err = p.alone(s, func() (samples, *exec.Cmd, error) { return etc(pte, s, n) }); err != nil {
			return nil, err
		}
		for _, x := range speeds {
			at(x).Etc = append(at(x).Etc, x.speeds...)
		}
	}
	var out []result
	for _, r := range order {
		r.Read = reads
		out = append(out, *r)
	}
	return out, nil
}

// samples are the figures of one run of a program, in the order of its tests.
type samples []sample

// sample is what a run tells of one test, in tokens per second.
type sample struct {
	test    string
	streams int // 0 where only one stream can be measured
	speeds  []float64
}

// attempts bounds how often a run is repeated that was not alone.
const attempts = 4

// alone runs a program again where others used more than half a core meanwhile.
func (p *peers) alone(s setting, run func() (samples, *exec.Cmd, error)) (samples, error) {
	for i := 1; ; i++ {
		start := time.Now()
		before, known := busyTime()
		got, c, err := run()
		if err != nil || !known || s.Busy > 0 {
			return got, err
		}
		after, _ := busyTime()
		others := float64(after-before-c.ProcessState.UserTime()-c.ProcessState.SystemTime()) / float64(
			time.Since(start))
		if others <= 0.5 {
			return got, nil
		}
		fmt.Fprintf(p.log, "benchpeers: %s: others used %.1f cores meanwhile; these figures do not count\n", c.Path,
			others)
		if i == attempts {
			return nil, fmt.Errorf("this machine is too busy to measure anything")
		}
	}
}

// tick is the unit of times in /proc, USER_HZ.
const tick = time.Second / 100

// busyTime is how long all processors have worked since the start of the machine, where Linux says so.
func busyTime() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/stat")
	var user, nice, system, idle, wait, interrupts, soft int64
	if err == nil {
		_, err = fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle,
			&wait, &interrupts, &soft)
	}
	return time.Duration(user+nice+system+interrupts+soft) * tick, err == nil
}

// processTime is how long a process has worked, where Linux says so.
func processTime(pid int) (time.Duration, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	return parseProcessTime(string(text))
}

// parseProcessTime reads the time in user and kernel mode from a line of /proc/PID/stat: the 14th and 15th field. The
// second one is the name of the program in parentheses, which may hold anything.
func parseProcessTime(stat string) (time.Duration, bool) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, false
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, false
	}
	return time.Duration(user+system) * tick, true
}

func arguments(s setting, n plan) []string {
	return []string{"-t", fmt.Sprint(s.Threads), "-p", fmt.Sprint(n.prompt), "-n", fmt.Sprint(n.generate), "-d",
		fmt.Sprint(s.Depth), "-r", fmt.Sprint(n.repetitions)}
}

// runLlama returns what llama-bench says.
func (p *peers) runLlama(path string, s setting, n plan) (samples, *exec.Cmd, error) {
	args := append(arguments(s, n), "-m", path, "-o", "json")
	if p.onGPU() {
		args = append(args, "-ngl", "99", "-fa", "1")
	}
	text, c, err := p.output(p.llama, args...)
	if err != nil {
		return nil, nil, err
	}
	var rows []struct {
		Prompt   int       `json:"n_prompt"`
		Generate int       `json:"n_gen"`
		Samples  []float64 `json:"samples_ts"`
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.llama, err)
	}
	got := make(samples, len(rows))
	for i, row := range rows {
		got[i].test, got[i].speeds = fmt.Sprintf("pp%d", row.Prompt), row.Samples
		if row.Generate > 0 {
			got[i].test = fmt.Sprintf("tg%d", row.Generate)
		}
	}
	return got, c, nil
}

// runEtc returns what etc bench says.
func (p *peers) runEtc(path string, s setting, n plan) (samples, *exec.Cmd, error) {
	args := arguments(s, n)
	args[0] = "--threads"
	text, c, err := p.output(p.etc, append([]string{"bench", path, "--device", p.device, "--json"}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	var bench struct {
		Rows []struct {
			Test    string    `json:"test"`
			Tokens  int       `json:"tokens"`
			Samples []float64 `json:"samples"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(text, &bench); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.etc, err)
	}
	got := make(samples, len(bench.Rows))
	for i, row := range bench.Rows {
		got[i].test, got[i].speeds = fmt.Sprintf("%s%d", row.Test[:2], row.Tokens), row.Samples
	}
	return got, c, nil
}

// output runs a program and gives its standard output.
func (p *peers) output(name string, args ...string) ([]byte, *exec.Cmd, error) {
	var failed bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &failed
	text, err := c.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%s %v: %w\n%s", name, args, err, failed.Bytes())
	}
	return text, c, nil
}

// readBuffer is larger than any cache.
var readBuffer []byte

// readSpeed returns the best of some reads of a buffer by threads, in GB/s.
func readSpeed(threads int) float64 {
	if readBuffer == nil {
		readBuffer = make([]byte, 1<<30)
		for i := 0; i < len(readBuffer); i += 4096 {
			readBuffer[i] = 1
		}
	}
	p := pool.New(threads)
	defer p.Close()
	best := 0.0
	for range 4 {
		start := time.Now()
		p.Run(len(readBuffer), 256<<10, func(lo, hi int) { kernel.Touch(readBuffer[lo:hi]) })
		best = max(best, float64(len(readBuffer))/time.Since(start).Seconds()/1e9)
	}
	return best
}

// spinning is set in the environment of a process that only keeps a core busy.
const spinning = "BENCHPEERS_SPIN"

// spin keeps a core busy until the process is killed or its parent has gone.
func spin() {
	runtime.GOMAXPROCS(1)
	for parent := os.Getppid(); os.Getppid() == parent; {
		for range 1 << 28 {
		}
	}
}

// startSpinners starts n busy processes.
func startSpinners(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var running []*exec.Cmd
	stop = func() {
		for _, c := range running {
			c.Process.Kill()
			c.Wait()
		}
	}
	for range n {
		c := exec.Command(self)
		c.Env = append(os.Environ(), spinning+"=1")
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		running = append(running, c)
	}
	return stop, nil
}
