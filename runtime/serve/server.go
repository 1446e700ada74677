package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/etc-ml/etc/runtime/serve/page"
)

// Options are the options of a server.
type Options struct {
	// Files are the models, the first one for requests that name none.
	Files []File
	// Memory bounds what models and their caches take together, in bytes; 0: no bound.
	Memory int64
	// Keys are the API keys; every request has to show one of them. Without keys none is required.
	Keys []string
	// Host is the name or address that the server listens on, for the check of Host headers without keys.
	Host string
	// RequestTime bounds how long a request may take; 0: no bound.
	RequestTime time.Duration
	// NoPage leaves out the page at /.
	NoPage bool
	// WriteTime bounds how long a client may take to read what is written at once; 0 is 30 s.
	WriteTime time.Duration
	// Profile adds net/http/pprof under /debug/pprof/.
	Profile bool
	// Version is the program's version, for answers and logs.
	Version string
	// Log gets a line for every request; nil: nobody does.
	Log *slog.Logger
	// Traces gets spans of requests for answers; nil: nobody does.
	Traces trace.TracerProvider
}

// Server answers requests.
type Server struct {
	options     Options
	pool        *pool
	metrics     *metrics
	handler     http.Handler
	fingerprint string
	keys        [][32]byte
	methods     map[string]string // of the endpoints, by path
	slot        chan struct{}     // of one element: who saves or restores a state

	ready    atomic.Bool
	draining atomic.Bool
	active   sync.WaitGroup
	mu       sync.Mutex // of active and draining together
	base     context.Context
	cut      context.CancelCauseFunc
}

// New makes a server. Ready loads its first model.
func New(o Options) (*Server, error) {
	if len(o.Files) == 0 {
		return nil, errors.New("a server needs at least one file")
	}
	if o.WriteTime == 0 {
		o.WriteTime = writeTime
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p, err := newPool(o.Files, o.Memory)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, pool: p, fingerprint: "etc-" + o.Version, methods: map[string]string{},
		slot: make(chan struct{}, 1)}
	s.base, s.cut = context.WithCancelCause(context.Background())
	for _, k := range o.Keys {
		s.keys = append(s.keys, digest(k))
	}
	s.metrics = newMetrics(s)
	s.handler = s.routes()
	return s, nil
}

// Ready loads the first model, runs a first call and tells /ready so. It waits for that however many requests do.
func (s *Server) Ready(ctx context.Context) error {
	_, release, err := s.pool.await(ctx, s.pool.models[0], 0)
	if err != nil {
		return err
	}
	release()
	s.ready.Store(true)
	return nil
}

// Handler answers the requests.
func (s *Server) Handler() http.Handler { return s.handler }

// routes returns the endpoints.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	s.handle(mux, "GET /health", s.serveHealth, open)
	s.handle(mux, "GET /ready", s.serveReady, open)
	mux.Handle("GET /metrics", s.guard("/metrics", s.metrics.handler(), 0))
	s.handle(mux, "GET /v1/models", s.serveModels, 0)
	s.handle(mux, "GET /v1/models/{model...}", s.serveModel, 0)
	s.handle(mux, "POST /v1/chat/completions", s.serveChat, counted)
	s.handle(mux, "POST /v1/completions", s.serveCompletions, counted)
	s.handle(mux, "POST /v1/responses", s.serveResponses, counted)
	s.handle(mux, "POST /v1/messages", s.serveMessages, counted|anthropic)
	s.handle(mux, "POST /v1/messages/count_tokens", s.serveCount, anthropic)
	s.handle(mux, "POST /tokenize", s.serveTokenize, 0)
	s.handle(mux, "POST /detokenize", s.serveDetokenize, 0)
	s.handle(mux, "POST /slots/{id}", s.serveSlot, counted)
	if !s.options.NoPage {
		s.addPage(mux)
	}
	if s.options.Profile {
		profile(mux, s)
	}
	mux.Handle("/", s.guard("other", s.unknown(), open))
	return mux
}

// addPage adds the page for people. It asks for the key itself, so that it has to be there without one.
func (s *Server) addPage(mux *http.ServeMux) {
	h := page.Handler()
	for pattern, name := range map[string]string{"GET /{$}": "/", "GET " + page.Prefix + "{file...}": page.Prefix} {
		mux.Handle(pattern, s.guard(name, h, open))
	}
}

// Serve answers requests on a listener until ctx ends. Then no new ones are taken, running ones may end within drain,
// and the rest is cut. It closes the models.
func (s *Server) Serve(ctx context.Context, l net.Listener, drain time.Duration) error {
	h := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.drain(drain, func() { h.Close() }) //nolint:errcheck // what it closes is of no use any more
	end, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if shut := h.Shutdown(end); shut != nil {
		h.Close() //nolint:errcheck // what is left is idle
	}
	return errors.Join(err, s.Close())
}

// Drain refuses new requests and waits for the running ones, at most so long; the rest is cut.
func (s *Server) Drain(most time.Duration) { s.drain(most, func() {}) }

// cutTime is how long requests that were cut may take to tell their clients.
const cutTime = time.Second

// drain is Drain. hangUp closes the connections of clients that do not read what they are told.
func (s *Server) drain(most time.Duration, hangUp func()) {
	s.mu.Lock()
	s.draining.Store(true)
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.active.Wait(); close(done) }()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	s.cut(errShutdown)
	timer.Reset(cutTime)
	select {
	case <-done:
	case <-timer.C:
		hangUp()
		<-done
	}
}

// errShutdown is the cause of requests that a shutdown has cut.
var errShutdown = errors.New("the server was shut down")

// Close ends all requests and frees the models.
func (s *Server) Close() error {
	s.cut(errShutdown)
	return s.pool.close()
}
