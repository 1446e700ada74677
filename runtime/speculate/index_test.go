package speculate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/speculate"
)

// naive finds what Index.Match does by looking everywhere.
func naive(text []int32) (length, position int) {
	n := len(text)
	for end := n - 1; end > 0; end-- { // the latest place first
		k := 0
		for k < min(end, speculate.MaxMatch) && text[end-1-k] == text[n-1-k] {
			k++
		}
		if k > length {
			length, position = k, end
		}
	}
	return length, position
}

func requireMatch(t *testing.T, x *speculate.Index, text []int32) {
	t.Helper()
	require.Equal(t, len(text), x.Len())
	length, position := x.Match()
	wantLength, wantPosition := naive(text)
	require.Equal(t, []int{wantLength, wantPosition}, []int{length, position}, "%v", text)
}

// texts are texts that repeat themselves in different ways.
var texts = map[string]func(r *rand.Rand, n int) []int32{
	"two tokens": func(r *rand.Rand, n int) []int32 { return random(r, n, 2) },
	"few tokens": func(r *rand.Rand, n int) []int32 { return random(r, n, 5) },
	"many":       func(r *rand.Rand, n int) []int32 { return random(r, n, 50) },
	"one token":  func(r *rand.Rand, n int) []int32 { return random(r, n, 1) },
	"runs": func(r *rand.Rand, n int) (out []int32) {
		for len(out) < n {
			out = append(out, slices.Repeat([]int32{r.Int32N(3)}, 1+r.IntN(2*speculate.MaxMatch))...)
		}
		return out[:n]
	},
	"quotes": func(r *rand.Rand, n int) []int32 {
		out := random(r, 5, 100)
		for len(out) < n {
			at := r.IntN(len(out))
			out = append(out, out[at:min(len(out), at+r.IntN(100))]...)
			out = append(out, r.Int32N(100))
		}
		return out[:n]
	},
	"fibonacci": func(_ *rand.Rand, n int) []int32 {
		a, b := []int32{0}, []int32{0, 1}
		for len(b) < n {
			a, b = b, slices.Concat(b, a)
		}
		return b[:n]
	},
}

func random(r *rand.Rand, n, vocabulary int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = r.Int32N(int32(vocabulary))
	}
	return out
}

// TestIndexMatches holds every match of every beginning of a text against a search of all places.
func TestIndexMatches(t *testing.T) {
	for name, make := range texts {
		t.Run(name, func(t *testing.T) {
			text := make(rand.New(rand.NewPCG(1, 2)), 600)
			x := &speculate.Index{}
			requireMatch(t, x, nil)
			for i, token := range text {
				x.Append(token)
				requireMatch(t, x, text[:i+1])
			}
		})
	}
}

// TestIndexTruncate takes tokens back and goes on with others, far back too.
func TestIndexTruncate(t *testing.T) {
	for name, make := range texts {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			x, text := &speculate.Index{}, []int32{}
			for range 150 {
				more := make(r, 1+r.IntN(40))
				x.Append(more...)
				text = append(text, more...)
				requireMatch(t, x, text)
				back := min(len(text), r.IntN(30))
				if r.IntN(20) == 0 {
					back = r.IntN(len(text) + 1)
				}
				text = text[:len(text)-back]
				x.Truncate(len(text))
				requireMatch(t, x, text)
			}
		})
	}
}

// TestIndexDraft: a draft is what stood after the match, and goes on after the end of the text.
func TestIndexDraft(t *testing.T) {
	x := speculate.NewIndex(1, 2, 3, 4, 9, 1, 2, 3, 5, 1, 2, 3)
	require.Equal(t, []int32{5, 1, 2}, x.Draft(3, 3), "the latest place of 1 2 3, not the first")
	require.Nil(t, x.Draft(3, 4))
	require.Equal(t, []int32{5, 1, 2, 3, 5, 1}, x.Draft(6, 1), "into itself")
	x.Append(4)
	require.Equal(t, []int32{9}, x.Draft(1, 1), "the longest place, not the latest of 4 alone")
	x.Append(77)
	require.Nil(t, x.Draft(4, 0), "a new token")
	require.Nil(t, (&speculate.Index{}).Draft(4, 0))
}

// FuzzIndex appends and takes back as the input says.
func FuzzIndex(f *testing.F) {
	f.Add([]byte("abcabcabc\x80abc\x85aabb"))
	f.Add([]byte{1, 1, 1, 1, 1, 1, 0xff, 1, 2, 1, 2, 0x82, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		x, text := &speculate.Index{}, []int32{}
		for _, s := range steps[:min(len(steps), 400)] {
			if s >= 0x80 {
				text = text[:max(0, len(text)-int(s-0x80))]
				x.Truncate(len(text))
			} else {
				text = append(text, int32(s%8))
				x.Append(int32(s % 8))
			}
			requireMatch(t, x, text)
		}
	})
}

// BenchmarkIndex is what a token costs, in texts of kinds.
func BenchmarkIndex(b *testing.B) {
	for _, name := range []string{"two tokens", "many", "one token", "runs", "quotes"} {
		b.Run(name, func(b *testing.B) {
			text := texts[name](rand.New(rand.NewPCG(1, 2)), 100_000)
			for b.Loop() {
				speculate.NewIndex(text...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(text)), "ns/token")
		})
	}
}
