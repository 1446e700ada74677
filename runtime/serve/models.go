package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/guide"
)

// File is a model that a server can load.
type File struct {
	// Name is the model's name in requests.
	Name string
	// Created is when the file was written.
	Created time.Time
	// Memory is the memory of the loaded model, including its caches, in bytes.
	Memory int64
	// Waiting is the largest number of requests that wait until it is loaded; 0: any number.
	Waiting int
	// Load loads it. It is not called again before Loaded.Close.
	Load func() (*Loaded, error)
}

// Loaded is a model in memory.
type Loaded struct {
	Runner *batch.Runner
	Text   *Text
	// Device is the name of the engine.
	Device string
	// Slots keeps states outside of memory; nil: nothing does.
	Slots Slots
	// Close frees what the runner does not own; it may be nil.
	Close func() error

	guides *guide.Model
}

// model is a file of the server, loaded or not.
type model struct {
	File
	loaded  *Loaded
	users   int           // requests that have it
	waiting int           // requests that wait for it
	since   time.Time     // when the first of them found no room for it; zero: none did
	owed    int           // how many of them waited when it was loaded and have not got it yet
	used    time.Time     // when the last one came or left
	loading chan struct{} // closed when it is loaded, or could not be; nil: nobody loads it
	err     error         // of the last attempt
}

// pool keeps models in memory, within a budget.
type pool struct {
	mu     sync.Mutex
	models []*model
	budget int64 // bytes; 0: all files fit
	// patience is how long a model may lack room while others that are loaded get new requests.
	patience time.Duration
	freed    chan struct{}
	closing  bool // models that had to make room are being closed, and still have it
	closed   bool
}

func newPool(files []File, budget int64) (*pool, error) {
	p := &pool{budget: budget, freed: make(chan struct{}), patience: 10 * time.Second}
	for _, f := range files {
		if slices.ContainsFunc(p.models, func(m *model) bool { return m.Name == f.Name }) {
			return nil, fmt.Errorf("two files have the name %q, by which requests tell them apart", f.Name)
		}
		if budget > 0 && f.Memory > budget {
			return nil, fmt.Errorf("%s needs %s with its caches, and there are %s: it could never be loaded", f.Name,
				humanize.IBytes(uint64(f.Memory)), humanize.IBytes(uint64(budget)))
		}
		p.models = append(p.models, &model{File: f})
	}
	return p, nil
}

// find returns the model of a name; "" is the first one.
func (p *pool) find(name string) (*model, error) {
	if name == "" {
		return p.models[0], nil
	}
	for _, m := range p.models {
		if m.Name == name {
			return m, nil
		}
	}
	return nil, &apiError{status: http.StatusNotFound, kind: kindInvalid, code: "model_not_found", param: "model",
		message: fmt.Sprintf("the model %q does not exist; /v1/models lists those that do", name)}
}

// acquire loads a model where it is not, and keeps it in memory until release. The error is [batch.ErrFull] where as
// many requests wait for it as may. Requests for a model that is in use all the time would leave no room for others, so
// they wait too once another one has lacked room for long.
func (p *pool) acquire(ctx context.Context, name string) (*Loaded, func(), error) {
	m, err := p.find(name)
	if err != nil {
		return nil, nil, err
	}
	return p.await(ctx, m, m.Waiting)
}

// await is acquire of a model; most is the largest number of requests that wait for it, 0: any number.
func (p *pool) await(ctx context.Context, m *model, most int) (*Loaded, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := false
	defer func() {
		if waits {
			p.leave(m)
		}
	}()
	for {
		if p.closed {
			return nil, nil, batch.ErrClosed
		}
		starving := p.starving(m)
		if m.loaded != nil && !starving {
			m.users++
			m.used = time.Now()
			return m.loaded, func() { p.release(m) }, nil
		}
		if !waits {
			if most > 0 && m.waiting >= most {
				return nil, nil, batch.ErrFull
			}
			m.waiting++
			waits = true
		}
		if m.loading == nil && !starving {
			p.begin(m)
		}
		wait, loads := p.freed, m.loading != nil
		if loads {
			wait = m.loading
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if loads && m.err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.Name, m.err)
		}
	}
}

// leave takes a request out of those that wait for a model.
func (p *pool) leave(m *model) {
	m.owed = max(0, m.owed-1)
	if m.waiting--; m.waiting == 0 {
		m.since = time.Time{}
	}
	if m.users == 0 { // it left without it: others may go on, or take its room
		p.signal()
	}
}

// starving reports whether another model has lacked room for long, and longer than m. A model that was just loaded
// first serves those for whom it was.
func (p *pool) starving(m *model) bool {
	return m.owed == 0 && slices.ContainsFunc(p.models, func(x *model) bool {
		return x != m && !x.since.IsZero() && time.Since(x.since) >= p.patience &&
			(m.since.IsZero() || x.since.Before(m.since))
	})
}

// begin begins to load a model, if there is room for it.
func (p *pool) begin(m *model) {
	if p.closing {
		return
	}
	victims, ok := p.room(m)
	if !ok {
		if m.since.IsZero() {
			m.since = time.Now()
		}
		return
	}
	m.loading, m.err, m.since, p.closing = make(chan struct{}), nil, time.Time{}, len(victims) > 0
	go p.load(m, victims)
}

// room takes models out of the list of loaded ones until m fits; false while those that are in use take too much.
func (p *pool) room(m *model) (victims []*Loaded, ok bool) {
	need := m.Memory
	var idle []*model
	for _, x := range p.models {
		if x.loaded != nil || x.loading != nil {
			need += x.Memory
			if x.loaded != nil && x.users == 0 && x.owed == 0 {
				idle = append(idle, x)
			}
		}
	}
	slices.SortFunc(idle, func(a, b *model) int { return a.used.Compare(b.used) })
	var out []*model
	for p.budget > 0 && need > p.budget {
		if len(idle) == 0 {
			return nil, false
		}
		out, idle, need = append(out, idle[0]), idle[1:], need-idle[0].Memory
	}
	for _, x := range out {
		victims = append(victims, x.loaded)
		x.loaded = nil
	}
	return victims, true
}

// load frees the victims and loads a model.
func (p *pool) load(m *model, victims []*Loaded) {
	var err error
	for _, v := range victims {
		err = errors.Join(err, v.close())
	}
	if len(victims) > 0 {
		p.mu.Lock()
		p.closing = false
		p.signal()
		p.mu.Unlock()
	}
	var l *Loaded
	if err == nil {
		l, err = m.Load()
	}
	if err == nil {
		l.Text.prepare()
		l.guides = guide.NewModel(l.Text.Tokenizer, l.Text.format, l.Text.Stop, l.Runner.Limits().Vocab)
		if err = l.warm(); err != nil {
			err = errors.Join(err, l.close())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.err = err
	if err == nil {
		m.loaded, m.used, m.owed = l, time.Now(), m.waiting
	}
	close(m.loading)
	m.loading = nil
	p.signal()
}

// signal wakes those that wait for memory.
func (p *pool) signal() {
	close(p.freed)
	p.freed = make(chan struct{})
}

func (p *pool) release(m *model) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.users--
	m.used = time.Now()
	if m.users == 0 {
		p.signal()
	}
}

// warm runs a first call, so that what an engine does once is done before the first request.
func (l *Loaded) warm() error {
	s, err := l.Runner.Submit(context.Background(), batch.Request{Prompt: []int{0}, MaxTokens: 2, Logprobs: -1,
		Sampling: batch.Sampling{TopP: 1}})
	if err != nil {
		return err
	}
	for range s.Tokens(context.Background()) {
	}
	_, err = s.End()
	return err
}

func (l *Loaded) close() error {
	err := l.Runner.Close()
	if l.Close != nil {
		err = errors.Join(err, l.Close())
	}
	return err
}

// each calls f with every model, loaded or not.
func (p *pool) each(f func(m *model, l *Loaded)) {
	p.mu.Lock()
	type pair struct {
		m *model
		l *Loaded
	}
	var all []pair
	for _, m := range p.models {
		all = append(all, pair{m, m.loaded})
	}
	p.mu.Unlock()
	for _, x := range all {
		f(x.m, x.l)
	}
}

// close ends all requests and frees all models.
func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	var wait []chan struct{}
	for _, m := range p.models {
		if m.loading != nil {
			wait = append(wait, m.loading)
		}
	}
	p.signal()
	p.mu.Unlock()
	for _, w := range wait {
		<-w
	}
	var err error
	p.each(func(m *model, l *Loaded) {
		if l != nil {
			err = errors.Join(err, l.close())
		}
	})
	return err
}
