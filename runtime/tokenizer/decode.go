package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A decoder makes text of tokens in one or more stages. A stage gets tokens one by one, passes tokens on, and is told
// when there are no more. Decode and Stream run the same stages, which is why their answers are the same.
//
// Behind a stage that makes one token of all (Fuse, ByteLevel) what is passed on are parts of that token. Only stages
// made for that may follow; before any other, gather puts the token together.
type stage interface {
	push(token string, out func(string))
	end(out func(string))
}

// A decoder makes new stages, since stages have a state.
type decoder struct {
	stages []func() stage
	fused  bool // what is passed on are parts of one token
	growth float64

	// What TokenBytes needs of the stages.
	byteLevel, byteFallback bool
	replace                 []func(string) string // of a token by itself, in order
}

func (d *decoder) add(newStage func() stage) { d.stages = append(d.stages, newStage) }

// gather adds a stage that puts parts together, if what comes are parts.
func (d *decoder) gather() {
	if d.fused {
		d.add(func() stage { return &gather{} })
	}
}

// read appends the stages of a component.
func (d *decoder) read(v value) {
	c := newComponent(v)
	switch c.oneOf("type", "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace",
		"BPEDecoder", "Sequence") {
	case "ByteLevel":
		c.need("add_prefix_space").boolean() // said of the pre-tokenizer
		c.need("trim_offsets").boolean()
		c.flag("use_regex", true)
		d.gather()
		d.add(func() stage { return &byteLevelStage{} })
		d.fused, d.byteLevel = true, true
	case "Replace":
		p := readPattern(c.need("pattern"))
		content := c.need("content").str()
		replace := p.replacer(content)
		d.growth *= p.growth(content)
		d.gather()
		d.add(func() stage { return each(replace) })
		d.replace = append(d.replace, replace)
	case "ByteFallback":
		d.byteFallback = true
		d.gather()
		d.add(func() stage { return &byteFallback{} })
	case "Fuse":
		d.fused = true
	case "Strip":
		content := c.need("content").char()
		start, stop := c.need("start").natural(), c.need("stop").natural()
		if d.fused {
			d.add(func() stage { return &strip{content: string(content), start: start, stop: stop} })
			break
		}
		d.add(func() stage {
			return each(func(s string) string {
				var out strings.Builder
				one := strip{content: string(content), start: start, stop: stop}
				add := func(s string) { out.WriteString(s) }
				one.push(s, add)
				one.end(add)
				return out.String()
			})
		})
	case "Metaspace":
		d.readMetaspace(c)
	case "BPEDecoder":
		suffix := c.need("suffix").str()
		if suffix == "" {
			fail(c.at, "an empty suffix is not supported")
		}
		d.gather()
		d.add(func() stage { return &endOfWord{suffix: suffix} })
		d.replace = append(d.replace, func(s string) string { return strings.ReplaceAll(s, suffix, " ") })
	case "Sequence":
		for _, item := range c.need("decoders").want(array).items {
			d.read(item)
		}
	}
	c.done()
}

func (d *decoder) readMetaspace(c *component) {
	replacement, scheme, _ := metaspaceSettings(c)
	d.replace = append(d.replace, func(s string) string { return strings.ReplaceAll(s, replacement, " ") })
	d.gather()
	d.add(func() stage {
		first := scheme != "never"
		return each(func(s string) string {
			to := " "
			if first {
				first, to = false, ""
			}
			return strings.ReplaceAll(s, replacement, to)
		})
	})
}

// each is a stage that changes every token by itself.
type each func(string) string

func (f each) push(token string, out func(string)) { out(f(token)) }
func (f each) end(func(string))                    {}

// gather puts the parts of a token together.
type gather struct{ all strings.Builder }

func (g *gather) push(token string, _ func(string)) { g.all.WriteString(token) }
func (g *gather) end(out func(string))              { out(g.all.String()) }

// byteLevelStage takes the byte-level alphabet back. A token with another character in it stands for itself. Bytes that
// are no UTF-8 become U+FFFD; the beginning of a character waits for the rest.
type byteLevelStage struct{ pending, text []byte }

func (b *byteLevelStage) push(token string, out func(string)) {
	pending, ok := appendFromByteLevel(b.pending, token)
	if !ok {
		pending = append(b.pending, token...)
	}
	var rest []byte
	b.text, rest = appendLossy(b.text[:0], pending, false)
	b.pending = append(pending[:0], rest...)
	out(string(b.text))
}

func (b *byteLevelStage) end(out func(string)) {
	b.text, _ = appendLossy(b.text[:0], b.pending, true)
	out(string(b.text))
}

// byteFallback makes characters of runs of byte tokens: <0xE4>. If a run is not UTF-8, every byte becomes U+FFFD; so
// nothing of a run can be passed on before its end.
type byteFallback struct{ run []byte }

func (f *byteFallback) push(token string, out func(string)) {
	if b, ok := parseFallback(token); ok {
		f.run = append(f.run, b)
		return
	}
	f.end(out)
	out(token)
}

func (f *byteFallback) end(out func(string)) {
	switch {
	case len(f.run) == 0:
		return
	case utf8.Valid(f.run):
		out(string(f.run))
	default:
		for range f.run {
			out("\uFFFD")
		}
	}
	f.run = f.run[:0]
}

// parseFallback reads a byte token: two hexadecimal digits, or a plus sign and one, as Rust reads numbers.
func parseFallback(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	digits := strings.TrimPrefix(token[3:5], "+")
	b, err := strconv.ParseUint(digits, 16, 8)
	return byte(b), err == nil
}

// strip removes up to start times content from the start of one token, which may come in parts, and up to stop times
// from its end. (Where the two meet, or the token is shorter, the library panics.)
type strip struct {
	content     string
	start, stop int
	begun       bool
	removed     int
	held        int // so many contents at the end of what came are not passed on
}

func (t *strip) push(token string, out func(string)) {
	for !t.begun && token != "" {
		rest, ok := strings.CutPrefix(token, t.content)
		if t.removed == t.start || !ok {
			t.begun = true
			break
		}
		token = rest
		t.removed++
	}
	if token == "" {
		return
	}
	body := token
	n := 0 // how many contents the token ends with
	for {
		rest, ok := strings.CutSuffix(body, t.content)
		if !ok {
			break
		}
		body = rest
		n++
	}
	if body != "" {
		out(strings.Repeat(t.content, t.held))
		out(body)
		t.held = 0
	}
	t.held += n
	if over := t.held - t.stop; over > 0 {
		out(strings.Repeat(t.content, over))
		t.held = t.stop
	}
}

func (t *strip) end(func(string)) {}

// endOfWord makes spaces of the suffix that ends words, and nothing of the one that ends the last token.
type endOfWord struct {
	suffix string
	last   string
	any    bool
}

func (w *endOfWord) push(token string, out func(string)) {
	if w.any {
		out(strings.ReplaceAll(w.last, w.suffix, " "))
	}
	w.last, w.any = token, true
}

func (w *endOfWord) end(out func(string)) {
	if w.any {
		out(strings.ReplaceAll(w.last, w.suffix, ""))
	}
}

// spaced is the decoder of files without one: it puts spaces between the tokens.
type spaced struct{ any bool }

func (s *spaced) push(token string, out func(string)) {
	if s.any {
		out(" ")
	}
	s.any = true
	out(token)
}

func (s *spaced) end(func(string)) {}
