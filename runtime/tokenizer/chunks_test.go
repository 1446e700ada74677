package tokenizer

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// inChunks encodes a text that is cut wherever there are size bytes, and gives the ids and how many chunks there were.
func inChunks(t testing.TB, tok *Tokenizer, text string, opts EncodeOptions, size int) (ids []int, chunks int) {
	t.Helper()
	err := tok.encodeReader(strings.NewReader(text), opts, func(some []int) error {
		ids, chunks = append(ids, some...), chunks+1
		return nil
	}, size, 1<<20)
	require.NoError(t, err)
	return ids, chunks
}

// TestEncodeReader: texts that are cut wherever they can be have the ids of the whole, with the tokens around them and
// without.
func TestEncodeReader(t *testing.T) {
	for _, name := range []string{"qwen", "gemma"} {
		tok := load(t, name)
		require.Empty(t, tok.Uncut())
		var all strings.Builder
		total := 0
		for _, c := range readRecording(t, name).Encode {
			all.WriteString(c.Text)
			for _, opts := range []EncodeOptions{{}, {AddSpecial: true, ParseSpecial: true}} {
				for _, size := range []int{1, 7} {
					ids, chunks := inChunks(t, tok, c.Text, opts, size)
					require.Equal(t, tok.Encode(c.Text, opts), append([]int{}, ids...), "%q", c.Text)
					total += chunks
				}
			}
		}
		require.Greater(t, total, 2000, "texts are cut")
		text, opts := all.String(), EncodeOptions{ParseSpecial: true, AddSpecial: true}
		want := tok.Encode(text, opts)
		for _, size := range []int{1, 13, 1000} {
			ids, chunks := inChunks(t, tok, text, opts, size)
			require.Equal(t, want, ids)
			require.Greater(t, chunks, len(text)/max(size, 40)/4)
		}
	}
}

// TestEncodeReaderMakesNoHugeChunks: what is held of a long text is a chunk of it.
func TestEncodeReaderMakesNoHugeChunks(t *testing.T) {
	for _, name := range []string{"qwen", "gemma"} {
		tok := load(t, name)
		largest, total := 0, 0
		text := io.LimitReader(iotest.HalfReader(endless("the words of a text,\n1 after another; ")), 1<<20)
		err := tok.encodeReader(text, EncodeOptions{}, func(ids []int) error {
			largest, total = max(largest, len(ids)), total+len(ids)
			return nil
		}, 1000, 5000)
		require.NoError(t, err)
		require.Greater(t, total, 100000)
		require.LessOrEqual(t, largest, 1000)
	}
}

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// TestEncodeReaderErrors: a text without a place to cut, a tokenizer that is not cut, an error of the reader or of
// emit.
func TestEncodeReaderErrors(t *testing.T) {
	qwen := load(t, "qwen")
	discard := func([]int) error { return nil }
	require.ErrorContains(t, qwen.encodeReader(endless("a"), EncodeOptions{}, discard, 100, 5000),
		"more than 5000 bytes that must be encoded together: nowhere in so much text")
	broken := errors.New("broken")
	require.ErrorIs(t, qwen.EncodeReader(iotest.ErrReader(broken), EncodeOptions{}, discard), broken)
	fails := func([]int) error { return broken }
	require.ErrorIs(t, qwen.EncodeReader(strings.NewReader("a b"), EncodeOptions{}, fails), broken)

	for _, c := range []struct{ sections, why string }{
		{`"added_tokens":[{"id":3,"content":"<s>","single_word":false,"lstrip":true,"rstrip":false,"normalized":false,` +
			`"special":true}]`, `as "<s>"`},
		{`"normalizer":{"type":"Lowercase"}`, "normalizers"},
		{`"pre_tokenizer":{"type":"Whitespace"}`, "cuts words by rules"},
		{`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}`, "cuts words by rules"},
		{`"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},` +
			`{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`, "template"},
	} {
		const model = `,"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`
		tok, err := Parse([]byte(`{`+c.sections+model), "test.json")
		require.NoError(t, err)
		require.Contains(t, tok.Uncut(), c.why)
		text := strings.Repeat("ab a ", 100)
		ids, chunks := inChunks(t, tok, text, EncodeOptions{}, 10)
		require.Equal(t, tok.Encode(text, EncodeOptions{}), ids)
		require.Equal(t, 1, chunks)
		require.ErrorContains(t, tok.encodeReader(strings.NewReader(text), EncodeOptions{}, discard, 10, 100), c.why)
	}
}

// FuzzEncodeReader: whatever the text, cutting it changes nothing.
func FuzzEncodeReader(f *testing.F) {
	for _, c := range readRecording(f, "qwen").Encode {
		f.Add(c.Text, uint64(len(c.Text)))
	}
	toks := []*Tokenizer{load(f, "qwen"), load(f, "gemma")}
	parts := []string{
		" ", "\n", "\r", "  ", "\t", "'", "'s", "a", "Word", "9", "12", ".", "!?", "e\u0301",
		"\u0301", "好", "。", "\u00a0",
		"\u2028", "<|im_end|>", "<|im", "_end|>", "▁", "<bos>", "\xff", "\xe2\x96", "😀", "ſ", "ﬁ", "\u0958", "가",
		"\u1100\u1161", "\x00",
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		for range seed % 64 { // texts with what the rules speak of
			text += parts[r.IntN(len(parts))]
		}
		for _, tok := range toks {
			opts := EncodeOptions{AddSpecial: r.IntN(2) == 0, ParseSpecial: r.IntN(2) == 0}
			ids, _ := inChunks(t, tok, text, opts, 1+r.IntN(20))
			require.Equal(t, tok.Encode(text, opts), append([]int{}, ids...), "%+q", text)
		}
	})
}
