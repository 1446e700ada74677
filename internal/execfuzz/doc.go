// Package execfuzz executes mutants of programs: it takes files apart, changes their graphs field by field (slots,
// registers, dims, dtypes, kinds of nodes, arms of Ifs), puts them together again, and runs what container, lifting and
// verifier accept on two engines, of which one is the reference engine. Nothing may panic, both must refuse or neither,
// and answers and state must be equal: integers exactly, floats up to a tolerance.
//
// # Invariants
//
//   - A mutant and its inputs are functions of the seed file and of two numbers, so that a finding is repeated by them.
//   - A difference counts unless the reference engine's own answer changes as much when floats of the inputs and
//     constants change in the seventh digit.
//
// Package execfuzz imports the reading half of the runtime and engines; only tests may import it.
package execfuzz
