package ir

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharing is a module whose entries share a weight and a buffer and use the same names for values of their own.
const sharing = `module {
  symbol s0 [1, 8]
  symbol s1 [0, 4]
  constant @w : f32[2,2]
  constant @own : f32[2]
  buffer @seen : f32[2]
  buffer @drafted : f32[2]
  method get_max_seq_len = [16]
  init {
    %0 = add(a=@own, b=@own) : f32[2]
    derive ^own = %0
  }
  entry forward(%x: f32[s0,2]) {
    %0 = linear(x=%x, weight=@w) : f32[s0,2]
    %1 = sum(x=%0) {axes=[0]} : f32[2]
    store @seen(x=%1)
    return %0: f32[s0,2]
  }
  entry draft(%x: f32[s1,2], %y: f32[2]) {
    %0 = load @seen() : f32[2]
    %1 = add(a=%0, b=^own) : f32[2]
    store @drafted(x=%1)
    %2 = linear(x=%x, weight=@w) : f32[s1,2]
    %3 = add(a=%2, b=%1) : f32[s1,2]
    return %3: f32[s1,2]
  }
}
`

// TestEntries: the text of a module of two entries is canonical, and what the accessors give.
func TestEntries(t *testing.T) {
	m, err := Parse(sharing)
	require.NoError(t, err)
	require.Equal(t, sharing, m.String())
	require.Equal(t, "forward", m.Entry.Name)
	require.Equal(t, []*Func{m.Entry, m.More[0]}, m.Entries())
	require.Equal(t, m.More[0], m.Named("draft"))
	require.Equal(t, m.Entry, m.Named("forward"))
	require.Nil(t, m.Named("verify"))
	require.Contains(t, Describe(m, m.More[0].Body.Ops[1]), "%1 = add(a=%0, b=^own)")

	clone := m.Clone()
	require.NoError(t, Verify(clone))
	require.Equal(t, sharing, clone.String())
	for i, f := range clone.Entries() {
		require.NotSame(t, f.Body.Ops[0], m.Entries()[i].Body.Ops[0])
	}
	draft := m.Only(m.More[0])
	require.NoError(t, Verify(draft))
	require.Equal(t, "draft", draft.Entry.Name)
	require.Empty(t, draft.More)
	require.Same(t, m.Buffers[0], draft.Buffers[0])
	require.Len(t, m.More, 1, "the module is as it was")
}

// TestEntriesErrors: what keeps entries apart.
func TestEntriesErrors(t *testing.T) {
	replace := func(old, new string) string {
		require.Contains(t, sharing, old)
		return strings.Replace(sharing, old, new, 1)
	}
	for _, test := range []struct{ name, text, want string }{
		{"one name", replace("entry draft", "entry forward"), "line 19: a second entry forward"},
		{"one symbol", strings.ReplaceAll(sharing, "s1", "s0"), "symbol s0 is declared twice"},
		{"a shared symbol", strings.ReplaceAll(strings.Replace(sharing, "  symbol s1 [0, 4]\n", "", 1), "s1", "s0"),
			"forward and draft share a symbol"},
		{"a shared symbol of an output", replace("return %3: f32[s1,2]", "return %3: f32[s0,2]"),
			"forward and draft share a symbol"},
		{"a value of another entry", replace("a=%2, b=%1) : f32[s1,2]", "a=%2, b=%9) : f32[s1,2]"), "%9"},
		{"a stale load", replace("store @drafted(x=%1)", "store @seen(x=%0)\n    store @seen(x=%0)"),
			"used after a later write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse(test.text)
			require.ErrorContains(t, err, test.want)
		})
	}
	m, err := Parse(sharing)
	require.NoError(t, err)
	m.More[0].Body.Ops[1].Args[0][0].Value = m.Entry.Body.Ops[1].Result()
	require.ErrorContains(t, Verify(m), "draft: a value is used where it is not defined")
	m, err = Parse(sharing)
	require.NoError(t, err)
	m.More[0].Body.Results[0] = m.Entry.Params[0]
	require.ErrorContains(t, Verify(m), "a value is used where it is not defined")
	m, err = Parse(sharing)
	require.NoError(t, err)
	m.More = append(m.More, m.More[0])
	require.ErrorContains(t, Verify(m), "entry draft stands twice")
}

// chains is a module whose init has what one entry needs, what both need, and what only the second needs.
const chains = `module {
  constant @a : f32[2]
  constant @b : f32[2]
  constant @unused : f32[3]
  constant @c : f32[2]
  buffer @mine : f32[2]
  buffer @ours : f32[2]
  buffer @yours : f32[2]
  method use_kv_cache = [true]
  init {
    %0 = add(a=@a, b=@a) : f32[2]
    %1 = neg(x=%0) : f32[2]
    %2 = sort(x=@b) {axis=0} : f32[2]
    derive ^a = %1
    %3 = add(a=%0, b=@c) : f32[2]
    derive ^c = %3
  }
  entry forward(%x: f32[2]) {
    %0 = add(a=%x, b=^a) : f32[2]
    store @mine(x=%0)
    store @ours(x=%0)
    return %0: f32[2]
  }
  entry draft(%x: f32[2]) {
    %0 = load @ours() : f32[2]
    %1 = add(a=%0, b=^a) : f32[2]
    %2 = add(a=%1, b=^c) : f32[2]
    store @yours(x=%2)
    return %2: f32[2]
  }
  entry last(%x: f32[2]) {
    %0 = add(a=%x, b=@a) : f32[2]
    return %0: f32[2]
  }
}
`

// parseLoose reads a text whose derives stand among the operations of init, which the printer puts at its end.
func parseLoose(t *testing.T, text string) *Module {
	t.Helper()
	lines, derives := []string{}, []string{}
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "    derive"):
			derives = append(derives, line)
			continue
		case line == "  }" && derives != nil:
			lines, derives = append(lines, derives...), nil
		}
		lines = append(lines, line)
	}
	m, err := Parse(strings.Join(lines, "\n"))
	require.NoError(t, err)
	return m
}

// TestPartsAndJoin: the parts have what their entries need and no more, each verifies alone, and joined they are the
// module.
func TestPartsAndJoin(t *testing.T) {
	for _, text := range []string{sharing, chains} {
		m := parseLoose(t, text)
		want := m.String()
		parts, err := m.Parts()
		require.NoError(t, err)
		require.Len(t, parts, len(m.Entries()))
		var read []*Module // as lifted: nothing is shared
		for _, p := range parts {
			require.NoError(t, Verify(p))
			again, err := Parse(p.String())
			require.NoError(t, err)
			read = append(read, again)
		}
		require.Equal(t, want, m.String(), "the module is as it was")
		joined, err := Join(read)
		require.NoError(t, err)
		require.NoError(t, Verify(joined))
		require.Equal(t, want, joined.String())
	}
	parts, err := parseLoose(t, chains).Parts()
	require.NoError(t, err)
	names := func(m *Module) (out []string) {
		for _, c := range m.Constants {
			out = append(out, c.Name)
		}
		for _, b := range m.Buffers {
			out = append(out, b.Name)
		}
		for _, d := range m.Derived {
			out = append(out, "^"+d.Cell.Name)
		}
		if m.Init != nil {
			for _, op := range m.Init.Ops {
				out = append(out, op.Def.Name)
			}
		}
		return out
	}
	require.Equal(t, strings.Fields("a b unused mine ours ^a add neg sort"), names(parts[0]))
	require.Equal(t, strings.Fields("a c ours yours ^a ^c add neg add"), names(parts[1]))
	require.Equal(t, strings.Fields("a"), names(parts[2]))
	one, err := Parse(parts[2].String())
	require.NoError(t, err)
	parts, err = one.Parts()
	require.NoError(t, err)
	require.Same(t, one, parts[0], "a module of one entry is its own part")
}

// TestOrderByEntry: what stands elsewhere is refused, and ordered.
func TestOrderByEntry(t *testing.T) {
	for _, move := range []func(m *Module){
		func(m *Module) { slices.Reverse(m.Constants) },
		func(m *Module) { slices.Reverse(m.Buffers) },
		func(m *Module) { slices.Reverse(m.Derived) },
		func(m *Module) { // the operation of the second entry alone before one that no entry needs
			ops := m.Init.Ops
			ops[2], ops[3] = ops[3], ops[2]
		},
	} {
		m := parseLoose(t, chains)
		move(m)
		require.NoError(t, Verify(m))
		_, err := m.Parts()
		require.ErrorContains(t, err, "order them first")
		m.OrderByEntry()
		require.NoError(t, Verify(m))
		parts, err := m.Parts()
		require.NoError(t, err)
		want := m.String()
		for i, p := range parts {
			parts[i], err = Parse(p.String())
			require.NoError(t, err)
		}
		joined, err := Join(parts)
		require.NoError(t, err)
		require.Equal(t, want, joined.String())
	}
}

// TestJoinErrors: what has one name must be the same.
func TestJoinErrors(t *testing.T) {
	const first = "module {\n constant @a : f32[2]\n buffer @b : f32[2]\n init {\n %0 = neg(x=@a) : f32[2]\n derive ^a = %0\n }\n" +
		"entry f() {\n %0 = load @b() : f32[2]\n return ^a: f32[2]\n }\n}"
	for _, test := range []struct{ name, old, new, want string }{
		{"constant", "f32[2]\n buffer", "f32[2,1]\n buffer",
			"methods f and g: constant @a has type f32[2] in one and f32[2,1] in the other"},
		{"buffer", "@b : f32[2]", "@b : bf16[2]",
			"methods f and g: buffer @b has type f32[2] in one and bf16[2] in the other"},
		{"derived", "neg", "exp", "methods f and g: constant @a is derived in two ways"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := Parse(first)
			require.NoError(t, err)
			text := strings.Replace(strings.Replace(first, "entry f", "entry g", 1), test.old, test.new, 1)
			switch test.name {
			case "constant":
				text = strings.ReplaceAll(text, "%0 = neg(x=@a) : f32[2]", "%0 = neg(x=@a) : f32[2,1]")
				text = strings.ReplaceAll(text, "return ^a: f32[2]", "return ^a: f32[2,1]")
			case "buffer":
				text = strings.ReplaceAll(text, "load @b() : f32[2]", "load @b() : bf16[2]")
			}
			b, err := Parse(text)
			require.NoError(t, err)
			_, err = Join([]*Module{a, b})
			require.EqualError(t, err, test.want)
		})
	}
}
