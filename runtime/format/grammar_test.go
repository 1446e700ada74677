package format_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
)

// TestGrammars: the grammar of calls takes what the parser reads, and nothing that the signature forbids.
func TestGrammars(t *testing.T) {
	tools := []format.Signature{{Name: "now"}, {Name: "weather", Parameters: []format.Parameter{
		{Name: "city", Required: true, Type: "string"}, {Name: "days", Type: "integer"},
		{Name: "unit", Type: "string", Enum: []json.RawMessage{json.RawMessage(`"c"`), json.RawMessage(`"f"`)}},
		{Name: "more", Type: "object"}}}}
	_, q := qwen(t)
	_, g := gemma(t)
	_, h := hermes(t)
	_, ok := h.Grammar(tools)
	require.False(t, ok)
	quoted := func(s string) string { return strings.ReplaceAll(s, "'", format.QuoteMark) }
	for _, x := range []struct {
		f         *format.Format
		good, bad []string
	}{
		{q, []string{"\n<function=now>\n</function>\n",
			"\n<function=weather>\n<parameter=city>\nNew\nYork <3\n</parameter>\n</function>\n",
			"\n<function=weather>\n<parameter=city>\nX\n</parameter>\n<parameter=days>\n-12\n</parameter>\n<parameter=unit>\nc\n" +
				"</parameter>\n<parameter=more>\n{\"a\": [1, \"x\"]}\n</parameter>\n</function>\n"},
			[]string{"\n<function=weather>\n</function>\n", "\n<function=other>\n</function>\n",
				"\n<function=weather>\n<parameter=city>\nX\n</parameter>\n<parameter=days>\nmany\n</parameter>\n</function>\n"}},
		{g, []string{"call:now{}", quoted("call:weather{city:'New York'}"),
			quoted("call:weather{city:'a',unit:'f',more:{b:[1,'c']}}")},
			[]string{"call:weather{}", quoted("call:weather{city:'a',days:'1'}"), quoted("call:weather{days:1}"),
				"call:now{,}"}},
	} {
		source, ok := x.f.Grammar(tools)
		require.True(t, ok)
		compiled, err := constrain.Compile(constrain.Source{Kind: constrain.GBNF, Text: source})
		require.NoError(t, err, source)
		vocab, err := constrain.NewVocab([][]byte{[]byte("a"), nil}, []int{1})
		require.NoError(t, err)
		takes := func(s string) bool {
			m := constrain.NewMatcher(compiled, vocab)
			return m.AcceptBytes([]byte(s)) == nil && m.CanEnd()
		}
		for _, s := range x.good {
			require.True(t, takes(s), "%q", s)
		}
		for _, s := range x.bad {
			require.False(t, takes(s), "%q", s)
		}
	}
}
