package diff_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/runtime/diff"
)

// Changes of a graph, and the lines that show them: those that differ, and no others.
func TestGraphs(t *testing.T) {
	for _, test := range []struct {
		name string
		b    string
		want []string
	}{
		{"equal", model, nil},
		{"operation", edit(model, "tanh", "sigmoid"),
			[]string{"-%2 = tanh(x=%0) : f32[1,s0,32]", "+%2 = sigmoid(x=%0) : f32[1,s0,32]"}},
		{"operation added, what follows has other numbers",
			edit(model, "%1 = exp", "%12 = neg(x=%0) : f32[1,s0,32]\n    %1 = exp", "exp(x=%0)", "exp(x=%12)"),
			[]string{"+%1 = neg(x=%0) : f32[1,s0,32]", "-%1 = exp(x=%0) : f32[1,s0,32]",
				"+%2 = exp(x=%1) : f32[1,s0,32]"}},
		{"operands swapped", edit(model, "add(a=%1, b=%2)", "add(a=%2, b=%1)"),
			[]string{"-%3 = add(a=%1, b=%2) : f32[1,s0,32]", "+%3 = add(a=%2, b=%1) : f32[1,s0,32]"}},
		{"another operand", edit(model, "sin(x=%3)", "sin(x=%0)"),
			[]string{"-%7 = sin(x=%3) : f32[1,s0,32]", "+%7 = sin(x=%0) : f32[1,s0,32]"}},
		{"arms swapped", edit(model, "sin(", "cos(", "%8 = cos(", "%8 = sin("),
			[]string{"-%7 = sin(x=%3) : f32[1,s0,32]", "+%7 = cos(x=%3) : f32[1,s0,32]",
				"-%8 = cos(x=%3) : f32[1,s0,32]", "+%8 = sin(x=%3) : f32[1,s0,32]"}},
		{"buffer", edit(model, "buffer @count : f32[1]", "buffer @count : f32[1]\n  buffer @spare : f32[2]"),
			[]string{"+buffer @spare : f32[2]"}},
		{"bound", edit(model, "symbol s1 [1, 8]", "symbol s1 [1, 4]"),
			[]string{"-symbol s1 [1, 8]", "+symbol s1 [1, 4]"}},
		{"names of values", edit(model, "%1 = exp", "%40 = exp", "a=%1", "a=%40"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := file{text: model, weights: weightsOf()}, file{text: test.b, weights: weightsOf()}
			r := compare(t, a, b)
			require.Empty(t, cmp.Diff(test.want, changedLines(t, r)))
			require.Equal(t, test.want == nil, r.Equal)
			added, removed := 0, 0
			for _, line := range test.want {
				if line[0] == '+' {
					added++
				} else {
					removed++
				}
			}
			require.Equal(t, added, r.Counts.LinesAdded)
			require.Equal(t, removed, r.Counts.LinesRemoved)
		})
	}
}

// Inputs and outputs, constant methods and metadata.
func TestSurroundings(t *testing.T) {
	a := file{text: model, weights: weightsOf(), extra: []codegen.NamedBytes{
		{Key: "metadata.same", Bytes: []byte("same")}, {Key: "metadata.gone", Bytes: []byte("gone!")},
		{Key: "metadata.config.json", Bytes: []byte(`{"a": 1, "b": [1, 2], "c": 0}`)},
		{Key: "metadata.text", Bytes: []byte("one")}}}
	b := file{text: edit(model, "get_vocab_size = [6]", "use_sampling = [false]", "[10000.0]", "[10000]",
		"%input_pos: i64[s1]) {", "%input_pos: i64[s1], %seed: i64[]) {", "return %11: f32", "return %11: bf16"),
		weights: weightsOf(), extra: []codegen.NamedBytes{
			{Key: "metadata.text", Bytes: []byte("two")}, {Key: "metadata.same", Bytes: []byte("same")},
			{Key: "metadata.config.json", Bytes: []byte(`{"b":[1,2], "a": 2, "d": null}`)},
			{Key: "metadata.new", Bytes: []byte("new")}}}
	r := compare(t, a, b)
	require.False(t, r.Equal)
	require.Empty(t, cmp.Diff([]diff.ConstantMethod{
		{Name: "get_vocab_size", A: []any{int64(6)}},
		{Name: "rope_theta", A: []any{10000.0}, B: []any{int64(10000)}},
		{Name: "use_sampling", B: []any{false}},
	}, r.ConstantMethods))
	require.Empty(t, cmp.Diff([]diff.Metadata{
		{Key: "metadata.gone", Change: diff.Removed, SizeA: 5},
		{Key: "metadata.config.json", Change: diff.Changed, SizeA: 29, SizeB: 30, Keys: []string{"a", "c", "d"},
			HashA: "1b13694687b9c89f31101cd3ef5662ae292a24a6c1d80f2752a1509d6e618a19",
			HashB: "df181cf48c116914d6c49f37a48e317cd3dd2dc80d865b2a6d6933da7043444b"},
		{Key: "metadata.text", Change: diff.Changed, SizeA: 3, SizeB: 3,
			HashA: "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
			HashB: "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"},
		{Key: "metadata.new", Change: diff.Added, SizeB: 3},
	}, r.Metadata))
	require.Len(t, r.Methods, 1)
	m := r.Methods[0]
	require.Equal(t, []string{"tokens i64[1,1..8]", "input_pos i64[1..8]"}, m.InputsA)
	require.Equal(t, []string{"tokens i64[1,1..8]", "input_pos i64[1..8]", "seed i64[]"}, m.InputsB)
	require.Equal(t, []string{"f32[1,1..8,6]"}, m.OutputsA)
	require.Equal(t, []string{"bf16[1,1..8,6]"}, m.OutputsB)
	require.Equal(t, diff.Counts{Methods: 1, ConstantMethods: 3, Metadata: 4, LinesAdded: 2, LinesRemoved: 2,
		WeightsEqual: 2}, r.Counts)
}

// A method that only one file has.
func TestMethods(t *testing.T) {
	r := compare(t, file{text: model}, file{text: edit(model, "entry forward", "entry encode")})
	require.Empty(t, cmp.Diff([]diff.Method{
		{Name: "forward", Change: diff.Removed, InputsA: []string{"tokens i64[1,1..8]", "input_pos i64[1..8]"},
			OutputsA: []string{"f32[1,1..8,6]"}},
		{Name: "encode", Change: diff.Added, InputsB: []string{"tokens i64[1,1..8]", "input_pos i64[1..8]"},
			OutputsB: []string{"f32[1,1..8,6]"}},
	}, r.Methods))
}

// What ExecuTorch puts before names makes no difference, the place of constants neither.
func TestNamesAndOrder(t *testing.T) {
	weights := weightsOf()
	prefixed := model
	for name, v := range weights {
		if strings.Contains(model, "@"+name+" ") {
			prefixed = strings.ReplaceAll(prefixed, "@"+name, `@"1a2b/`+name+`"`)
			weights["1a2b/"+name] = v
		}
	}
	prefixed = strings.ReplaceAll(prefixed, "@count", `@"1a2b/count"`)
	prefixed = strings.ReplaceAll(prefixed, "%tokens", `%"1a2b/tokens"`)
	prefixed = strings.ReplaceAll(prefixed, "%input_pos", `%"1a2b/input_pos"`)
	embed := "  constant @embed.weight : f32[6,32]\n"
	moved := edit(model, embed, "", "  buffer @count", embed+"  buffer @count")
	a := file{text: model, weights: weightsOf()}
	require.True(t, compare(t, a, file{text: prefixed, weights: weights}).Equal)
	require.True(t, compare(t, file{text: prefixed, weights: weights}, a).Equal)
	require.True(t, compare(t, a, file{text: moved, weights: weightsOf()}).Equal)
}

// Files of ExecuTorch: each equals itself; one way and the other differ in the same things; JSON and text can
// be written.
func TestExecuTorchFiles(t *testing.T) {
	paths, err := filepath.Glob("../container/testdata/*.pte")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for i, a := range paths {
		for _, b := range []string{a, paths[(i+1)%len(paths)]} {
			r, err := diff.Programs(open(t, a), open(t, b))
			require.NoError(t, err)
			require.Equal(t, a == b, r.Equal, "%s %s", a, b)
			back, err := diff.Programs(open(t, b), open(t, a))
			require.NoError(t, err)
			require.Equal(t, r.Counts.WeightsAdded, back.Counts.WeightsRemoved)
			require.Equal(t, r.Counts.WeightsRetyped, back.Counts.WeightsRetyped)
			require.Equal(t, r.Counts.Methods, back.Counts.Methods)
			_, err = json.Marshal(r)
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, r.WriteText(&text, true))
			require.Equal(t, r.Equal, text.Len() == 0)
		}
	}
}

// Methods that another backend runs are compared by what it is given.
func TestOtherBackend(t *testing.T) {
	p, err := os.ReadFile("../container/testdata/Rope_vid_f32.pte")
	require.NoError(t, err)
	write := func(edit func(p []byte)) string {
		q := bytes.ReplaceAll(p, []byte("MLXBackend"), []byte("XNNBackend"))
		edit(q)
		path := filepath.Join(t.TempDir(), "other.pte")
		require.NoError(t, os.WriteFile(path, q, 0o600))
		return path
	}
	other := write(func([]byte) {})
	changed := write(func(q []byte) { q[bytes.Index(q, []byte("MLX0"))] = 'm' })
	mlx := "../container/testdata/Rope_vid_f32.pte"
	for _, test := range []struct {
		name, a, b string
		equal      bool
	}{{"same", other, other, true}, {"another payload", other, changed, false}, {"another backend", mlx, other, false},
		{"the other way", other, mlx, false}} {
		t.Run(test.name, func(t *testing.T) {
			r, err := diff.Programs(open(t, test.a), open(t, test.b))
			require.NoError(t, err)
			require.Equal(t, test.equal, r.Equal)
			if !test.equal {
				require.Contains(t, r.Methods[0].Problem, `is delegated to "XNNBackend"`)
			}
		})
	}
}
