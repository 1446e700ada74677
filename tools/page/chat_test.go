package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// messages gives the roles and texts of a request.
func messages(body map[string]any) []string {
	var out []string
	list, _ := body["messages"].([]any)
	for _, m := range list {
		v := m.(map[string]any)
		out = append(out, fmt.Sprintf("%v: %v", v["role"], v["content"]))
	}
	return out
}

func equal[T any](t *testing.T, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

// A model answers, tells what it took, answers again with what the cache has, and the chat is there after a reload.
func TestAnswer(t *testing.T) {
	s := newSite(t, served)
	x := open(t, s.URL)
	x.ask("What is the capital of France?")
	equal(t, x.answered(), "The capital of France is Paris.")
	stats := `document.querySelector('.answer.last .stats').innerText`
	for _, part := range []string{"tokens ·", "tokens/s", "first after", "cached", "seed "} {
		x.holds(fmt.Sprintf(`%s.includes(%q)`, stats, part))
	}
	x.holds(`message.value === '' && document.activeElement === message`)
	x.ask("What is the capital of Italy?")
	x.wait(`document.querySelectorAll('.answer').length === 2`)
	x.answered()
	equal(t, messages(s.body()), []string{"user: What is the capital of France?",
		"assistant: The capital of France is Paris.",
		"user: What is the capital of Italy?"})
	x.holds(`Number(/, (\d+) cached/.exec(` + stats + `)[1]) > 10`)
	x.stored()
	x.run(chromedp.Reload())
	x.wait(`document.querySelector('#chat-list .open')`)
	equal(t, value[string](x, `document.querySelector('#chat-list .open').innerText`), "What is the capital of France?")
	x.click("#chat-list .open")
	x.wait(`document.querySelectorAll('.message').length === 4`)
	x.holds(`document.querySelector('.answer .prose').innerText.trim() === 'The capital of France is Paris.'`)
	x.click("#chat-list .remove")
	x.click("#confirm [value=yes]")
	x.wait(`!document.querySelector('#chat-list li') && !document.querySelector('.message')`)
}

// The server takes the page's requests as those of its own page, with no proxy between.
func TestDirect(t *testing.T) {
	if skipped != "" {
		t.Skip(skipped)
	}
	x := open(t, served)
	x.ask("What is the capital of France?")
	equal(t, x.answered(), "The capital of France is Paris.")
}

// The answer is shown while it comes.
func TestStream(t *testing.T) {
	s := newSite(t, served)
	more := make(chan struct{})
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		out := newStream(w)
		out.text("The *first* half")
		<-more
		out.text(" and the second.")
		out.end("stop", 8)
	})
	x := open(t, s.URL)
	x.holds(`document.getElementById('stop').hidden && !send.hidden`)
	x.ask("Hi")
	x.wait(`document.querySelector('.answer em')?.innerText === 'first'`)
	x.holds(`!document.getElementById('stop').hidden && send.hidden && log.getAttribute('aria-busy') === 'true'`)
	close(more)
	equal(t, x.answered(), "The first half and the second.")
	x.holds(`document.getElementById('stop').hidden && !send.hidden && log.getAttribute('aria-busy') === 'false'`)
	x.holds(`document.getElementById('status').innerText.includes('complete')`)
}

// endless answers until the page goes away, and says so on a channel.
func endless(gone chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out := newStream(w)
		for r.Context().Err() == nil {
			out.text("word ")
			time.Sleep(5 * time.Millisecond)
		}
		gone <- struct{}{}
	}
}

// Stop ends the request, with the button and with Escape, and keeps what was there.
func TestStop(t *testing.T) {
	for _, way := range []string{"button", "escape"} {
		t.Run(way, func(t *testing.T) {
			s := newSite(t, served)
			gone := make(chan struct{}, 1)
			s.answer(endless(gone))
			x := open(t, s.URL)
			x.ask("Count")
			x.wait(`document.querySelector('.answer .prose').innerText.length > 20`)
			if way == "button" {
				x.click("#stop")
			} else {
				x.press("\x1b")
			}
			select {
			case <-gone:
			case <-time.After(patience):
				t.Fatal("the request did not end")
			}
			if got := x.answered(); !strings.HasPrefix(got, "word word") {
				t.Errorf("the answer is %q", got)
			}
			x.holds(`document.querySelector('.answer.last .note').innerText === 'Stopped.' && !send.hidden`)
			s.answer(says("Yes."))
			x.ask("And now?")
			x.wait(`document.querySelectorAll('.answer').length === 2`)
			equal(t, x.answered(), "Yes.")
		})
	}
}

// An answer goes on while another chat is shown, and each chat is stopped by itself.
func TestTwoChats(t *testing.T) {
	s := newSite(t, served)
	gone := make(chan struct{}, 1)
	s.answer(endless(gone))
	s.answer(says("Short."))
	x := open(t, s.URL)
	x.ask("First")
	x.wait(`document.querySelector('.answer .prose').innerText.length > 20`)
	x.click("#new-chat")
	x.wait(`!document.querySelector('.message') && document.getElementById('stop').hidden`)
	x.ask("Second")
	equal(t, x.answered(), "Short.")
	equal(t, messages(s.body()), []string{"user: Second"})
	x.do(`[...document.querySelectorAll('#chat-list .open')].find((b) => b.innerText === 'First').click()`)
	x.wait(`document.querySelector('.answer .prose').innerText.length > 40 && !document.getElementById('stop').hidden`)
	x.click("#stop")
	<-gone
	x.answered()
	x.holds(`document.querySelector('.answer.last .note').innerText === 'Stopped.'`)
	x.stored()
	x.run(chromedp.Reload())
	x.wait(`document.querySelectorAll('#chat-list .open').length === 2`)
	x.do(`[...document.querySelectorAll('#chat-list .open')].find((b) => b.innerText === 'First').click()`)
	x.wait(`document.querySelector('.answer .prose')?.innerText.length > 40`)

	// Deleted in another tab, and all at once.
	x.do(`(() => { const q = indexedDB.open('etc', 1); q.onsuccess = () => {
		const chats = q.result.transaction('chats', 'readwrite').objectStore('chats');
		const id = [...document.querySelectorAll('#chat-list .open')].find((b) => b.innerText === 'Second').dataset.chat;
		chats.delete(id).onsuccess = () => { q.result.close(); window.deleted = true } } })()`)
	x.wait(`window.deleted`)
	x.do(`[...document.querySelectorAll('#chat-list .open')].find((b) => b.innerText === 'Second').click()`)
	x.wait(`document.querySelectorAll('#chat-list .open').length === 1`)
	x.click("#open-settings")
	x.click("#delete-chats")
	x.click("#keep")
	x.holds(`document.querySelectorAll('#chat-list .open').length === 1`)
	// Asked again before the browser has told that the first dialog was closed.
	x.do(`for (const id of ['delete-chats', 'keep', 'delete-chats']) document.getElementById(id).click()`)
	x.click("#confirm [value=yes]")
	x.wait(`!document.querySelector('#chat-list .open') && !document.querySelector('.message')`)
}

// A tab that is closed in the middle of an answer leaves what it had, and the chat goes on in the next one.
func TestClosed(t *testing.T) {
	s := newSite(t, served)
	gone := make(chan struct{}, 1)
	s.answer(endless(gone))
	x := open(t, s.URL)
	x.ask("First")
	x.wait(`document.querySelector('.answer .prose').innerText.length > 20`)
	x.run(chromedp.Reload())
	<-gone
	x.wait(`document.querySelector('#chat-list .open') && model.value`)
	x.click("#chat-list .open")
	x.wait(`document.querySelector('.answer.last')`)
	x.holds(`document.querySelector('.answer.last').getAttribute('aria-busy') === 'false'`)
	x.holds(`document.querySelector('.answer.last .note').innerText === 'Stopped.'`)
	s.answer(says("Yes."))
	x.click(".answer.last .regenerate")
	x.wait(`document.querySelector('.answer.last .prose')?.innerText.trim() === 'Yes.'`)
	equal(t, messages(s.body()), []string{"user: First"})
}

// Regenerate asks again without the old answer; an edited message replaces what follows it.
func TestRegenerate(t *testing.T) {
	s := newSite(t, served)
	s.answer(says("One."))
	s.answer(says("Two."))
	s.answer(says("Three."))
	s.answer(says("Four."))
	x := open(t, s.URL)
	x.ask("Hi")
	equal(t, x.answered(), "One.")
	x.click(".answer.last .regenerate")
	x.wait(`document.querySelector('.answer.last .prose')?.innerText.trim() === 'Two.'`)
	equal(t, messages(s.body()), []string{"user: Hi"})
	equal(t, value[int](x, `document.querySelectorAll('.message').length`), 2)
	x.answered()
	x.ask("More")
	x.wait(`document.querySelector('.answer.last .prose')?.innerText.trim() === 'Three.'`)
	x.answered()
	equal(t, value[int](x, `document.querySelectorAll('.regenerate').length - [...document.querySelectorAll('.regenerate')]`+
		`.filter((b) => b.checkVisibility()).length`), 1)
	x.do(`document.querySelector('.user footer button').click()`)
	x.holds(`message.value === 'Hi' && !notice.hidden`)
	x.press("\x1b")
	x.holds(`message.value === '' && document.querySelectorAll('.message').length === 4`)
	x.do(`document.querySelector('.user footer button').click()`)
	x.ask(" there")
	x.wait(`document.querySelector('.answer.last .prose')?.innerText.trim() === 'Four.'`)
	equal(t, messages(s.body()), []string{"user: Hi there"})
	equal(t, value[int](x, `document.querySelectorAll('.message').length`), 2)
}

// Thoughts and calls are apart from the text; what a call gives is typed, and goes back to the model.
func TestThinkAndCall(t *testing.T) {
	s := newSite(t, served)
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		out := newStream(w)
		out.delta(map[string]any{"reasoning_content": "<b>Is</b> it "})
		out.delta(map[string]any{"reasoning_content": "warm?"})
		out.text("I look.")
		call := func(index int, id, name, arguments string) {
			out.delta(map[string]any{"tool_calls": []any{map[string]any{"index": index, "id": id, "type": "function",
				"function": map[string]any{"name": name, "arguments": arguments}}}})
		}
		call(0, "call_1", "weather", "")
		call(0, "", "", `{"city":`)
		call(0, "", "", `"Berlin"}`)
		call(1, "call_2", "time", `{}`)
		out.end("tool_calls", 30)
	})
	s.answer(says("It is warm."))
	x := open(t, s.URL)
	x.click("#open-settings")
	x.set("tools", `[{"name": "weather"}, {"type": "function", "function": {"name": "time"}}]`)
	x.set("think", "on")
	x.click("#close-settings")
	x.ask("Weather?")
	equal(t, x.answered(), "I look.")
	body := s.body()
	tools, _ := json.Marshal(body["tools"])
	equal(t, string(tools), `[{"function":{"name":"weather"},"type":"function"},{"function":{"name":"time"},"type":"function"}]`)
	equal(t, body["reasoning_effort"], any("medium"))
	x.holds(`document.querySelector('.thoughts summary').innerText.startsWith('Thought')`)
	equal(t, value[string](x, `document.querySelector('.thought-text').textContent`), "<b>Is</b> it warm?")
	equal(t, value[string](x, `[...document.querySelectorAll('.call h3')].map((e) => e.innerText).join()`),
		"Calls weather,Calls time")
	equal(t, value[string](x, `document.querySelector('.call pre').innerText`), "{\n  \"city\": \"Berlin\"\n}")
	for i, text := range []string{"20 °C", "noon"} {
		x.do(fmt.Sprintf(`document.querySelectorAll('.result-form textarea')[%d].value = %q;
			document.querySelectorAll('.result-form')[%d].requestSubmit()`, i, text, i))
	}
	x.wait(`document.querySelectorAll('.answer').length === 2`)
	equal(t, x.answered(), "It is warm.")
	equal(t, messages(s.body()), []string{"user: Weather?", "assistant: I look.", "tool: 20 °C", "tool: noon"})
	said := s.body()["messages"].([]any)[1].(map[string]any)
	equal(t, said["reasoning_content"], any("<b>Is</b> it warm?"))
	equal(t, len(said["tool_calls"].([]any)), 2)
	equal(t, s.body()["messages"].([]any)[3].(map[string]any)["tool_call_id"], any("call_2"))
}

// Settings become parameters, hold for new chats, and wrong ones are shown and not sent.
func TestSettings(t *testing.T) {
	s := newSite(t, served)
	s.answer(says("Yes."))
	s.answer(says("Yes."))
	x := open(t, s.URL)
	x.click("#open-settings")
	for id, v := range map[string]string{"system": "Be short.", "set-temperature": "0.5",
		"set-top_p": "0.9", "set-top_k": "20",
		"set-min_p": "0.05", "set-repeat_penalty": "1.1", "set-presence_penalty": "0.1",
		"set-frequency_penalty": "-0.2",
		"set-max_tokens":        "99", "set-seed": "-5", "stops": "END\nSTOP", "think": "off"} {
		x.set(id, v)
	}
	x.set("set-top_p", "3")
	x.holds(`document.getElementById('set-top_p').getAttribute('aria-invalid') === 'true'`)
	x.click("#close-settings")
	x.holds(`settings.open && document.activeElement.id === 'set-top_p'`)
	x.set("set-top_p", "0.8")
	x.set("tools", `[{"nome": 1}]`)
	x.holds(`document.getElementById('tools-hint').innerText.includes('has no name')`)
	x.set("tools", "")
	x.click("#close-settings")
	x.holds(`!settings.open`)
	for range 2 {
		x.ask("Hi")
		equal(t, x.answered(), "Yes.")
		b, _ := json.Marshal(s.body())
		equal(t, string(b), `{"frequency_penalty":-0.2,"max_tokens":99,"messages":[{"content":"Be short.","role":"system"},`+
			`{"content":"Hi","role":"user"}],"min_p":0.05,"model":"qwen","presence_penalty":0.1,"reasoning_effort":"none",`+
			`"repeat_penalty":1.1,"seed":-5,"stop":["END","STOP"],"stream":true,"stream_options":{"include_usage":true},`+
			`"temperature":0.5,"top_k":20,"top_p":0.8}`)
		x.click("#new-chat")
		x.wait(`!document.querySelector('.message')`)
	}
}

// The server takes every parameter that the page sends.
func TestParameters(t *testing.T) {
	s := newSite(t, served)
	x := open(t, s.URL)
	x.click("#open-settings")
	for id, v := range map[string]string{"system": "Be short.", "set-temperature": "0.5",
		"set-top_p": "0.9", "set-top_k": "20",
		"set-min_p": "0.05", "set-repeat_penalty": "1.1", "set-presence_penalty": "0.1",
		"set-frequency_penalty": "-0.2",
		"set-max_tokens":        "9", "set-seed": "-5", "stops": "END\nSTOP", "think": "off"} {
		x.set(id, v)
	}
	x.click("#close-settings")
	x.ask("Hi")
	x.answered()
	x.holds(`!document.querySelector('.error:not([hidden])')`)
	x.holds(`document.querySelector('.answer .stats').innerText.endsWith('seed -5')`)
}

// Models are chosen by name.
func TestModels(t *testing.T) {
	s := newSite(t, served)
	x := open(t, s.URL)
	equal(t, value[string](x, `[...model.options].map((o) => o.value).join()`), "qwen,gemma")
	x.set("model", "gemma")
	x.ask("What is the capital of France?")
	if got := x.answered(); !strings.Contains(got, "Paris") {
		t.Errorf("the answer is %q", got)
	}
	equal(t, s.body()["model"], any("gemma"))
	x.run(chromedp.Reload())
	x.wait(`model.value === 'gemma'`)
}

// Text files are part of the message, in a fence that nothing in them closes; others are refused.
func TestFiles(t *testing.T) {
	s := newSite(t, served)
	s.answer(says("I see."))
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, b, 0o644))
		return path
	}
	x := open(t, s.URL)
	upload := func(paths ...string) { x.run(chromedp.SetUploadFiles(chromedp.CSS("#file"), paths)) }
	upload(write("notes.md", []byte("a\n```\nb\n```")), write("picture.png", []byte{0x89, 'P', 'N', 'G', 0xff}))
	x.wait(`notice.innerText.includes('picture.png is not text') && files.innerText.includes('notes.md')`)
	upload(write("extra.txt", []byte("c")))
	x.wait(`files.children.length === 2`)
	x.do(`files.querySelectorAll('button')[1].click()`)
	x.wait(`files.children.length === 1`)
	x.ask("What is it?")
	equal(t, x.answered(), "I see.")
	equal(t, messages(s.body()), []string{"user: notes.md:\n````\na\n```\nb\n```\n````\n\nWhat is it?"})
	x.holds(`files.hidden && document.querySelector('.user .file summary').innerText === 'notes.md'`)
}
