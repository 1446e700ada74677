package execfuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/reference"
)

// Verdict is the result of running a mutant.
type Verdict int

const (
	// Invalid files are refused by the container, by lifting or by the verifier.
	Invalid Verdict = iota
	// TooLarge ones are valid, but would take long: they are not executed.
	TooLarge
	// Slow ones took more than a second.
	Slow
	// Refused ones end in an error on both engines.
	Refused
	// Equal ones give the same on both.
	Equal
	// Unstable ones differ, and so does the reference engine's answer where inputs change in the seventh digit; or they
	// compute with numbers whose squares float32 does not have, and do not differ where the inputs have no such
	// numbers.
	Unstable
	// Stricter ones are refused by the fast engine where the reference engine answers: see stricter.
	Stricter
	// Laxer ones are answered by the fast engine where the reference engine refuses in an arm of an If, because fusion
	// makes one operation of both arms: the reference engine gives the same answer of the fused module.
	Laxer
	// Different ones give different answers, or are refused by one engine only.
	Different
	// Crashed ones panic.
	Crashed
	verdicts
	// beyondRange is the verdict where answers differ and the reference engine has numbers above largestSquared.
	beyondRange
)

var verdictNames = [verdicts]string{
	"invalid", "too large", "slow", "refused by both", "equal", "unstable", "stricter", "laxer", "DIFFERENT", "CRASHED",
}

// String names the verdict.
func (v Verdict) String() string { return verdictNames[v] }

// Counts holds the number of mutants of each verdict.
type Counts [verdicts]int

// Executed returns the number of mutants that ran on both engines.
func (c Counts) Executed() int {
	return c[Refused] + c[Equal] + c[Unstable] + c[Stricter] + c[Laxer] + c[Different] + c[Crashed]
}

// String lists them.
func (c Counts) String() string {
	var out []string
	for v, n := range c {
		out = append(out, fmt.Sprintf("%d %s", n, Verdict(v)))
	}
	return strings.Join(out, ", ")
}

// Runner compares an engine with the reference engine.
type Runner struct {
	Engine engine.Engine
	// Calls is the number of calls of a mutant on one state.
	Calls int
	// Sets is the number of sets of inputs that a mutant is called with, each on a new state; 0 means 1.
	Sets int
	// Log, if not nil, is told of the module, its inputs and its answers.
	Log func(format string, args ...any)
}

// stricter are refusals that a fast engine may add. Attention over a cache, which it runs as one operation, has
// positions that follow each other and slots for all of them; the same nodes one by one say something for other
// positions too. And where all sizes are known before a call, an update that cannot fit its slice is refused though the
// slice is empty.
var stricter = regexp.MustCompile(`cached_attention: (position -\d+ is negative|` +
	`\d+ positions from \d+ on do not fit)|` +
	`buffer_slice_update @\S+: positions -?\d+ to -?\d+ for \d+ tokens, the cache has|` +
	`after pass [a-z-]+: \w+: buffer_slice_update: .* does not broadcast to`)

// laxer are refusals that fusion may remove: those in an arm of an If. Experts are written as an If with an arm for one
// token and an arm for many, which mean the same, and are one operation to a fast engine.
var laxer = regexp.MustCompile(`\n\s*in .* = if\(`)

// Tolerances of floats, relative to the largest number of a tensor.
const (
	toleranceFP32  = 1e-4
	toleranceMixed = 2e-2 // state is rounded to bf16; results on both sides of a tie differ by a step
)

// Outcome is the result of a mutant for one set of inputs. Its text says what is wrong.
type Outcome struct {
	Verdict Verdict
	Text    string
}

// Execute runs a file on both engines, with inputs that r chooses, and returns an outcome for each set of inputs. A
// file that is not executed has one outcome.
func (x *Runner) Execute(data []byte, r *rand.Rand) []Outcome {
	m, err := load(data)
	var failure *fault.Error
	if errors.As(err, &failure) {
		return []Outcome{{Crashed, "reading: " + failure.Error() + "\n" + string(failure.Stack)}}
	}
	if err != nil {
		if strings.Contains(err.Error(), "runtime error") {
			return []Outcome{{Crashed, err.Error()}}
		}
		return []Outcome{{Invalid, err.Error()}}
	}
	large, open := tooLarge(m)
	if large {
		return []Outcome{{TooLarge, ""}}
	}
	c := comparison{module: m, tolerance: toleranceFP32}
	c.options = engine.Options{Precision: eval.FP32, Exact: true, Threads: 1 + r.IntN(2), NoTune: true}
	c.options.Warn = func(string) {}
	if r.IntN(4) == 0 {
		c.options.Precision, c.tolerance = eval.Mixed, toleranceMixed
	}
	c.reference = compile(reference.Engine{}, m, c.options)
	defer c.reference.close()
	c.fast = compile(x.Engine, m, c.options)
	defer c.fast.close()
	var out []Outcome
	for range max(x.Sets, 1) {
		out = append(out, x.executeSet(&c, r, open))
	}
	return out
}

// executeSet makes the calls of one set of inputs.
func (x *Runner) executeSet(c *comparison, r *rand.Rand, open bool) Outcome {
	calls := make([][]eval.Value, x.Calls)
	at := r.IntN(3)
	for i := range calls {
		calls[i] = inputs(c.module, r, at, open)
		at += rowsOf(c.module, calls[i])
	}
	if x.Log != nil {
		x.Log("%s\n%v %v", c.module, c.options.Precision, c.options.Threads)
		for i, in := range calls {
			for j, v := range in {
				x.Log("call %d, input %d: %v %v", i, j, v.Tensor, v.Int)
			}
		}
	}
	v, text := c.compare(calls)
	return Outcome{v, text}
}

// comparison is a module on two engines.
type comparison struct {
	module          *ir.Module
	options         engine.Options
	tolerance       float64
	reference, fast *compiled
}

// compare makes the calls on both engines and judges the answers.
func (c *comparison) compare(calls [][]eval.Value) (Verdict, string) {
	want, got := c.reference.call(calls), c.fast.call(calls)
	for _, a := range []*answer{want, got} {
		var failure *fault.Error
		if errors.As(a.refusal, &failure) {
			return Crashed, failure.Error() + "\n" + string(failure.Stack)
		}
		if errors.Is(a.refusal, context.DeadlineExceeded) {
			return Slow, ""
		}
	}
	v, text := c.judge(calls, want, got)
	if v != beyondRange {
		return v, text
	}
	// Extreme numbers (see tame) excuse a difference only if it disappears without them.
	tamed, changed := tame(calls)
	if !changed {
		return Unstable, text
	}
	if v, text := c.compare(tamed); v == Different || v == Crashed {
		return v, "with the large numbers of the inputs made small: " + text
	}
	return Unstable, text
}

// judge compares answers.
func (c *comparison) judge(calls [][]eval.Value, want, got *answer) (Verdict, string) {
	text := ""
	switch {
	case want.refusal != nil && got.refusal != nil:
		return Refused, ""
	case got.refusal != nil && stricter.MatchString(got.refusal.Error()):
		return Stricter, ""
	case got.refusal != nil:
		text = "refused, where the reference engine answers: " + got.refusal.Error()
	case want.refusal != nil:
		// An engine need not run operations whose results nothing uses, so it need not refuse them.
		if alive := withoutDead(c.module); alive != nil {
			if again := runAll(reference.Engine{}, alive, c.options, calls); again.refusal == nil {
				other := *c
				other.module = alive
				return other.judge(calls, again, got)
			}
		}
		if laxer.MatchString(want.refusal.Error()) && c.fusionRemoves(calls, got) {
			return Laxer, want.refusal.Error()
		}
		text = "answers, where the reference engine refuses: " + want.refusal.Error()
	default:
		text = differs(want, got, c.tolerance)
	}
	switch {
	case text == "":
		return Equal, ""
	case drawsUnseeded(c.module):
		return Unstable, text
	case leavesRange(c.module, c.options, calls):
		return beyondRange, text
	case c.flushes(calls, want, got), unstable(c.module, c.options, calls, want, c.tolerance):
		return Unstable, text
	}
	return Different, text
}

// smallestNormal is the smallest normal float32. Most GPUs flush smaller numbers to 0, as approximations of exp do; a
// comparison with 0 then differs.
const smallestNormal = 0x1p-126

// flushes reports whether the answers differ only in integers, and all of these are what the reference engine gives
// when it flushes subnormal numbers to 0.
func (c *comparison) flushes(calls [][]eval.Value, want, got *answer) bool {
	x, err := eval.NewMachine(c.module, c.options.Precision, nil)
	if err != nil {
		return false
	}
	x.Trace = func(_ *ir.Op, results []eval.Value) {
		for _, r := range results {
			if r.Tensor == nil {
				continue
			}
			for i, v := range r.Tensor.F {
				if v > -smallestNormal && v < smallestNormal {
					r.Tensor.F[i] = 0
				}
			}
		}
	}
	again := &answer{}
	for _, in := range calls {
		out, err := x.Run(copies(in))
		if err != nil {
			return false
		}
		for _, v := range out {
			again.add("output", v)
		}
	}
	for _, b := range c.module.Buffers {
		again.add("buffer", eval.Value{Tensor: x.Buffer(b)})
	}
	return want.refusal == nil && differs(either(want, again, got), got, c.tolerance) == ""
}

// either returns a with the integers of b wherever like has those of b.
func either(a, b, like *answer) *answer {
	out := &answer{}
	for i, v := range a.values {
		if t := v.Tensor; t != nil && i < len(b.values) && i < len(like.values) {
			t, x, y := t.Clone(), b.values[i].Tensor, like.values[i].Tensor
			for j := range t.I {
				if x != nil && y != nil && j < len(x.I) && j < len(y.I) && x.I[j] == y.I[j] {
					t.I[j] = y.I[j]
				}
			}
			v.Tensor = t
		}
		out.add(a.names[i], v)
	}
	return out
}

// fusionRemoves reports whether the reference engine gives the answer got for the fused module.
func (c *comparison) fusionRemoves(calls [][]eval.Value, got *answer) bool {
	fused, err := fuse.Entries(c.module, passes.Control{})
	if err != nil || len(fused) != 1 {
		return false
	}
	again := runAll(reference.Engine{}, fused[0], c.options, calls)
	return again.refusal == nil && differs(again, got, c.tolerance) == ""
}

// tame replaces the extreme numbers of inputs by small ones. changed is false if there are none.
func tame(calls [][]eval.Value) (tamed [][]eval.Value, changed bool) {
	for _, in := range calls {
		in = copies(in)
		for _, v := range in {
			if v.Tensor == nil {
				continue
			}
			for i, f := range v.Tensor.F {
				if !(f >= -largestTame && f <= largestTame) {
					v.Tensor.F[i], changed = 0.5, true
				}
			}
		}
		tamed = append(tamed, in)
	}
	return tamed, changed
}

// largestTame is the magnitude above which a number counts as extreme. Other inputs hardly reach it: see tensor.
const largestTame = 1000

// withoutDead returns the module without operations whose results nothing uses, or nil if it cannot be made.
func withoutDead(m *ir.Module) *ir.Module {
	alive := m.Clone()
	if err := passes.EliminateDead(alive); err != nil {
		return nil
	}
	return alive
}

func load(data []byte) (m *ir.Module, err error) {
	defer fault.Recover("loading", &err)
	f, err := container.OpenBytes("mutant.pte", data)
	if err != nil {
		return nil, err
	}
	p, err := program.New(f)
	if err != nil {
		return nil, err
	}
	return p.Module("forward")
}

// rowsOf returns the number of positions of a call.
func rowsOf(m *ir.Module, in []eval.Value) int {
	for _, v := range slices.Backward(in) {
		if v.Tensor != nil && len(v.Tensor.Shape) == 1 {
			return v.Tensor.Shape[0]
		}
	}
	return 1
}

// compiled is a module compiled on an engine, or the engine's error.
type compiled struct {
	exe     engine.Executable
	refusal error
}

func compile(e engine.Engine, m *ir.Module, o engine.Options) *compiled {
	exe, err := engine.Compile(e, m, o)
	return &compiled{exe, err}
}

func (c *compiled) close() {
	if c.refusal == nil {
		_ = c.exe.Close() // its results have been copied
	}
}

// runAll compiles a module and makes the calls.
func runAll(e engine.Engine, m *ir.Module, o engine.Options, calls [][]eval.Value) *answer {
	c := compile(e, m, o)
	defer c.close()
	return c.call(calls)
}

// call makes the calls on one state and returns outputs and state, up to the first error.
func (c *compiled) call(calls [][]eval.Value) *answer {
	a := &answer{refusal: c.refusal}
	if a.refusal != nil {
		return a
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	x, err := c.exe.NewInstance()
	if err != nil {
		a.refusal = err
		return a
	}
	defer x.Close() //nolint:errcheck // its results have been copied
	for i, in := range calls {
		out, err := x.Run(ctx, copies(in))
		if err != nil {
			a.refusal = fmt.Errorf("call %d: %w", i, err)
			return a
		}
		for j, v := range out {
			a.add(fmt.Sprintf("call %d, output %d", i, j), v)
		}
	}
	if s, ok := x.(engine.Stateful); ok {
		states, err := s.Snapshot()
		if err != nil {
			a.refusal = err
			return a
		}
		for _, s := range states {
			a.add("buffer "+s.Buffer, eval.Value{Tensor: s.Tensor})
		}
	}
	return a
}

// copies returns copies of inputs, to see whether a call changes them.
func copies(in []eval.Value) []eval.Value {
	out := slices.Clone(in)
	for i, v := range in {
		if v.Tensor != nil {
			out[i].Tensor = v.Tensor.Clone()
		}
	}
	return out
}

func (a *answer) add(name string, v eval.Value) {
	if v.Tensor != nil {
		v.Tensor = v.Tensor.Clone()
	}
	a.names, a.values = append(a.names, name), append(a.values, v)
}

// drawsUnseeded reports whether the module draws numbers that differ from run to run.
func drawsUnseeded(m *ir.Module) bool {
	found := false
	var look func(r *ir.Region)
	look = func(r *ir.Region) {
		for _, op := range r.Ops {
			if op.Def.Name == "random_bits" {
				_, seeded := op.Arg("seed")
				found = found || !seeded
			}
			for _, inner := range op.Regions {
				look(inner)
			}
		}
	}
	look(m.Entry.Body)
	if m.Init != nil {
		look(m.Init)
	}
	return found
}

// largestSquared bounds numbers whose squares float32 can sum. Beyond it, sums of squares in float32 and in float64
// differ.
const largestSquared = 1e17

// leavesRange reports whether the reference engine computes numbers above largestSquared.
func leavesRange(m *ir.Module, o engine.Options, calls [][]eval.Value) (beyond bool) {
	x, err := eval.NewMachine(m, o.Precision, nil)
	if err != nil {
		return false
	}
	x.Trace = func(_ *ir.Op, results []eval.Value) {
		for _, r := range results {
			if r.Tensor != nil {
				for _, v := range r.Tensor.F {
					beyond = beyond || v > largestSquared || v < -largestSquared
				}
			}
		}
	}
	for _, in := range calls {
		if _, err := x.Run(copies(in)); err != nil {
			break
		}
	}
	return beyond
}

// unstable reports whether the reference engine's answer changes about as much as the answers differ when the floats of
// inputs and constants change in the seventh digit.
func unstable(m *ir.Module, o engine.Options, calls [][]eval.Value, want *answer, tolerance float64) bool {
	r := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		changed := make([][]eval.Value, len(calls))
		for i, in := range calls {
			changed[i] = copies(in)
			for _, v := range changed[i] {
				if v.Tensor != nil {
					perturb(v.Tensor.F, r)
				}
			}
		}
		restore := perturbConstants(m, r)
		again := runAll(reference.Engine{}, m, o, changed)
		restore()
		if (again.refusal == nil) != (want.refusal == nil) {
			return true
		}
		if again.refusal == nil && differs(want, again, tolerance/4) != "" {
			return true
		}
	}
	return false
}

func perturb(v []float32, r *rand.Rand) {
	for i := range v {
		v[i] *= float32(1 + (r.Float64()-0.5)*1e-6)
	}
}

// perturbConstants changes the float constants of a module in the seventh digit, until restore is called.
func perturbConstants(m *ir.Module, r *rand.Rand) (restore func()) {
	kept := map[*ir.Constant]ir.Data{}
	for _, c := range m.Constants {
		d := c.Value.Type.DType
		dims, static := c.Value.Type.Static()
		if c.Data == nil || !d.IsFloat() || !static {
			continue
		}
		raw := make([]byte, ir.Elements(dims)*int64(d.Size()))
		if _, err := c.Data.ReadAt(raw, 0); err != nil && len(raw) > 0 {
			continue
		}
		shape := make([]int, len(dims))
		for i, n := range dims {
			shape[i] = int(n)
		}
		t, err := eval.Decode(d, shape, raw)
		if err != nil {
			continue
		}
		perturb(t.F, r)
		kept[c] = c.Data
		c.Data = ir.Bytes(d, dims, t.Encode())
	}
	return func() {
		for c, d := range kept {
			c.Data = d
		}
	}
}
