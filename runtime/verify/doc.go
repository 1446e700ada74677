// Package verify checks a .pte file without running it: what the container, the graph and the constant
// methods promise must fit together, and must suit the runtimes that will read the file.
//
// # Invariants
//
//   - Whatever the bytes, the answer is a list of findings; only the system's own errors are errors.
//   - A file with a finding of severity Error is one that some method of it cannot be run, or gives other
//     answers than it promises. A Warning is a trap in a file that runs here; a Note is a fact to know.
//   - Findings come in the order of the checks, which depends on the file alone.
//
// Package verify imports ir and the reading half of the runtime; it must never import an engine, codegen
// or the command line.
package verify
