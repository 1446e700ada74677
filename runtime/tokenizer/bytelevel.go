package tokenizer

import "unicode/utf8"

// The byte-level alphabet of GPT-2 (openai/gpt-2, encoder.py, bytes_to_unicode) writes each byte as a character that
// is visible: bytes that are printable in Latin-1 stand for themselves, the others are U+0100, U+0101, ... in order.

// byteRune is the character of each byte, byteString the same as a string.
var byteRune, byteString = func() (runes [256]rune, strings [256]string) {
	next := rune(256)
	for b := range runes {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			runes[b] = rune(b)
		default:
			runes[b] = next
			next++
		}
		strings[b] = string(runes[b])
	}
	return runes, strings
}()

// runeByte is the byte of each character below len(runeByte), or -1.
var runeByte = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRune {
		bytes[r] = int16(b)
	}
	return bytes
}()

// toByteLevel writes every byte of s in the byte-level alphabet.
func toByteLevel(s string) string {
	out := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		out = utf8.AppendRune(out, byteRune[s[i]])
	}
	return string(out)
}

// appendFromByteLevel appends the bytes that s stands for. It says false, and appends nothing, if a character of s is
// none of the alphabet.
func appendFromByteLevel(dst []byte, s string) ([]byte, bool) {
	n := len(dst)
	for _, r := range s {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return dst[:n], false
		}
		dst = append(dst, byte(runeByte[r]))
	}
	return dst, true
}
