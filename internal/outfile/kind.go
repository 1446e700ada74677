package outfile

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Kind is a kind of file, told by how the file begins. A file is never replaced by one of another kind.
type Kind string

// The kinds of files that etc writes, or that stand where it is told to write.
const (
	Program Kind = "an ExecuTorch program"
	Part    Kind = "a part of a program"
	Tensors Kind = "a safetensors file"
	Session Kind = "a session of etc run"
	JSON    Kind = "a JSON text"
	Page    Kind = "an HTML page"
	Text    Kind = "a text"
	GGUF    Kind = "a GGUF file"
	Other   Kind = "of a form that etc does not know"
)

// headBytes is the number of bytes that [KindOf] needs.
const headBytes = 4 << 10

// SessionKey begins the names of a session's metadata in the header of a safetensors file.
const SessionKey = "etc."

// KindOf returns the kind of a file from its first bytes; 4 KiB of them suffice.
func KindOf(head []byte) Kind {
	head = head[:min(len(head), headBytes)]
	text := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n"))
	switch {
	case len(head) >= 8 && string(head[4:8]) == "ET12":
		return Program
	case bytes.HasPrefix(head, []byte("etcpart1")):
		return Part
	case bytes.HasPrefix(head, []byte("GGUF")):
		return GGUF
	case isTensors(head):
		if bytes.HasPrefix(head[8:], []byte(`{"__metadata__":{"`+SessionKey)) {
			return Session
		}
		return Tensors
	case bytes.HasPrefix(text, []byte("<!doctype html")) || bytes.HasPrefix(text, []byte("<html")):
		return Page
	case !isText(head):
		return Other
	case len(text) > 0 && (text[0] == '{' || text[0] == '['):
		return JSON
	}
	return Text
}

// isTensors reports whether a file begins as safetensors files do: the length of a header, then JSON.
func isTensors(head []byte) bool {
	const maxHeader = 100 << 20
	if len(head) < 10 || head[8] != '{' {
		return false
	}
	n := binary.LittleEndian.Uint64(head)
	return n >= 2 && n <= maxHeader
}

// isText reports whether bytes are the beginning of a text in UTF-8, which has no NUL. Its last character may be
// cut off.
func isText(head []byte) bool {
	for range utf8.UTFMax {
		if utf8.Valid(head) {
			break
		}
		head = head[:max(len(head)-1, 0)]
	}
	return utf8.Valid(head) && bytes.IndexByte(head, 0) < 0
}
