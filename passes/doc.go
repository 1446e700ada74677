// Package passes turns the module that a loader builds, a model as its authors wrote it, into one that
// the delegate can hold and that is cheap to run. A pass is a row of a table ([Table]): name, function,
// when it applies, what must have run before it and why. [Run] runs the rows in order and the verifier
// between them.
//
// # Invariants
//
//   - A pass leaves a module that verifies.
//   - No pass moves an access of a buffer past a conflicting one, and none merges two.
//   - No pass names a model; what differs between models is in the module (operations, attributes) or in
//     the options.
//   - Weights stay lazy: a pass composes [ir.Data], it reads only small constants.
//
// Package passes imports ir (and its subpackages) and nothing else of etc.
package passes
