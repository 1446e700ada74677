package format_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// FuzzParser: whatever tokens a model writes, no parser panics, calls are numbered in order, arguments are of the last
// call, nothing is a call where none are looked for, and what is neither thought nor call is text as it was written.
func FuzzParser(f *testing.F) {
	type model struct {
		k *tokenizer.Tokenizer
		f *format.Format
	}
	var models []model
	for i, find := range []func(testing.TB) (*tokenizer.Tokenizer, *format.Format){qwen, hermes, gemma} {
		k, x := find(f)
		models = append(models, model{k, x})
		for _, text := range []string{"why?</think>so.", "<|channel>thought\nwhy?<channel|>so.", "plain",
			"<tool_call><function= ></tool_call>", "<|tool_call>call: {}<tool_call|>",
			"<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
			`<tool_call>{"name": "weather", "arguments": {"city": "a}{\""}}</tool_call>`,
			`<|tool_call>call:weather{city:<|"|>a<|"|>,b:[1,{c:2}]}<tool_call|>`} {
			f.Add(i, true, text)
			f.Add(i, false, text)
		}
	}
	f.Fuzz(func(t *testing.T, which int, inside bool, text string) {
		if which < 0 {
			return
		}
		m := models[which%len(models)]
		got := parse(t, m.k, m.f, inside, weather, text)
		for i, a := range got.arguments {
			if m.f.Name == "qwen3.5" && strings.HasSuffix(a, "}") {
				require.True(t, json.Valid([]byte(a)), "call %d of %q: %s", i, text, a)
			}
		}
		none := parse(t, m.k, m.f, inside, nil, text)
		require.Empty(t, none.names)
		ids := m.k.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
		plain := m.f.Plain()
		var raw result
		p := plain.NewParser(false, weather)
		for _, id := range ids {
			raw.gather(t, p.Push(id))
		}
		raw.gather(t, p.Finish())
		require.Equal(t, result{text: m.k.Decode(ids, true)}, raw)
	})
}
