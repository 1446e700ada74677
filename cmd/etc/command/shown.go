package command

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// steers reports whether a terminal obeys a character in place of showing it: control characters other than line ends
// and tabs, those that change the direction of text, and bytes that are not UTF-8.
func steers(r rune, size int) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == utf8.RuneError && size == 1:
		return true
	case r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u200e', r == '\u200f',
		r == '\u2028', r == '\u2029':
		return true
	}
	return unicode.IsControl(r)
}

// shown writes what a terminal would obey as an escape of JSON and of Go, \u001b, so that text of a file is seen as it
// is.
func shown(text string) string {
	clean := true
	for i, r := range text {
		if r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f) {
			_, size := utf8.DecodeRuneInString(text[i:])
			if steers(r, size) {
				clean = false
				break
			}
		}
	}
	if clean {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case !steers(r, size):
			b.WriteString(text[:size])
		case size == 1 && r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// shownWriter passes text on as [shown] writes it. In JSON the result is the same value.
type shownWriter struct {
	w    io.Writer
	rest string // the beginning of a character whose end has not come yet
}

func (s *shownWriter) Write(p []byte) (int, error) {
	text := s.rest + string(p)
	s.rest = ""
	for cut := 1; cut < utf8.UTFMax && cut <= len(text); cut++ {
		if at := len(text) - cut; utf8.RuneStart(text[at]) {
			if !utf8.FullRuneInString(text[at:]) {
				text, s.rest = text[:at], text[at:]
			}
			break
		}
	}
	if _, err := io.WriteString(s.w, shown(text)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// shownOut is standard output for what is made of texts of files.
func shownOut(cmd *cobra.Command) io.Writer { return &shownWriter{w: cmd.OutOrStdout()} }
