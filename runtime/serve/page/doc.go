// Package page is the page for people that etc serve has at its root: a chat with the models of the server. It is plain
// HTML, CSS and JavaScript modules, embedded in the program. Nothing has to be built, and the page asks nothing of any
// other place.
//
// # Invariants
//
//   - Content-Security-Policy allows scripts, styles and requests of the server itself only, none of them inline.
//     Trusted types leave DOMPurify as the one way from a text to HTML.
//   - What a model wrote becomes HTML in static/markdown.js only: HTML in it is shown as text, and what Markdown made
//     of it goes through DOMPurify with a list of what is allowed.
//   - What people write stays in their browser: chats in IndexedDB, settings in localStorage, the API key in
//     sessionStorage.
//
// static/vendor holds libraries from npm, as they were published, with their licences; vendor.sh fetches and checks
// them. The page is tested in Chromium by tools/page, a module of its own (make test-page).
//
// The package imports nothing of ours.
package page
