// Package ucd is the Unicode data that the Hugging Face tokenizers library (0.23.2) has built in.
//
// The library takes its facts from several editions of Unicode at once: its regular expressions (Oniguruma) know
// Unicode 16, its lower-casing and is_numeric (the Rust standard library) something newer, its normalization forms
// about Unicode 10 and its punctuation something older still. Go's own tables (package unicode and x/text) are of yet
// other editions, which change with the Go release, and x/text's forms put a U+034F into runs of more than 30 marks.
// A tokenizer that gives the library's ids for every text must have the library's tables, so they are recorded from
// the library itself: ucd.txt is written by record.mjs.
//
// Invariants: the answers depend on ucd.txt only, not on the Go release. All functions may be called concurrently.
// The package imports nothing of ours.
package ucd
