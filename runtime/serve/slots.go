package serve

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"regexp"
	"syscall"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
)

// Slots keeps states of a model outside of memory. Its methods may be called by several goroutines.
type Slots interface {
	// Save writes a state under a name, and gives its size in bytes. After an error what was under the name is there
	// still.
	Save(ctx context.Context, name string, saved *batch.Saved) (int64, error)
	// Load opens what was saved, which the caller closes; the error is fs.ErrNotExist where nothing was.
	Load(name string) (*batch.Saved, int64, error)
	// Erase removes what was saved; the error is fs.ErrNotExist where nothing was.
	Erase(name string) error
}

// slotParams is the table of /slots/{id}.
var slotParams = []param{
	{name: "model", status: done, note: "default: the first file"},
	{name: "messages", status: done, note: "`save`: the conversation, as in /v1/chat/completions"},
	{name: "tools", status: done, note: "`save`: as there"},
	{name: "reasoning_effort", status: done, note: "`save`: as there"},
	{name: "chat_template_kwargs", status: done, note: "`save`: as there"},
	{name: "prompt", status: done, note: "`save`: a text or token ids, in place of `messages`"},
}

// slotName matches the names that a state may have: file names without special meaning on any file system.
var slotName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// slotAnswer is the result of an action.
type slotAnswer struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Model   string  `json:"model"`
	Action  string  `json:"action"`
	Tokens  int     `json:"tokens"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// serveSlot answers POST /slots/{id}?action=save|restore|erase.
func (s *Server) serveSlot(w http.ResponseWriter, r *http.Request) error {
	id, action := r.PathValue("id"), r.URL.Query().Get("action")
	if !slotName.MatchString(id) {
		return invalid("id", "the name %q of the slot: want 1 to 64 letters, digits, underscores and hyphens", id)
	}
	act := map[string]func(context.Context, *object, *Loaded, *slotAnswer) error{
		"save": saveSlot, "restore": restoreSlot, "erase": eraseSlot}[action]
	if act == nil {
		return invalid("action", "action: %q, want save, restore or erase", action)
	}
	o, l, release, err := s.open(w, r, slotParams)
	if err != nil {
		return err
	}
	defer release()
	if l.Slots == nil {
		return unsupported("", "the server has no folder for slots: start it with --slot-dir")
	}
	select { // a state holds memory for caches while it is saved or restored: one at a time
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	a := slotAnswer{ID: id, Object: "slot", Model: modelName(r), Action: action}
	start := time.Now()
	if err := act(r.Context(), o, l, &a); err != nil {
		return slotError(err)
	}
	a.Seconds = time.Since(start).Seconds()
	writeJSON(w, http.StatusOK, a)
	return nil
}

// slotError makes an error for clients of one of the memory or the disk.
func slotError(err error) error {
	var form *batch.FormError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &apiError{status: http.StatusNotFound, kind: kindNotFound, message: "nothing was saved under this name"}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, cache.ErrNoRoom):
		return &apiError{status: http.StatusInsufficientStorage, kind: kindInternal, code: "insufficient_storage",
			message: err.Error()}
	case errors.Is(err, batch.ErrNotSavable), errors.Is(err, cache.ErrOff), errors.As(err, &form):
		return unsupported("", "%v", err)
	}
	return err
}

// saveSlot computes a prompt, unless the cache has it, and saves the state after the part that a next turn will share:
// the messages, or all but the last token of a raw prompt.
func saveSlot(ctx context.Context, o *object, l *Loaded, a *slotAnswer) error {
	j, err := o.slotJob(l)
	if err != nil {
		return err
	}
	want := j.prompt[:len(j.prompt)-1]
	if j.history > 0 {
		want = j.prompt[:j.history]
	}
	if len(want) == 0 {
		return invalid("prompt", "prompt: want at least 2 tokens")
	}
	j.maxTokens = 1
	s, err := j.submit(ctx, 0)
	if err != nil {
		return err
	}
	for _, err := range s.Tokens(ctx) {
		if err != nil {
			return err
		}
	}
	saved, err := l.Runner.Save(ctx, want)
	if err != nil {
		return err
	}
	if saved == nil {
		return cache.ErrNoRoom
	}
	defer saved.Close() //nolint:errcheck // the cache goes on without it
	if len(saved.Tokens) < len(want) {
		return cache.ErrNoRoom
	}
	a.Tokens = len(saved.Tokens)
	a.Bytes, err = l.Slots.Save(ctx, a.ID, saved)
	return err
}

// slotJob reads the prompt whose state is to be saved.
func (o *object) slotJob(l *Loaded) (*job, error) {
	j := &job{loaded: l, parse: true, settings: o.settings(l.Text.Defaults)}
	if !o.has("prompt") {
		c := conversation{messages: o.messages()}
		tools := o.tools()
		o.thinking(l.Text, &c)
		if err := o.problem(); err != nil {
			return nil, err
		}
		return j, j.finishJob(c, tools, toolChoice{}, nil, true)
	}
	for _, name := range []string{"messages", "tools", "reasoning_effort", "chat_template_kwargs"} {
		if o.has(name) {
			o.fail(name, "prompt and %s: give one of them", name)
		}
	}
	var err error
	if j.prompt, err = promptTokens(o.fields["prompt"], l.Text); err != nil {
		o.fail("prompt", "prompt: %v", err)
	}
	return j, o.problem()
}

// onlyModel refuses what an action has no use for.
func (o *object) onlyModel(action string) error {
	for name := range o.fields {
		if name != "model" {
			o.fail(name, "%s: not with action=%s", name, action)
		}
	}
	return o.problem()
}

// restoreSlot puts a state that was saved into the cache.
func restoreSlot(ctx context.Context, o *object, l *Loaded, a *slotAnswer) error {
	if err := o.onlyModel(a.Action); err != nil {
		return err
	}
	saved, bytes, err := l.Slots.Load(a.ID)
	if err != nil {
		return err
	}
	defer saved.Close() //nolint:errcheck // it was only read
	a.Tokens, a.Bytes = len(saved.Tokens), bytes
	return l.Runner.Restore(ctx, saved)
}

// eraseSlot removes a state that was saved.
func eraseSlot(_ context.Context, o *object, l *Loaded, a *slotAnswer) error {
	if err := o.onlyModel(a.Action); err != nil {
		return err
	}
	return l.Slots.Erase(a.ID)
}
