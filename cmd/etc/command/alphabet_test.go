package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
)

// The alphabet of the model that scripts use: the tokens of testdata/script/*.txtar's tokenizer.json.
const (
	letters  = 32 // tokens: <s>, </s>, a … z, space, three that no text has
	endToken = 1
	letterH  = 2 + 'h' - 'a'
)

// model writes a program that says the alphabet: after a token comes the next one, after "h" the end.
//
//	model FILE [form=logits|logits3|sampler|authors] [context=N] [chunk=N] [eos=N] [NAME=VALUE] [+KEY=FILE] [-NAME]
//
// NAME=VALUE sets a constant method to an integer or a bool, -NAME leaves one out, +KEY=FILE adds named data.
func model(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "model FILE [OPTION...]")
	form, bound := "logits", int64(16)
	m := &ir.Module{Metadata: []ir.Method{
		{Name: "get_max_seq_len", Values: []any{int64(16)}}, {Name: "get_vocab_size", Values: []any{int64(letters)}},
		{Name: "get_max_prefill_chunk", Values: []any{int64(16)}}, {Name: "use_sampling", Values: []any{false}},
		{Name: "get_eos_ids", Values: []any{int64(endToken)}},
	}}
	var overrides []func()
	var extra []codegen.NamedBytes
	for _, a := range args[1:] {
		if name, ok := strings.CutPrefix(a, "-"); ok {
			overrides = append(overrides, func() {
				m.Metadata = slices.DeleteFunc(m.Metadata, func(x ir.Method) bool { return x.Name == name })
			})
			continue
		}
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			ts.Fatalf("option %q", a)
		}
		if name, ok := strings.CutPrefix(key, "+"); ok {
			extra = append(extra, codegen.NamedBytes{Key: name, Bytes: []byte(ts.ReadFile(value))})
			continue
		}
		if key == "form" {
			form = value
			continue
		}
		v := parseConstant(value)
		switch key {
		case "context":
			key = "get_max_seq_len"
		case "chunk":
			key = "get_max_prefill_chunk"
		case "eos":
			key = "get_eos_ids"
		case "bound":
			bound = v.(int64)
			continue
		}
		overrides = append(overrides, func() { setMethod(m, key, v) })
	}
	ts.Check(alphabet(m, form, bound))
	for _, f := range overrides {
		f()
	}
	ts.Check(codegen.Write(context.Background(), ts.MkAbs(args[0]), codegen.File{Module: m, Extra: extra, Jobs: 1}))
}

func parseConstant(s string) any {
	if b, err := strconv.ParseBool(s); err == nil && len(s) > 1 {
		return b
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return errors.New(s) // codegen refuses it
}

func setMethod(m *ir.Module, name string, v any) {
	for i := range m.Metadata {
		if m.Metadata[i].Name == name {
			m.Metadata[i].Values = []any{v}
			return
		}
	}
	m.Metadata = append(m.Metadata, ir.Method{Name: name, Values: []any{v}})
}

// alphabet builds forward: the logits of a token are its row of a table.
func alphabet(m *ir.Module, form string, bound int64) error {
	const certain = 6
	table := make([]float32, letters*letters)
	for i := range letters {
		next := (i + 1) % letters
		if i == letterH {
			next = endToken
		}
		table[i*letters+next] = certain
	}
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	m.Entry = f
	length := ir.Sym(&ir.Symbol{Lo: 1, Hi: bound})
	tokens := f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), length))
	f.NewParam("input_pos", ir.TensorType(ir.I64, length))
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		shape := []int64{letters, letters}
		weight := m.NewConstant("table", ir.StaticType(ir.F32, shape...), ir.Float32s(shape, table...))
		logits := b.Value("take", nil, weight, tokens)
		if form != "logits3" {
			logits = b.Value("take", &ir.AxisAttrs{Axis: 1}, logits, -1)
		}
		if form == "authors" { // the sampler of the models' authors, as --backend cuda leaves it in
			logits = b.Value("sample", nil, logits, f.NewParam("temperature", ir.StaticType(ir.F32, 1)))
		}
		f.Body.Results, f.Outputs = []*ir.Value{logits}, []ir.Type{logits.Type}
	})
	switch {
	case err != nil:
		return err
	case form == "sampler":
		return passes.Run(m, &passes.Options{Sample: true})
	case form == "authors":
		return passes.Run(m, &passes.Options{Backend: passes.CUDA})
	case form == "logits" || form == "logits3":
		return ir.Verify(m)
	}
	return fmt.Errorf("form %q", form)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
