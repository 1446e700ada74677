package session

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// Form is the form of a program's forward.
type Form uint8

const (
	// Logits is forward(tokens, input_pos) -> logits of 2 or 3 dims.
	Logits Form = iota
	// Sampler is forward(tokens, input_pos, temperature, top_k, top_p, seed) -> token.
	Sampler
	// AuthorsSampler is forward(tokens, input_pos, temperature) -> token, drawn without a seed.
	AuthorsSampler
	// Drawn is a program of any of the other forms that draws with the runtime's own sampler; see [LoadDraws].
	Drawn
)

// Model is a language model program that an engine has compiled. It is safe for concurrent use.
type Model struct {
	// Form of forward.
	Form Form
	// MaxSeqLen is the number of positions that the program's caches hold.
	MaxSeqLen int
	// MaxChunk is the largest number of tokens that one call may take: what the program declares, or more where the
	// engine takes longer calls ([engine.LongCalls]).
	MaxChunk int
	// MinChunk is the smallest number of tokens of a call, single tokens aside.
	MinChunk int
	// Vocab is the size of the vocabulary.
	Vocab int
	// Device is the name of the engine.
	Device string
	// Precision is what the program was compiled with.
	Precision eval.Precision

	executable engine.Executable
	rows       bool // forward gives logits for every position
	params     []*ir.Value
	drawn      bool         // the program ends with the runtime's own sampler: form Drawn, or see LoadTokens
	draws      Draws        // what that sampler was loaded for
	width      int          // the number of logits that it draws from
	buffers    []*ir.Buffer // of snapshots
	held       []*ir.Buffer // those of the engine, where its rings have more rows; see rings.go
}

// Load recognises the form of a module's entry and compiles it, as [LastRow] gives it.
func Load(m *ir.Module, e engine.Engine, o engine.Options) (*Model, error) {
	model, err := recognise(m)
	if err != nil {
		return nil, err
	}
	if m, err = LastRow(m); err != nil {
		return nil, err
	}
	if err := model.compile(m, e, o); err != nil {
		return nil, err
	}
	return model, nil
}

// compile compiles what the model runs. An engine that takes longer calls than the program declares may do so, unless
// the model has a bound of its own.
func (m *Model) compile(program *ir.Module, e engine.Engine, o engine.Options) (err error) {
	o.LongCalls = !m.rows
	program = program.Only(program.Entry) // no session calls the method that drafts
	if m.executable, err = engine.Compile(e, program, o); err != nil {
		return err
	}
	if s, ok := m.executable.(engine.Stored); ok {
		if buffers := s.StateBuffers(); buffers != nil {
			m.held = buffers
		}
	}
	if l, ok := m.executable.(engine.LongCalls); ok && l.CallRows() > 0 {
		m.MaxChunk = max(m.MaxChunk, min(l.CallRows(), m.MaxSeqLen))
	} else if m.held != nil {
		m.buffers, m.held = m.held, nil
	}
	m.Device, m.Precision = e.Name(), o.Precision
	return nil
}

// DeviceMemory returns the memory of the device that the model runs on in bytes; false where that is the machine's.
func (m *Model) DeviceMemory() (int64, bool) {
	if b, ok := m.executable.(engine.Bounded); ok {
		return b.Memory(), true
	}
	return 0, false
}

// Close frees the compiled program; sessions must be closed before.
func (m *Model) Close() error { return m.executable.Close() }

// metadataInt reads a constant method; absent gives fallback, anything but one int is an error.
func metadataInt(m *ir.Module, name string, fallback int) (int, error) {
	for _, k := range m.Metadata {
		if k.Name != name {
			continue
		}
		if len(k.Values) == 1 {
			if v, ok := k.Values[0].(int64); ok && v >= 0 && v <= math.MaxInt32 {
				return int(v), nil
			}
		}
		return 0, fmt.Errorf("constant method %s gives %v, want one integer", name, k.Values)
	}
	return fallback, nil
}

// recognise reads the form of forward from its parameters, outputs and constant methods.
func recognise(m *ir.Module) (*Model, error) {
	form, err := formOf(m.Entry)
	if err != nil {
		return nil, err
	}
	if err := checkUseSampling(m, form); err != nil {
		return nil, err
	}
	model := &Model{Form: form, params: m.Entry.Params, buffers: m.Buffers}
	return model, model.readLimits(m)
}

func isTensor(t ir.Type, d ir.DType, rank int) bool {
	return t.Kind == ir.TensorKind && t.DType == d && t.Rank() == rank
}

// formOf returns the form that parameters and output have.
func formOf(f *ir.Func) (Form, error) {
	is := func(i int, d ir.DType, rank int) bool {
		return i < len(f.Params) && isTensor(f.Params[i].Type, d, rank)
	}
	if !is(0, ir.I64, 2) || !is(1, ir.I64, 1) || len(f.Outputs) != 1 || f.Outputs[0].Kind != ir.TensorKind {
		return 0, fmt.Errorf("%s is not a language model's: want tokens i64[1,S] and input_pos i64[S] first and one "+
			"output; run it with etc exec", f.Name)
	}
	out := f.Outputs[0]
	token := out.DType == ir.I64 && (out.Rank() == 1 || out.Rank() == 2)
	// temperature, top_k, top_p, seed
	head := is(2, ir.F32, 0) && is(3, ir.I64, 0) && is(4, ir.F32, 0) && is(5, ir.I64, 0)
	switch {
	case len(f.Params) == 2 && out.DType.IsFloat() && (out.Rank() == 2 || out.Rank() == 3):
		return Logits, nil
	case len(f.Params) == 6 && token && head:
		return Sampler, nil
	case len(f.Params) == 3 && (is(2, ir.F32, 1) || is(2, ir.F32, 0)) && token:
		return AuthorsSampler, nil
	case len(f.Params) > 2 && !token:
		return 0, fmt.Errorf("%s takes sampling parameters but gives %s; a sampled token is i64 of one or two dims",
			f.Name, out)
	}
	return 0, fmt.Errorf("%s takes %d inputs and gives %s, which is no form of a language model: want (tokens, "+
		"input_pos) to logits, or with temperature, top_k, top_p, seed to a token", f.Name, len(f.Params), out)
}

// readLimits reads what the constant methods say of the sizes of contexts, calls and vocabulary.
func (model *Model) readLimits(m *ir.Module) (err error) {
	if model.MaxSeqLen, err = metadataInt(m, "get_max_seq_len", 0); err != nil {
		return err
	}
	if model.MaxSeqLen == 0 {
		return fmt.Errorf("constant method get_max_seq_len is missing, so the size of the context is unknown")
	}
	if model.MinChunk, err = metadataInt(m, "get_min_prefill_chunk", 1); err != nil {
		return err
	}
	declared, err := metadataInt(m, "get_max_prefill_chunk", math.MaxInt32)
	if err != nil {
		return err
	}
	model.MaxChunk = chunkLimit(m, declared, model.MaxSeqLen)
	vocab, out := 0, m.Entry.Outputs[0]
	if model.Form == Logits {
		if v, ok := out.Shape[out.Rank()-1].Const(); ok {
			vocab = int(v)
		}
	}
	if model.Vocab, err = metadataInt(m, "get_vocab_size", vocab); err != nil {
		return err
	}
	return nil
}

// checkUseSampling checks that the constant method says what the output is (requirement C13). An
// absent method means false.
func checkUseSampling(m *ir.Module, form Form) error {
	for _, k := range m.Metadata {
		if k.Name != "use_sampling" {
			continue
		}
		if len(k.Values) != 1 {
			return fmt.Errorf("constant method use_sampling gives %v, want one bool", k.Values)
		}
		v, ok := k.Values[0].(bool)
		if !ok {
			return fmt.Errorf("constant method use_sampling gives %v, want a bool", k.Values[0])
		}
		if v != (form == Sampler) {
			return fmt.Errorf("constant method use_sampling is %t, but %s gives %s", v,
				m.Entry.Name, m.Entry.Outputs[0])
		}
	}
	return nil
}

// chunkLimit returns the largest number of tokens for one call: what the program declares, the bounds of its
// inputs, and what its ring buffers take. A ring of R slots holds window+chunk-1 keys, and exporters
// choose chunk ≤ window; so (R+1)/2 is safe where a file from elsewhere declares more.
func chunkLimit(m *ir.Module, declared, maxSeqLen int) int {
	limit := min(declared, maxSeqLen)
	for i, axis := range []int{1, 0} {
		if _, hi := m.Entry.Params[i].Type.Shape[axis].Bounds(); hi < int64(limit) {
			limit = int(hi)
		}
	}
	for _, ring := range ringSlots(m, maxSeqLen) {
		limit = min(limit, (ring+1)/2)
	}
	return max(limit, 1)
}

// ringSlots returns the lengths of the buffers that are written in place along an axis that is shorter
// than the context: positions wrap around in them.
func ringSlots(m *ir.Module, maxSeqLen int) []int {
	var out []int
	for _, b := range positionBuffers(m) {
		if b.slots < int64(maxSeqLen) {
			out = append(out, int(b.slots))
		}
	}
	return out
}

// positionBuffer is a buffer that holds something for every position, in slots along one of its axes.
type positionBuffer struct {
	buffer *ir.Buffer
	slots  int64
}

// positionBuffers finds the buffers that are written in place at a position that is known only at run
// time, each once.
func positionBuffers(m *ir.Module) []positionBuffer {
	var out []positionBuffer
	seen := map[*ir.Buffer]bool{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name != "buffer_slice_update" || seen[op.Buffer] {
			return
		}
		axis, _ := op.Arg("axis")
		start, _ := op.Arg("start")
		if axis.Kind != ir.IntArg || start.Kind != ir.ValueArg {
			return
		}
		if axis.Int < 0 {
			axis.Int += int64(op.Buffer.Type.Rank())
		}
		if axis.Int < 0 || axis.Int >= int64(op.Buffer.Type.Rank()) {
			return
		}
		if slots, ok := op.Buffer.Type.Shape[axis.Int].Const(); ok {
			seen[op.Buffer] = true
			out = append(out, positionBuffer{op.Buffer, slots})
		}
	})
	return out
}
