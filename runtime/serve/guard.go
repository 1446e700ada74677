package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/etc-ml/etc/internal/fault"
)

// What endpoints are like.
const (
	open      = 1 << iota // no key is asked for
	counted               // a request for an answer: refused while the server drains, waited for, bounded in time
	anthropic             // errors have Anthropic's shape
)

// maxBody bounds a request's body in bytes; no context holds more text.
const maxBody = 32 << 20

// bodyTime is how long a client may take to send a body.
const bodyTime = time.Minute

// seedHeader is the header that reports the seed of an answer.
const seedHeader = "Etc-Seed"

// endpoint answers a request; an error is told to the client.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// handle adds an endpoint.
func (s *Server) handle(mux *http.ServeMux, pattern string, f endpoint, like int) {
	method, name, _ := strings.Cut(pattern, " ")
	s.methods[name] = method
	mux.Handle(pattern, s.guard(name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.call(f, w, r, like)
		v := r.Context().Value(visitKey{}).(*visit)
		v.err = err
		var told *toldError
		if err == nil || errors.As(err, &told) || v.wrote {
			return
		}
		errorOf(err).write(w, like&anthropic != 0)
	}), like))
}

// call runs an endpoint; a panic is its error.
func (s *Server) call(f endpoint, w http.ResponseWriter, r *http.Request, like int) (err error) {
	defer fault.Recover(r.URL.Path, &err)
	if like&counted == 0 {
		return f(w, r)
	}
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		return &apiError{status: http.StatusServiceUnavailable, kind: kindUnavailable, retry: 10,
			message: "the server is shutting down"}
	}
	s.active.Add(1)
	s.mu.Unlock()
	defer s.active.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if t := s.options.RequestTime; t > 0 {
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	stop := context.AfterFunc(s.base, cancel)
	defer stop()
	if err = f(w, r.WithContext(ctx)); err != nil && s.base.Err() != nil && errors.Is(err, context.Canceled) {
		return &apiError{status: http.StatusServiceUnavailable, kind: kindUnavailable, message: errShutdown.Error()}
	}
	return err
}

// visit is the log entry of a request.
type visit struct {
	id    string
	model string
	err   error
	usage usage
	first time.Duration
	begun time.Time
	code  int
	wrote bool       // the header was written
	span  trace.Span // nil where there is none
}

type visitKey struct{}

// writer notes the status of an answer, and bounds the time in which a client has to read what is written at once.
type writer struct {
	http.ResponseWriter
	visit *visit
	limit time.Duration
}

func (w writer) Write(p []byte) (int, error) {
	c := http.NewResponseController(w.ResponseWriter)
	c.SetWriteDeadline(time.Now().Add(w.limit)) //nolint:errcheck // not all writers can
	return w.ResponseWriter.Write(p)
}

func (w writer) WriteHeader(code int) {
	w.visit.code, w.visit.wrote = code, true
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// guard is in front of every endpoint: headers, key, origin, bounds, log, metrics.
func (s *Server) guard(name string, next http.Handler, like int) http.Handler {
	return http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
		v := &visit{id: requestID(r), begun: time.Now(), code: http.StatusOK}
		w := writer{inner, v, s.options.WriteTime}
		h := w.Header()
		h.Set("X-Request-Id", v.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Server", "etc")
		if like&anthropic != 0 {
			h.Set("Request-Id", v.id)
		}
		r = s.traced(r, name, v, like)
		defer s.log(name, r, v)
		if err := s.admit(r, like); err != nil {
			v.err = err
			err.write(w, like&anthropic != 0)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
	})
}

// requestID returns the client's name for the request, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	plain := func(c rune) bool { return c > ' ' && c < 0x7F && c != '"' && c != '\\' }
	if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(c rune) bool { return !plain(c) }) {
		return newID("req_")
	}
	return id
}

// traceParent is the form of the header traceparent (w3.org/TR/trace-context): version, trace, span, flags.
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceID returns the trace that a request is part of, as OpenTelemetry and others name it in its headers; "" for none.
func traceID(r *http.Request) string {
	if m := traceParent.FindStringSubmatch(r.Header.Get("Traceparent")); m != nil {
		return m[1]
	}
	return ""
}

// log writes a line for a request, and counts it.
func (s *Server) log(name string, r *http.Request, v *visit) {
	took := time.Since(v.begun)
	s.metrics.request(name, v.code, took)
	args := []any{"id", v.id, "method", r.Method, "path", name, "status", v.code, "seconds", took.Seconds(), "client",
		r.RemoteAddr}
	if id := traceID(r); id != "" {
		args = append(args, "trace", id)
	} else if v.span != nil {
		args = append(args, "trace", v.span.SpanContext().TraceID().String())
	}
	v.endSpan()
	if v.model != "" {
		args = append(args, "model", v.model, "prompt_tokens", v.usage.prompt, "cached_tokens", v.usage.cached,
			"tokens", v.usage.answer, "first_seconds", v.first.Seconds())
	}
	switch {
	case v.err != nil && v.code >= 500:
		s.options.Log.Error("request", append(args, "error", v.err.Error())...)
	case v.err != nil:
		s.options.Log.Info("request", append(args, "error", v.err.Error())...)
	default:
		s.options.Log.Info("request", args...)
	}
}

func digest(key string) [32]byte { return sha256.Sum256([]byte(key)) }

// admit checks key, host and origin.
func (s *Server) admit(r *http.Request, like int) *apiError {
	if len(s.keys) == 0 {
		return s.admitLocal(r)
	}
	if like&open != 0 {
		return nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") { // schemes have no case (RFC 9110, 11.1)
		key = r.Header.Get("X-Api-Key")
	}
	given, right := digest(key), 0
	for _, k := range s.keys {
		right |= subtle.ConstantTimeCompare(given[:], k[:])
	}
	if right == 0 {
		return &apiError{status: http.StatusUnauthorized, kind: kindKey, code: "invalid_api_key",
			message: "the API key is missing or wrong; send it as Authorization: Bearer KEY"}
	}
	return nil
}

// admitLocal refuses requests that a page of another site makes: by a name that resolves to this machine (DNS
// rebinding), or from another origin.
func (s *Server) admitLocal(r *http.Request) *apiError {
	host := hostOf(r.Host)
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	named := host != "" && strings.EqualFold(host, s.options.Host)
	if host != "localhost" && !strings.HasSuffix(host, ".localhost") && err != nil && !named {
		return &apiError{status: http.StatusForbidden, kind: kindForbidden,
			message: "the Host header names " + strconv.Quote(r.Host) +
				", which is not this server; use its address, or set " +
				"an API key"}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || !strings.EqualFold(u.Host, r.Host) {
		return &apiError{status: http.StatusForbidden, kind: kindForbidden,
			message: "the request comes from a page of " + strconv.Quote(origin) +
				"; without API keys only the server's own page may ask"}
	}
	return nil
}

// hostOf returns a Host header without its port.
func hostOf(s string) string {
	if h, _, err := net.SplitHostPort(s); err == nil {
		return h
	}
	return s
}

// readBody reads a request's body, whatever type it says it has.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	c.SetReadDeadline(time.Now().Add(bodyTime)) //nolint:errcheck // not all writers can
	b, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, kind: kindLarge,
			message: "the body is larger than " + strconv.Itoa(maxBody) + " bytes"}
	case err != nil:
		return nil, invalid("", "the body cannot be read: %v", err)
	}
	c.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
	return b, nil
}

// open reads a request for an answer and acquires its model.
func (s *Server) open(w http.ResponseWriter, r *http.Request, table []param) (*object, *Loaded, func(), error) {
	b, err := readBody(w, r)
	if err != nil {
		return nil, nil, nil, err
	}
	o, err := readObject(b, table)
	if err != nil {
		return nil, nil, nil, err
	}
	name := ""
	if o.get("model", &name); o.err != nil {
		return nil, nil, nil, o.err
	}
	l, release, err := s.pool.acquire(r.Context(), name)
	if err != nil {
		return nil, nil, nil, err
	}
	if name == "" {
		name = s.options.Files[0].Name
	}
	r.Context().Value(visitKey{}).(*visit).model = name
	return o, l, release, nil
}

// modelName returns the name of the model of a request that was opened.
func modelName(r *http.Request) string { return r.Context().Value(visitKey{}).(*visit).model }

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// profile adds Go's profiles.
func profile(mux *http.ServeMux, s *Server) {
	for pattern, f := range map[string]http.HandlerFunc{"/debug/pprof/": pprof.Index,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol, "/debug/pprof/trace": pprof.Trace} {
		mux.Handle("GET "+pattern, s.guard(pattern, f, 0))
	}
}
