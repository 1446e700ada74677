package tokenizer

import (
	"os"
	"strings"
	"testing"
)

// benchText is prose, code and other scripts, in lines; ETC_BENCH_TEXT names a file to use instead.
func benchText(b *testing.B) string {
	if f := os.Getenv("ETC_BENCH_TEXT"); f != "" {
		data, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		return validText(string(data))
	}
	return strings.Repeat(`On Monday, Grace found an old map under a bridge. It's hers, isn't it? She'd say: "12345 times, no!"
	for i, x := range values { // every value, in order
		sum += x * weights[i]
	}
Der Fluß fließt über Köln; la forêt où l'été s'achève. Привет, мир! Как дела? 你好，世界。これはテキストです。
<html><body class="main">https://example.com/a/b?c=d&e=f#g</body></html> 😀👍🏽 the capital of which country?
`, 200)
}

func BenchmarkEncode(b *testing.B) {
	text := benchText(b)
	lines := strings.SplitAfter(text, "\n")
	for _, name := range layouts {
		tok := load(b, name)
		b.Run(name+"/whole", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, EncodeOptions{AddSpecial: true})
			}
		})
		b.Run(name+"/lines", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for _, line := range lines {
					tok.Encode(line, EncodeOptions{AddSpecial: true})
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	text := benchText(b)
	for _, name := range layouts {
		tok := load(b, name)
		ids := tok.Encode(text, EncodeOptions{})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Decode(ids, false)
			}
		})
	}
}

// One word of a megabyte, which no pre-tokenizer cuts.
func BenchmarkLongWord(b *testing.B) {
	text := strings.Repeat("Wednesday", 1<<20/9)
	for _, name := range layouts {
		tok := load(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, EncodeOptions{})
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range layouts {
		folder := os.Getenv("ETC_RECORDINGS")
		if folder == "" {
			folder = "testdata"
		}
		data, err := os.ReadFile(folder + "/" + name + "-tokenizer.json")
		if err != nil {
			b.Skip(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := Parse(data, name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
