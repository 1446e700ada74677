package constrain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatcher(t *testing.T) {
	v, stop := byteVocab(t, `{"`, `{"name": "`, "ab", `"}`, `"} `)
	g := compile(t, JSONSchema, `{"type":"object","properties":{"name":{"type":"string","maxLength":4}},"required":["name"],"additionalProperties":false}`)
	m := NewMatcher(g, v)
	require.Equal(t, "{", string(m.Forced(100)))
	require.ErrorIs(t, m.Accept('x'), ErrToken)
	require.ErrorIs(t, m.Accept(stop), ErrToken)
	require.ErrorIs(t, m.Accept(-1), ErrToken)
	require.ErrorIs(t, m.Accept(v.Size()), ErrToken)
	require.NoError(t, m.Accept(256))
	require.Equal(t, `na`, string(m.Forced(2)))
	require.Equal(t, `name"`, string(m.Forced(100)))
	require.NoError(t, m.AcceptBytes([]byte(`name": "`)))
	require.NoError(t, m.Accept(258))
	require.NoError(t, m.Accept(258))
	require.ErrorIs(t, m.Accept(258), ErrToken)
	require.ErrorIs(t, m.Accept(260), ErrToken) // nothing stands after the value
	other := m.Clone()
	require.NoError(t, m.Accept(259))
	require.True(t, m.CanEnd())
	require.Empty(t, m.Forced(10))
	mask := make([]uint64, v.MaskWords())
	m.Mask(mask)
	want := make([]uint64, v.MaskWords())
	want[stop>>6] = 1 << (stop & 63)
	require.Equal(t, want, mask)
	require.NoError(t, m.Accept(stop))
	require.True(t, m.Stopped())
	require.ErrorIs(t, m.Accept(stop), ErrToken)
	require.ErrorIs(t, m.AcceptBytes([]byte("x")), ErrToken)
	m.Mask(mask)
	require.Equal(t, make([]uint64, v.MaskWords()), mask)
	require.NoError(t, m.Rollback(3))
	require.False(t, m.Stopped())
	require.NoError(t, m.Accept('z'))
	require.Error(t, m.Rollback(5))
	require.NoError(t, m.Rollback(4))
	require.Equal(t, "{", string(m.Forced(100)))
	require.NoError(t, other.Accept(259))
}

func TestVocabRefusals(t *testing.T) {
	_, err := NewVocab([][]byte{[]byte("a")}, []int{0})
	require.ErrorContains(t, err, "has bytes")
	_, err = NewVocab([][]byte{nil}, []int{1})
	require.ErrorContains(t, err, "outside of the vocabulary")
	_, err = NewVocab([][]byte{make([]byte, maxTokenBytes+1)}, nil)
	require.ErrorContains(t, err, "at most")
}

// TestStatesAreBounded follows texts with ever new states: what is kept stays bounded, and masks stay right.
func TestStatesAreBounded(t *testing.T) {
	v, _ := byteVocab(t)
	g := compile(t, GBNF, `root ::= ([ab]{0,100000} "c")*`)
	m := NewMatcher(g, v)
	for range 3 * maxStates {
		require.NoError(t, m.Accept('a'))
	}
	require.LessOrEqual(t, len(m.k.m.states), maxStates)
	mask := make([]uint64, v.MaskWords())
	m.Mask(mask)
	require.Equal(t, uint64(7)<<('a'-64), mask[1])
	require.NoError(t, m.Rollback(3*maxStates-5))
	require.NoError(t, m.Accept('c'))
	require.True(t, m.CanEnd())
	for range 2 * maxStateMasks {
		require.NoError(t, m.Accept('b'))
		m.Mask(mask)
	}
	require.LessOrEqual(t, len(m.k.states), maxStateMasks)
}

// TestLargeEnum has more values with one beginning than a state may have readings.
func TestLargeEnum(t *testing.T) {
	var values []string
	for i := range 3 * maxItems {
		values = append(values, fmt.Sprintf(`"item %05d"`, i))
	}
	g := compile(t, JSONSchema, `{"enum":[`+strings.Join(values, ",")+`,"item","it",17,null]}`)
	for _, text := range []string{`"item 00000"`, `"item 09999"`, `"item"`, `"it"`, `17`, `null`} {
		require.True(t, accepts(g, text), text)
	}
	for _, text := range []string{`"item 99999"`, `"item "`, `"ite"`, `1`, ``} {
		require.False(t, accepts(g, text), text)
	}
}

// TestMasksOfAmbiguousGrammarsEnd asks for masks of a text that has as many readings as can be.
func TestMasksOfAmbiguousGrammarsEnd(t *testing.T) {
	v, _ := byteVocab(t, "a", "aa", "aaaa", "aaaaaaaa", "aaaaaaaaaaaaaaaa")
	g := compile(t, GBNF, "root ::= ((x | x x){0,60} | \"a\"){0,60}\nx ::= \"a\" y? y?\ny ::= \"a\" x? x?\n")
	m := NewMatcher(g, v)
	mask := make([]uint64, v.MaskWords())
	for range 12 {
		m.Mask(mask)
		require.NotZero(t, mask[1]&(1<<('a'-64)))
		if err := m.Accept('a'); err != nil {
			require.ErrorIs(t, err, ErrTooComplex)
			return
		}
	}
}

// TestManyMatchers uses one grammar from several goroutines.
func TestManyMatchers(t *testing.T) {
	v, stop := byteVocab(t, jsonTokens...)
	c := NewCache(2)
	schema := `{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}},"maxItems":3}`
	s := oracle(t, schema)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			g, err := c.Compile(Source{JSONSchema, schema})
			if err != nil {
				t.Error(err)
				return
			}
			r := rand.New(rand.NewPCG(uint64(i), 1))
			if text, ok := walk(t, NewMatcher(g, v), stop, 300, r.IntN); ok {
				checkText(t, s, schema, text)
			}
		})
	}
	wg.Wait()
}

func TestCache(t *testing.T) {
	c := NewCache(2)
	a, err := c.Compile(Source{Regex, "a"})
	require.NoError(t, err)
	_, err = c.Compile(Source{Regex, "("})
	require.Error(t, err)
	again, err := c.Compile(Source{Regex, "a"})
	require.NoError(t, err)
	require.Same(t, a, again)
	_, err = c.Compile(Source{Regex, "c"}) // takes the place of "("
	require.NoError(t, err)
	again, err = c.Compile(Source{Regex, "a"})
	require.NoError(t, err)
	require.Same(t, a, again)
	require.Len(t, c.kept, 2)
}

func TestJSONObject(t *testing.T) {
	g := compile(t, JSONObject, "")
	for _, text := range []string{`{}`, `{ }`, `{"a": [1, -2.5e+3, "\u00E9\ud83D\uDE00", null, true, {"":[]}]}`,
		"{\n\t\"a\":\n  1\n}"} {
		require.True(t, accepts(g, text), text)
	}
	for _, text := range []string{`[]`, `{}x`, ` {}`, `{"a"}`, `{"a":1,}`, `{"a":01}`, "{\"\n\":1}", "{\"\xff\":1}",
		`{"\ud83d":1}`, `{"a":1e400}`} {
		require.False(t, accepts(g, text), text)
	}
	require.Contains(t, fails(t, JSONObject, "{}").Error(), "it takes no text")
}

// FuzzCompile looks for panics, for what takes for ever, and for texts that a schema's automaton lets end and that are
// not valid.
func FuzzCompile(f *testing.F) {
	v, stop := byteVocab(f, jsonTokens...)
	for kind, texts := range map[Kind][]string{
		Regex: {"a*(b|c){2,9}[^d-f]$", `(?i)é\d|^.`},
		GBNF:  {"root ::= a | \"x\" # c\na ::= ([a-z]{2,30} root?)*\n"},
		JSONSchema: {
			benchSchema, `{"oneOf":[{"type":"object","properties":{"k":{"const":1}},"required":["k"]},{"enum":[2,"x"]}]}`,
			`{"type":["string","number","array"],"pattern":"^a.*$","maxLength":9,"maximum":3.5,"multipleOf":0.1,"prefixItems":[{}],"items":false}`,
			`{"type":"object","patternProperties":{"a":{"type":"null"}},"propertyNames":{"maxLength":3},"minProperties":1}`,
		},
	} {
		for _, text := range texts {
			f.Add(uint8(kind), text, uint64(7))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string, seed uint64) {
		if len(text) > 2000 {
			return
		}
		g, err := Compile(Source{Kind(kind % 4), text})
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewMatcher(g, v)
		mask := make([]uint64, v.MaskWords())
		for i := range 40 {
			m.Mask(mask)
			var allowed []int
			for id := range v.Size() {
				if mask[id>>6]>>(id&63)&1 == 1 {
					allowed = append(allowed, id)
				}
			}
			require.NotEmpty(t, allowed)
			id := allowed[r.IntN(len(allowed))]
			if m.CanEnd() && i > 20 {
				id = stop
			}
			if m.Accept(id) != nil || id == stop {
				return
			}
		}
	})
}
