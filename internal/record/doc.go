// Package record has the build record of a file: which version made it, from which checkpoint, with which options. It
// lies in the file's named data under [Key], as JSON, with the hash of every source tensor and of everything that the
// file stores.
//
// # Invariants
//
//   - The same export gives the same record, to the byte. Hashes have a fixed size, so the record's size is known
//     before a weight is read. They are computed while the file is written.
//
// Package record imports loaders, passes and codegen; it must never import an engine or the command line.
package record
