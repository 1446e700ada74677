package session

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Drafting says how a model drafts tokens, which one call then verifies.
type Drafting struct {
	// Kind is the draft of the file; [speculate.None] drafts from the text itself.
	Kind speculate.Kind
	// Most is the most drafts of a round.
	Most int
	// Fixed asks for that many in every round; else rounds have as many as are worth it.
	Fixed bool
}

// The methods of a program that drafts, beside forward and draft.
const (
	verifyEntry  = "verify"
	saveEntry    = "save"
	restoreEntry = "restore"
)

// LoadDrafting is [LoadDraws] of a program that drafts tokens and verifies them. method gives the methods of the
// program, a module of its own with every call. It is an error where the program, its draft or the engine cannot do
// that.
//
// What the engine runs has these entries, over one state:
//
//	forward(tokens, input_pos, settings) → token, hidden      as without drafts; settings are those of a draw
//	verify(tokens, input_pos, settings of rows) → tokens, hidden      a token for each row
//	draft(tokens, input_pos, hidden, …, settings) → token, hidden
//	save(), restore()      of state that does not lie by positions: recurrent states and convolutions
func LoadDrafting(method func(name string) (*ir.Module, error), e engine.Engine, o engine.Options,
	d Drafting) (*Model, error) {
	m, err := method("forward")
	if err != nil {
		return nil, err
	}
	model, err := recognise(m)
	if err != nil {
		return nil, err
	}
	x := &drafting{Drafting: d}
	if m, err = x.module(method); err != nil {
		return nil, err
	}
	model.Form, model.width, model.params, model.buffers, model.drafting = Drawn, x.width, m.Entry.Params, m.Buffers, x
	if model.Vocab == 0 {
		model.Vocab = model.width
	}
	// A round is verified in one call, and rows that are taken back must not lie where rows lie that are still read.
	if x.Most = min(x.Most, model.MaxChunk-2); x.Most < 1 {
		return nil, fmt.Errorf("forward takes %d tokens at most: too few to verify drafts", model.MaxChunk)
	}
	x.gap = model.MinChunk
	if model.executable, err = engine.Compile(e, m, o); err != nil {
		return nil, err
	}
	model.Device = e.Name()
	return model, nil
}

// drafting is what a model that drafts has beside others.
type drafting struct {
	Drafting
	width int  // of the vocabulary
	saves bool // the program has save and restore
	gap   int  // least rows of a call with several
	times speculate.Times
}

// reads tells whether drafts start from hidden states.
func (x *drafting) reads() bool { return x.Kind != speculate.None }

// module makes the module of all entries.
func (x *drafting) module(method func(name string) (*ir.Module, error)) (*ir.Module, error) {
	var parts []*ir.Module
	for _, make := range []func(*ir.Module) (*ir.Module, error){x.forward, x.verify} {
		m, err := method("forward")
		if err != nil {
			return nil, err
		}
		if m, err = x.rows(m); err != nil {
			return nil, err
		}
		if m, err = make(m); err != nil {
			return nil, err
		}
		parts = append(parts, m)
	}
	if x.reads() {
		m, err := method(speculate.Method)
		if err != nil {
			return nil, err
		}
		if kind := speculate.KindOf(m.Entry); kind != x.Kind {
			return nil, fmt.Errorf("method %s is no draft of kind %s", speculate.Method, x.Kind)
		}
		if m, err = x.draft(m); err != nil {
			return nil, err
		}
		parts = append(parts, m)
	}
	m, err := ir.Join(parts)
	if err != nil {
		return nil, err
	}
	if x.Kind == speculate.Assistant {
		if m, err = speculate.Bind(m, speculate.Method); err != nil {
			return nil, err
		}
	}
	x.saves = saveState(m)
	return m, ir.Verify(m)
}

// rows gives a program whose forward returns logits [R, V] and, where drafts start from them, hidden states [1, R,
// H], of every row.
func (x *drafting) rows(m *ir.Module) (*ir.Module, error) {
	m, err := fuse.StripSampler(m)
	if err != nil {
		return nil, err
	}
	m, ok := AllRows(m)
	if !ok {
		return nil, fmt.Errorf("forward gives logits of the last row, and they cannot be had of every row")
	}
	if x.reads() {
		if m, err = speculate.Hidden(m); err != nil {
			return nil, err
		}
	}
	m = m.Clone()
	f := m.Entry
	f.Params = slices.Clone(f.Params)
	err = ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		logits := f.Body.Results[0]
		vocab, ok := logits.Type.Shape[logits.Type.Rank()-1].Const()
		if !ok || vocab == 0 {
			b.Fail("the size of the vocabulary must be known, found logits %s", logits.Type)
		}
		x.width = int(vocab)
		if logits.Type.Rank() != 2 {
			f.Body.Results[0] = b.Value("reshape", nil, logits, []any{-1, vocab})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	m.Metadata = slices.DeleteFunc(slices.Clone(m.Metadata), func(k ir.Method) bool { return k.Name == "use_sampling" })
	return m, nil
}

// forward makes forward draw the token behind the last row. An assistant starts from the last hidden state alone.
func (x *drafting) forward(m *ir.Module) (*ir.Module, error) {
	return m, x.drawing(m, ir.Const(1), func(b *ir.Builder, results []*ir.Value) {
		results[0] = b.Value("reshape", nil, b.Value("take", nil, results[0], -1), []int64{1, int64(x.width)})
		if x.Kind == speculate.Assistant {
			results[1] = b.Value("take", &ir.AxisAttrs{Axis: 1}, results[1], -1)
		}
	})
}

// verify makes forward draw the token behind every row.
func (x *drafting) verify(m *ir.Module) (*ir.Module, error) {
	m.Entry.Name = verifyEntry
	_, hi := m.Entry.Params[0].Type.Shape[1].Bounds()
	return m, x.drawing(m, ir.Sym(&ir.Symbol{Lo: 1, Hi: hi}), func(*ir.Builder, []*ir.Value) {})
}

// draft makes the draft draw its token.
func (x *drafting) draft(m *ir.Module) (*ir.Module, error) {
	f := m.Entry
	if v, ok := f.Outputs[0].Shape[1].Const(); !ok || v != int64(x.width) {
		return nil, fmt.Errorf("the draft gives logits %s, forward those of %d tokens", f.Outputs[0], x.width)
	}
	return m, x.drawing(m, ir.Const(1), func(*ir.Builder, []*ir.Value) {})
}

// drawing makes the entry of m draw tokens from its first result, logits [R, V], with settings of each row.
func (x *drafting) drawing(m *ir.Module, rows *ir.Expr, change func(b *ir.Builder, results []*ir.Value)) error {
	f := m.Entry
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		results := slices.Clone(f.Body.Results)
		change(b, results)
		param := map[string]*ir.Value{}
		for _, in := range (Draws{}).inputs(x.width) {
			param[in.name] = f.NewParam(in.name, ir.TensorType(in.typ.DType, rows))
		}
		results[0] = b.Value("draw", nil, results[0], param["temperature"], param["top_k"],
			param["top_p"], nil, param["key"])
		f.Body.Results, f.Outputs = results, nil
		for _, v := range results {
			f.Outputs = append(f.Outputs, v.Type)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: drafts: %w", f.Name, err)
	}
	return nil
}

// saveState adds entries that save and restore what does not lie by positions, and reports whether there is any. What
// lies by positions needs no saving: rows that are taken back are written again before they are read.
func saveState(m *ir.Module) bool {
	positioned := map[*ir.Buffer]bool{}
	for _, f := range m.Entries() {
		for _, p := range positionBuffers(m.Only(f)) {
			positioned[p.buffer] = true
		}
	}
	save := &ir.Func{Name: saveEntry, Body: &ir.Region{}}
	restore := &ir.Func{Name: restoreEntry, Body: &ir.Region{}}
	into := &ir.Builder{Module: m, Region: save.Body}
	outOf := &ir.Builder{Module: m, Region: restore.Body}
	for _, b := range slices.Clone(m.Buffers) {
		if positioned[b] {
			continue
		}
		saved := m.NewBuffer(b.Name+".saved", b.Type)
		into.BufferOp("store", saved, nil, into.Load(b))
		outOf.BufferOp("store", b, nil, outOf.Load(saved))
	}
	if len(save.Body.Ops) == 0 {
		return false
	}
	m.More = append(m.More, save, restore)
	return true
}
