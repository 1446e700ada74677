package format

import (
	"slices"
	"strings"

	"github.com/etc-ml/etc/runtime/tokenizer"
)

// body is the way in which a family of models writes a call of a tool.
type body uint8

const (
	jsonBody body = iota // {"name": "f", "arguments": {"a": 1}}
	xmlBody              // <function=f>\n<parameter=a>\n1\n</parameter>\n</function>
	callBody             // call:f{a:1,b:<|"|>text<|"|>}
)

// table is the format of a family.
type table struct {
	name        string
	open, close string // the tokens before and after thoughts
	header      string // a text after open that is not a part of the thoughts
	tool, end   string // the tokens before and after a call
	quote       string // the token around texts in callBody
	body        body
	marks       string // a part of the chat template that tells the family from others with the same tokens; "": any
}

// tables are the formats that are known; the first one that fits a tokenizer and a template is taken.
var tables = []table{
	{name: "gemma4", open: "<|channel>", close: "<channel|>", header: "thought",
		tool: "<|tool_call>", end: "<tool_call|>",
		quote: `<|"|>`, body: callBody},
	{name: "qwen3.5", open: "<think>", close: "</think>", tool: "<tool_call>", end: "</tool_call>", body: xmlBody,
		marks: "<function="},
	{name: "hermes", open: "<think>", close: "</think>", tool: "<tool_call>", end: "</tool_call>", body: jsonBody},
}

// Format is how a model marks thoughts and calls. The zero value of a field of ids is -1 where there is no such token.
type Format struct {
	// Name of the family, "" where the model has no marks that are known.
	Name string
	// Open and Close are the tokens around thoughts, Tool and End those around a call, Quote the one around texts in
	// it.
	Open, Close, Tool, End, Quote int

	table     table
	tokenizer *tokenizer.Tokenizer
}

// Find returns the format of a model, by its vocabulary and the source of its chat template.
func Find(t *tokenizer.Tokenizer, template string) *Format {
	added := t.AddedIDs()
	id := func(name string) int {
		if id, ok := t.TokenToID(name); ok && name != "" && slices.Contains(added, id) {
			return id
		}
		return -1
	}
	for _, x := range tables {
		f := &Format{x.name, id(x.open), id(x.close), id(x.tool), id(x.end), id(x.quote), x, t}
		if f.Open >= 0 && f.Close >= 0 && (x.marks == "" || strings.Contains(template, x.marks)) {
			return f
		}
		if f.Tool >= 0 && f.End >= 0 && (x.marks == "" || strings.Contains(template, x.marks)) {
			f.Open, f.Close = -1, -1
			return f
		}
	}
	return &Format{"", -1, -1, -1, -1, -1, table{}, t}
}

// Thinks reports whether the model marks thoughts.
func (f *Format) Thinks() bool { return f.Open >= 0 && f.Close >= 0 }

// Calls reports whether the model can call tools.
func (f *Format) Calls() bool {
	return f.Tool >= 0 && f.End >= 0 && (f.table.body != callBody || f.Quote >= 0)
}

// Inside reports whether the end of a prompt is inside of thoughts: the template has opened them for the model.
func (f *Format) Inside(prompt []int) bool {
	if !f.Thinks() {
		return false
	}
	for _, id := range slices.Backward(prompt) {
		switch id {
		case f.Open:
			return true
		case f.Close:
			return false
		}
	}
	return false
}

// Plain returns the format of the same vocabulary in which nothing is marked.
func (f *Format) Plain() *Format { return &Format{"", -1, -1, -1, -1, -1, table{}, f.tokenizer} }
