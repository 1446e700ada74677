package profile

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/etc-ml/etc/runtime/engine"
)

// Trace writes steps as they come in the Trace Event Format of Chrome and Perfetto: complete events
// ("ph":"X") with times in microseconds, calls on one track and their steps on another. It is safe for
// concurrent use, but instances that run at the same time share the tracks.
type Trace struct {
	mu    sync.Mutex
	w     *bufio.Writer
	begin time.Time
	wrote bool
	err   error
}

// NewTrace begins a trace; its times count from now.
func NewTrace(w io.Writer) *Trace { return &Trace{w: bufio.NewWriter(w), begin: time.Now()} }

// event is one of the format, see "Trace Event Format" (Google, 2016).
type event struct {
	Name     string    `json:"name"`
	Category string    `json:"cat"`
	Phase    string    `json:"ph"`
	Time     float64   `json:"ts"`
	Duration float64   `json:"dur"`
	Process  int       `json:"pid"`
	Thread   int       `json:"tid"`
	Args     eventArgs `json:"args"`
}

type eventArgs struct {
	Tokens    int     `json:"tokens,omitempty"`
	Layer     *int    `json:"layer,omitempty"`
	About     string  `json:"about,omitempty"`
	Bytes     int     `json:"bytes,omitempty"`
	GBs       float64 `json:"GB/s,omitempty"`
	GFLOP     float64 `json:"GFLOP,omitempty"`
	GFLOPSecs float64 `json:"GFLOP/s,omitempty"`
}

// Observe writes a step. What cannot be written is an error of Close.
func (t *Trace) Observe(s *engine.Step) {
	e := event{Name: s.Kind, Category: "step", Phase: "X", Time: microseconds(s.Start.Sub(t.begin)),
		Duration: microseconds(s.Time), Process: 1, Thread: 2}
	e.Args = eventArgs{About: s.Name, Bytes: s.Bytes, GFLOP: float64(s.Operations) / 1e9}
	if s.Layer != engine.NoLayer {
		e.Args.Layer = &s.Layer
	}
	if seconds := s.Time.Seconds(); seconds > 0 {
		e.Args.GBs, e.Args.GFLOPSecs = float64(s.Bytes)/1e9/seconds, float64(s.Operations)/1e9/seconds
	}
	if s.Kind == engine.Call {
		e.Category, e.Thread, e.Args.Tokens = engine.Call, 1, s.Tokens
	}
	b, err := json.Marshal(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	lead := ",\n"
	if !t.wrote {
		lead = "[\n"
	}
	t.wrote = true
	t.write(lead)
	t.write(string(b))
}

// Close ends the trace and gives the first error.
func (t *Trace) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.wrote {
		t.write("[")
	}
	t.write("]\n")
	if err := t.w.Flush(); t.err == nil {
		t.err = err
	}
	return t.err
}

func (t *Trace) write(s string) {
	if t.err == nil {
		_, t.err = t.w.WriteString(s)
	}
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
