// Package tensorfile writes values of programs to safetensors files and reads them back.
//
// # Invariants
//
//   - Every dtype of a program has one dtype of the file, and no bit of an element changes on the way.
//
// Package tensorfile must never import an engine or the command line.
package tensorfile
