package command

import (
	"encoding/json"
	"errors"
	"io"
)

// writeJSON prints a value as one JSON document that people can read too.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(&shownWriter{w: w})
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSONLine prints a value as JSON on one line.
func writeJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(&shownWriter{w: w})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// readJSON reads one JSON document into v and refuses what comes after it.
func readJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("nothing there")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more text after the JSON document")
	}
	return nil
}
