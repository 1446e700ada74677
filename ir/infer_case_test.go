package ir

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inferCase is one application of a type rule. Operands are those of [Builder.Op], except that a string
// is a value of that type and a []string a list of them. One of want (the result types, joined by
// spaces) and err (a part of the error) is set; both may be empty for an op without results.
type inferCase struct {
	op       string
	attrs    any
	operands []any
	want     string
	err      string
}

// testSymbols are the symbols that types in tests may name.
func testSymbols() map[string]*Symbol {
	out := map[string]*Symbol{}
	for _, s := range []*Symbol{
		{"T", 1, 255}, {"S", 0, 4096}, {"B", 1, 8}, {"W", 1, Unbounded},
		{"M", 2, 64}, {"N", 100, 200}, {"P", -1 << 31, 1<<31 - 1},
	} {
		out[s.Name] = s
	}
	return out
}

// testTypes reads types of tests, with numbers in the place of the symbols where values has them.
type testTypes struct {
	symbols map[string]*Symbol
	values  map[*Symbol]int64
}

func newTestTypes() testTypes { return testTypes{symbols: testSymbols()} }

func (x testTypes) typ(text string) Type {
	tokens, err := lex(text)
	if err != nil {
		panic(err)
	}
	return x.substitute((&parser{tokens: tokens, symbols: x.symbols}).parseType())
}

func (x testTypes) substitute(t Type) Type {
	with := func(s *Symbol) *Expr {
		if v, ok := x.values[s]; ok {
			return Const(v)
		}
		return nil
	}
	for i, d := range t.Shape {
		t.Shape[i] = d.Substitute(with)
	}
	if t.Kind == IntKind {
		t.Int = t.Int.Substitute(with)
	}
	return t
}

func (x testTypes) value(text string) *Value { return &Value{Type: x.typ(text)} }

func (x testTypes) operand(o any) any {
	switch o := o.(type) {
	case string:
		return x.value(o)
	case []string:
		out := make([]*Value, len(o))
		for i, s := range o {
			out[i] = x.value(s)
		}
		return out
	case []any:
		out := make([]any, len(o))
		for i, e := range o {
			out[i] = x.operand(e)
		}
		return out
	}
	return o
}

// apply infers an op on its own and gives it.
func (x testTypes) apply(buffer *Buffer, name string, attrs any, operands ...any) (op *Op, err error) {
	err = Build(func() {
		for i, o := range operands {
			operands[i] = x.operand(o)
		}
		op = (&Builder{Module: &Module{}, Region: &Region{}}).BufferOp(name, buffer, attrs, operands...)
	})
	return op, err
}

// allInferCases are the cases of all tables.
func allInferCases() []inferCase {
	return slices.Concat(elementwiseCases(), reduceCases(), shapeCases(), joinCases(), createCases(), indexCases(),
		matmulCases(), quantizedCases(), convCases(), normRopeCases(), sdpaCases(), intCases(), compositeCases(),
		metalKernelCases(), fusedCases(), loweredCases(), loweredAttentionCases(), loweredProductsCases(),
		loweredExpertsCases(), raggedCases())
}

func typeList(op *Op) string {
	out := make([]string, len(op.Results))
	for i, r := range op.Results {
		out[i] = r.Type.String()
	}
	return strings.Join(out, " ")
}

func runInferCases(t *testing.T, cases []inferCase) {
	t.Helper()
	for i, c := range cases {
		t.Run(fmt.Sprintf("%02d_%s", i, c.op), func(t *testing.T) {
			op, err := newTestTypes().apply(nil, c.op, c.attrs, append([]any{}, c.operands...)...)
			checkInferCase(t, op, err, c)
		})
	}
}

func checkInferCase(t *testing.T, op *Op, err error, c inferCase) {
	t.Helper()
	if c.err != "" {
		require.ErrorContains(t, err, c.err)
		require.ErrorContains(t, err, c.op+": ")
		return
	}
	require.NoError(t, err)
	require.Equal(t, c.want, typeList(op))
	// What stands there already is derived again.
	before := typeList(op)
	require.NoError(t, Infer(op))
	require.Equal(t, before, typeList(op))
}

// ptr makes the value of an optional attribute.
func ptr[T any](v T) *T { return &v }
