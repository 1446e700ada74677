package ragged

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cache"
)

// Options are the bounds of the calls of a ragged program.
type Options struct {
	// BlockRows is the number of positions in a block, at least 1.
	BlockRows int
	// Rows is the most rows of a call.
	Rows int
	// Sequences is the most sequences of a call.
	Sequences int
	// Units is the number of units of each pool of the layout.
	Units cache.Demand
	// Storage is the form of the state.
	Storage Storage
	// One makes a program of one sequence: the call wants the last row of what the given program takes the last row of,
	// and the parameters after the positions, and what is computed with them after the logits, stay. See
	// runtime/single.
	One bool
}

// Model says what a sequence of a program holds.
type Model struct {
	// Positions is the most positions of a sequence.
	Positions int
	// Vocab is the number of logits of a row.
	Vocab int
	// Full are the caches of layers that see all positions, Slots the recurrent and convolution state, as the given
	// program has them, in the form that is asked for.
	Full, Slots []*ir.Buffer
	// Rings are the caches of layers with a sliding window, by ascending windows.
	Rings []Ring
	// Draft is the draft of the program, nil where it has none.
	Draft *Draft
}

// Draft says what a draft of a program is like.
type Draft struct {
	// Hidden is the width of the hidden states that it starts from and gives.
	Hidden int
	// Own says that it has caches of its own, which the main entry fills; else it reads the program's.
	Own bool
	// Single says that a call of it has one row.
	Single bool
}

// Ring are the caches of the layers with one sliding window.
type Ring struct {
	// Window is the number of positions that are kept for the next one, itself included: of the attention, or of a
	// draft that sees more.
	Window  int
	Buffers []*ir.Buffer
}

// Layout returns the bytes of the units, as an engine of that precision keeps them.
func (x *Model) Layout(blockRows int, p eval.Precision) cache.Layout {
	l := cache.Layout{BlockRows: blockRows}
	size := func(b *ir.Buffer, from int) int64 {
		bytes := int64(eval.StateDType(b.Type.DType, p).Size())
		for i, d := range b.Type.Shape {
			if n, _ := d.Const(); i != from {
				bytes *= n
			}
		}
		return bytes
	}
	for _, b := range x.Full {
		l.BlockBytes += int64(blockRows) * size(b, 2)
	}
	for _, r := range x.Rings {
		ring := cache.Ring{Window: r.Window}
		for _, b := range r.Buffers {
			ring.BlockBytes += int64(blockRows) * size(b, 2)
		}
		l.Rings = append(l.Rings, ring)
	}
	for _, b := range x.Slots {
		l.SlotBytes += size(b, 0)
	}
	return l
}

// Columns returns the width of the tables of blocks: of full attention, and of each ring.
func (x *Model) Columns(o Options) (full int, rings []int) {
	full = (x.Positions + o.BlockRows - 1) / o.BlockRows
	for _, r := range x.Rings {
		rings = append(rings, min(full, (r.Window+o.Rows+o.BlockRows-2)/o.BlockRows+1))
	}
	return full, rings
}

// Analyze tells what a sequence of a fused program holds in a form of the state and with or without One of the options.
// The error says why the program cannot be made ragged. m is not changed.
func Analyze(m *ir.Module, o Options) (*Model, error) {
	units := make(cache.Demand, len(m.Buffers)+2)
	for i := range units {
		units[i] = 1
	}
	made, model, err := build(m, Options{BlockRows: 1, Rows: 2, Sequences: 1, Units: units,
		Storage: o.Storage, One: o.One})
	if err == nil {
		err = ir.Verify(made)
	}
	return model, err
}

// CopyEntry is the name of the entry that copies units, DraftEntry that of the method that drafts tokens, and of its
// entry.
const (
	CopyEntry  = "copy_units"
	DraftEntry = "draft"
)

// Make makes m, a fused program of one sequence, a ragged one. Its main entry gets, in this order and those that it
// needs,
//
//	tokens i64[1, R], input_pos i64[R], sequences i32[R], blocks i32[N, B], ring0 i32[N, B0], ring1 …,
//	entries i32[N, 3], writes i32[R], wanted i32[W]
//
// and gives logits [W, vocab] of the rows that are wanted; see ir/ragged.go for the tables. The entry [CopyEntry]
// copies units: it gets pairs i32[M, 2] for each pool that has buffers.
//
// A program with the method [DraftEntry] and hidden states as the second result of forward, [1, S, H], gets an entry
// for it: see draft.go. The main entry then gives the hidden states of the wanted rows, too, [W, H].
func Make(m *ir.Module, o Options) error {
	made, _, err := build(m, o)
	if err != nil {
		return err
	}
	*m = *made
	return nil
}

// build makes the ragged module; it shares constants with m.
func build(m *ir.Module, o Options) (*ir.Module, *Model, error) {
	in := *m
	x := newMaker(&in, in.Entry, o)
	if err := x.readForm(); err != nil {
		return nil, nil, err
	}
	x.model = &Model{}
	if len(in.More) > 0 {
		if err := x.readDraft(); err != nil {
			return nil, nil, err
		}
	}
	if err := x.readState(); err != nil {
		return nil, nil, err
	}
	if len(o.Units) < 2+len(x.model.Rings) {
		return nil, nil, fmt.Errorf("units for %d pools, the program has %d", len(o.Units), 2+len(x.model.Rings))
	}
	if err := ir.Build(x.build); err != nil {
		return nil, nil, err
	}
	return x.out, x.model, nil
}

// maker makes an entry of a ragged module.
type maker struct {
	in, out *ir.Module
	given   *ir.Func // the entry of the given program
	o       Options
	model   *Model
	b       *ir.Builder
	draft   *maker // the maker of the entry that drafts, or nil
	drafts  bool   // the entry of this maker drafts

	tokens, positions *ir.Value   // parameters of the given program
	rest              []*ir.Value // its parameters that the new entry has too, with Options.One
	values            map[*ir.Value]*ir.Value
	// derived are values of the given program that follow from the position of the first row and sampling parameters.
	derived      map[*ir.Value]bool
	starts       map[*ir.Symbol]bool
	pools        map[*ir.Buffer]*pool
	rules        map[*ir.Buffer]bool // states of delta rules
	logits       *ir.Value           // the value of the given program that its sampler reads
	gathered     bool                // from here on values have the wanted rows alone
	rows, wanted *ir.Symbol
	tables       tables
}

// newMaker makes the maker of an entry of a module.
func newMaker(in *ir.Module, f *ir.Func, o Options) *maker {
	return &maker{in: in, given: f, o: o, values: map[*ir.Value]*ir.Value{}, derived: map[*ir.Value]bool{},
		starts: map[*ir.Symbol]bool{}, pools: map[*ir.Buffer]*pool{}, rules: map[*ir.Buffer]bool{}}
}

// tables are the inputs that say where state lies; nil where the program needs none.
type tables struct {
	input, sequences, full, entries, writes, wanted *ir.Value
	rings                                           []*ir.Value
	// the last position that a draft of the model's caches sees
	seen *ir.Value
}

// pool describes the pool that replaces a buffer.
type pool struct {
	number cache.Pool
	window int        // the window of the attention that reads it; 0: all positions
	stored *ir.Buffer // the buffer of the given program, in the form that the pool stores
	buffer *ir.Buffer
}

// readForm finds the inputs of the program.
func (x *maker) readForm() error {
	f := x.given
	results := 1
	if x.o.One {
		x.rest = f.Params[min(2, len(f.Params)):]
	}
	if len(x.in.More) > 0 {
		results = 2
	}
	is := func(i, rank int) bool {
		return i < len(f.Params) && f.Params[i].Type.Kind == ir.TensorKind && f.Params[i].Type.DType == ir.I64 &&
			f.Params[i].Type.Rank() == rank
	}
	if !is(0, 2) || !is(1, 1) || len(f.Body.Results) != results && !x.o.One || !f.Params[0].Type.Shape[0].IsConst(1) {
		const want = "tokens i64[1,S] and input_pos i64[S] first and one output"
		return fmt.Errorf("%s is not a language model's: want %s", f.Name, want)
	}
	x.tokens, x.positions = f.Params[0], f.Params[1]
	if !x.drafts && !x.o.One {
		for _, v := range f.Params[2:] {
			x.derived[v] = true // of a sampler, which is left out
		}
	}
	for _, v := range []*ir.Expr{x.tokens.Type.Shape[1], x.positions.Type.Shape[0]} {
		if _, ok := v.Symbol(); !ok && !(x.drafts && v.IsConst(1)) {
			return fmt.Errorf("%s takes %s tokens at a time, want any number", f.Name, v)
		}
	}
	return nil
}

// readState finds what the buffers are: caches that attention reads, or recurrent state.
func (x *maker) readState() error {
	windows, slots := map[*ir.Buffer]int{}, map[*ir.Buffer]bool{}
	var failed error
	walk := func(f func(*ir.Op)) {
		x.given.Body.Walk(f)
		if x.draft != nil {
			x.draft.given.Body.Walk(f)
		}
	}
	walk(func(op *ir.Op) {
		switch op.Def.Name {
		case "cached_attention":
			for _, operand := range []string{"k", "v"} {
				load := loadOf(op.Input(operand))
				if load == nil {
					failed = fmt.Errorf("attention over something else than a buffer: %s", ir.Describe(x.in, op))
					return
				}
				w := ir.Attrs[ir.CachedAttentionAttrs](op).Window
				if have, seen := windows[load.Buffer]; seen && (have == 0 || w != 0 && w < have) {
					w = have
				}
				windows[load.Buffer] = w
			}
		case "buffer_conv", "buffer_delta_rule":
			slots[op.Buffer] = true
			if op.Def.Name == "buffer_delta_rule" {
				x.rules[op.Buffer] = true
			}
		}
	})
	if failed != nil {
		return failed
	}
	if err := x.classify(windows, slots); err != nil || x.draft == nil {
		return err
	}
	return x.draftState(windows)
}

// classify gives each buffer the pool that it becomes: by the window of the attention that reads it, or as a slot.
func (x *maker) classify(windows map[*ir.Buffer]int, slots map[*ir.Buffer]bool) error {
	x.model.Positions = 1 << 30
	for _, k := range x.in.Metadata {
		if n, ok := first(k.Values).(int64); ok && k.Name == "get_max_seq_len" && n > 0 {
			x.model.Positions = int(min(n, 1<<30))
		}
	}
	var sizes []int
	for _, w := range windows {
		if w > 0 && !slices.Contains(sizes, w) {
			sizes = append(sizes, w)
		}
	}
	slices.Sort(sizes)
	for _, w := range sizes {
		x.model.Rings = append(x.model.Rings, Ring{Window: w})
	}
	for _, b := range x.in.Buffers {
		w, cached := windows[b]
		stored, err := x.store(b, cached)
		if err != nil {
			return err
		}
		switch {
		case cached && slots[b]:
			return fmt.Errorf("buffer @%s is a cache and a recurrent state", b.Name)
		case slots[b]:
			x.pools[b] = &pool{number: cache.Pool(1 + len(sizes)), stored: stored}
			x.model.Slots = append(x.model.Slots, stored)
		case cached && w == 0:
			x.pools[b] = &pool{number: cache.BlockPool, stored: stored}
			x.model.Full = append(x.model.Full, stored)
			n, _ := b.Type.Shape[2].Const()
			x.model.Positions = min(x.model.Positions, int(n))
		case cached:
			i := slices.Index(sizes, w)
			x.pools[b] = &pool{number: cache.Pool(1 + i), window: w, stored: stored}
			x.model.Rings[i].Buffers = append(x.model.Rings[i].Buffers, stored)
		}
	}
	return x.checkStorage()
}

func first(values []any) any {
	if len(values) != 1 {
		return nil
	}
	return values[0]
}

// loadOf returns the load that a value is, casts aside.
func loadOf(v *ir.Value) *ir.Op {
	for v != nil && v.Def != nil && v.Def.Def.View == ir.CastView {
		v = v.Def.Input("x")
	}
	if v == nil || v.Def == nil || v.Def.Def.Effect != ir.Reads {
		return nil
	}
	return v.Def
}
