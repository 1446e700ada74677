package passes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// TestTableOrder: every pass runs after those that it needs to come first.
func TestTableOrder(t *testing.T) {
	require.NoError(t, checkOrder(Table))
	seen := map[string]bool{}
	for _, p := range Table {
		require.NotNil(t, p.Run, p.Name)
		require.False(t, seen[p.Name], "%s stands twice", p.Name)
		seen[p.Name] = true
		for _, c := range p.After {
			require.NotEmpty(t, c.Because, "%s after %s", p.Name, c.Pass)
		}
	}
	// Each constraint says something: with the two passes the other way round the check fails.
	for i, p := range Table {
		for _, c := range p.After {
			before := slices.IndexFunc(Table, func(p Pass) bool { return p.Name == c.Pass })
			require.GreaterOrEqual(t, before, 0, "%s must come after %s, which is no pass", p.Name, c.Pass)
			swapped := slices.Clone(Table)
			swapped[i], swapped[before] = swapped[before], swapped[i]
			require.ErrorContains(t, checkOrder(swapped), " must come after ", "%s and %s swapped", p.Name, c.Pass)
		}
	}
	require.EqualError(t, checkOrder([]Pass{{Name: "b", After: []Order{{"a", "it reads what a writes"}}}, {Name: "a"}}),
		"pass b must come after a: it reads what a writes")
	require.EqualError(t, checkOrder([]Pass{{Name: "a"}, {Name: "a"}}), "pass a stands twice")
	require.PanicsWithError(t, "pass b must come after a: it reads what a writes", func() {
		Ordered(Pass{Name: "b", After: []Order{{"a", "it reads what a writes"}}}, Pass{Name: "a"})
	})
	names := Names()
	require.Len(t, names, len(Table))
	require.Equal(t, "canonicalize", names[0])
	require.Equal(t, "legalize", names[len(names)-1])
}

const tiny = `module {
  symbol s0 [1, 8]
  constant @lm_head.weight : bf16[16,32]
  method use_sampling = [false]
  entry forward(%x: bf16[1,s0,32], %temperature: f32[1]) {
    %0 = linear(x=%x, weight=@lm_head.weight) : bf16[1,s0,16]
    %1 = take(x=%0, index=-1) {axis=1} : bf16[1,16]
    %2 = sample(logits=%1, temperature=%temperature) : i64[1]
    return %2: i64[1]
  }
}
`

// TestRun: which passes run under which options, and that what comes out has nodes for all operations.
func TestRun(t *testing.T) {
	always := []string{"canonicalize", "last-token", "fuse-projections", "decompose", "fold-constants",
		"cse", "dce", "legalize"}
	for _, test := range []struct {
		name string
		o    Options
		also []string
	}{
		{"logits", Options{}, []string{"strip-sampler"}},
		{"sampling head", Options{Sample: true}, []string{"strip-sampler", "sampling-head"}},
		{"cuda", Options{Backend: CUDA}, nil},
		{"quantized", Options{Recipe: DefaultRecipe(minMax(4, 32), nil)}, []string{"strip-sampler", "quantize"}},
		{"rounded", Options{Recipe: Recipe{RoundConstants: true}, Verify: true},
			[]string{"strip-sampler", "round-constants"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := parse(t, tiny)
			var ran []string
			o := test.o
			o.After = func(pass string, at *ir.Module) error {
				require.Same(t, m, at)
				ran = append(ran, pass)
				return nil
			}
			require.NoError(t, Run(m, &o))
			require.ElementsMatch(t, append(slices.Clone(always), test.also...), ran)
			require.True(t, slices.IsSortedFunc(ran,
				func(a, b string) int { return slices.Index(Names(), a) - slices.Index(Names(), b) }))
			m.Entry.Body.Walk(func(op *ir.Op) {
				require.True(t, op.Def.Node != "" || op.Def.Effect == ir.Reads, "%s has no node", op.Def.Name)
			})
		})
	}
}

func TestRunErrors(t *testing.T) {
	stop := errors.New("enough")
	require.ErrorIs(t, Run(parse(t, tiny), &Options{After: func(pass string, _ *ir.Module) error {
		if pass == "last-token" {
			return stop
		}
		return nil
	}}), stop)
	err := Run(parse(t, tiny), &Options{Backend: CUDA, Sample: true})
	require.ErrorContains(t, err, "pass sampling-head: the sampling head takes logits of shape (B, vocab), forward returns i64[1]")
	err = Run(parse(t, tiny), &Options{Recipe: Recipe{Name: "mine",
		Rules: []Rule{{Pattern: "[", Scheme: minMax(4, 32)}}}})
	require.ErrorContains(t, err, `recipe mine: pattern "[": `)

	// A pass that leaves an invalid module is found, at once with Verify and else at the end.
	for verify, want := range map[bool]string{true: "after pass dce: ", false: "after pass legalize: "} {
		err := Run(parse(t, tiny), &Options{Verify: verify, After: func(pass string, m *ir.Module) error {
			if pass != "cse" {
				return nil
			}
			b := &ir.Builder{Module: m, Region: m.Entry.Body}
			for range 2 {
				c := m.NewConstant("twice", ir.StaticType(ir.BF16), toBF16(scalarData(ir.F32, 1)))
				m.Entry.Body.Results[0] = b.Value("multiply", nil, m.Entry.Body.Results[0], c)
			}
			return nil
		}})
		require.ErrorContains(t, err, want+"constant @twice stands twice")
	}
}

// TestNoPassNamesAModel: passes know operations and options, never models (A6, C8).
func TestNoPassNamesAModel(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range sources {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range []string{"qwen", "gemma", "llama"} {
			require.NotContains(t, strings.ToLower(string(source)), name, path)
		}
	}
	// Two models that have nothing in common but logits get the same head.
	head := func(text string) string {
		m := parse(t, text)
		require.NoError(t, Run(m, &Options{Sample: true}))
		_, head, ok := strings.Cut(m.String(), "greater(a=%temperature")
		require.True(t, ok)
		return head
	}
	other := strings.NewReplacer("lm_head.weight", "embed_tokens.weight", "s0 [1, 8]", "s0 [1, 4]").Replace(tiny)
	require.Equal(t, head(tiny), head(other))
}
