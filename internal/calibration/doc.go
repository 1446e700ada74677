// Package calibration quantizes a checkpoint by a text, as etc export --calibrate and the library do: it reads the
// text, makes windows of tokens of it, and runs package calibrate.
//
// # Invariants
//
//   - The same text, checkpoint and options give the same weights. How the text is cut is a part of the result.
//
// Package calibration imports calibrate, loaders and passes; it must never import an engine or the command line.
package calibration
