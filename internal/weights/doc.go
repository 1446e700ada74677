// Package weights turns what somebody asks for of the weights of a program (forms, groups, a method, a recipe by name,
// bits on average) into the recipe that the passes follow, and into what the build record says of it.
//
// # Invariants
//
//   - The library and the command line ask by the same words, and get the same recipe and the same record.
//   - Errors have the kinds of internal/kind, and name options by [Names].
//
// Package weights must never import a runtime or the command line.
package weights
