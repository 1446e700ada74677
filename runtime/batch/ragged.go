package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// RaggedOptions are the options of the ragged executor. Zero fields stand for defaults.
type RaggedOptions struct {
	// Engine are the options of the engine.
	Engine engine.Options
	// Rows is the largest number of rows of a call, at least Sequences. By default it is 512, or more where the engine
	// asks for long calls ([engine.PromptRows]) and the windows of one sequence then take an eighth of Budget at most.
	Rows int
	// Sequences is the largest number of sequences of a call, 16 by default.
	Sequences int
	// BlockRows is the number of positions in a block, 64 by default.
	BlockRows int
	// Budget is the memory for all units in bytes. The default suffices for Sequences whole contexts, with drafts and
	// checkpoints of their recurrent states.
	Budget int64
	// Positions, if not 0, is the number of tokens that a sequence will have, prompt and answer together. The default
	// of Budget then suffices for Sequences sequences of this length and no more: checkpoints get no memory, and drafts
	// what Drafts says. A sequence may become longer while others are shorter.
	Positions int
	// Drafts is the largest number of drafts of a sequence for which there is memory, in addition to Positions.
	Drafts int
	// Draft is the kind of draft that the executor has. The module needs a method for it. The executor is a [Drafter]
	// then.
	Draft speculate.Kind
	// Storage is the form of the state. A program that runs one sequence at a time has only the declared one.
	Storage ragged.Storage
}

// NotRaggedError says that a program can run only one sequence at a time: see [NewOneByOne].
type NotRaggedError struct{ Why error }

func (e *NotRaggedError) Error() string {
	return "the program runs one sequence at a time: " + e.Why.Error()
}

// Unwrap returns the reason.
func (e *NotRaggedError) Unwrap() error { return e.Why }

// raggedExecutor runs all rows of a call in one pass over the program.
type raggedExecutor struct {
	module     *ir.Module
	model      *ragged.Model
	options    ragged.Options
	precision  eval.Precision
	layout     cache.Layout
	executable engine.Executable
	instance   engine.Instance
	inputs     tableInputs
	draws      bool           // the device draws tokens: see drawn.go
	anyRows    bool           // calls have nearly the rows that they need: see rowsFor
	fixed      int            // the rows of every call of the program, 0: any; see pieces.go
	kind       speculate.Kind // of the draft
	rounds     int            // the largest number of drafts of an entry for rounds: see round.go
}

// NewRagged compiles a language model for calls of many sequences. The error is a [*NotRaggedError] where the program
// cannot be made ragged, or the engine has no kernels for that.
func NewRagged(m *ir.Module, e engine.Engine, o RaggedOptions) (Executor, error) {
	x, err := lowerRagged(m, e, o)
	if err != nil {
		return nil, err
	}
	if x.executable, err = engine.Compile(e, x.module, o.Engine); err != nil {
		return nil, err
	}
	if x.instance, err = x.executable.NewInstance(); err != nil {
		return nil, errors.Join(err, x.executable.Close())
	}
	return x, nil
}

// RaggedModule returns the module that [NewRagged] compiles.
func RaggedModule(m *ir.Module, e engine.Engine, o RaggedOptions) (*ir.Module, error) {
	x, err := lowerRagged(m, e, o)
	if err != nil {
		return nil, err
	}
	return x.module, nil
}

// lowerRagged returns an executor that is not compiled yet.
func lowerRagged(m *ir.Module, e engine.Engine, o RaggedOptions) (*raggedExecutor, error) {
	given := o.Rows
	o = o.withDefaults(e)
	if o.Rows < o.Sequences {
		return nil, fmt.Errorf("%d rows a call for %d sequences, want a row for each", o.Rows, o.Sequences)
	}
	if slices.Contains(o.Engine.DisablePasses, "ragged") {
		return nil, &NotRaggedError{errors.New("pass ragged is disabled")}
	}
	m, err := withDraft(m, o.Draft)
	if err != nil {
		return nil, err
	}
	if _, err := sequences(m, e, o.Engine.Precision, o.Storage); err != nil {
		return nil, err
	}
	x := &raggedExecutor{precision: o.Engine.Precision,
		fixed: fixedRows(e, o.Engine), kind: o.Draft, anyRows: runsAnyRows(e)}
	choose := func(model *ragged.Model) (ragged.Options, error) {
		x.layout = model.Layout(o.BlockRows, o.Engine.Precision)
		if given == 0 {
			o.Rows = o.rowsWithin(x.layout, model.Positions)
		}
		x.options = ragged.Options{BlockRows: o.BlockRows, Rows: o.Rows, Sequences: o.Sequences, Storage: o.Storage}
		var err error
		x.options.Units, err = units(x.layout, o, model.Positions)
		return x.options, err
	}
	x.module, x.model, err = fuse.Ragged(m, ragged.Options{Storage: o.Storage}, choose,
		passes.Control{Disable: o.Engine.DisablePasses,
			Verify: o.Engine.VerifyIR})
	// The options of one row must not decide where the tokens of others are drawn. So the host draws all tokens of a
	// deterministic call.
	if err == nil && drawsOnDevice(e) && !o.Engine.Deterministic {
		err = x.addEntries(o.Drafts)
	}
	return x, err
}

// addEntries adds the entries that draw on the device, and those of rounds for up to drafts drafts; 0: no bound.
func (x *raggedExecutor) addEntries(drafts int) error {
	x.draws = true
	err := addDraws(x.module, x.model.Vocab)
	// An engine that plans any number of rows quickly is one of the host. There a call costs little, so drafts and
	// verification stay calls of their own.
	if err != nil || x.anyRows {
		return err
	}
	most := mostOfRound
	if drafts > 0 {
		most = min(most, drafts)
	}
	x.rounds, err = addRounds(x.module, x.model.Draft, most)
	return err
}

// sharedRows is the default number of rows of a call, and of prompts in a call that has rows of running streams: those
// wait for it.
const sharedRows = 512

// withDefaults returns the options with defaults in the place of zeros, but for Budget.
func (o RaggedOptions) withDefaults(e engine.Engine) RaggedOptions {
	o.Sequences, o.BlockRows = orElse(o.Sequences, 16), orElse(o.BlockRows, blockRows)
	if o.Rows == 0 {
		o.Rows = max(sharedRows, o.Sequences)
		if p, ok := e.(engine.PromptRows); ok {
			o.Rows = max(o.Rows, p.PromptRows())
		}
	}
	o.Rows = max(o.Rows, fixedRows(e, o.Engine))
	return o
}

// rowsWithin returns a number of rows of a call, at most Rows, with which one sequence needs an eighth of the budget at
// most, or the fewest that there may be.
func (o RaggedOptions) rowsWithin(l cache.Layout, positions int) int {
	rows, least := o.Rows, max(sharedRows, o.Sequences)
	for o.Budget > 0 && rows/2 >= least && l.Bytes(l.Most(positions, rows))-l.Bytes(l.Most(positions, 1)) > o.Budget/8 {
		rows /= 2
	}
	return rows
}

// SequenceBytes returns the bytes of units that a sequence of o.Positions tokens needs in calls of at most o.Rows
// rows. The error is a [*NotRaggedError] if the program cannot run such calls.
func SequenceBytes(m *ir.Module, e engine.Engine, o RaggedOptions) (int64, error) {
	model, err := sequences(m, e, o.Engine.Precision, o.Storage)
	if err != nil {
		return 0, err
	}
	o = o.withDefaults(e)
	l := model.Layout(o.BlockRows, o.Engine.Precision)
	return l.Bytes(l.Most(o.Positions, o.Rows)), nil
}

// blockRows is the default number of positions in a block.
const blockRows = 64

// leastSlots is the number of slots for states that an executor of few sequences has where its budget has room for
// them: long prompts have checkpoints.
const leastSlots = 64

// sequences describes what a sequence of a program needs. The error is a [*NotRaggedError].
func sequences(m *ir.Module, e engine.Engine, p eval.Precision, s ragged.Storage) (*ragged.Model, error) {
	if p == eval.Strict {
		return nil, &NotRaggedError{errors.New("precision strict rounds every operation of the file as it stands")}
	}
	if r, ok := e.(engine.Ragged); !ok || !r.RunsRagged() {
		return nil, &NotRaggedError{fmt.Errorf("device %s has no kernels for blocks and slots of many sequences",
			e.Name())}
	}
	model, err := fuse.Sequences(m, ragged.Options{Storage: s})
	if err != nil {
		return nil, &NotRaggedError{err}
	}
	return model, nil
}

// Describe writes how the engine would run calls of many sequences: all rows in one pass, with what a sequence needs;
// or one sequence at a time, and why.
func Describe(w io.Writer, m *ir.Module, e engine.Engine, p eval.Precision, s ragged.Storage) error {
	model, err := sequences(m, e, p, s)
	if err != nil {
		var not *NotRaggedError
		if errors.As(err, &not) {
			err = not.Why
		}
		_, err = fmt.Fprintf(w, "\nmany sequences\n  one sequence at a time, each with a state of its own: %v\n", err)
		return err
	}
	l := model.Layout(blockRows, p)
	lines := []string{"a call has rows of all sequences"}
	if l.BlockBytes > 0 {
		lines = append(lines, fmt.Sprintf("full attention: %d caches, %d bytes for a block of %d positions",
			len(model.Full), l.BlockBytes, blockRows))
	}
	for i, r := range l.Rings {
		lines = append(lines, fmt.Sprintf("window of %d: %d caches, %d bytes for a block of %d positions", r.Window,
			len(model.Rings[i].Buffers), r.BlockBytes, blockRows))
	}
	if l.SlotBytes > 0 {
		lines = append(lines, fmt.Sprintf("recurrent state: %d buffers, %d bytes for a slot", len(model.Slots),
			l.SlotBytes))
	}
	_, err = fmt.Fprintf(w, "\nmany sequences\n  %s\n", strings.Join(lines, "\n  "))
	return err
}

func orElse(n, fallback int) int {
	if n > 0 {
		return n
	}
	return fallback
}

// WithDrafts returns the largest number of units of a sequence with length tokens, in calls of at most rows rows that
// verify drafts drafts.
func WithDrafts(l cache.Layout, length, rows, drafts int) cache.Demand {
	out := l.Most(length, rows)
	if l.SlotBytes > 0 && drafts > 0 {
		out[l.SlotPool()] += drafts + 1
	}
	return out
}

// units divides a budget among the pools. Slots and the blocks of windows do not grow with the context. They get what
// twice as many sequences as a call has need, including verified drafts and checkpoints, but at most half of the
// budget, or where the sequences of a call need more, as much as one whole context leaves; full attention gets the
// rest. Without a budget, full attention gets the whole context of each sequence; with o.Positions each pool gets what
// sequences of that length need.
func units(l cache.Layout, o RaggedOptions, positions int) (cache.Demand, error) {
	if o.Positions > 0 && o.Budget == 0 {
		out := WithDrafts(l, min(o.Positions, positions), o.Rows, o.Drafts)
		for i := range out {
			out[i] *= o.Sequences
		}
		return out, nil
	}
	most := l.Most(positions, o.Rows)
	if need := l.Bytes(l.Most(1, 1)); o.Budget > 0 && o.Budget < need {
		return nil, fmt.Errorf("%d bytes of caches, want at least %d for one sequence of one token", o.Budget, need)
	}
	out := make(cache.Demand, l.Pools())
	left := o.Budget
	kinds := int64(len(l.Rings)) // the pools that do not grow with the context
	if l.SlotBytes > 0 {
		kinds++
	}
	half, beside := o.Budget/2, o.Budget-int64(most[cache.BlockPool])*l.BlockBytes
	for i := range out {
		p, bytes := cache.Pool(i), l.UnitBytes(cache.Pool(i))
		if p == cache.BlockPool || bytes == 0 {
			continue
		}
		out[i] = (2*o.Sequences + 2) * most[i]
		if p == l.SlotPool() {
			out[i] = max(8, o.Drafts+4)*o.Sequences + 8
		}
		if o.Budget > 0 && l.BlockBytes > 0 {
			if p == l.SlotPool() {
				out[i] = max(out[i], leastSlots)
			}
			running := l.Least(o.Drafts)[i] * o.Sequences
			out[i] = min(out[i], max(int(half/kinds/bytes), min(running, int(beside/kinds/bytes))))
		}
		out[i] = max(out[i], 2)
		left -= int64(out[i]) * bytes
	}
	if l.BlockBytes > 0 {
		if out[cache.BlockPool] = o.Sequences * most[cache.BlockPool]; o.Budget > 0 {
			out[cache.BlockPool] = int(max(2, min(left/l.BlockBytes, 1<<24)))
		}
	}
	return out, nil
}

func (x *raggedExecutor) Layout() cache.Layout { return x.layout }
func (x *raggedExecutor) Units() cache.Demand  { return slices.Clone(x.options.Units) }

func (x *raggedExecutor) Limits() Limits {
	return Limits{Rows: x.options.Rows, Sequences: x.options.Sequences, Positions: x.model.Positions,
		Vocab: x.model.Vocab, Samples: true}
}

func (x *raggedExecutor) Close() error { return errors.Join(x.instance.Close(), x.executable.Close()) }

func (x *raggedExecutor) Execute(ctx context.Context, call *schedule.Call, rows []Row) ([]Output, error) {
	if err := x.check(call, rows); err != nil {
		return nil, err
	}
	if len(call.Copies) > 0 {
		if err := x.copy(ctx, call.Copies); err != nil {
			return nil, err
		}
	}
	if x.fixed > 0 {
		return x.inOrder(ctx, inPieces(call, x.fixed), rows)
	}
	return x.rows(ctx, call, rows)
}

// rows runs the rows of a call.
func (x *raggedExecutor) rows(ctx context.Context, call *schedule.Call, rows []Row) ([]Output, error) {
	inputs := x.tables(call, len(rows))
	if entry := x.entryFor(rows); entry != "" {
		return x.drawn(ctx, entry, inputs, rows)
	}
	out, err := x.instance.Run(ctx, inputs)
	if err != nil {
		return nil, err
	}
	logits := out[0].Tensor
	vocab := logits.Shape[1]
	given := make([]Output, len(rows))
	hidden := make([]Output, len(rows))
	x.giveHidden(hidden, out)
	var draws errgroup.Group
	draws.SetLimit(runtime.GOMAXPROCS(0))
	for i, r := range rows {
		draw := func() error {
			given[i] = output(logits.F[i*vocab:(i+1)*vocab], r)
			given[i].Hidden = hidden[i].Hidden
			return nil
		}
		if len(rows) == 1 {
			return given, draw()
		}
		draws.Go(draw)
	}
	return given, draws.Wait()
}

// output returns what a row with these logits gives.
func output(logits []float32, r Row) Output {
	d := r.Draw
	if d == nil {
		d = &Draw{}
	}
	var out Output
	if r.Logits {
		out.Logits = slices.Clone(logits)
	}
	of := logits
	if r.Adjust != nil {
		of = slices.Clone(logits)
		r.Adjust.apply(of)
	}
	out.Token = int32(d.choose(of))
	if r.Logprobs {
		most, scale := likeliest(logits, r.Top)
		out.Logprob, out.Top = scale.logprob(logits[out.Token]), most
	}
	return out
}

// check returns an error for a call beyond the limits.
func (x *raggedExecutor) check(call *schedule.Call, rows []Row) error {
	wanted := 0
	for _, e := range call.Entries {
		if e.Start+e.Rows > x.model.Positions {
			return fmt.Errorf("sequence %d: %d rows from position %d on do not fit %d positions", e.ID, e.Rows,
				e.Start, x.model.Positions)
		}
		wanted += e.Wanted
	}
	for i, t := range call.Tokens {
		if t < 0 || int(t) >= x.model.Vocab {
			return fmt.Errorf("row %d: token %d is not in the vocabulary of %d tokens", i, t, x.model.Vocab)
		}
	}
	switch {
	case len(call.Entries) > x.options.Sequences || len(call.Tokens) > x.options.Rows || len(call.Tokens) == 0:
		return fmt.Errorf("a call of %d rows of %d sequences, want 1 to %d of at most %d", len(call.Tokens),
			len(call.Entries),
			x.options.Rows, x.options.Sequences)
	case wanted != len(rows):
		return fmt.Errorf("%d rows are wanted and %d described", wanted, len(rows))
	}
	return nil
}

// copy runs the copies of a call.
func (x *raggedExecutor) copy(ctx context.Context, copies []cache.Copy) error {
	entry := x.module.Named(ragged.CopyEntry)
	entries, ok := x.instance.(engine.Entries)
	if !ok || entry == nil {
		return errors.New("this engine copies no blocks")
	}
	pairs := map[string][]int64{}
	for _, c := range copies {
		name := fmt.Sprintf("pool%d", c.Pool)
		pairs[name] = append(pairs[name], int64(c.From), int64(c.To))
	}
	var inputs []eval.Value
	for _, p := range entry.Params {
		list := pairs[p.Param]
		list = append(list, slices.Repeat([]int64{-1}, 2*bucket(len(list)/2, 1<<20)-len(list))...)
		inputs = append(inputs, eval.Value{Tensor: eval.Ints(ir.I32, []int{len(list) / 2, 2}, list)})
	}
	_, err := entries.Call(ctx, ragged.CopyEntry, inputs)
	return err
}

// bucket rounds a number of rows up, so that calls have few different sizes: up to 4 rows exactly, then powers of two
// and the numbers halfway between them.
func bucket(n, most int) int {
	if n <= 4 {
		return max(n, 1)
	}
	size := 4
	for size < n {
		if half := size + size/2; half >= n {
			size = half
			break
		}
		size *= 2
	}
	return min(size, most)
}
