package format_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// load gives the tokenizer of a small checkpoint with more added tokens.
func load(t testing.TB, checkpoint string, more ...string) *tokenizer.Tokenizer {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "checkpoints", checkpoint, "tokenizer.json"))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(b, &file))
	added := file["added_tokens"].([]any)
	next := len(file["model"].(map[string]any)["vocab"].(map[string]any))
	for _, a := range added {
		next = max(next, int(a.(map[string]any)["id"].(float64))+1)
	}
	for i, name := range more {
		added = append(added, map[string]any{"id": next + i, "content": name, "single_word": false, "lstrip": false,
			"rstrip": false, "normalized": false, "special": name == `<|"|>`})
	}
	file["added_tokens"] = added
	b, err = json.Marshal(file)
	require.NoError(t, err)
	k, err := tokenizer.Parse(b, checkpoint)
	require.NoError(t, err)
	return k
}

func qwen(t testing.TB) (*tokenizer.Tokenizer, *format.Format) {
	k := load(t, "qwen35moe-chat", "<tool_call>", "</tool_call>")
	return k, format.Find(k, "{{ tools }} <function=")
}

func hermes(t testing.TB) (*tokenizer.Tokenizer, *format.Format) {
	k := load(t, "qwen35moe-chat", "<tool_call>", "</tool_call>")
	return k, format.Find(k, "{{ tools }}")
}

func gemma(t testing.TB) (*tokenizer.Tokenizer, *format.Format) {
	k := load(t, "gemma4-chat", "<|tool_call>", "<tool_call|>", `<|"|>`)
	return k, format.Find(k, "{{ tools }}")
}

// result is an answer put together.
type result struct {
	text, thought string
	names         []string
	arguments     []string
}

// gather adds events to a result.
func (r *result) gather(t testing.TB, list []format.Event) {
	for _, e := range list {
		switch e.Kind {
		case format.Content:
			r.text += e.Text
		case format.Reasoning:
			r.thought += e.Text
		case format.Call:
			require.Equal(t, len(r.names), e.Index)
			r.names, r.arguments = append(r.names, e.Name), append(r.arguments, "")
		case format.Arguments:
			require.Equal(t, len(r.names)-1, e.Index)
			r.arguments[e.Index] += e.Text
		}
	}
}

// parse reads an answer that is written with the names of its tokens.
func parse(t testing.TB, k *tokenizer.Tokenizer, f *format.Format, inside bool, tools []format.Tool,
	answer string) result {
	t.Helper()
	p := f.NewParser(inside, tools)
	var r result
	for _, id := range k.Encode(answer, tokenizer.EncodeOptions{ParseSpecial: true}) {
		r.gather(t, p.Push(id))
	}
	r.gather(t, p.Finish())
	return r
}

var weather = []format.Tool{{Name: "weather", Texts: map[string]bool{"city": true}}, {Name: "now"}}

func TestFormatsAreFound(t *testing.T) {
	for name, find := range map[string]func(testing.TB) (*tokenizer.Tokenizer, *format.Format){
		"qwen3.5": qwen, "hermes": hermes, "gemma4": gemma,
	} {
		_, f := find(t)
		require.Equal(t, name, f.Name)
		require.True(t, f.Thinks())
		require.True(t, f.Calls())
	}
	f := format.Find(load(t, "qwen35moe-chat"), "{{ tools }}")
	require.True(t, f.Thinks())
	require.False(t, f.Calls(), "there are no tokens for calls")
}

func TestThoughts(t *testing.T) {
	k, f := qwen(t)
	open := k.Encode("<think>\n", tokenizer.EncodeOptions{ParseSpecial: true})
	require.True(t, f.Inside(open))
	require.False(t, f.Inside(append(open, k.Encode("\n</think>\n\n", tokenizer.EncodeOptions{ParseSpecial: true})...)))
	require.Equal(t, result{thought: "why?", text: "so."}, parse(t, k, f, true, nil, "why?\n</think>\n\nso."))
	require.Equal(t, result{thought: "why?", text: "so.\n"},
		parse(t, k, f, false, nil, "<think>\nwhy?\n</think>\n\nso.\n"))
	require.Equal(t, result{text: "\nno thoughts\n"}, parse(t, k, f, false, nil, "\nno thoughts\n"))
	require.Equal(t, result{thought: "never closed"}, parse(t, k, f, true, nil, "never closed"))
	k, f = gemma(t)
	require.Equal(t, result{thought: "why?", text: "so."},
		parse(t, k, f, false, nil, "<|channel>thought\nwhy?\n<channel|>so."))
	require.Equal(t, result{text: "so."}, parse(t, k, f, false, nil, "<|channel>thought\n<channel|>so."))
	require.Equal(t, result{text: "\n\nas it is\n"}, parse(t, k, f.Plain(), false, nil, "\n\nas it is\n"),
		"a completion is all text")
}

// TestTextIsNoMarker: what only looks like a marker, in the tokens of a text, is text.
func TestTextIsNoMarker(t *testing.T) {
	k, f := gemma(t)
	p := f.NewParser(false, weather)
	var r result
	text := `<|tool_call>call:weather{}<tool_call|>`
	for _, id := range k.Encode(text[:1], tokenizer.EncodeOptions{}) {
		r.gather(t, p.Push(id))
	}
	for _, c := range text[1:] {
		for _, id := range k.Encode(string(c), tokenizer.EncodeOptions{}) {
			r.gather(t, p.Push(id))
		}
	}
	r.gather(t, p.Finish())
	require.Equal(t, result{text: text}, r)
}

func TestCalls(t *testing.T) {
	xml := "<tool_call>\n<function=weather>\n<parameter=city>\nZürich \"x\"\n</parameter>\n<parameter=days>\n2\n</parameter>\n" +
		"</function>\n</tool_call>"
	for _, c := range []struct {
		name   string
		find   func(testing.TB) (*tokenizer.Tokenizer, *format.Format)
		answer string
		want   result
	}{
		{"xml", qwen, "Let me see.\n\n" + xml, result{text: "Let me see.", names: []string{"weather"},
			arguments: []string{`{"city": "Zürich \"x\"", "days": 2}`}}},
		{"two", qwen, xml + "\n<tool_call>\n<function=now>\n</function>\n</tool_call>", result{
			names: []string{"weather", "now"}, arguments: []string{`{"city": "Zürich \"x\"", "days": 2}`, "{}"}}},
		{"a text of digits", qwen, "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>",
			result{names: []string{"weather"}, arguments: []string{`{"city": "12"}`}}},
		{"a tag in a text", qwen, "<tool_call>\n<function=weather>\n<parameter=city>\na </parameter> b\nc\n</parameter>\n" +
			"</function>\n</tool_call>",
			result{names: []string{"weather"}, arguments: []string{`{"city": "a </parameter> b\nc"}`}}},
		{"an object", qwen, "<tool_call>\n<function=now>\n<parameter=o>\n{\"a\": [1, true]}\n</parameter>\n</function>\n</tool_call>",
			result{names: []string{"now"}, arguments: []string{`{"o": {"a": [1, true]}}`}}},
		{"cut", qwen, "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n", result{
			names: []string{"weather"}, arguments: []string{`{"city": "Bern"}`}}},
		{"no call", qwen, "<tool_call>\nnothing\n</tool_call>", result{text: "\nnothing\n"}},
		{"no name", qwen, "<tool_call>\n<function= \n>\n</function>\n</tool_call>",
			result{text: "\n<function= \n>\n</function>\n"}},
		{"gemma, no name", gemma, `<|tool_call>call: {city:<|"|>Bern<|"|>}<tool_call|>`,
			result{text: `call: {city:<|"|>Bern<|"|>}`}},
		{"json, no name", hermes, `<tool_call>{"name": "", "arguments": {}}</tool_call>`,
			result{text: `{"name": "", "arguments": {}}`}},
		{"json", hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a}{\\\"\"}}\n</tool_call>",
			result{
				names: []string{"weather"}, arguments: []string{`{"city": "a}{\""}`}}},
		{"json, the other order", hermes,
			"<tool_call>{\"arguments\": {\"city\": \"x\"}, \"name\": \"weather\"}</tool_call>",
			result{names: []string{"weather"}, arguments: []string{`{"city": "x"}`}}},
		{"json without arguments", hermes, "<tool_call>{\"name\": \"now\"}</tool_call>",
			result{names: []string{"now"}, arguments: []string{"{}"}}},
		{"gemma", gemma, `<|tool_call>call:weather{city:<|"|>Zürich "x"<|"|>,days:2,o:{a:true,b:[1,<|"|>c<|"|>]},e:{}}<tool_call|>`,
			result{names: []string{"weather"},
				arguments: []string{`{"city":"Zürich \"x\"","days":2,"o":{"a":true,"b":[1,"c"]},"e":{}}`}}},
		{"gemma, two", gemma, `<|tool_call>call:now{}<tool_call|><|tool_call>call:weather{city:Bern}<tool_call|>`,
			result{names: []string{"now", "weather"}, arguments: []string{"{}", `{"city":"Bern"}`}}},
		{"gemma, cut", gemma, `<|tool_call>call:weather{o:{city:<|"|>Be`,
			result{names: []string{"weather"}, arguments: []string{`{"o":{"city":"Be"}}`}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, f := c.find(t)
			got := parse(t, k, f, false, weather, c.answer)
			require.Equal(t, c.want, got)
			for _, a := range got.arguments {
				require.True(t, json.Valid([]byte(a)), a)
			}
			if len(c.want.names) > 0 {
				plain := parse(t, k, f, false, nil, c.answer)
				require.Empty(t, plain.names, "without tools a call is text")
			}
		})
	}
}

// TestMutatedCalls: whatever comes between the markers, arguments of calls that end are JSON objects, and nothing
// hangs.
func TestMutatedCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, x := range []struct {
		find   func(testing.TB) (*tokenizer.Tokenizer, *format.Format)
		answer string
		exact  bool // arguments are always JSON: the body of the others is JSON that the model writes itself
	}{
		{qwen, "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=d>\n[1]\n</parameter>\n</function>\n</tool_call>", true},
		{hermes, `<tool_call>{"name": "weather", "arguments": {"city": "a", "b": [1]}}</tool_call>`, false},
		{gemma, `<|tool_call>call:weather{city:<|"|>a<|"|>,b:[1,{c:2}]}<tool_call|>`, false},
	} {
		k, f := x.find(t)
		ids := k.Encode(x.answer, tokenizer.EncodeOptions{ParseSpecial: true})
		for range 500 {
			list := append([]int{}, ids...)
			for range 1 + r.IntN(3) {
				i := r.IntN(len(list))
				switch r.IntN(3) {
				case 0:
					list = append(list[:i:i], list[i+1:]...)
				case 1:
					list[i] = ids[r.IntN(len(ids))]
				default:
					list = append(list[:i:i], append([]int{r.IntN(k.VocabSize())}, list[i:]...)...)
				}
			}
			p := f.NewParser(false, weather)
			var got result
			for _, id := range list {
				got.gather(t, p.Push(id))
			}
			got.gather(t, p.Finish())
			for _, a := range got.arguments {
				if x.exact && strings.HasSuffix(a, "}") {
					require.True(t, json.Valid([]byte(a)), "%s of %q", a, k.Decode(list, false))
				}
			}
		}
	}
}
