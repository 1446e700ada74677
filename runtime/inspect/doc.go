// Package inspect gathers the facts of a .pte file for people and scripts: what lies where, which methods
// it has, what its graph is made of, how its weights are stored.
//
// # Invariants
//
//   - A [Report] says what the file says. Where a method cannot be lifted, the facts of the wire remain and
//     the error is one of the facts.
//   - Its order and its JSON keys are stable: the same file gives the same text.
//
// Package inspect imports ir and the reading half of the runtime; it must never import an engine, codegen
// or the command line.
package inspect
