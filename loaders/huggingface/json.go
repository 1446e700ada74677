package huggingface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/etc-ml/etc/internal/kind"
)

// maxDepth bounds the nesting of JSON; configurations have four levels.
const maxDepth = 64

// ConfigError says which key of which file is wrong.
type ConfigError struct {
	File     string // path
	Key      string // JSON key with the objects around it: "text_config.head_dim"; empty for the whole file
	Expected string
	Found    string
}

// Is reports whether target is what all errors about a file's content are.
func (e *ConfigError) Is(target error) bool { return target == kind.ErrInvalid }

// Error gives "FILE: KEY: expected …, found …".
func (e *ConfigError) Error() string {
	where := e.File
	if e.Key != "" {
		where += ": " + e.Key
	}
	return fmt.Sprintf("%s: expected %s, found %s", where, e.Expected, e.Found)
}

// document is a JSON file that is being read. Faults collect in it, so that a user sees them all.
type document struct {
	file   string
	faults []error
}

func (d *document) fault(key, expected, found string) {
	d.faults = append(d.faults, &ConfigError{File: d.file, Key: clip(key), Expected: expected, Found: found})
}

func (d *document) err() error { return errors.Join(d.faults...) }

// sound reports that there is no fault yet: values may be held against each other.
func (d *document) sound() bool { return len(d.faults) == 0 }

// section is one object of a document. Its methods read a key and note a fault where the value is not what
// they promise; the zero value that they return then is never used, since the document has an error.
type section struct {
	doc    *document
	path   string // "" for the outermost object
	values map[string]any
}

// parse reads text, which must be one JSON object.
func parse(file string, text []byte) (*document, section) {
	doc := &document{file: file}
	if !utf8.Valid(text) {
		doc.fault("", "JSON in UTF-8", "other bytes")
		return doc, section{doc: doc}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	value, err := decodeValue(decoder, 0)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("text after the end of the object")
		}
	}
	if err != nil {
		found := err.Error()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			found = "the end of the text"
		}
		doc.fault("", "JSON", fmt.Sprintf("%s at byte %d", clip(found), decoder.InputOffset()))
		return doc, section{doc: doc}
	}
	values, ok := value.(map[string]any)
	if !ok {
		doc.fault("", "a JSON object", show(value))
	}
	return doc, section{doc: doc, values: values}
}

// decodeValue reads the next value. Unlike json.Unmarshal it refuses a key that comes twice.
func decodeValue(decoder *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels", maxDepth)
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := make(map[string]any)
		for decoder.More() {
			token, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			key, ok := token.(string)
			if !ok {
				return nil, fmt.Errorf("%v for a key", token)
			}
			if _, twice := object[key]; twice {
				return nil, fmt.Errorf("key %q twice", clip(key))
			}
			if object[key], err = decodeValue(decoder, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := decoder.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for decoder.More() {
			value, err := decodeValue(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			array = append(array, value)
		}
		_, err := decoder.Token()
		return array, err
	}
	return token, nil
}

// key is the full name of a key of s.
func (s section) key(name string) string {
	if s.path == "" {
		return name
	}
	return s.path + "." + name
}

// fault notes that a key's value is not what was expected.
func (s section) fault(name, expected string) {
	found := "no such key"
	if value, ok := s.values[name]; ok {
		found = show(value)
	}
	s.doc.fault(s.key(name), expected, found)
}

// has reports whether s has a value other than null.
func (s section) has(name string) bool { return s.values[name] != nil }

// object returns the object under a key; false where the key is absent or null.
func (s section) object(name string) (section, bool) {
	if !s.has(name) {
		return section{}, false
	}
	values, ok := s.values[name].(map[string]any)
	if !ok {
		s.fault(name, "an object")
		return section{}, false
	}
	return section{doc: s.doc, path: s.key(name), values: values}, true
}

// array returns the array under a key; false where the key is absent or null.
func (s section) array(name string) ([]any, bool) {
	if !s.has(name) {
		return nil, false
	}
	values, ok := s.values[name].([]any)
	if !ok {
		s.fault(name, "an array")
	}
	return values, ok
}

// integer returns the required integer under a key, in [low, high].
func (s section) integer(name string, low, high int) int {
	value, ok := asInt(s.values[name])
	if !ok || value < low || value > high {
		s.fault(name, fmt.Sprintf("an integer from %d to %d", low, high))
		return low
	}
	return value
}

// number returns the required positive number under a key.
func (s section) number(name string) float64 {
	value, ok := asFloat(s.values[name])
	if !ok || value <= 0 {
		s.fault(name, "a number > 0")
		return 1
	}
	return value
}

// text returns the string under a key; "" where it is absent or null.
func (s section) text(name string) string {
	if !s.has(name) {
		return ""
	}
	value, ok := s.values[name].(string)
	if !ok {
		s.fault(name, "a string")
	}
	return value
}

// boolean returns the bool under a key; fallback where it is absent or null.
func (s section) boolean(name string, fallback bool) bool {
	if !s.has(name) {
		return fallback
	}
	value, ok := s.values[name].(bool)
	if !ok {
		s.fault(name, "true or false")
	}
	return value
}

// only refuses any value of a key but want; absent and null pass. It is for keys whose other values call for
// a graph that etc does not have.
func (s section) only(name string, want any) {
	if !s.has(name) {
		return
	}
	value := s.values[name]
	if number, ok := asFloat(value); ok {
		value = number
	}
	if value != want {
		s.fault(name, show(want)+", the only value that etc supports")
	}
}

// asInt returns the value of a JSON number without fraction and exponent.
func asInt(value any) (int, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(number.String())
	return n, err == nil
}

// asFloat returns the value of a JSON number within the range of float64.
func asFloat(value any) (float64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(number.String(), 64)
	return f, err == nil && !math.IsInf(f, 0)
}

// show words a JSON value for an error message.
func show(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // JSON that was decoded can be encoded
	return clip(string(bytes.TrimSpace(text.Bytes())))
}

// clip shortens what comes from a file to what an error message can carry.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
