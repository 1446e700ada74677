package calibrate

import (
	_ "embed"
	"slices"
)

//go:embed corpus/default.jsonl
var corpus []byte

// Corpus returns the built-in calibration text. Each line is a JSON object for one document: {"text": ...}, or
// {"messages": [...]} for a conversation. corpus/README.md says where it comes from.
func Corpus() []byte { return slices.Clone(corpus) }
