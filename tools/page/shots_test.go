package page

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// sample is an answer with most of what the page can show.
const sample = "A quick sort takes the first element, and sorts what is smaller and what is larger:\n\n```python\ndef sort(list):\n" +
	"    # nothing to do\n    if len(list) < 2:\n        return list\n    pivot, *rest = list\n    return sort([x for x in rest if x < pivot]) + " +
	"[pivot] + sort([x for x in rest if x >= pivot])\n```\n\n* the **mean** time is in `n log n`\n* the worst is in `n²`, see " +
	"[the book](https://example.org/sort)\n\n| elements | time |\n| --- | ---: |\n| 1,000 | 1 ms |\n| 1,000,000 | 1.4 s |\n\n> Sorted lists are " +
	"the worst case.\n"

// TestShots writes pictures of the page for people to look at: ETC_PAGE_SHOTS=DIR.
func TestShots(t *testing.T) {
	dir := os.Getenv("ETC_PAGE_SHOTS")
	if dir == "" {
		t.Skip("writes pictures to ETC_PAGE_SHOTS=DIR, for people to look at")
	}
	for _, colours := range []string{"light", "dark"} {
		for _, width := range []int64{400, 900, 1600} {
			s := newSite(t, served)
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				out := newStream(w)
				out.delta(map[string]any{"reasoning_content": "The user wants a sort. A quick one is short."})
				out.text(sample)
				out.end("stop", 180)
			})
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				out := newStream(w)
				out.delta(map[string]any{"tool_calls": []any{map[string]any{"index": 0,
					"id": "call_1", "type": "function",
					"function": map[string]any{"name": "weather", "arguments": `{"city":"Berlin","days":3}`}}}})
				out.end("tool_calls", 20)
			})
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"error": {"message": "all places of the queue are taken; try again later"}}`)
			})
			x := open(t, s.URL, size(width, 900), scheme(colours))
			shot := func(name string) {
				b, err := chromedp.Run(x.ctx, chromedp.CaptureScreenshot())
				check(t, err)
				check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, colours)), b, 0o644))
			}
			shot("empty")
			x.ask("Write a quick sort in Python.")
			x.answered()
			x.wait(`document.querySelector('.hljs-keyword')`)
			x.do(`document.querySelector('.thoughts').open = true; log.scrollTop = 0`)
			shot("answer")
			x.ask("And what is the weather?")
			x.answered()
			x.ask("Hello?")
			x.answered()
			shot("call")
			x.click("#open-settings")
			shot("settings")
			x.press("\x1b")
			if width == 400 {
				x.click("#open-chats")
				shot("chats")
			}
		}
	}
}
