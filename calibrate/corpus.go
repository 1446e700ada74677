package calibrate

import (
	_ "embed"
	"slices"
)

//go:embed corpus/default.jsonl
var corpus []byte

// Corpus is the text of this program to calibrate with, a line of JSON for each document: {"text": ...}, or
// {"messages": [...]} for a conversation. corpus/README.md tells where it is from.
func Corpus() []byte { return slices.Clone(corpus) }
