package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

const escape = "\x1b"

// wide is an answer that is wider than any telephone.
var wide = "A " + strings.Repeat("long", 60) + " word.\n\n```\n" + strings.Repeat("x = y; ", 60) + "\n```\n\n| " +
	strings.Repeat("column | ", 12) + "\n|" + strings.Repeat(" --- |", 12) + "\n| " + strings.Repeat("some value | ",
	12) +
	"\n\n`" + strings.Repeat("code", 60) + "` https://example.org/" + strings.Repeat("path", 60) + "\n"

// No width from 320 pixels up has anything to scroll sideways, and everything is there.
func TestWidths(t *testing.T) {
	for _, width := range []int64{320, 400, 768, 1280, 2200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			s := newSite(t, served)
			s.answer(says(wide))
			x := open(t, s.URL, size(width, 800))
			x.ask(strings.Repeat("word", 40))
			x.answered()
			fits := fmt.Sprintf(`document.documentElement.scrollWidth <= %[1]d && document.body.scrollWidth <= %[1]d &&
				log.scrollWidth <= log.clientWidth`, width)
			x.holds(fits)
			for _, id := range []string{"message", "send", "model", "open-settings", "attach"} {
				x.holds(fmt.Sprintf(`(() => { const r = document.getElementById(%q).getBoundingClientRect();
					return r.width > 0 && r.left >= 0 && r.right <= %d && r.bottom <= 800 })()`, id, width))
			}
			x.click("#open-settings")
			x.holds(`settings.scrollWidth <= settings.clientWidth`)
			x.press(escape)
			if narrow := width < 768; narrow {
				x.holds(`getComputedStyle(chats).visibility === 'hidden'`)
				x.click("#open-chats")
				x.holds(`getComputedStyle(chats).visibility === 'visible' && main.inert &&
					document.activeElement.id === 'new-chat'`)
				x.holds(fits)
				x.press(escape)
				x.holds(`getComputedStyle(chats).visibility === 'hidden' && !main.inert &&
					document.activeElement.id === 'open-chats'`)
			} else {
				x.holds(`chats.getBoundingClientRect().width > 200`)
			}
		})
	}
}

// contrasts gives, for each text of the page, its contrast with what is behind it (WCAG 2).
const contrasts = `(() => {
	const rgb = (c) => { const n = c.match(/[\d.]+/g).map(Number); return c.startsWith('color(') ? n.map((v, i) => i < 3 ? v * 255 : v) : n };
	const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c } };
	const out = [];
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility({ visibilityProperty: true })) continue;
		const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) out.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2) + ' ' + e.textContent.slice(0, 30));
	}
	return out.join('\n');
})()`

// The colours are the system's, or those that were chosen, and every text can be read.
func TestColours(t *testing.T) {
	back := func(x *tab) string { return value[string](x, `getComputedStyle(document.body).backgroundColor`) }
	seen := map[string]string{}
	for _, name := range []string{"light", "dark"} {
		s := newSite(t, served)
		s.answer(says(sample))
		s.answer(fails(500, "api_error", "", "", "the device failed"))
		x := open(t, s.URL, scheme(name))
		seen[name] = back(x)
		x.ask("Hi")
		x.answered()
		x.wait(`document.querySelector('.hljs-keyword')`)
		x.ask("Hi")
		x.wait(`document.querySelector('.error button')`)
		equal(t, value[string](x, contrasts), "")
		x.click("#open-settings")
		equal(t, value[string](x, contrasts), "")
	}
	if seen["light"] == seen["dark"] {
		t.Errorf("light and dark have the same background %s", seen["light"])
	}
	x := open(t, newSite(t, served).URL, scheme("light"))
	x.click("#open-settings")
	x.set("theme", "dark")
	equal(t, back(x), seen["dark"])
	x.run(chromedp.Reload())
	x.wait(`document.querySelector('#model option')`)
	equal(t, back(x), seen["dark"])
	x.click("#open-settings")
	x.set("theme", "")
	equal(t, back(x), seen["light"])
}

// Everything can be done with the keyboard, and what has the focus is seen.
func TestKeyboard(t *testing.T) {
	s := newSite(t, served)
	x := open(t, s.URL)
	active := func() string {
		return value[string](x, `document.activeElement.id || document.activeElement.className`)
	}
	equal(t, active(), "message")
	x.press("One")
	x.run(chromedp.KeyEvent("\r", chromedp.KeyModifiers(chromedp.ModifierShift)))
	x.press("two")
	equal(t, value[string](x, `message.value`), "One\ntwo")
	s.answer(says("An answer with `code`.\n\n```go\nvar x int\n```"))
	x.enter()
	x.answered()
	equal(t, active(), "message")
	equal(t, messages(s.body()), []string{"user: One\ntwo"})

	order := x.around()
	for _, want := range []string{"new-chat", "model", "open-settings", "log", "Edit", "Copy go",
		"go", "Copy", "Regenerate",
		"message", "attach", "send"} {
		if !slices.Contains(order, want) {
			t.Errorf("Tab does not come to %s: %v", want, order)
		}
	}

	// Settings, by keys only; Escape gives the focus back.
	x.do(`document.getElementById('model').focus()`)
	x.press("\t")
	equal(t, active(), "open-settings")
	x.enter()
	x.wait(`settings.open && settings.contains(document.activeElement)`)
	for i := 0; active() != "set-temperature"; i++ {
		if x.press("\t"); i > 10 {
			t.Fatal("Tab does not come to the temperature")
		}
	}
	x.press("0.25", escape)
	x.wait(`!settings.open`)
	equal(t, active(), "open-settings")

	// Regenerate, then stop.
	x.do(`document.querySelector('.regenerate').focus()`)
	gone := make(chan struct{}, 1)
	s.answer(endless(gone))
	x.enter()
	x.wait(`document.querySelector('.answer .prose').innerText.length > 10`)
	equal(t, s.body()["temperature"], any(0.25))
	x.press(escape)
	<-gone
	x.answered()
	equal(t, active(), "message")

	// The first stop of Tab leads to the message.
	x.run(chromedp.Reload())
	x.wait(`document.querySelector('#model option') && document.activeElement === message`)
	x.do(`document.querySelector('.skip').focus()`)
	x.holds(`document.querySelector('.skip').getBoundingClientRect().left >= 0`)
	x.enter()
	x.wait(`document.activeElement === message`)
}

// around presses Tab until it has been everywhere, and gives the names of where it was. What has the focus must be
// seen.
func (x *tab) around() []string {
	x.t.Helper()
	var order []string
	for range 40 {
		x.press("\t")
		name := value[string](x, `(() => { const e = document.activeElement;
			return e === document.body ? '' : e.id || e.getAttribute('aria-label') || e.innerText })()`)
		if name == "" {
			continue
		}
		if slices.Contains(order, name) {
			break
		}
		order = append(order, name)
		x.holds(`(() => { const e = document.activeElement;
			return getComputedStyle(e).outlineStyle !== 'none' || e.id === 'message' })()`) // its frame has a colour
	}
	return order
}

// What a screen reader is told: everything that can be used has a role and a name, the log and the status are live.
func TestRoles(t *testing.T) {
	s := newSite(t, served)
	s.answer(says(sample))
	x := open(t, s.URL)
	x.ask("Hi")
	x.answered()
	look := func() map[string][]string {
		tree, err := chromedp.Call(x.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		check(t, err)
		out := map[string][]string{}
		for _, n := range tree.Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role, name := text(n.Role), text(n.Name)
			out[role] = append(out[role], name)
			used := []string{"button", "textbox", "combobox", "spinbutton", "link", "dialog",
				"log", "region", "article",
				"navigation"}
			if slices.Contains(used, role) && name == "" {
				t.Errorf("something of role %s has no name", role)
			}
		}
		return out
	}
	seen := look()
	for role, name := range map[string]string{"log": "Conversation", "navigation": "Chats",
		"combobox": "Model", "textbox": "Message",
		"article": "Answer of qwen", "region": "Table", "form": "Message"} {
		if !slices.Contains(seen[role], name) {
			t.Errorf("there is no %s %q: %v", role, name, seen[role])
		}
	}
	equal(t, len(seen["heading"]), 1)
	x.holds(`document.getElementById('status').getAttribute('role') === 'status' && notice.getAttribute('role') === 'alert'`)
	x.holds(`document.documentElement.lang === 'en' && document.title.startsWith('Hi')`)
	x.click("#open-settings")
	if seen := look(); !slices.Contains(seen["dialog"], "Settings") ||
		!slices.Contains(seen["spinbutton"], "Temperature") {
		t.Errorf("Settings: %v", seen)
	}
}

// text is the text of a value of the tree.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	json.Unmarshal(v.Value, &s) //nolint:errcheck // then it is no text
	return s
}
