package execfuzz

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
)

var (
	executions = flag.Int("executions", 0, "executions of TestExecutions; 0 for a few")
	seed       = flag.Uint64("seed", 1, "which mutants")
	keep       = flag.String("keep", "", "folder for mutants that crash or differ")
	mutant     = flag.Int("mutant", -1, "the mutant of TestOne")
	ofModels   = flag.Bool("models", false, "TestOne takes a model")
	onGPU      = flag.Bool("gpu", false, "TestOne takes the emulated GPU")
	sets       = flag.Int("sets", 1, "sets of inputs that a mutant is executed with")
	seconds    = flag.Int("seconds", 0, "seconds after which a search ends; 0 for no end but its executions")
	stop       = flag.Int("stop", 20, "findings after which it ends")
)

func corpus(t testing.TB, seeds []Seed) *Corpus {
	t.Helper()
	c, err := NewCorpus(seeds)
	require.NoError(t, err)
	return c
}

// TestOne repeats one mutant: -seed 1 -mutant 5 -models, and prints its module and inputs.
func TestOne(t *testing.T) {
	if *mutant < 0 {
		t.Skip("no -mutant")
	}
	seeds := nodesOf(t)
	x := &Runner{Engine: cpu.Engine{}, Calls: 2, Sets: *sets}
	if *ofModels {
		seeds, x.Calls = models(t), 3
	}
	if *onGPU {
		x.Engine = emulated(t)
	}
	x.Log = t.Logf
	c := corpus(t, seeds)
	r := rand.New(rand.NewPCG(*seed, uint64(*mutant)))
	data, err := c.Mutant(*mutant%c.Len(), r)
	require.NoError(t, err)
	for i, o := range x.Execute(data, r) {
		t.Log("set", i, o.Verdict, o.Text)
	}
	if *keep != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*keep, fmt.Sprintf("%d-%d.pte", *seed, *mutant)), data, 0o644))
	}
}

// search executes mutants until so many ran, and reports what it finds.
func search(t *testing.T, c *Corpus, x *Runner, n int) Counts {
	var counts Counts
	found, graphs, start := 0, 0, time.Now()
	x.Sets = *sets
	late := func() bool { return *seconds > 0 && time.Since(start) > time.Duration(*seconds)*time.Second }
	for i := uint64(0); counts.Executed() < n && found < *stop && !late(); i++ {
		r := rand.New(rand.NewPCG(*seed, i))
		at := int(i) % c.Len()
		data, err := c.Mutant(at, r)
		if err != nil {
			continue
		}
		if *keep != "" { // should a kernel end the process
			last := fmt.Sprintf("-seed %d -mutant %d (%s)", *seed, i, c.Seed(at).Name)
			require.NoError(t, os.WriteFile(filepath.Join(*keep, "last"), []byte(last), 0o644))
		}
		outcomes := x.Execute(data, r)
		if executed(outcomes) {
			graphs++
		}
		name := fmt.Sprintf("%d-%d", *seed, i)
		bad := false
		for set, o := range outcomes {
			counts[o.Verdict]++
			if o.Verdict == Laxer {
				t.Logf("mutant %s, set %d: laxer: %s", name, set, o.Text)
			}
			if o.Verdict == Crashed || o.Verdict == Different {
				bad = true
				t.Errorf("mutant %s of %s, set %d: %s: %s", name, c.Seed(at).Name, set, o.Verdict, o.Text)
			}
		}
		if bad {
			found++
			if *keep != "" {
				require.NoError(t, os.WriteFile(filepath.Join(*keep, name+".pte"), data, 0o644))
			}
		}
		if i%50000 == 49999 {
			t.Logf("%d s: %s", int(time.Since(start).Seconds()), counts)
		}
	}
	t.Logf("%d executions of %d graphs in %.0f s: %s", counts.Executed(), graphs, time.Since(start).Seconds(), counts)
	return counts
}

// executed reports whether a mutant ran on both engines.
func executed(outcomes []Outcome) bool {
	var counts Counts
	for _, o := range outcomes {
		counts[o.Verdict]++
	}
	return counts.Executed() > 0
}

func nodesOf(t testing.TB) []Seed {
	t.Helper()
	seeds, err := Nodes()
	require.NoError(t, err)
	return seeds
}

// TestFound runs the mutants that have shown a fault, with several inputs, on the CPU engine.
func TestFound(t *testing.T) { requireFound(t, cpu.Engine{}) }

// TestFoundOnGPU runs them on the emulated GPU.
func TestFoundOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are compiled")
	}
	requireFound(t, emulated(t))
}

func requireFound(t *testing.T, e engine.Engine) {
	found, err := Found()
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, s := range found {
		t.Run(s.Name, func(t *testing.T) {
			for i := range uint64(12) {
				for _, o := range (&Runner{Engine: e, Calls: 3}).Execute(s.Bytes, rand.New(rand.NewPCG(i, 0))) {
					require.NotContains(t, []Verdict{Crashed, Different, Invalid, TooLarge}, o.Verdict, o.Text)
				}
			}
		})
	}
}

// FuzzExecution runs mutants of programs of a few nodes on the CPU engine: which is a function of the file's number and
// of two others.
func FuzzExecution(f *testing.F) {
	c := corpus(f, nodesOf(f))
	for i := range c.Len() {
		f.Add(uint8(i), uint64(i), uint64(0))
	}
	x := &Runner{Engine: cpu.Engine{}, Calls: 2}
	f.Fuzz(func(t *testing.T, file uint8, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		data, err := c.Mutant(int(file)%c.Len(), r)
		if err != nil {
			return
		}
		for _, o := range x.Execute(data, r) {
			if o.Verdict == Crashed || o.Verdict == Different {
				t.Fatalf("mutant of %s: %s: %s", c.Seed(int(file)%c.Len()).Name, o.Verdict, o.Text)
			}
		}
	})
}

// TestExecutions runs mutants of programs of a few nodes on the CPU engine.
func TestExecutions(t *testing.T) {
	n := max(*executions, 2000)
	c := search(t, corpus(t, nodesOf(t)), &Runner{Engine: cpu.Engine{}, Calls: 2}, n)
	require.Greater(t, c[Equal], min(n, c.Executed())/3, "too few mutants answer")
}

// TestExecutionsOfModels runs mutants of tiny models on the CPU engine.
func TestExecutionsOfModels(t *testing.T) {
	n := max(*executions, 50)
	c := search(t, corpus(t, models(t)), &Runner{Engine: cpu.Engine{}, Calls: 3}, n)
	require.Greater(t, c[Equal], min(n, c.Executed())/3, "too few mutants answer")
}

// emulated is the GPU engine on the emulator.
func emulated(t testing.TB) engine.Engine {
	t.Helper()
	open := func() (device.Device, error) { return emulator.Open(emulator.Options{}) }
	d, err := open()
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, d.Close())
	return gpu.Engine{Device: "emulator", Open: open}
}

// TestExecutionsOnGPU runs mutants of programs of a few nodes on the emulated GPU.
func TestExecutionsOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are compiled")
	}
	n := max(*executions, 200)
	c := search(t, corpus(t, nodesOf(t)), &Runner{Engine: emulated(t), Calls: 2}, n)
	require.Greater(t, c[Equal], min(n, c.Executed())/3, "too few mutants answer")
}

// TestExecutionsOfModelsOnGPU runs mutants of tiny models on the emulated GPU.
func TestExecutionsOfModelsOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are compiled")
	}
	n := max(*executions, 10)
	c := search(t, corpus(t, models(t)), &Runner{Engine: emulated(t), Calls: 3}, n)
	require.Greater(t, c[Equal], min(n, c.Executed())/3, "too few mutants answer")
}
