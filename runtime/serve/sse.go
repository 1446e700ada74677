package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// writeTime is how long a client may take to read what is written at once, where Options.WriteTime does not say it.
const writeTime = 30 * time.Second

// marshal writes JSON as it is, without the escapes that are for HTML.
func marshal(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Errorf("an answer that is no JSON: %w", err)) // they are made of types that are
	}
	return []byte(b.String())
}

// writeJSON answers with one JSON value.
func writeJSON(w http.ResponseWriter, code int, v any) {
	b := marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(b) //nolint:errcheck // the client is gone
}

// events writes server-sent events.
type events struct {
	w     http.ResponseWriter
	begun bool
}

// begin sends the header.
func (s *events) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // a proxy in between should not hold events
	s.w.WriteHeader(http.StatusOK)
}

// send writes one event; name "" is for none.
func (s *events) send(name string, v any) error {
	text := "data: " + strings.TrimSuffix(string(marshal(v)), "\n") + "\n\n"
	if name != "" {
		text = "event: " + name + "\n" + text
	}
	return s.write(text)
}

// done writes the end mark of OpenAI's streams.
func (s *events) done() error { return s.write("data: [DONE]\n\n") }

// idle tells client and proxies that the stream is alive.
func (s *events) idle() error { return s.write(": waiting\n\n") }

func (s *events) write(text string) error {
	s.begin()
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}
