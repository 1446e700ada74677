// Package record has the build record, which says how a file was made: by what, of what, by which rules. It is in the
// file's named data under [Key], as JSON, with the hash of every source tensor and of everything that the file stores.
//
// # Invariants
//
//   - The same export gives the same record, to the byte. Hashes have a fixed size, so that the record's is known
//     before a weight is read; they are computed while the file is written.
//
// Package record imports loaders, passes and codegen; it must never import an engine or the command line.
package record
