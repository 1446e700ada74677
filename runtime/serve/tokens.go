package serve

import (
	"net/http"

	"github.com/etc-ml/etc/runtime/tokenizer"
)

// tokenizeParams is the table of /tokenize, detokenizeParams that of /detokenize.
var (
	tokenizeParams = []param{
		{name: "model", status: done, note: "default: the first file"},
		{name: "content", status: done, note: "the text"},
		{name: "add_special", status: done, note: "add what the tokenizer puts before a text; default false"},
		{name: "parse_special", status: done,
			note: "names of special tokens in the text are those tokens; default true"},
	}
	detokenizeParams = []param{
		{name: "model", status: done, note: "default: the first file"},
		{name: "tokens", status: done, note: "ids"},
	}
)

func (s *Server) serveTokenize(w http.ResponseWriter, r *http.Request) error {
	o, l, release, err := s.open(w, r, tokenizeParams)
	if err != nil {
		return err
	}
	defer release()
	text := ""
	options := tokenizer.EncodeOptions{ParseSpecial: true}
	if o.get("content", &text); !o.has("content") {
		o.fail("content", "content is missing")
	}
	o.get("add_special", &options.AddSpecial)
	o.get("parse_special", &options.ParseSpecial)
	if o.err != nil {
		return o.err
	}
	writeJSON(w, http.StatusOK, map[string]any{"tokens": orEmpty(l.Text.Tokenizer.Encode(text, options))})
	return nil
}

func (s *Server) serveDetokenize(w http.ResponseWriter, r *http.Request) error {
	o, l, release, err := s.open(w, r, detokenizeParams)
	if err != nil {
		return err
	}
	defer release()
	var ids []int
	if o.get("tokens", &ids); !o.has("tokens") {
		o.fail("tokens", "tokens is missing")
	}
	if o.err != nil {
		return o.err
	}
	writeJSON(w, http.StatusOK, map[string]any{"content": l.Text.Tokenizer.Decode(ids, false)})
	return nil
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	return nil
}

func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) error {
	code, text := http.StatusOK, "ready"
	switch {
	case s.draining.Load():
		code, text = http.StatusServiceUnavailable, "shutting down"
	case !s.ready.Load():
		code, text = http.StatusServiceUnavailable, "loading"
	}
	writeJSON(w, code, map[string]any{"status": text})
	return nil
}

// about returns a model as /v1/models lists it.
func about(m *model, l *Loaded) any {
	out := map[string]any{"id": m.Name, "object": "model", "created": m.Created.Unix(),
		"owned_by": "etc", "loaded": l != nil}
	if l != nil {
		out["context_length"] = l.Runner.Limits().Positions
		out["device"] = l.Device
		out["shared_calls"] = !l.Runner.Limits().OneByOne
		out["reasoning"] = l.Text.format.Thinks() && l.Text.reads(enableThinking)
		out["tools"] = l.Text.format.Calls() && l.Text.reads("tools")
	}
	return out
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) error {
	var list []any
	s.pool.each(func(m *model, l *Loaded) { list = append(list, about(m, l)) })
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
	return nil
}

func (s *Server) serveModel(w http.ResponseWriter, r *http.Request) error {
	want, err := s.pool.find(r.PathValue("model"))
	if err != nil {
		return err
	}
	s.pool.each(func(m *model, l *Loaded) {
		if m == want {
			writeJSON(w, http.StatusOK, about(m, l))
		}
	})
	return nil
}

// unknown answers what no endpoint does.
func (s *Server) unknown() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &apiError{status: http.StatusNotFound, kind: kindNotFound,
			message: "there is no " + r.Method + " " + r.URL.Path}
		if method := s.methods[r.URL.Path]; method != "" {
			w.Header().Set("Allow", method)
			e.status, e.kind = http.StatusMethodNotAllowed, kindInvalid
			e.message = r.URL.Path + " takes " + method + ", not " + r.Method
		}
		e.write(w, false)
	})
}
