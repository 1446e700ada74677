package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// metadataKey is the one key of the header that names no tensor.
const metadataKey = "__metadata__"

// maxRank bounds a shape's length, so that a hostile header costs no more memory than a real one.
const maxRank = 64

// parseHeader fills the file from its header. Byte ranges stay relative to the data part and unchecked.
//
// The header is read token by token, since decoding into a map would keep the last of two equal keys
// without a word, and what a file holds would depend on who reads it.
func (f *File) parseHeader(header []byte) error {
	if len(header) == 0 || header[0] != '{' {
		return &FormatError{File: f.path, Expected: "a header that begins with {",
			Found: strconv.Quote(clip(string(header[:min(len(header), 16)])))}
	}
	if !utf8.Valid(header) {
		return &FormatError{File: f.path, Expected: "a header in UTF-8", Found: "other bytes"}
	}
	p := newParser(f.path, header)
	err := p.object("the header", func(key string) error {
		if key == metadataKey {
			return f.parseMetadata(p)
		}
		p.tensor = key
		t, err := parseTensor(p, key)
		if err != nil {
			return err
		}
		p.tensor = ""
		t.file = f
		f.tensors = append(f.tensors, t)
		f.byName[key] = t
		return nil
	})
	if err != nil {
		return err
	}
	return p.end("the header")
}

// parseMetadata reads null or an object of strings.
func (f *File) parseMetadata(p *parser) error {
	token, err := p.next()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('{') {
		return p.unexpected(metadataKey+" to be null or an object of strings", token)
	}
	f.metadata = make(map[string]string)
	return p.members(metadataKey, func(key string) error {
		value, err := p.next()
		if err != nil {
			return err
		}
		text, ok := value.(string)
		if !ok {
			return p.unexpected(fmt.Sprintf("a string for key %q of %s", clip(key), metadataKey), value)
		}
		f.metadata[key] = text
		return nil
	})
}

// parseTensor reads {"dtype": …, "shape": […], "data_offsets": [begin, end]}.
func parseTensor(p *parser, name string) (*Tensor, error) {
	t := &Tensor{Name: name}
	var hasShape, hasOffsets bool
	err := p.object("its entry", func(key string) error {
		switch key {
		case "dtype":
			token, err := p.next()
			if err != nil {
				return err
			}
			text, ok := token.(string)
			if !ok || !DType(text).Valid() {
				return p.unexpected("dtype to be one of "+knownDTypes(), token)
			}
			t.DType = DType(text)
			return nil
		case "shape":
			hasShape = true
			t.Shape = []int{}
			return p.integers("shape", strconv.IntSize-1, maxRank, func(v uint64) { t.Shape = append(t.Shape, int(v)) })
		case "data_offsets":
			hasOffsets = true
			var offsets []int64
			if err := p.integers("data_offsets", 63, 2,
				func(v uint64) { offsets = append(offsets, int64(v)) }); err != nil {
				return err
			}
			if len(offsets) != 2 {
				return p.fault("data_offsets to be [begin, end]", fmt.Sprintf("%d numbers", len(offsets)))
			}
			t.begin, t.end = offsets[0], offsets[1]
			return nil
		}
		return p.fault("the keys dtype, shape and data_offsets", fmt.Sprintf("%q", clip(key)))
	})
	if err != nil {
		return nil, err
	}
	for _, required := range []struct {
		key     string
		present bool
	}{{"dtype", t.DType != ""}, {"shape", hasShape}, {"data_offsets", hasOffsets}} {
		if !required.present {
			return nil, p.fault("the key "+required.key, "none")
		}
	}
	return t, nil
}

// checkLayout holds the tensors' byte ranges against their shapes and the size of the data part, puts
// the tensors in the order of their bytes, and makes the ranges absolute. start is where the data begins.
func (f *File) checkLayout(start, dataSize int64) error {
	slices.SortFunc(f.tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.Name, b.Name))
	})
	var position int64
	previous := "the start of the data"
	for _, t := range f.tensors {
		fault := func(expected, found string, args ...any) error {
			return &FormatError{File: f.path, Tensor: clip(t.Name), Expected: expected,
				Found: fmt.Sprintf(found, args...)}
		}
		if t.end < t.begin || t.end > dataSize {
			return fault(fmt.Sprintf("data_offsets within the %d bytes of data, begin ≤ end", dataSize),
				"[%d, %d]", t.begin, t.end)
		}
		size, problem := byteSize(t.DType, t.Shape)
		if problem != "" {
			return fault("a whole number of bytes", "%s", problem)
		}
		if size != t.end-t.begin {
			return fault(fmt.Sprintf("%d bytes for %s %v", size, t.DType, t.Shape), "data_offsets [%d, %d], %d bytes",
				t.begin, t.end, t.end-t.begin)
		}
		if t.begin < position {
			return fault(fmt.Sprintf("data_offsets from %d on, %s", position, previous),
				"[%d, %d], an overlap", t.begin, t.end)
		}
		if t.begin > position {
			return fault(fmt.Sprintf("data_offsets from %d on, %s", position, previous), "[%d, %d], a gap of %d bytes",
				t.begin, t.end, t.begin-position)
		}
		position, previous = t.end, fmt.Sprintf("the end of tensor %q", clip(t.Name))
	}
	if position != dataSize {
		return &FormatError{File: f.path, Expected: fmt.Sprintf("the file to end at byte %d, %s", start+position,
			previous), Found: fmt.Sprintf("%d more bytes", dataSize-position)}
	}
	for _, t := range f.tensors {
		t.begin += start
		t.end += start
	}
	return nil
}

// parser reads JSON tokens and words the errors. tensor is the entry that is being read, if any.
type parser struct {
	file, tensor string
	decoder      *json.Decoder
}

func newParser(file string, text []byte) *parser {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return &parser{file: file, decoder: decoder}
}

func (p *parser) fault(expected, found string) error {
	return &FormatError{File: p.file, Tensor: clip(p.tensor), Expected: expected, Found: found}
}

// unexpected returns the fault of a token of the wrong kind.
func (p *parser) unexpected(expected string, token json.Token) error {
	found := "null"
	switch v := token.(type) {
	case string:
		found = strconv.Quote(clip(v))
	case json.Number:
		found = clip(v.String())
	case bool:
		found = strconv.FormatBool(v)
	case json.Delim:
		found = map[json.Delim]string{'{': "an object", '[': "an array", '}': "}", ']': "]"}[v]
	}
	return p.fault(expected, found)
}

func (p *parser) next() (json.Token, error) {
	token, err := p.decoder.Token()
	if err != nil {
		detail := err.Error()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			detail = "the end of the text"
		}
		return nil, p.fault("JSON", fmt.Sprintf("%s at byte %d of it", clip(detail), p.decoder.InputOffset()))
	}
	return token, nil
}

// object reads an object. member is called for every key, and reads the value.
func (p *parser) object(what string, member func(key string) error) error {
	token, err := p.next()
	if err != nil {
		return err
	}
	if token != json.Delim('{') {
		return p.unexpected(what+" to be an object", token)
	}
	return p.members(what, member)
}

// members reads an object after its opening brace, and refuses a key that comes twice.
func (p *parser) members(what string, member func(key string) error) error {
	seen := make(map[string]struct{})
	for p.decoder.More() {
		token, err := p.next()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return p.unexpected("a key of "+what, token)
		}
		if _, twice := seen[key]; twice {
			return p.fault("each key of "+what+" once", fmt.Sprintf("%q twice", clip(key)))
		}
		seen[key] = struct{}{}
		if err := member(key); err != nil {
			return err
		}
	}
	_, err := p.next()
	return err
}

// integers reads an array of at most limit integers that are ≥ 0 and have at most the given number of bits.
func (p *parser) integers(what string, bits, limit int, add func(uint64)) error {
	expected := fmt.Sprintf("%s to be an array of at most %d integers ≥ 0 of at most %d bits", what, limit, bits)
	token, err := p.next()
	if err != nil {
		return err
	}
	if token != json.Delim('[') {
		return p.unexpected(expected, token)
	}
	for n := 0; p.decoder.More(); n++ {
		if n == limit {
			return p.fault(expected, "more of them")
		}
		if token, err = p.next(); err != nil {
			return err
		}
		number, ok := token.(json.Number)
		if !ok {
			return p.unexpected(expected, token)
		}
		value, err := strconv.ParseUint(number.String(), 10, bits)
		if err != nil {
			return p.unexpected(expected, token)
		}
		add(value)
	}
	_, err = p.next()
	return err
}

// end checks that nothing but white space follows.
func (p *parser) end(what string) error {
	if token, err := p.decoder.Token(); err != io.EOF {
		if err != nil {
			return p.fault("nothing but spaces after "+what, clip(err.Error()))
		}
		return p.unexpected("nothing but spaces after "+what, token)
	}
	return nil
}

// skip reads one value of any kind.
func (p *parser) skip() error {
	for depth := 0; ; {
		token, err := p.next()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
