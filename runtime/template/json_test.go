package template

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ text, repr string }{
		{`null`, "None"},
		{` [true, false] `, "[True, False]"},
		{`{"b": 1, "a": {"c": []}, "b": 2}`, "{'b': 2, 'a': {'c': []}}"},
		{`[0, -0, 12, -7, 9223372036854775807, 9223372036854775808, -123456789012345678901234567890]`,
			"[0, 0, 12, -7, 9223372036854775807, 9223372036854775808, -123456789012345678901234567890]"},
		{`[1.0, 1e2, 1E-7, -0.0, 1e400, 0.1, 5e-324]`, "[1.0, 100.0, 1e-07, -0.0, inf, 0.1, 5e-324]"},
		{`[NaN, Infinity, -Infinity]`, "[nan, inf, -inf]"},
		{`"a\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00é😀"`, `'a"\\/\x08\x0c\n\r\tAé😀é😀'`},
		{`"\ud83d"`, "'\ufffd'"},
		{`"\ud83d\u0041"`, "'\ufffdA'"},
		{`"\ud83dx"`, "'\ufffdx'"},
		{`""`, "''"},
		{`{}`, "{}"},
	} {
		v, err := ParseJSON([]byte(c.text))
		require.NoError(t, err, c.text)
		in := &interp{opts: Options{}.withDefaults()}
		require.Equal(t, c.repr, in.repr(v), c.text)
	}
}

func TestParseJSONErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "JSON line 1 column 1: expected a value"},
		{"[1,\n  x]", "JSON line 2 column 3: expected a value"},
		{`[1 2]`, "JSON line 1 column 4: expected ',' or ']' after a value"},
		{`[1,]`, "JSON line 1 column 4: expected a value"},
		{`{"a" 1}`, "JSON line 1 column 6: expected ':' after a key"},
		{`{a: 1}`, "JSON line 1 column 2: expected a key in double quotes"},
		{`{"a": 1,}`, "JSON line 1 column 9: expected a key in double quotes"},
		{`{"a": 1 "b"}`, "JSON line 1 column 9: expected ',' or '}' after a value"},
		{`1 2`, "JSON line 1 column 3: there is more after the value"},
		{`01`, "JSON line 1 column 2: there is more after the value"},
		{`1.`, "JSON line 1 column 2: there is more after the value"},
		{`-`, "JSON line 1 column 1: expected a value"},
		{`"a`, "JSON line 1 column 3: the string does not end"},
		{"\"a\nb\"", "JSON line 1 column 3: a control character in a string; write it as an escape"},
		{`"\x"`, `JSON line 1 column 2: unknown escape \x`},
		{`"\u12"`, `JSON line 1 column 2: \u wants four hexadecimal digits`},
		{`"\u+123"`, `JSON line 1 column 2: \u wants four hexadecimal digits`},
		{"\"\xff\"", "JSON: the text is not UTF-8"},
		{strings.Repeat("9", 4301), "JSON line 1 column 1: an integer of 4301 digits is too long"},
		{strings.Repeat("[", 100000), "JSON line 1 column 902: values are nested more than 900 deep"},
		{strings.Repeat(`{"a":`, 100000), "JSON line 1 column 4506: values are nested more than 900 deep"},
	} {
		_, err := ParseJSON([]byte(c.text))
		require.EqualError(t, err, c.want, c.text[:min(len(c.text), 40)])
	}
}
