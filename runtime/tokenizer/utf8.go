package tokenizer

import "unicode/utf8"

// appendLossy appends b to dst as valid UTF-8. As in Rust's from_utf8_lossy (and Unicode's recommended practice), one
// U+FFFD replaces each longest incomplete character, and each other invalid byte. Unless final is set, an incomplete
// character at the end is not used but returned as rest.
func appendLossy(dst, b []byte, final bool) (out, rest []byte) {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = broken(b)
			if n == len(b) && !final && !utf8.FullRune(b) {
				return dst, b
			}
		}
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst, nil
}

// broken returns how many bytes of b, which begins with no valid character, are the beginning of one; at least 1.
func broken(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	if n > 1 && utf8.FullRune(b[:n]) {
		n-- // the last byte is what made it hopeless
	}
	return n
}

// validText returns s with what is not UTF-8 in it replaced by U+FFFD.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out, _ := appendLossy(nil, []byte(s), true)
	return string(out)
}
