package serve

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

const (
	savePath    = "/slots/a?action=save"
	restorePath = "/slots/a?action=restore"
	erasePath   = "/slots/a?action=erase"
)

// TestSlots: what is saved of a conversation, another server finds in its cache once it is restored there.
func TestSlots(t *testing.T) {
	turns := `"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}, {"role": "user", "content": "More"}]`
	cached := func(o map[string]any) any { return at(t, o, "usage", "prompt_tokens_details", "cached_tokens") }
	first := startServer(t, does("I say more."), nil)
	saved := first.object(savePath, `{`+turns+`}`)
	require.Equal(t, "slot", saved["object"])
	require.Greater(t, saved["tokens"], 10.0)
	second := startServer(t, does("I say more."),
		func(_ *Options, x *scripted, _ *batch.Options) { x.slots.saved = first.exec.slots.saved })
	want := first.object(chatPath, `{`+turns+`, "seed": 1}`)
	fresh := startServer(t, does("I say more."), nil)
	require.EqualValues(t, 0, cached(fresh.object(chatPath, `{`+turns+`, "seed": 1}`)))
	restored := second.object(restorePath, `{"model": "small"}`)
	require.Equal(t, saved["tokens"], restored["tokens"])
	got := second.object(chatPath, `{`+turns+`, "seed": 1}`)
	require.Equal(t, saved["tokens"], cached(got))
	require.Equal(t, at(t, want, "choices"), at(t, got, "choices"))
	second.object(erasePath, `{}`)
	message, _ := second.refused(http.StatusNotFound, restorePath, `{}`)
	require.Contains(t, message, "nothing was saved")
	second.refused(http.StatusNotFound, erasePath, `{}`)
	raw := first.object(savePath, `{"prompt": [1, 2, 3, 4]}`)
	require.EqualValues(t, 3, raw["tokens"])
}

// TestSlotRefusals: names of other files, unknown actions and what an action has no use for are refused, and a server
// without a folder refuses all; a full disk is told, and so is a cache without room.
func TestSlotRefusals(t *testing.T) {
	s := startServer(t, does("x"), nil)
	for _, path := range []string{"/slots/..?action=save", "/slots/.a?action=save", "/slots/a.b?action=save",
		"/slots/a%2Fb?action=save",
		"/slots/" + strings.Repeat("a", 65) + "?action=save", "/slots/a", "/slots/a?action=read",
		"/slots/a%00?action=save"} {
		code, _ := s.post(path, `{"prompt": [1, 2]}`)
		require.Contains(t, []int{400, 404}, code, path)
	}
	for path, body := range map[string]string{
		restorePath: `{"prompt": [1, 2]}`, erasePath: `{"messages": []}`, savePath: `{}`,
		savePath + "&":  `{"prompt": [1]}`,
		savePath + "&x": `{"prompt": [1, 2], "messages": []}`, savePath + "&y": `{"prompt": "x", "n": 2}`,
	} {
		s.refused(400, path, body)
	}
	s.refused(404, savePath, `{"model": "other", "prompt": [1, 2]}`)
	s.exec.slots.err = fmt.Errorf("write: %w", syscall.ENOSPC)
	message, _ := s.refused(http.StatusInsufficientStorage, savePath, `{"prompt": [1, 2, 3]}`)
	require.Contains(t, message, "no space left")
	none := startServer(t, does("x"), func(o *Options, x *scripted, r *batch.Options) {
		load := o.Files[0].Load
		o.Files[0].Load = func() (*Loaded, error) {
			l, err := load()
			l.Slots = nil
			return l, err
		}
	})
	message, _ = none.refused(400, savePath, `{"prompt": [1, 2, 3]}`)
	require.Contains(t, message, "--slot-dir")
	small := startServer(t, does("x"), func(_ *Options, _ *scripted, r *batch.Options) { r.Prefix = 0 })
	small.refused(http.StatusInsufficientStorage, savePath, `{"prompt": [1, 2, 3]}`)
}
