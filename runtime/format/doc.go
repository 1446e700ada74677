// Package format tells apart what a model's answer is made of: text, thoughts, and calls of tools. What marks them are
// tokens of the vocabulary, by id; text that only looks like a marker is text. The table of a family (tables.go) names
// its markers and how it writes the body of a call.
//
// # Invariants
//
//   - A Parser gives every token of an answer to one event or to none (markers), in order, and never waits for more
//     than it must: for the rest of a character, of a name, or of a value whose type is not known before its end.
//   - The arguments that a Parser gives are the beginning of a JSON object, and the whole of one at the end of a call
//     that is well-formed. Bodies that are not are given as text.
//
// The package imports runtime/tokenizer and must never import a server, an engine or the command line.
package format
