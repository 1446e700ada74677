package constrain

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// largeVocab is a vocabulary of 248,320 tokens in the proportions of those of real models: words with and without a
// blank in front, parts of words, other scripts, and punctuation in runs.
var largeVocab = sync.OnceValues(func() (*Vocab, int) {
	const size = 248320
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	var tokens [][]byte
	add := func(s string) {
		if !seen[s] && len(tokens) < size-1 {
			seen[s] = true
			tokens = append(tokens, []byte(s))
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for _, s := range jsonTokens {
		add(s)
	}
	const marks = " \n\t\"{}[]():;,.<>/\\=+-*_#'"
	letters := "etaoinshrdlucmfwypvbgkqjxz"
	word := func() string {
		var out strings.Builder
		for range 2 + int(r.ExpFloat64()*3) {
			out.WriteByte(letters[min(int(r.ExpFloat64()*7), 25)])
		}
		return out.String()
	}
	for len(tokens) < size-1 {
		switch n := r.IntN(100); {
		case n < 40:
			add(" " + word())
		case n < 65:
			add(word())
		case n < 72:
			add(strings.ToUpper(word()[:1]) + word())
		case n < 90:
			var out []rune
			for range 1 + r.IntN(4) {
				out = append(out, rune([]int{0x4E00, 0x3040, 0x0400, 0xAC00}[r.IntN(4)]+r.IntN(0x100)))
			}
			add(string(out))
		case n < 97:
			var out []byte
			for range 1 + r.IntN(6) {
				out = append(out, marks[r.IntN(len(marks))])
			}
			add(string(out))
		default:
			add(word() + []string{`"`, `":`, `",`, `.`, `)`, `\n`}[r.IntN(6)])
		}
	}
	tokens = append(tokens, nil)
	v, err := NewVocab(tokens, []int{size - 1})
	if err != nil {
		panic(err)
	}
	return v, size - 1
})

const benchSchema = `{"type":"object","required":["title","tree"],"additionalProperties":false,"properties":{
	"title":{"type":"string","maxLength":4000},
	"kind":{"enum":["article","book","note"]},
	"year":{"type":"integer","minimum":1000,"maximum":2100},
	"id":{"type":"string","pattern":"^[A-Z]{2}-\\d{4,8}$"},
	"tree":{"$ref":"#/$defs/tree"}},
	"$defs":{"tree":{"type":"object","required":["name"],"additionalProperties":{"type":"number"},
		"properties":{"name":{"type":"string"},"kids":{"type":"array","maxItems":100,"items":{"$ref":"#/$defs/tree"}}}}}}`

// benchText is a text of tokens that the schema takes: long strings, then objects nested 12 deep.
func benchText(v *Vocab, nesting int, seed uint64) []int {
	r := rand.New(rand.NewPCG(seed, 3))
	var ids []int
	byText := map[string]int{}
	var words []int
	for id, t := range v.tokens {
		byText[string(t)] = id
		if len(t) > 2 && t[0] == ' ' && t[1] >= 'a' && strings.Trim(string(t[1:]), "abcdefghijklmnopqrstuvwxyz") == "" {
			words = append(words, id)
		}
	}
	put := func(s string) { // longest tokens first
		for len(s) > 0 {
			n := min(len(s), 8)
			for ; n > 1; n-- {
				if _, ok := byText[s[:n]]; ok {
					break
				}
			}
			ids = append(ids, byText[s[:n]])
			s = s[n:]
		}
	}
	some := func(n int) {
		for range n {
			ids = append(ids, words[r.IntN(len(words))])
		}
	}
	put(`{"title": "`)
	some(150)
	put(`", "year": 1999, "id": "AB-12345", "tree": `)
	for range nesting {
		put(`{"name": "`)
		some(8)
		put(`", "kids": [`)
	}
	put(`{"name": "x", "more": 1.5}`)
	put(strings.Repeat("]}", nesting) + "}")
	return ids
}

func BenchmarkMask(b *testing.B) {
	v, _ := largeVocab()
	g := compile(b, JSONSchema, benchSchema)
	mask := make([]uint64, v.MaskWords())
	run := func(ids []int) {
		m := NewMatcher(g, v)
		for _, id := range ids {
			m.Mask(mask)
			require.NoError(b, m.Accept(id))
		}
		m.Mask(mask)
		require.True(b, m.CanEnd())
	}
	warm := benchText(v, 4, 1)
	run(warm)
	b.Run("same-text", func(b *testing.B) { // every state is known
		for b.Loop() {
			run(warm)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(warm)), "ns/token")
	})
	b.Run("other-texts", func(b *testing.B) { // depths and counts that were not seen before, of frames that were
		var texts [][]int
		for n := range 16 {
			texts = append(texts, benchText(v, 4+n%9, uint64(2+n)))
		}
		n, tokens := 0, 0
		for b.Loop() {
			k := g.masker(v)
			clear(k.states)
			k.m.reset()
			ids := texts[n%16]
			run(ids)
			tokens += len(ids)
			n++
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tokens), "ns/token")
	})
	b.Run("cold", func(b *testing.B) { // compiling, and all masks of a first text
		for b.Loop() {
			g = compile(b, JSONSchema, benchSchema)
			run(warm)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(warm)), "ns/token")
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(b, JSONSchema, benchSchema)
	}
}
