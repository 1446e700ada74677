package ir

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParseErrors: each error names the line and says what was expected and found.
func TestParseErrors(t *testing.T) {
	// in puts lines into the entry of a module whose first line is "module {"; they begin at line 7.
	in := func(lines ...string) string {
		return strings.Join([]string{
			"module {",
			"  symbol n [1, 8]",
			"  constant @c : f32[2]",
			"  buffer @b : f32[2]",
			"  method m = [1]",
			"  entry forward(%x: f32[2], %k: f32[n]) {",
			strings.Join(lines, "\n"),
			"    return %x: f32[2]",
			"  }",
			"}",
		}, "\n")
	}
	for _, test := range []struct{ name, text, want string }{
		// What is no token.
		{"character", "module {\n  ?", `line 2: unexpected character '?'`},
		{"wide character", "module {\n\n é", `line 3: unexpected character 'é'`},
		{"bad UTF-8", "module {\n\xff", `line 2: unexpected character '` + "\ufffd" + `'`},
		{"open string", "module {\n method \"abc\n", `line 2: a string that does not end or has a bad escape`},
		{"raw string over two lines", "module {\n method `a\nb`", "line 2: unexpected character '`'"},

		// The module.
		{"nothing", "", `line 1: want "module", found the end of the text`},
		{"no brace", "module", `line 1: want "{", found the end of the text`},
		{"no end", "module {", `line 1: want symbol, constant, buffer, method, init or entry, found the end of the text`},
		{"after the end", in() + " module", `line 10: want the end of the text, found "module"`},
		{"unknown part", "module {\n constants",
			`line 2: want symbol, constant, buffer, method, init or entry, found "constants"`},
		{"no entry", "module {\n}", `the module has no entry`},
		{"two entries", strings.TrimSuffix(in(), "}") + "entry forward", `line 10: a second entry forward`},
		{"two inits", "module {\n init {\n }\n init", `line 4: a second init`},

		// Symbols, constants, buffers, methods.
		{"symbol twice", "module {\n symbol a [1, 2]\n symbol a [1, 2]", `line 3: symbol a is declared twice`},
		{"bounds", "module {\n symbol a [2, 1]", `line 2: symbol a has bounds [2, 1]`},
		{"bound", "module {\n symbol a [x, 1]", `line 2: want an integer, found "x"`},
		{"large bound", "module {\n symbol a [0, 9223372036854775808]",
			`line 2: want an integer, found "9223372036854775808"`},
		{"constant twice", "module {\n constant @a : f32[]\n constant @a : f32[]",
			`line 3: constant "a" is declared twice`},
		{"constant with a symbol", "module {\n symbol n [1, 2]\n constant @a : f32[n]",
			`line 3: constant "a" has type f32[n], want a tensor with constant dims`},
		{"constant that is an int", "module {\n constant @a : int(3)",
			`line 2: constant "a" has type int(3), want a tensor with constant dims`},
		{"buffer twice", "module {\n buffer @a : f32[]\n buffer @a : f32[]", `line 3: buffer "a" is declared twice`},
		{"dtype", "module {\n buffer @a : float[]", `line 2: unknown dtype "float"; known are bool, `},
		{"shape", "module {\n buffer @a : f32 }", `line 2: want "[", found "}"`},
		{"dim", "module {\n buffer @a : f32[m]",
			`line 2: want a number, a declared symbol or floordiv, mod, min, max, wrap, found "m"`},
		{"large dim", "module {\n buffer @a : f32[99999999999999999999]",
			`line 2: want a number, a declared symbol or floordiv, mod, min, max, wrap, found "99999999999999999999"`},
		{"division by zero", "module {\n buffer @a : f32[mod(3,0)]", `line 2: division by the constant zero`},
		{"method", "module {\n method a = [x]", `line 2: want a value or a number, found "x"`},
		{"metadata without a list", "module {\n method a = 1", `line 2: want "[", found "1"`},

		// Init.
		{"derive of no constant", "module {\n init {\n derive ^a = %0", `line 3: derive ^a: no constant has that name`},
		{"derive of no value", "module {\n constant @a : f32[]\n init {\n derive ^a = %0",
			`line 4: %0 is not defined here`},
		{"derive twice", "module {\n constant @a : f32[]\n init {\n derive ^a = @a\n derive ^a = @a",
			`line 5: ^a is derived twice`},
		{"init sees no parameter", in("%0 = neg(x=^c) : f32[2]"), `line 7: ^c is not defined here`},

		// Operations.
		{"op", in("%0 = negate(x=%x) : f32[2]"), `line 7: want the name of an op, found "negate"`},
		{"quoted op", in(`%0 = "neg"(x=%x) : f32[2]`), `line 7: want the name of an op, found "neg"`},
		{"undefined", in("%0 = neg(x=%y) : f32[2]"), `line 7: %y is not defined here`},
		{"later", in("%0 = neg(x=%1) : f32[2]", "%1 = neg(x=%x) : f32[2]"), `line 7: %1 is not defined here`},
		{"itself", in("%0 = neg(x=%0) : f32[2]"), `line 7: %0 is not defined here`},
		{"twice", in("%0 = neg(x=%x) : f32[2]", "%0 = neg(x=%x) : f32[2]"), `line 8: %0 is defined twice`},
		{"shadows a parameter", in("%x = neg(x=%x) : f32[2]"), `line 7: %x is defined twice`},
		{"constant", in("%0 = neg(x=@d) : f32[2]"), `line 7: @d is not defined here`},
		{"buffer as a value", in("%0 = neg(x=@b) : f32[2]"), `line 7: @b is not defined here`},
		{"operand", in("%0 = neg(y=%x) : f32[2]"), `line 7: neg has no operand "y"`},
		{"operand twice", in("%0 = neg(x=%x, x=%x) : f32[2]"), `line 7: neg: operand x stands twice`},
		{"missing operand", in("%0 = add(a=%x) : f32[2]"), `line 7: add: operand b is missing`},
		{"list for one", in("%0 = neg(x=[%x]) : f32[2]"), `line 7: want a value or a number, found "["`},
		{"one for a list", in("%0 = concatenate(tensors=%x) : f32[2]"), `line 7: want "[", found "%"`},
		{"comma", in("%0 = add(a=%x b=%x) : f32[2]"), `line 7: want ",", found "b"`},
		{"literal for a tensor", in("%0 = neg(x=1) : f32[2]"), `line 7: neg: operand x is the literal 1, want tensor`},
		{"integer for a float", in("%0 = full(shape=[2], v=1) {scalar_type=f32} : f32[2]"),
			`line 7: full: operand v is the literal 1, want float`},
		{"float for an integer", in("%0 = full(shape=[2.0], v=1.0) {scalar_type=f32} : f32[2]"),
			`line 7: full: operand shape is the literal 2, want ints`},
		{"tensor for an int", in("%0 = add_int(a=%x, b=1) : int(1)"),
			`line 7: add_int: operand a is a value of type f32[2], want int`},
		{"type", in("%0 = neg(x=%x) : f32[3]"), `line 7: neg: the text says f32[3], the arguments make it f32[2]`},
		{"symbol that is not new", in("%0 = sym_size(a=%x) : int(n)"),
			`line 7: sym_size: the text says int(n), the arguments make it int(2)`},
		{"no type", in("%0 = neg(x=%x)"), `line 7: neg has 1 results and 0 types`},
		{"no result", in("neg(x=%x) : f32[2]"), `line 7: neg has 0 results and 1 types`},
		{"results", in("%0, %1 = neg(x=%x) : f32[2], f32[2]"), `line 7: neg: has 2 results, want 1`},
		{"rule", in("%0 = concatenate(tensors=[]) : f32[2]"), `line 7: concatenate: `},
		{"attribute", in("%0 = softmax(x=%x) {axes=1} : f32[2]"), `line 7: softmax has no attribute "axes"`},
		{"no attributes", in("%0 = neg(x=%x) {axis=1} : f32[2]"), `line 7: neg has no attributes`},
		{"attribute kind", in("%0 = softmax(x=%x) {axis=1.5} : f32[2]"), `line 7: want an integer, found "1.5"`},
		{"bool attribute", in("%0 = softmax(x=%x) {precise=1} : f32[2]"), `line 7: want "false", found "1"`},
		{"string attribute", in("%0 = gelu(x=%x) {approximate=tanh} : f32[2]"),
			`line 7: want a quoted string, found "tanh"`},
		{"float attribute", in("%0 = rms_norm(x=%x) {eps=1} : f32[2]"), `line 7: want a float, found the integer 1`},
		{"dtype attribute", in("%0 = astype(x=%x) {scalar_type=f31} : f32[2]"), `line 7: unknown dtype "f31"`},

		// Buffers and control flow.
		{"no buffer", in("%0 = load() : f32[2]"), `line 7: load: names no buffer`},
		{"unknown buffer", in("%0 = load @c() : f32[2]"), `line 7: no buffer is named "c"`},
		{"a buffer too many", in("%0 = neg @b(x=%x) : f32[2]"), `line 7: neg: works on no buffer, but names @b`},
		{"one arm", in("if(cond=1) {", "yield", "}"), `line 10: want "else", found "return"`},
		{"no arm", in("if(cond=1)"), `line 8: want "{", found "return"`},
		{"no yield", in("if(cond=1) {", "}"), `line 8: want "yield", found "}"`},
		{"arm sees no other arm", in("if(cond=1) {", "%0 = neg(x=%x) : f32[2]", "yield", "} else {",
			"%1 = neg(x=%0) : f32[2]", "yield", "}"), `line 11: %0 is not defined here`},
		{"values end with their region", in("if(cond=1) {", "%0 = neg(x=%x) : f32[2]", "yield", "} else {", "yield",
			"}", "%1 = neg(x=%0) : f32[2]"), `line 13: %0 is not defined here`},
		{"arms differ", in("%0 = if(cond=1) : f32[2] {", "yield %x", "} else {", "yield", "}"),
			`line 7: if: the arms must have as many results, found 1 and 0`},
		{"arguments of an arm", in("if(cond=1) {", "args %0: f32[2]", "yield", "} else {", "yield", "}"),
			`line 7: if: the arms must have no arguments, found 1 and 0`},
		{"arms that do not join", in("%0 = if(cond=1) : f32[2] {", "yield %x", "} else {",
			"%1 = astype(x=%x) {scalar_type=bf16} : bf16[2]", "yield %1", "}"),
			`line 7: if: result 0: the arms give f32[2] and bf16[2]`},
		{"stale load", in("%0 = load @b() : f32[2]", "store @b(x=%x)", "%1 = neg(x=%0) : f32[2]"),
			"the loaded value of buffer @b is used after a later write of the buffer; copy it with id_copy first\n\tin %1 = neg(x=%0) : f32[2]"},

		// Outputs.
		{"output", "module {\n entry f() {\n return %0: f32[]", `line 3: %0 is not defined here`},
		{"output without a type", "module {\n entry f(%x: f32[]) {\n return %x }", `line 3: want ":", found "}"`},
		{"output of another rank", "module {\n entry f(%x: f32[]) {\n return %x: f32[1]\n}\n}",
			`f: output 0: declared as f32[1], the program computes f32[]`},
		{"parameter twice", "module {\n entry f(%x: f32[], %x: f32[]) {", `line 2: %x is defined twice`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := Parse(test.text)
			require.Nil(t, m)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "%!", "a format that does not fit its arguments")
		})
	}
}

// TestParseIsBounded: texts that would unfold to something large are refused, in little memory.
func TestParseIsBounded(t *testing.T) {
	nested := func(open, inner, closing string, depth int) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(closing, depth)
	}
	entry := func(dims string) string {
		return "module {\nsymbol s [1, 9]\nsymbol r [0, 5]\nentry f(%x: f32[" + dims + "]) {\n"
	}
	ifs := "module {\nentry f() {\n" + nested("if(cond=1) {\n", "yield\n", "} else {\nyield\n}\n", 80)
	for _, test := range []struct{ name, text, want string }{
		{"size", strings.Repeat(" ", maxTextSize+1), "IR text of 8388609 bytes, at most 8388608 are read"},
		{"nested regions", ifs, "nested more than 64 deep"},
		{"nested expressions", entry(nested("max(s,", "r", ")", 200)), "nested more than 64 deep"},
		{"powers", entry("(s)" + strings.Repeat("*s", 10000)), "want a number"},
		{"degree", entry("s" + strings.Repeat("*s", 10000)),
			"line 4: an expression of more than 64 terms or 4096 bytes"},
		{"terms", entry("s" + sum("min(s,%d*r)", 2, 100)), "line 4: an expression of more than 64 terms or 4096 bytes"},
		{"open brackets", "module {\nentry f(%x: f32" + strings.Repeat("[", 100000), "want a number"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(test.text)
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, test.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		})
	}
}

func sum(format string, from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "+"+format, i)
	}
	return b.String()
}

// TestParseNone: an attribute that may be absent can be said to be; the canonical text leaves it out.
func TestParseNone(t *testing.T) {
	const text = "module {\n  entry f() {\n    %0 = arange(start=0, stop=3, step=1)ATTRS : i32[3]\n    return %0: i32[3]\n  }\n}\n"
	m := parse(t, strings.Replace(text, "ATTRS", " {scalar_type=none}", 1))
	require.Nil(t, Attrs[OptionalDTypeAttrs](m.Entry.Body.Ops[0]).ScalarType)
	require.Equal(t, strings.Replace(text, "ATTRS", "", 1), m.String())
}

// TestParseKeepsFreshSymbols: a type rule that makes a symbol takes the one of the text, so that later
// uses of the symbol mean the same.
func TestParseKeepsFreshSymbols(t *testing.T) {
	m := parse(t, texts(t)["control.ir"])
	result := m.Entry.Body.Ops[0].Result().Type
	symbol, ok := result.Shape[1].Symbol()
	require.True(t, ok)
	require.Equal(t, "s2", symbol.Name)
	require.True(t, result.Equal(m.Entry.Outputs[0]))
}
