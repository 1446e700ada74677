package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/session"
)

// The forms of forward that exporters write; tokens of [B] and [B,1], logits of 2 and 3 dims (A10, A11, B2).
func TestForms(t *testing.T) {
	scalar, vector := ir.StaticType(ir.F32), ir.StaticType(ir.F32, 1)
	token := ir.StaticType(ir.I64, 1)
	for _, test := range []struct {
		name string
		m    *ir.Module
		want session.Form
	}{
		{"logits [1,V]", signature(ir.StaticType(ir.F32, 1, testVocab), metadata()), session.Logits},
		{"logits [1,S,V]", signature(ir.TensorType(ir.BF16, ir.Const(1), dimension(9), ir.Const(testVocab)),
			metadata()), session.Logits},
		{"logits, use_sampling false", logitsModule(method("use_sampling", false)), session.Logits},
		{"token [1]", samplerModule(), session.Sampler},
		{"token [1,1]", signature(ir.StaticType(ir.I64, 1, 1), metadata(method("use_sampling", true)),
			samplerInputs...), session.Sampler},
		{"no use_sampling", signature(token, metadata(), samplerInputs...), session.Sampler},
		{"authors' sampler, f32[1]", signature(token, metadata(), vector), session.AuthorsSampler},
		{"authors' sampler, f32[]", signature(token, metadata(method("use_sampling", false)), scalar),
			session.AuthorsSampler},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := session.Describe(test.m)
			require.NoError(t, err)
			require.Equal(t, test.want, d.Form)
			require.Equal(t, testContext, d.MaxSeqLen)
			require.Equal(t, testVocab, d.Vocab)
			model, _ := start(t, test.m, &scripted{answer: count})
			require.Equal(t, test.want, model.Form)
			require.Equal(t, "scripted", model.Device)
		})
	}
}

// What is no language model, or promises what it does not keep, is refused with a reason: dtypes (C11),
// use_sampling against the output (C13), errors of constant methods (B21).
func TestRefused(t *testing.T) {
	logits, token := ir.StaticType(ir.F32, 1, testVocab), ir.StaticType(ir.I64, 1)
	two := signature(logits, metadata())
	two.Entry.Outputs = append(two.Entry.Outputs, logits)
	swapped := append([]ir.Type{}, samplerInputs...)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	for _, test := range []struct {
		name string
		m    *ir.Module
		want string
	}{
		{"one input", &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}, Outputs: []ir.Type{logits}}},
			"not a language model"},
		{"two outputs", two, "not a language model"},
		{"integer logits", signature(ir.StaticType(ir.I32, 1, testVocab), metadata()), "no form of a language model"},
		{"logits of one dim", signature(ir.StaticType(ir.F32, testVocab), metadata()), "no form of a language model"},
		{"a token without a sampler's inputs", signature(token, metadata()), "no form of a language model"},
		{"a token of i32 (C11)", signature(ir.StaticType(ir.I32, 1), metadata(), samplerInputs...),
			"a sampled token is i64"},
		{"logits from a sampler's inputs (C13)",
			signature(logits, metadata(method("use_sampling", true)), samplerInputs...), "a sampled token is i64"},
		{"top_p before top_k (B6)", signature(token, metadata(), swapped...), "no form of a language model"},
		{"use_sampling on logits (C13)", logitsModule(method("use_sampling", true)),
			"use_sampling is true, but forward gives f32[1,16]"},
		{"use_sampling false on a token (C13)", samplerModule(method("use_sampling", false)),
			"use_sampling is false, but forward gives i64[1]"},
		{"use_sampling is an int", samplerModule(method("use_sampling", int64(1))),
			"use_sampling gives 1, want a bool"},
		{"use_sampling gives two values", samplerModule(method("use_sampling", true, true)), "want one bool"},
		{"no context", signature(logits, metadata()[1:]), "get_max_seq_len is missing"},
		{"context is a bool (B21)", logitsModule(method("get_max_seq_len", true)),
			"get_max_seq_len gives [true], want one integer"},
		{"negative context", logitsModule(method("get_max_seq_len", int64(-1))), "want one integer"},
		{"chunk beyond 32 bits", logitsModule(method("get_max_prefill_chunk", int64(1)<<40)),
			"get_max_prefill_chunk gives [1099511627776]"},
		{"vocabulary of two values", logitsModule(method("get_vocab_size", int64(1), int64(2))),
			"get_vocab_size gives [1 2]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := session.Describe(test.m)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// The largest chunk is what the file declares, bounded by the context, the inputs and the ring buffers.
func TestChunk(t *testing.T) {
	bounded := logitsModule()
	bounded.Entry.Params[1].Type = positionsType(5)
	for _, test := range []struct {
		name  string
		m     *ir.Module
		want  int
		rings []int
	}{
		{"nothing declared", logitsModule(), testContext, nil},
		{"declared", logitsModule(method("get_max_prefill_chunk", int64(7))), 7, nil},
		{"more than the context", logitsModule(method("get_max_prefill_chunk", int64(1000))), testContext, nil},
		{"bound of an input", bounded, 5, nil},
		{"ring of 11 slots", withRing(t, logitsModule(method("get_max_prefill_chunk", int64(20))), 11), 6, []int{11}},
		{"ring of 12 slots", withRing(t, logitsModule(method("get_max_prefill_chunk", int64(20))), 12), 6, []int{12}},
		{"two rings", withRing(t, withRing(t, logitsModule(), 11), 7), 4, []int{7, 11}},
		{"ring of the declared chunk", withRing(t, logitsModule(method("get_max_prefill_chunk", int64(4))), 7), 4,
			[]int{7}},
		{"a cache is no ring", withRing(t, logitsModule(), testContext), testContext, nil},
		{"chunks of 0", logitsModule(method("get_max_prefill_chunk", int64(0))), 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := session.Describe(test.m)
			require.NoError(t, err)
			require.Equal(t, test.want, d.MaxChunk)
			require.Equal(t, test.rings, d.Rings)
		})
	}
}

// withRing adds a buffer of some slots that is written at input_pos.
func withRing(t *testing.T, m *ir.Module, slots int64) *ir.Module {
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: m.Entry.Body}
		buffer := m.NewBuffer("ring", ir.StaticType(ir.F32, 1, slots, 2))
		update := b.Value("full", &ir.DTypeAttrs{ScalarType: ir.F32}, []int64{1, 1, 2}, 1.0)
		at := b.Value("item_int", nil, b.Value("take", nil, m.Entry.Params[1], 0))
		b.BufferOp("buffer_slice_update", buffer, nil, update, 1, at, b.Value("add_int", nil, at, 1))
	}))
	return m
}
